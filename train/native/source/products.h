// Products of bfloat16 with sums in float32: by AMX, or by the same operations in the same order.
//
// A row of the left factor has its terms one after the other. The right factor has words of two terms, the columns of a
// pair of terms one after the other.
#pragma once

#include <cstdint>
#include <type_traits>

#include "primitives.h"
#include "processor.h"
#include "vectors.h"

#if defined(__AMX_BF16__)
#include "amx.h"
#endif

namespace {

#if !defined(__AMX_BF16__)

constexpr const char *NAME = Vector::NAME;

// AMX takes denormals as 0 and makes none. So must all arithmetic here, or a sum depends on what computes it.
unsigned enter() { return native::take_arithmetic(); }

void leave(unsigned state) { native::restore_arithmetic(state); }

// The sums of up to LANES rows and N * LANES columns, in memory.
template <int N>
class Product {
 public:
  Product(float *sums, int64_t stride, int64_t rows, bool clear) : sums_(sums), stride_(stride), rows_(rows) {
    for (int64_t row = 0; row < rows && clear; row++)
      std::memset(sums + row * stride, 0, N * native::LANES * sizeof(float));
  }

  void run(const Bfloat *left, int64_t left_stride, const float *right, int64_t right_stride) {
    for (int column = 0; column < N * native::LANES; column += Q * Vector::LANES) {
      int64_t row = 0;
      for (; row + 2 <= rows_; row += 2)
        add_rows<2>(left + row * left_stride, left_stride, right + column, right_stride, sums_ + row * stride_ + column);
      if (row < rows_) add_rows<1>(left + row * left_stride, left_stride, right + column, right_stride, sums_ + row * stride_ + column);
    }
  }

  void end() {}

 private:
  static constexpr int Q = Vector::LANES == native::LANES ? N : native::LANES / Vector::LANES;

  template <int R, bool settled = false>
  void add_rows(const Bfloat *left, int64_t left_stride, const float *right, int64_t right_stride, float *sums) const {
    Vector evens[R][Q], odds[R][Q];
#pragma GCC unroll 8
    for (int i = 0; i < R * Q; i++) evens[i / Q][i % Q] = odds[i / Q][i % Q] = broadcast(0);
    const float *from = right;
    for (int term = 0; term < native::DEPTH; term += 2, from += right_stride) {
      Vector pairs[Q];
#pragma GCC unroll 8
      for (int q = 0; q < Q; q++) pairs[q] = load(from + q * Vector::LANES);
#pragma GCC unroll 8
      for (int row = 0; row < R; row++) {
        float word;
        std::memcpy(&word, left + row * left_stride + term, sizeof word);
        const Vector by = broadcast(word);
#pragma GCC unroll 8
        for (int q = 0; q < Q; q++) {
          evens[row][q] = multiply_add<settled>(even(by), even(pairs[q]), evens[row][q]);
          odds[row][q] = multiply_add<settled>(odd(by), odd(pairs[q]), odds[row][q]);
        }
      }
    }
    if constexpr (!settled)
      if (native::take_underflow()) return add_rows<R, true>(left, left_stride, right, right_stride, sums);
#pragma GCC unroll 8
    for (int i = 0; i < R * Q; i++) {
      float *to = sums + i / Q * stride_ + i % Q * Vector::LANES;
      store(to, add(load(to), add(evens[i / Q][i % Q], odds[i / Q][i % Q])));
    }
  }

