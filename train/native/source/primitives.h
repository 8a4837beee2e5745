// The inner loops of all kernels, compiled once for each instruction set.
//
// Each result element is one fixed sequence of operations, the same for every instruction set: vectors run across
// elements, and a sum over pixels is a fixed number of sums that are added in a fixed order.
//
// Values are float32 or bfloat16. Products of bfloat16 are added in float32, in the order of AMX's instruction, which
// other instruction sets follow: of each DEPTH terms those with even number, from 0 on, and those with odd number; then
// both are added, and the result to the sum. Its numbers have no denormals, so no kernel has.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "bfloat.h"

namespace native {

constexpr int TILE = 64;   // pixels that the inner loops take at once
constexpr int ROWS = 6;    // rows of a product in float32 that are computed together
constexpr int LANES = 16;  // sums over pixels are kept apart by pixel modulo LANES; rows and columns of AMX's registers
constexpr int DEPTH = 32;  // terms that AMX adds at once

constexpr int64_t round_up(int64_t x, int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

// How the maps of some images lie in the memory of one channel, for convolutions.
//
// Padded: image by image. Each row is followed by `margin` zeros, and the planes of an image are preceded and followed by
// `margin` rows of zeros, which neighbours share. So every tap of a kernel can read beside every pixel.
//
// Interleaved: pixel by pixel, and of each pixel all images side by side, followed by zeros up to `room` values. There is
// no margin, so each pixel takes the taps alone that read within its map.
struct Layout {
  int64_t images, height, width, margin;
  int64_t room = 0;  // a multiple of LANES in interleaved maps, else 0

  static constexpr int64_t MAX_INTERLEAVED = 16;  // pixels of a map

  bool is_interleaved() const { return room > 0; }
  int64_t plane() const { return height * width; }
  // From a pixel to the next one of its row, to the one below it, and to the same pixel of the next image.
  int64_t column_step() const { return is_interleaved() ? room : 1; }
  int64_t row_step() const { return (width + margin) * column_step(); }
  int64_t image_step() const { return is_interleaved() ? 1 : (height + margin) * row_step(); }

  int64_t first() const { return margin * row_step(); }                         // zeros of the margin before the first pixel
  int64_t lead() const { return round_up(first() + margin, LANES) - first(); }  // zeros before them
  int64_t origin() const { return lead() + first(); }                           // where the first pixel is
  // Values from the first pixel on, up to the last one.
  int64_t span() const { return is_interleaved() ? plane() * room : round_up(images * image_step() - first(), LANES); }
  // Values of one channel; of padded maps with room for reading a tile and a margin beyond the end.
  int64_t length() const {
    return round_up(is_interleaved() ? span() : lead() + 2 * first() + images * image_step() + TILE, TILE);
  }

  // Where a pixel is, from the first one on, and the image that a pixel is of.
  int64_t place(int64_t image, int64_t row, int64_t column) const {
    return image * image_step() + row * row_step() + column * column_step();
  }
  int64_t image_at(int64_t place) const { return is_interleaved() ? place % room : place / image_step(); }
};

// Copies a row of a plane. Those of small planes are too short for a call of `memcpy`.
template <typename Value>
inline void copy_row(const Value *from, int64_t width, Value *to) {
  switch (width) {
    case 1: *to = *from; return;
    case 2: std::memcpy(to, from, 2 * sizeof(Value)); return;
    case 4: std::memcpy(to, from, 4 * sizeof(Value)); return;
    case 8: std::memcpy(to, from, 8 * sizeof(Value)); return;
    default: std::memcpy(to, from, static_cast<size_t>(width) * sizeof(Value));
  }
}

// y[column][row] = x[row][column] for few columns or few rows; rows are `stride` values apart in x, columns `pitch` in y.
template <typename Value>
inline void transpose_small(const Value *x, int64_t rows, int64_t columns, int64_t stride, Value *y, int64_t pitch) {
  for (int64_t column = 0; column < columns; column++)
    for (int64_t row = 0; row < rows; row++) y[column * pitch + row] = x[row * stride + column];
}

// Where a sum over pixels finds both factors of a term.
struct Place {
  int32_t x, y;
};

// Some of the taps that weights are packed for, in their order. Of each: where it reads, from the pixel of its result on,
// and how many packed taps further the next one is. After the last one that is the first one of the next input.
struct Taps {
  const int64_t *offsets, *steps;
  int64_t count, first, packed;  // how many, the number of the first one, and of how many
  int64_t step(int64_t tap) const { return steps[tap]; }
};

constexpr int RUN = 4;  // pixels of a row at least that follow each other in padded maps, where `Runs` are used

// Where the pixels of a tile are in padded maps: of each RUN of them the first. `length` pixels, a multiple of RUN, follow
// each other.
struct Runs {
  const int64_t *at;
  int64_t length;
};

// A norm with known statistics, of one channel.
struct Norm {
  float mean, scale, shift;
};

// Factors of the gradient of a norm, of one channel.
struct Projection {
  float scale, mean_dy, slope, mean_x;
};

// Maps of some channels and images, by the steps from one to the next.
template <typename Value>
struct MapsOf {
  Value *first;
  int64_t channel_step, image_step;
  Value *at(int64_t channel, int64_t image) const { return first + channel * channel_step + image * image_step; }
};

// Rows that the next tile reads, which products bring into the second-level cache: a line in every second step, and in the
// steps between a line of other rows, if there are some. These rows lie in pages of their own, where the processor does not
// look ahead. If it were asked for many lines at once, it would wait. g++ drops the calls of a function that only prefetches,
// so these are inlined.
template <typename Value>
struct RowsAhead {
  static constexpr int64_t LINES = TILE * sizeof(Value) / 64;  // of a row

  const Value *first = nullptr;
  int64_t stride = 0, rows = 0;

  // What the steps for the rows [begin, begin + number) of a product with so many rows bring.
  RowsAhead part(int64_t begin, int64_t number, int64_t of) const {
    const int64_t from = rows * begin / of, to = rows * (begin + number < of ? begin + number : of) / of;
    return {first + from * stride, stride, to - from};
  }
  [[gnu::always_inline]] void fetch(int64_t line) const {
    if (line < LINES * rows) __builtin_prefetch(first + line / LINES * stride + line % LINES * (TILE / LINES), 0, 2);
  }
};

template <typename Value>
struct NextRows {
  RowsAhead<Value> rows, others{};

  NextRows part(int64_t begin, int64_t number, int64_t of) const {
    return {rows.part(begin, number, of), others.part(begin, number, of)};
  }
  [[gnu::always_inline]] void step(int64_t number) const {
    if (number % 2 == 0) {
      rows.fetch(number / 2);
    } else {
      others.fetch(number / 2);
    }
  }
  // The same in few steps that each take long: what the step `number` of `of` brings.
  [[gnu::always_inline]] void step(int64_t number, int64_t of) const {
    for (const RowsAhead<Value> *some : {&rows, &others}) {
      const int64_t lines = some->LINES * some->rows, end = lines * (number + 1) / of;
      for (int64_t line = lines * number / of; line < end; line++) some->fetch(line);
    }
  }
};

template <typename Value>
struct PrimitivesOf {
  // z[row][TILE] = max(x * scale + shift, 0), x with `stride` values a row.
  void (*rectify)(const Value *x, int64_t stride, int64_t rows, const float *scale, const float *shift, Value *z);

  // y = the rows of x for `multiply`, see `arrange`.
  void (*arrange)(const Value *x, int64_t stride, int64_t rows, int64_t count, Value *y);

  // y[row][width] = sum over inputs and taps of weight * x[input][offset of the tap + pixel]; width is a multiple of
  // LANES up to TILE. x is arranged, weights are packed by `pack_weights`. `next` is for 1x1 convolutions.
  void (*multiply)(const Value *x, int64_t stride, int64_t inputs, const int64_t *offsets, int64_t taps,
                   const Value *weights, int64_t rows, Value *y, int64_t y_stride, int64_t width,
                   const NextRows<Value> &next);

  // The same with some of the taps. For float32 alone: in bfloat16, terms that are left out change the order.
  void (*multiply_taps)(const Value *x, int64_t stride, int64_t inputs, const Taps &taps, const Value *weights,
                        int64_t rows, Value *y, int64_t y_stride, int64_t width);

  // The same as `multiply` with the pixels of a tile at their places in padded maps, so that none of the padding is
  // computed. For float32 alone.
  void (*multiply_runs)(const Runs &runs, const Value *x, int64_t stride, int64_t inputs, const int64_t *offsets,
                        int64_t taps, const Value *weights, int64_t rows, Value *y, int64_t y_stride, int64_t width,
                        const NextRows<Value> &next);

  // sums[row][column] += sum over pixels of x[row][pixel] * y[pixel][column]; columns is a multiple of LANES. In
  // bfloat16, pixels are rounded up to DEPTH, and x and sums must have memory for a multiple of LANES rows.
  void (*accumulate)(const Value *x, int64_t stride, int64_t rows, const Value *y, int64_t columns, float *sums,
                     int64_t pixels, const NextRows<Value> &next);

  // The same over places, one after the other. For float32 alone: in bfloat16, terms that are left out change the order.
  void (*accumulate_places)(const Value *x, int64_t stride, int64_t rows, const Value *y, int64_t columns, float *sums,
                            const Place *places, int64_t count);

  // The gradient of relu(gamma x + beta) and a product after it, for one tile. z is the result of `rectify`, dy
  // (outputs, TILE), arranged. Adds to `dx` its gradient, and to `d_gamma` and `d_beta` (rows, LANES) theirs.
  void (*differentiate_reader)(const Value *x, int64_t stride, int64_t rows, const float *gamma, const Value *z,
                               const Value *dy, int64_t outputs, const Value *weights, Value *dx, int64_t dx_stride,
                               float *d_gamma, float *d_beta, const NextRows<Value> &next);

  // y = scale * (dy - mean_dy) + slope * (x - mean_x), the gradient of a norm for its input.
  void (*project)(const Projection &by, const Value *dy, const Value *x, int64_t count, Value *y);

  // y = (x - mean) * scale.
  void (*standardize)(const Value *x, int64_t count, float mean, float scale, Value *y);

  // dx = the gradient of max(x * scale + shift, 0) for x, from `dy`, that of its result; dx may be dy. Adds to sums what `sum`
  // would, of that gradient before it is scaled, and of x.
  void (*differentiate_rectifier)(const Value *dy, const Value *x, int64_t count, float scale, float shift, Value *dx,
                                  double *sums);

  // y[pixel][row] = x[row][pixel] for TILE pixels; y has `pitch` values a pixel, a multiple of 8, and all are written.
  // In bfloat16, two pixels are kept together: y[pixel / 2][row][pixel % 2].
  void (*transpose)(const Value *x, int64_t stride, int64_t rows, Value *y, int64_t pitch);

  // Adds to sums[0] of each channel the sum of x, to sums[1] that of x * y: of each image, and then of the images one after
  // the other.
  void (*sum)(const MapsOf<const Value> &x, const MapsOf<const Value> &y, int64_t channels, int64_t images, int64_t pixels,
              double *sums);

  // Writes one channel of each image, `image_stride` values apart, as a layout says, with all of its zeros; with a norm,
  // as max((x - mean) * scale + shift, 0).
  void (*lay)(const Layout &layout, const Value *x, int64_t image_stride, const Norm *norm, Value *y);

  // y = x where `by` is positive, else 0.
  void (*pass)(const Value *x, const Value *by, int64_t count, Value *y);

  // The same with `by` in padded maps, for a multiple of LANES pixels. For float32 alone.
  void (*pass_runs)(const Runs &runs, const Value *x, const Value *by, int64_t count, Value *y);
};

struct Instructions {
  const char *name;
  // Prepare a thread for primitives, and undo it; `enter` returns what `leave` needs.
  unsigned (*enter)();
  void (*leave)(unsigned state);
  PrimitivesOf<float> floats;
  PrimitivesOf<Bfloat> bfloats;
};

extern const Instructions AVX2, AVX512, AMX, NEON;  // those of the processors that it is compiled for

// The instruction set in use: the best that this processor has, unless `choose` was called.
const Instructions &instructions();

// Chooses an instruction set by name ("avx2", "avx512", "amx", "neon"). Returns false if the processor or its operating system
// lacks it, or there is none.
bool choose(const char *name);

template <typename Value>
const PrimitivesOf<Value> &primitives() {
  if constexpr (std::is_same_v<Value, float>) {
    return instructions().floats;
  } else {
    return instructions().bfloats;
  }
}

// Packs weight[row][input][tap] for `multiply`, found at multiples of the steps and at the places of the taps. Rows are
// filled up with zeros.
template <typename Value>
void pack_weights(const float *weights, int64_t rows, int64_t inputs, int64_t taps, int64_t row_step, int64_t input_step,
                  const int64_t *tap_places, Value *packed);

// Rows whose packed weights lie together. Some rows of a product can be computed alone if they begin at a multiple of that,
// with the packed weights from `count_packed` of the rows before them on.
template <typename Value>
constexpr int PACKED_ROWS = std::is_same_v<Value, float> ? ROWS : LANES;

template <typename Value>
int64_t count_packed(int64_t rows, int64_t inputs, int64_t taps) {
  return round_up(rows, PACKED_ROWS<Value>) * round_up(inputs, std::is_same_v<Value, float> ? 1 : DEPTH) * taps;
}

// Rows (rows, count) as `multiply` needs them: bfloat16 as y[row / 2][pixel][row % 2], with zeros for rows up to a
// multiple of DEPTH; float32 as they are, so that they are not copied.
template <typename Value>
int64_t count_arranged(int64_t rows, int64_t count) {
  return std::is_same_v<Value, float> ? 0 : round_up(rows, DEPTH) * count;
}
template <typename Value>
const Value *arrange(const Value *x, int64_t stride, int64_t rows, int64_t count, Value *y) {
  if constexpr (std::is_same_v<Value, float>) return x;
  primitives<Value>().arrange(x, stride, rows, count, y);
  return y;
}

}  // namespace native
