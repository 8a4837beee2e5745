// Dropout: whether a value stays depends on the seed, the step, the layer, the image, the channel and the pixel alone.
#pragma once

#include <cstdint>

#include "bfloat.h"
#include "underflow.h"

namespace native {

// Drops a share of the values, and divides those that stay by the rest.
class Dropout {
 public:
  Dropout() = default;
  explicit Dropout(float rate)
      : dropped_(static_cast<uint32_t>(static_cast<double>(rate) * (1 << 23))), scale_(1 / (1 - rate)) {}

  bool drops() const { return dropped_ != 0; }

  // The dropout of one numbered part, such as a layer or an image.
  Dropout at(int64_t part) const {
    Dropout made = *this;
    made.key_ = mix(key_ + static_cast<uint64_t>(part) + 1);
    return made;
  }

  // Drops some of the pixels [first, first + count) of a channel.
  template <typename Value>
  void apply(Value *x, int64_t first, int64_t count) const {
    if (!dropped_) return;
    const auto start = static_cast<uint32_t>(first), low = static_cast<uint32_t>(key_);
    const auto high = static_cast<uint32_t>(key_ >> 32);
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t word = scatter(scatter((start + static_cast<uint32_t>(i)) ^ low) ^ high);
      narrow(multiply(widen(x[i]), (word >> 9) < dropped_ ? 0.0f : scale_), x[i]);
    }
  }

 private:
  // SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
  static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
  // The last step of MurmurHash3, for words of 32 bits (Appleby, 2011).
  static uint32_t scatter(uint32_t x) {
    x = (x ^ (x >> 16)) * 0x85ebca6b;
    x = (x ^ (x >> 13)) * 0xc2b2ae35;
    return x ^ (x >> 16);
  }

  uint64_t key_ = 0;
  uint32_t dropped_ = 0;  // of 2^23
  float scale_ = 1;
};

}  // namespace native
