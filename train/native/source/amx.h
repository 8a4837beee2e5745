// Products of bfloat16 by AMX.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "primitives.h"
#include "processor.h"

namespace {

constexpr char NAME[] = "amx";

unsigned enter() {
  alignas(64) static const struct {
    uint8_t palette = 1, rest[15] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } TILES;
  asm volatile("ldtilecfg %0" : : "m"(TILES));
  return native::take_arithmetic();
}

void leave(unsigned state) {
  asm volatile("tilerelease");
  native::restore_arithmetic(state);
}

template <int tile, typename Value>
void load_tile(const Value *from, int64_t stride) {
  const int64_t bytes = stride * static_cast<int64_t>(sizeof(Value));
  asm volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(tile), "r"(from), "r"(bytes) : "memory");
}

template <int tile>
void store_tile(float *to, int64_t stride) {
  asm volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(tile), "r"(to), "r"(stride * 4) : "memory");
}

// The sums of LANES rows and N * LANES columns, in the first tile registers.
template <int N>
class Product {
 public:
  Product(float *sums, int64_t stride, int64_t, bool clear) : sums_(sums), stride_(stride) {
    each([=](auto n) {
      if (clear) {
        asm volatile("tilezero %%tmm%c0" : : "i"(decltype(n)::value));
      } else {
        load_tile<decltype(n)::value>(sums + n * native::LANES, stride);
      }
    });
  }

  // Adds DEPTH terms to each sum.
  void run(const Bfloat *left, int64_t left_stride, const float *right, int64_t right_stride) {
    load_tile<4>(left, left_stride);
    each([=](auto n) {
      constexpr int tile = 5 + decltype(n)::value % 3;
      load_tile<tile>(right + n * native::LANES, right_stride);
      asm volatile("tdpbf16ps %%tmm%c1, %%tmm4, %%tmm%c0" : : "i"(decltype(n)::value), "i"(tile));
    });
  }

  void end() {
    each([this](auto n) { store_tile<decltype(n)::value>(sums_ + n * native::LANES, stride_); });
  }

 private:
  template <typename Work, int... numbers>
  static void each(const Work &work, std::integer_sequence<int, numbers...>) {
    (work(std::integral_constant<int, numbers>()), ...);
  }
  template <typename Work>
  static void each(const Work &work) {
    each(work, std::make_integer_sequence<int, N>());
  }

  float *sums_;
  int64_t stride_;
};

}  // namespace
