#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "primitives.h"

namespace native {

namespace {

const Instructions *chosen = nullptr;

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_avx512() { return has_avx2() && __builtin_cpu_supports("avx512f"); }

// Asks the kernel for the memory of AMX's registers, of all threads of this process.
bool has_amx() {
  static const bool granted = [] {
    constexpr unsigned AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AVX512_BF16 = 1 << 5;
    constexpr long REQUEST = 0x1023, TILE_DATA = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    unsigned a = 0, b = 0, c = 0, d = 0, more = 0;
    if (!has_avx512() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !__get_cpuid_count(7, 1, &more, &b, &c, &a))
      return false;
    const bool found = (d & AMX_BF16) && (d & AMX_TILE) && (more & AVX512_BF16);
    return found && syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
  }();
  return granted;
}

}  // namespace

const Instructions &instructions() {
  if (chosen == nullptr) chosen = has_amx() ? &AMX : has_avx512() ? &AVX512 : &AVX2;
  return *chosen;
}

bool choose(const char *name) {
  const Instructions *set = nullptr;
  if (has_avx2() && std::strcmp(name, AVX2.name) == 0) set = &AVX2;
  if (has_avx512() && std::strcmp(name, AVX512.name) == 0) set = &AVX512;
  if (has_amx() && std::strcmp(name, AMX.name) == 0) set = &AMX;
  if (set != nullptr) chosen = set;
  return set != nullptr;
}

template <>
void pack_weights(const float *weights, int64_t rows, int64_t inputs, int64_t taps, int64_t row_step, int64_t input_step,
                  int64_t tap_step, float *packed) {
  for (int64_t start = 0; start < rows; start += ROWS)
    for (int64_t input = 0; input < inputs; input++)
      for (int64_t tap = 0; tap < taps; tap++)
        for (int64_t row = start; row < start + ROWS; row++)
          *packed++ = row < rows ? weights[row * row_step + input * input_step + tap * tap_step] : 0.0F;
}

template <>
void pack_weights(const float *weights, int64_t rows, int64_t inputs, int64_t taps, int64_t row_step, int64_t input_step,
                  int64_t tap_step, Bfloat *packed) {
  for (int64_t start = 0; start < rows; start += LANES)
    for (int64_t tap = 0; tap < taps; tap++)
      for (int64_t first = 0; first < inputs; first += DEPTH)
        for (int64_t row = start; row < start + LANES; row++)
          for (int64_t input = first; input < first + DEPTH; input++)
            narrow(row < rows && input < inputs ? weights[row * row_step + input * input_step + tap * tap_step] : 0.0F,
                   *packed++);
}

}  // namespace native
