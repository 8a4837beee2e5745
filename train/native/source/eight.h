// What AVX2 and AVX-512 share: eight values at a time.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "bfloat.h"

namespace {

using native::Bfloat;
using Eight = __m256;

inline Eight load_8(const float *from) { return _mm256_loadu_ps(from); }
inline Eight load_8(const Bfloat *from) {
  const __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
}

// The same for the first `count` values; the others are 0.
inline __m256i mask_8(int64_t count) {
  alignas(64) static constexpr int32_t FIRST[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
  return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(FIRST + 8 - (count < 8 ? count : 8)));
}
inline Eight load_8(const float *from, int64_t count) {
  return count >= 8 ? load_8(from) : _mm256_maskload_ps(from, mask_8(count));
}

using Two = __m128d;
inline Two load_2(const double *from) { return _mm_loadu_pd(from); }
inline void store_2(double *to, Two x) { _mm_storeu_pd(to, x); }
inline Two add(Two x, Two y) { return _mm_add_pd(x, y); }

// Adds up (0 + 4, 1 + 5, 2 + 6, 3 + 7) of two kinds of sums.
inline Two fold_halves(__m256d plain, __m256d product) {
  const __m256d pairs = _mm256_hadd_pd(plain, product);
  return _mm_add_pd(_mm256_castpd256_pd128(pairs), _mm256_extractf128_pd(pairs, 1));
}

inline void transpose_8(const float *x, int64_t stride, float *y, int64_t pitch) {
  __m256 a[8], b[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) a[i] = _mm256_loadu_ps(x + i * stride);
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
    a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xee);
    a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
    a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    _mm256_storeu_ps(y + i * pitch, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
    _mm256_storeu_ps(y + (i + 4) * pitch, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
  }
}

}  // namespace
