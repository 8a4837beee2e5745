// Results next to the least normal number, the same on all processors.
//
// Kernels make no denormals: a result that is too small for a normal number is 0. x86 decides that after rounding, ARM
// before. A result that rounds up to the least normal number, 2^-126, is so on x86 and 0 on ARM. Only products do: a sum or
// difference of two numbers, and a quotient by a count, round up from nowhere so near. So on ARM each product is computed
// once more with its result 2^64 times as large, which shows how it is rounded.
//
// In float64 that has no effect: a number next to its least normal one is 0 as float32, also times the few numbers of
// float32 by which kernels multiply it.
#pragma once

#include <cmath>

#include "processor.h"

namespace native {

constexpr float LEAST = 0x1p-126F, RAISED_LEAST = 0x1p-62F, RAISE = 0x1p64F, HALF_RAISE = 0x1p32F;  // the half for each factor

// Returns a result, given that and the same 2^64 times as large.
inline float settle(float result, float raised) {
  return std::fabs(raised) == RAISED_LEAST ? std::copysign(LEAST, raised) : result;
}

// x * y + z, rounded once.
inline float multiply_add(float x, float y, float z) {
  const float result = std::fma(x, y, z);
  if constexpr (!FLUSHES_BEFORE_ROUNDING) return result;
  return settle(result, std::fma(x * HALF_RAISE, y * HALF_RAISE, z * RAISE));
}

inline float multiply(float x, float y) {
  if constexpr (!FLUSHES_BEFORE_ROUNDING) return x * y;
  return settle(x * y, x * HALF_RAISE * (y * HALF_RAISE));
}

inline float to_float(double x) {
  const auto result = static_cast<float>(x);
  if constexpr (!FLUSHES_BEFORE_ROUNDING) return result;
  return settle(result, static_cast<float>(x * RAISE));
}

}  // namespace native
