// Vectors of NEON, which every 64-bit ARM processor has; vectors.h says what each function does.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "bfloat.h"
#include "underflow.h"

namespace {

using native::Bfloat;

constexpr int COLUMNS = 4, ACCUMULATED = 4;

struct Vector {
  static constexpr int LANES = 4;
  static constexpr char NAME[] = "neon";
  float32x4_t value;
};
inline Vector of_bits(uint32x4_t bits) { return {vreinterpretq_f32_u32(bits)}; }
inline uint32x4_t bits(Vector x) { return vreinterpretq_u32_f32(x.value); }

inline Vector load(const float *from) {
  Vector x;
  std::memcpy(&x, from, sizeof x);
  return x;
}
inline void store(float *to, Vector x) { std::memcpy(to, &x, sizeof x); }
template <int>
inline Vector load_runs(const float *from, const int64_t *at) {
  return load(from + at[0]);
}
inline Vector broadcast(float x) { return {vdupq_n_f32(x)}; }
inline Vector add(Vector x, Vector y) { return {vaddq_f32(x.value, y.value)}; }
inline Vector subtract(Vector x, Vector y) { return {vsubq_f32(x.value, y.value)}; }

// The same as for single numbers.
inline Vector settle(float32x4_t result, float32x4_t raised) {
  const uint32x4_t sign = vdupq_n_u32(0x80000000), least = vreinterpretq_u32_f32(vdupq_n_f32(native::LEAST));
  const uint32x4_t rounds = vceqq_f32(vabsq_f32(raised), vdupq_n_f32(native::RAISED_LEAST));
  const float32x4_t rounded = vreinterpretq_f32_u32(vbslq_u32(sign, vreinterpretq_u32_f32(raised), least));
  return {vbslq_f32(rounds, rounded, result)};
}
inline float32x4_t raise_half(Vector x) { return vmulq_n_f32(x.value, native::HALF_RAISE); }
inline Vector multiply(Vector x, Vector y) {
  return settle(vmulq_f32(x.value, y.value), vmulq_f32(raise_half(x), raise_half(y)));
}
template <bool settled = true>
inline Vector multiply_add(Vector x, Vector y, Vector z) {
  const float32x4_t result = vfmaq_f32(z.value, x.value, y.value);
  if constexpr (!settled) return {result};
  return settle(result, vfmaq_f32(vmulq_n_f32(z.value, native::RAISE), raise_half(x), raise_half(y)));
}

inline Vector rectify(Vector x) { return of_bits(vbicq_u32(bits(x), vcltzq_f32(x.value))); }
inline Vector pass(Vector x, Vector by) { return of_bits(vbicq_u32(bits(x), vclezq_f32(by.value))); }

inline Vector even(Vector pairs) { return of_bits(vshlq_n_u32(bits(pairs), 16)); }
inline Vector odd(Vector pairs) { return of_bits(vandq_u32(bits(pairs), vdupq_n_u32(0xffff0000))); }
inline uint16x4_t load_halves(const Bfloat *from) { return vld1_u16(&from->bits); }
inline Vector load(const Bfloat *from) { return of_bits(vshll_n_u16(load_halves(from), 16)); }
inline Vector pair(const Bfloat *first, const Bfloat *second) {
  return of_bits(vorrq_u32(vmovl_u16(load_halves(first)), vshll_n_u16(load_halves(second), 16)));
}

struct Eight {
  float32x4_t low, high;
};
template <typename Value>
inline Eight load_8(const Value *from) {
  return {load(from).value, load(from + 4).value};
}

struct Sums {
  struct Parts {
    float64x2_t part[4];
  };
  static Parts widen(Eight x) {
    return {vcvt_f64_f32(vget_low_f32(x.low)), vcvt_high_f64_f32(x.low), vcvt_f64_f32(vget_low_f32(x.high)),
            vcvt_high_f64_f32(x.high)};
  }

  Parts sums = {};

  void add(Eight x) {
    const Parts by = widen(x);
    for (int i = 0; i < 4; i++) sums.part[i] = vaddq_f64(sums.part[i], by.part[i]);
  }
  void add_product(Eight x, Eight y) {
    const Parts by = widen(x), with = widen(y);
    for (int i = 0; i < 4; i++) sums.part[i] = vfmaq_f64(sums.part[i], by.part[i], with.part[i]);
  }
  float64x2_t halves() const {
    return vpaddq_f64(vaddq_f64(sums.part[0], sums.part[2]), vaddq_f64(sums.part[1], sums.part[3]));
  }
};

using Two = float64x2_t;
inline Two load_2(const double *from) { return vld1q_f64(from); }
inline void store_2(double *to, Two x) { vst1q_f64(to, x); }
inline Two add(Two x, Two y) { return vaddq_f64(x, y); }
inline Two fold(const Sums &plain, const Sums &product) { return vpaddq_f64(plain.halves(), product.halves()); }

inline void transpose_4(const float *x, int64_t stride, float *y, int64_t pitch) {
  const float32x4x2_t above = vtrnq_f32(load(x).value, load(x + stride).value);
  const float32x4x2_t below = vtrnq_f32(load(x + 2 * stride).value, load(x + 3 * stride).value);
  for (int i = 0; i < 2; i++) {
    store(y + i * pitch, {vcombine_f32(vget_low_f32(above.val[i]), vget_low_f32(below.val[i]))});
    store(y + (i + 2) * pitch, {vcombine_f32(vget_high_f32(above.val[i]), vget_high_f32(below.val[i]))});
  }
}
inline void transpose_8(const float *x, int64_t stride, float *y, int64_t pitch) {
  for (int row = 0; row < 8; row += 4)
    for (int column = 0; column < 8; column += 4)
      transpose_4(x + row * stride + column, stride, y + column * pitch + row, pitch);
}

}  // namespace
