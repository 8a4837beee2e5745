// Scale, shift and ReLU of one channel.
#pragma once

#include <cstdint>

#include "bfloat.h"
#include "underflow.h"

// Says of a loop that its rounds are independent. The compiler cannot know, because arrays could overlap.
#define INDEPENDENT _Pragma("GCC ivdep")

namespace native {

struct Rectifier {
  float scale, shift;

  float at(float x) const {
    const float value = multiply_add(x, scale, shift);
    return value <= 0.0f ? 0.0f : value;
  }
  template <typename From, typename To>
  void run(const From *from, int64_t count, To *to) const {
    INDEPENDENT for (int64_t i = 0; i < count; ++i) narrow(at(widen(from[i])), to[i]);
  }
};

}  // namespace native
