#include "work.h"

namespace native {

namespace {

template <typename Float>
void add(Float *parts, int64_t number, int64_t count) {
  constexpr int64_t RANGE = 4096;
  run_parts(count, RANGE, [&](int64_t begin, int64_t of_range) {
    const int64_t end = begin + of_range;
    for (int64_t step = 1; step < number; step *= 2)
      for (int64_t part = 0; part + step < number; part += 2 * step) {
        Float *to = parts + part * count;
        const Float *from = to + step * count;
        for (int64_t i = begin; i < end; i++) to[i] += from[i];
      }
  });
}

}  // namespace

void add_parts(float *parts, int64_t number, int64_t count) { add(parts, number, count); }

void add_parts(double *parts, int64_t number, int64_t count) { add(parts, number, count); }

}  // namespace native
