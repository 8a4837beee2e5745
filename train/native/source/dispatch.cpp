#include <cstring>

#include "primitives.h"

namespace native {

namespace {

const Primitives *chosen = nullptr;

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_avx512() { return has_avx2() && __builtin_cpu_supports("avx512f"); }

}  // namespace

const Primitives &primitives() { return *(chosen != nullptr ? chosen : has_avx512() ? &AVX512 : &AVX2); }

bool choose(const char *name) {
  const Primitives *table = nullptr;
  if (has_avx2() && std::strcmp(name, AVX2.name) == 0) table = &AVX2;
  if (has_avx512() && std::strcmp(name, AVX512.name) == 0) table = &AVX512;
  if (table != nullptr) chosen = table;
  return table != nullptr;
}

void pack_weights(const float *weights, int64_t rows, int64_t inputs, int64_t taps, int64_t row_step, int64_t input_step,
                  int64_t tap_step, float *packed) {
  for (int64_t start = 0; start < rows; start += ROWS)
    for (int64_t input = 0; input < inputs; input++)
      for (int64_t tap = 0; tap < taps; tap++)
        for (int64_t row = start; row < start + ROWS; row++)
          *packed++ = row < rows ? weights[row * row_step + input * input_step + tap * tap_step] : 0.0F;
}

}  // namespace native
