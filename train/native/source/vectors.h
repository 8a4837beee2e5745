// Vectors of float32 of the instruction set that this file is compiled for: AVX-512 or AVX2 with FMA.
//
// Everything here acts on each lane alone, so the width of a vector never changes a result. Values in memory are float32
// or bfloat16, to which `store` rounds as `narrow` does.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "bfloat.h"

namespace {

using native::Bfloat;

#if defined(__AVX512F__)

struct Vector {
  static constexpr int LANES = 16;
  __m512 value;
};
inline Vector load(const float *from) { return {_mm512_loadu_ps(from)}; }
inline void store(float *to, Vector x) { _mm512_storeu_ps(to, x.value); }
inline Vector broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline Vector add(Vector x, Vector y) { return {_mm512_add_ps(x.value, y.value)}; }
inline Vector subtract(Vector x, Vector y) { return {_mm512_sub_ps(x.value, y.value)}; }
inline Vector multiply(Vector x, Vector y) { return {_mm512_mul_ps(x.value, y.value)}; }
inline Vector multiply_add(Vector x, Vector y, Vector z) { return {_mm512_fmadd_ps(x.value, y.value, z.value)}; }
// Returns max(x, 0), and x where it is not a number.
inline Vector rectify(Vector x) { return {_mm512_max_ps(_mm512_setzero_ps(), x.value)}; }
// Returns x where `by` is positive or not a number, else 0.
inline Vector pass(Vector x, Vector by) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(by.value, _mm512_setzero_ps(), _CMP_NLE_UQ), x.value)};
}
// The first and the second of the two bfloat16 in each lane.
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

#else

struct Vector {
  static constexpr int LANES = 8;
  __m256 value;
};
inline Vector load(const float *from) { return {_mm256_loadu_ps(from)}; }
inline void store(float *to, Vector x) { _mm256_storeu_ps(to, x.value); }
inline Vector broadcast(float x) { return {_mm256_set1_ps(x)}; }
inline Vector add(Vector x, Vector y) { return {_mm256_add_ps(x.value, y.value)}; }
inline Vector subtract(Vector x, Vector y) { return {_mm256_sub_ps(x.value, y.value)}; }
inline Vector multiply(Vector x, Vector y) { return {_mm256_mul_ps(x.value, y.value)}; }
inline Vector multiply_add(Vector x, Vector y, Vector z) { return {_mm256_fmadd_ps(x.value, y.value, z.value)}; }
// Returns max(x, 0), and x where it is not a number.
inline Vector rectify(Vector x) { return {_mm256_max_ps(_mm256_setzero_ps(), x.value)}; }
// Returns x where `by` is positive or not a number, else 0.
inline Vector pass(Vector x, Vector by) {
  return {_mm256_and_ps(_mm256_cmp_ps(by.value, _mm256_setzero_ps(), _CMP_NLE_UQ), x.value)};
}
// The first and the second of the two bfloat16 in each lane.
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
#endif

#if !defined(__AVX512BF16__)
inline void store(Bfloat *to, Vector x) {
  using Words = uint32_t __attribute__((vector_size(sizeof(Vector))));
  using Halves = uint16_t __attribute__((vector_size(sizeof(Vector) / 2)));
  const auto rounded = __builtin_convertvector(native::round_bits(reinterpret_cast<Words>(x.value)), Halves);
  std::memcpy(to, &rounded, sizeof rounded);
}
#endif

// The same for the first `count` lanes, if they are fewer than a vector's; the others are 0.
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

inline __m256 load_8(const float *from) { return _mm256_loadu_ps(from); }
inline __m256 load_8(const Bfloat *from) {
  const __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
}
template <typename Value>
inline __m256 load_8(const Value *from, int64_t count) {
  if (count >= 8) return load_8(from);
  Value part[8] = {};
  std::memcpy(part, from, static_cast<size_t>(count) * sizeof(Value));
  return load_8(part);
}

// Brings the values of a tile's row into the second-level cache: the rows of a tile lie in pages of their own, where the
// processor does not look ahead.
template <typename Value>
inline void prefetch(const Value *row, int count) {
  for (int i = 0; i < count; i += 64 / static_cast<int>(sizeof(Value)))
    _mm_prefetch(reinterpret_cast<const char *>(row + i), _MM_HINT_T1);
}

// Eight sums in float64, whatever the instruction set.
struct Sums {
#if defined(__AVX512F__)
  __m512d value = _mm512_setzero_pd();
  void add(__m256 x) { value = _mm512_add_pd(value, _mm512_cvtps_pd(x)); }
  void add_product(__m256 x, __m256 y) {
    value = _mm512_fmadd_pd(_mm512_cvtps_pd(x), _mm512_cvtps_pd(y), value);
  }
  void store(double *to) const { _mm512_storeu_pd(to, value); }
#else
  __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd();
  static __m256d first(__m256 x) { return _mm256_cvtps_pd(_mm256_castps256_ps128(x)); }
  static __m256d second(__m256 x) { return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)); }
  void add(__m256 x) {
    low = _mm256_add_pd(low, first(x));
    high = _mm256_add_pd(high, second(x));
  }
  void add_product(__m256 x, __m256 y) {
    low = _mm256_fmadd_pd(first(x), first(y), low);
    high = _mm256_fmadd_pd(second(x), second(y), high);
  }
  void store(double *to) const {
    _mm256_storeu_pd(to, low);
    _mm256_storeu_pd(to + 4, high);
  }
#endif
};

}  // namespace
