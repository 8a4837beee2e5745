// Vectors of AVX-512; vectors.h says what each function does.
#pragma once

#include "eight.h"

namespace {

constexpr int COLUMNS = 4, ACCUMULATED = 3;

struct Vector {
  static constexpr int LANES = 16;
  static constexpr char NAME[] = "avx512";
  __m512 value;
};
inline Vector load(const float *from) { return {_mm512_loadu_ps(from)}; }
inline void store(float *to, Vector x) { _mm512_storeu_ps(to, x.value); }
inline __mmask16 mask(int64_t count) { return count < 16 ? static_cast<__mmask16>((1U << count) - 1) : __mmask16(-1); }
inline Vector load(const float *from, int64_t count) { return {_mm512_maskz_loadu_ps(mask(count), from)}; }
inline void store(float *to, Vector x, int64_t count) { _mm512_mask_storeu_ps(to, mask(count), x.value); }
template <int LENGTH>
inline Vector load_runs(const float *from, const int64_t *at) {
  if constexpr (LENGTH >= 16) return {_mm512_loadu_ps(from + at[0])};
  const auto half = [&](int i) {
    if constexpr (LENGTH >= 8) return _mm256_loadu_ps(from + at[i]);
    return _mm256_loadu2_m128(from + at[i + 1], from + at[i]);
  };
  return {_mm512_castpd_ps(_mm512_insertf64x4(_mm512_castps_pd(_mm512_castps256_ps512(half(0))), _mm256_castps_pd(half(2)), 1))};
}
inline Vector broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline Vector add(Vector x, Vector y) { return {_mm512_add_ps(x.value, y.value)}; }
inline Vector subtract(Vector x, Vector y) { return {_mm512_sub_ps(x.value, y.value)}; }
inline Vector multiply(Vector x, Vector y) { return {_mm512_mul_ps(x.value, y.value)}; }
template <bool = true>
inline Vector multiply_add(Vector x, Vector y, Vector z) { return {_mm512_fmadd_ps(x.value, y.value, z.value)}; }
inline Vector rectify(Vector x) { return {_mm512_max_ps(_mm512_setzero_ps(), x.value)}; }
inline Vector pass(Vector x, Vector by) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(by.value, _mm512_setzero_ps(), _CMP_NLE_UQ), x.value)};
}
inline Vector even(Vector pairs) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs.value), 16))};
}
inline Vector odd(Vector pairs) {
  return {_mm512_castsi512_ps(_mm512_and_epi32(_mm512_castps_si512(pairs.value), _mm512_set1_epi32(~0xffff)))};
}
inline __m512i load_words(const Bfloat *from) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)));
}
inline Vector load(const Bfloat *from) { return {_mm512_castsi512_ps(_mm512_slli_epi32(load_words(from), 16))}; }
inline Vector pair(const Bfloat *first, const Bfloat *second) {
  return {_mm512_castsi512_ps(_mm512_or_epi32(load_words(first), _mm512_slli_epi32(load_words(second), 16)))};
}
#if defined(__AVX512BF16__)
inline void store(Bfloat *to, Vector x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(to), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x.value)));
}
#endif

struct Sums {
  __m512d value = _mm512_setzero_pd();
  void add(Eight x) { value = _mm512_add_pd(value, _mm512_cvtps_pd(x)); }
  void add_product(Eight x, Eight y) {
    value = _mm512_fmadd_pd(_mm512_cvtps_pd(x), _mm512_cvtps_pd(y), value);
  }
  __m256d halves() const { return _mm256_add_pd(_mm512_castpd512_pd256(value), _mm512_extractf64x4_pd(value, 1)); }
};
inline Two fold(Sums plain, Sums product) { return fold_halves(plain.halves(), product.halves()); }

}  // namespace