  float *sums_;
  int64_t stride_, rows_;
};

#endif

// Calls work(n) with a number of at most 4 columns of sums as a constant.
template <typename Work>
inline void with_columns(int64_t number, const Work &work) {
  switch (number) {
    case 1: return work(std::integral_constant<int, 1>());
    case 2: return work(std::integral_constant<int, 2>());
    case 3: return work(std::integral_constant<int, 3>());
    default: return work(std::integral_constant<int, 4>());
  }
}

void arrange(const Bfloat *x, int64_t stride, int64_t rows, int64_t count, Bfloat *y) {
  const int64_t end = native::round_up(rows, native::DEPTH);
  auto *to = reinterpret_cast<float *>(y);
  for (int64_t row = 0; row < end; row += 2, to += count, x += 2 * stride) {
    if (row + 1 < rows) {
      for (int64_t i = 0; i < count; i += Vector::LANES) store(to + i, pair(x + i, x + stride + i));
    } else if (row < rows) {
      static const Bfloat none[Vector::LANES] = {};
      for (int64_t i = 0; i < count; i += Vector::LANES) store(to + i, pair(x + i, none));
    } else {
      std::memset(to, 0, static_cast<size_t>(count) * sizeof(float));
    }
  }
}

// Computes `wanted` of LANES rows of a product for `width` pixels, in float32, while `next` is brought; returns the next rows'
// weights.
const Bfloat *multiply_block(const Bfloat *x, int64_t stride, int64_t inputs, const int64_t *offsets, int64_t taps,
                             const Bfloat *weights, float *y, int64_t wanted, int64_t width,
                             const native::NextRows<Bfloat> &next) {
  using namespace native;
  const int64_t steps = taps * (round_up(inputs, DEPTH) / DEPTH);
  const auto *pairs = reinterpret_cast<const float *>(x);
  with_columns(width / LANES, [&](auto n) {
    Product<n> product(y, TILE, wanted, true);
    int64_t step = 0;
    for (int64_t tap = 0; tap < taps; tap++)
      for (int64_t input = 0; input < inputs; input += DEPTH, weights += LANES * DEPTH, step++) {
        product.run(weights, DEPTH, pairs + input / 2 * stride + offsets[tap], stride);
        next.step(step, steps);
      }
    product.end();
  });
  return weights;
}

void multiply(const Bfloat *x, int64_t stride, int64_t inputs, const int64_t *offsets, int64_t taps,
              const Bfloat *weights, int64_t rows, Bfloat *y, int64_t y_stride, int64_t width,
              const native::NextRows<Bfloat> &next) {
  using namespace native;
  alignas(64) float block[LANES * TILE];
  for (int64_t start = 0; start < rows; start += LANES) {
    const int64_t wanted = rows - start < LANES ? rows - start : LANES;
    for (int64_t row = 0; row < wanted; row++)  // see `expect_results`
      for (int64_t i = 0; i < width; i += 64 / sizeof(Bfloat)) __builtin_prefetch(y + (start + row) * y_stride + i, 1);
    weights = multiply_block(x, stride, inputs, offsets, taps, weights, block, wanted, width, next.part(start, LANES, rows));
    for (int64_t row = 0; row < wanted; row++)
      for (int64_t i = 0; i < width; i += Vector::LANES)
        store(y + (start + row) * y_stride + i, load(block + row * TILE + i));
  }
}

void accumulate(const Bfloat *x, int64_t stride, int64_t rows, const Bfloat *y, int64_t columns, float *sums,
                int64_t pixels, const native::NextRows<Bfloat> &next) {
  using namespace native;
  const auto *pairs = reinterpret_cast<const float *>(y);
  for (int64_t row = 0; row < rows; row += LANES) {
    const NextRows<Bfloat> brought = next.part(row, LANES, rows);
    for (int64_t column = 0; column < columns; column += 4 * LANES)
      with_columns((columns - column) / LANES, [&](auto n) {
        Product<n> product(sums + row * columns + column, columns, rows - row < LANES ? rows - row : LANES, false);
        for (int64_t pixel = 0; pixel < pixels; pixel += DEPTH) {
          product.run(x + row * stride + pixel, stride, pairs + pixel / 2 * columns + column, columns);
          if (column == 0) brought.step(pixel / DEPTH, (pixels + DEPTH - 1) / DEPTH);
        }
        product.end();
      });
  }
}

}  // namespace
