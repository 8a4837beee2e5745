#include "primitives.h"

#include <cstring>
#include <iterator>

#if !defined(__aarch64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "threads.h"

namespace native {

namespace {

const Instructions *chosen = nullptr;

#if defined(__aarch64__)

const Instructions *const ALL[] = {&NEON};

bool has(const Instructions &) { return true; }

#else

const Instructions *const ALL[] = {&AMX, &AVX512, &AVX2};  // the best one first

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

bool has(const Instructions &set) { return &set == &AMX ? has_amx() : &set == &AVX512 ? has_avx512() : has_avx2(); }

#endif

}  // namespace

const Instructions &instructions() {
  for (const Instructions *set : ALL)
    if (chosen == nullptr && has(*set)) chosen = set;
  return chosen == nullptr ? **(std::end(ALL) - 1) : *chosen;
}

bool choose(const char *name) {
  for (const Instructions *set : ALL)
    if (std::strcmp(name, set->name) == 0 && has(*set)) {
      chosen = set;
      return true;
    }
  return false;
}

// By parts of the inputs, so that the weights of a part, which may lie far apart, stay in the cache from row to row. There
// the processor does not look ahead, so weights of later rows are fetched in time.
template <>
void pack_weights(const float *weights, int64_t rows, int64_t inputs, int64_t taps, int64_t row_step, int64_t input_step,
                  const int64_t *tap_places, float *packed) {
  constexpr int64_t PART = 64, LINE = 16;  // values that come from memory together
  run_parts(inputs, PART, [&](int64_t first, int64_t number) {
    for (int64_t start = 0; start < rows; start += ROWS) {
      const int64_t count = rows - start < ROWS ? rows - start : ROWS;
      const float *begin = weights + start * row_step + first * input_step;
      const auto pack = [&](const auto &copy) {
        float *to = packed + (start * inputs + first * ROWS) * taps;
        for (int64_t input = 0; input < number; input++)
          for (int64_t tap = 0; tap < taps; tap++, to += ROWS) copy(begin + input * input_step + tap_places[tap], to);
      };
      if (count < ROWS) {
        pack([=](const float *from, float *to) {
          for (int64_t row = 0; row < ROWS; row++) to[row] = row < count ? from[row * row_step] : 0.0F;
        });
      } else if (row_step == 1) {
        pack([](const float *from, float *to) {
          __builtin_prefetch(from + 2 * LINE);
          std::memcpy(to, from, ROWS * sizeof(float));
        });
      } else {
        for (int64_t row = ROWS; row < 2 * ROWS; row++)
          for (int64_t input = 0; input < number; input += LINE)
            __builtin_prefetch(begin + row * row_step + input * input_step);
        pack([=](const float *from, float *to) {
          for (int64_t row = 0; row < ROWS; row++) to[row] = from[row * row_step];
        });
      }
    }
  });
}

template <>
void pack_weights(const float *weights, int64_t rows, int64_t inputs, int64_t taps, int64_t row_step, int64_t input_step,
                  const int64_t *tap_places, Bfloat *packed) {
  run_parts(rows, LANES, [&](int64_t start, int64_t) {
    Bfloat *to = packed + start * round_up(inputs, DEPTH) * taps;
    for (int64_t tap = 0; tap < taps; tap++)
      for (int64_t first = 0; first < inputs; first += DEPTH)
        for (int64_t row = start; row < start + LANES; row++)
          for (int64_t input = first; input < first + DEPTH; input++)
            narrow(row < rows && input < inputs ? weights[row * row_step + input * input_step + tap_places[tap]] : 0.0F,
                   *to++);
  });
}

}  // namespace native
