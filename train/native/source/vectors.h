// Vectors of float32 of the instruction set that this file is compiled for, which has a header of its own.
//
// Everything here acts on each lane alone, so the width of a vector never changes a result. What is not a number stays so,
// but its sign and its other bits depend on the processor. Values in memory are float32 or bfloat16, to which `store`
// rounds as `narrow` does. The header of an instruction set defines
//
//   COLUMNS, ACCUMULATED  vectors of a row that are computed together, in `multiply` and `accumulate`: by registers
//   Vector                LANES values, and the NAME of the set
//   load, store, broadcast, add, subtract, multiply
//   load_runs             a vector from runs of so many values, at most LANES: of each RUN of them, where the first is
//   multiply_add          x * y + z, rounded once; `multiply_add<false>` may be wrong next to the least normal number if
//                         `take_underflow` returns true after it, see underflow.h
//   rectify               max(x, 0), and x where it is not a number
//   pass                  x where `by` is positive or not a number, else 0
//   even, odd             the first and the second of the two bfloat16 in each lane
//   pair                  both from memory, in each lane
//   Eight, load_8         eight values
//   Sums                  eight sums in float64, of values and of products
//   Two                   two of float64, with load_2, store_2 and add
//   fold                  the sums 0 to 7 of both as ((0 + 4) + (1 + 5)) + ((2 + 6) + (3 + 7))
//   transpose_8           eight rows of eight values
#pragma once

#include <cstdint>
#include <cstring>

#include "bfloat.h"

#if defined(__aarch64__)
#include "neon.h"
#elif defined(__AVX512F__)
#include "avx512.h"
#else
#include "avx2.h"
#endif

namespace {

#if !defined(__AVX512BF16__)
inline void store(Bfloat *to, Vector x) {
  using Words = uint32_t __attribute__((vector_size(sizeof(Vector))));
  using Halves = uint16_t __attribute__((vector_size(sizeof(Vector) / 2)));
  const auto rounded = __builtin_convertvector(native::round_bits(reinterpret_cast<Words>(x.value)), Halves);
  std::memcpy(to, &rounded, sizeof rounded);
}
#endif

// The same for the first `count` lanes, if they are fewer than a vector's; the others are 0. Of float32, an instruction set
// may have functions of its own for that.
template <typename Value>
inline Vector load(const Value *from, int64_t count) {
  if (count >= Vector::LANES) return load(from);
  Value part[Vector::LANES] = {};
  std::memcpy(part, from, static_cast<size_t>(count) * sizeof(Value));
  return load(part);
}
template <typename Value>
inline void store(Value *to, Vector x, int64_t count) {
  if (count >= Vector::LANES) return store(to, x);
  Value part[Vector::LANES];
  store(part, x);
  std::memcpy(to, part, static_cast<size_t>(count) * sizeof(Value));
}

template <typename Value>
inline Eight load_8(const Value *from, int64_t count) {
  if (count >= 8) return load_8(from);
  Value part[8] = {};
  std::memcpy(part, from, static_cast<size_t>(count) * sizeof(Value));
  return load_8(part);
}

}  // namespace
