// Vectors of AVX2 with FMA; vectors.h says what each function does.
#pragma once

#include "eight.h"

namespace {

constexpr int COLUMNS = 2, ACCUMULATED = 2;

struct Vector {
  static constexpr int LANES = 8;
  static constexpr char NAME[] = "avx2";
  __m256 value;
};
inline Vector load(const float *from) { return {_mm256_loadu_ps(from)}; }
inline void store(float *to, Vector x) { _mm256_storeu_ps(to, x.value); }
inline Vector load(const float *from, int64_t count) { return {load_8(from, count)}; }
inline void store(float *to, Vector x, int64_t count) {
  if (count >= 8) return store(to, x);
  _mm256_maskstore_ps(to, mask_8(count), x.value);
}
template <int LENGTH>
inline Vector load_runs(const float *from, const int64_t *at) {
  if constexpr (LENGTH >= 8) return {_mm256_loadu_ps(from + at[0])};
  return {_mm256_loadu2_m128(from + at[1], from + at[0])};
}
inline Vector broadcast(float x) { return {_mm256_set1_ps(x)}; }
inline Vector add(Vector x, Vector y) { return {_mm256_add_ps(x.value, y.value)}; }
inline Vector subtract(Vector x, Vector y) { return {_mm256_sub_ps(x.value, y.value)}; }
inline Vector multiply(Vector x, Vector y) { return {_mm256_mul_ps(x.value, y.value)}; }
template <bool = true>
inline Vector multiply_add(Vector x, Vector y, Vector z) { return {_mm256_fmadd_ps(x.value, y.value, z.value)}; }
inline Vector rectify(Vector x) { return {_mm256_max_ps(_mm256_setzero_ps(), x.value)}; }
inline Vector pass(Vector x, Vector by) {
  return {_mm256_and_ps(_mm256_cmp_ps(by.value, _mm256_setzero_ps(), _CMP_NLE_UQ), x.value)};
}
inline Vector even(Vector pairs) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs.value), 16))};
}
inline Vector odd(Vector pairs) {
  return {_mm256_and_ps(pairs.value, _mm256_castsi256_ps(_mm256_set1_epi32(~0xffff)))};
}
inline __m256i load_words(const Bfloat *from) {
  return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from)));
}
inline Vector load(const Bfloat *from) { return {_mm256_castsi256_ps(_mm256_slli_epi32(load_words(from), 16))}; }
inline Vector pair(const Bfloat *first, const Bfloat *second) {
  return {_mm256_castsi256_ps(_mm256_or_si256(load_words(first), _mm256_slli_epi32(load_words(second), 16)))};
}

struct Sums {
  __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd();
  static __m256d first(Eight x) { return _mm256_cvtps_pd(_mm256_castps256_ps128(x)); }
  static __m256d second(Eight x) { return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)); }
  void add(Eight x) {
    low = _mm256_add_pd(low, first(x));
    high = _mm256_add_pd(high, second(x));
  }
  void add_product(Eight x, Eight y) {
    low = _mm256_fmadd_pd(first(x), first(y), low);
    high = _mm256_fmadd_pd(second(x), second(y), high);
  }
  __m256d halves() const { return _mm256_add_pd(low, high); }
};
inline Two fold(Sums plain, Sums product) { return fold_halves(plain.halves(), product.halves()); }

}  // namespace
