// The number format bfloat16: the first half of a float32.
#pragma once

#include <cstdint>
#include <cstring>

namespace native {

struct Bfloat {
  uint16_t bits;
};

inline float widen(float x) { return x; }
inline float widen(Bfloat x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float y;
  std::memcpy(&y, &bits, sizeof y);
  return y;
}

// Rounds float32, as bits, as the instruction VCVTNEPS2BF16 does: to the nearest, to even if two are as near, denormals to
// 0. What is not a number stays so. Words are a number or a vector.
template <typename Words>
inline Words round_bits(Words bits) {
  const Words top = bits >> 16, magnitude = bits & 0x7fffffff;
  const Words no_number = 0 - ((0x7f800000 - magnitude) >> 31), small = 0 - ((magnitude - 0x00800000) >> 31);
  const Words rounded = (bits + 0x7fff + (top & 1)) >> 16;
  return (no_number & (top | 0x40)) | (small & top & 0x8000) | (~(no_number | small) & rounded);
}
inline void narrow(float x, Bfloat &y) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  y.bits = static_cast<uint16_t>(round_bits(bits));
}
inline void narrow(float x, float &y) { y = x; }

}  // namespace native
