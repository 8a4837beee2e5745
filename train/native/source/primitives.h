// The inner loops of all kernels, compiled once for each instruction set.
//
// Each result element is one fixed sequence of operations, the same for every instruction set: vectors run across
// elements, and a sum over pixels is a fixed number of sums that are added in a fixed order.
#pragma once

#include <cstdint>

namespace native {

constexpr int TILE = 64;   // pixels that the inner loops take at once
constexpr int ROWS = 6;    // rows of a product that are computed together
constexpr int LANES = 16;  // sums over pixels are kept apart by pixel modulo LANES

constexpr int64_t round_up(int64_t x, int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

// Planes of `height` x `width` pixels within a flat sequence of pixels: each row is followed by `margin` zeros, and the
// planes of an image are preceded and followed by `margin` rows of zeros, which neighbours share.
struct Padding {
  int64_t images, height, width, margin;

  int64_t pitch() const { return width + margin; }
  int64_t first() const { return margin * pitch(); }                               // where the first pixel is
  int64_t step() const { return (height + margin) * pitch(); }                     // from image to image
  int64_t pixels() const { return round_up(images * step() - first(), LANES); }    // to compute, from the first on
  int64_t lead() const { return round_up(margin, LANES); }                         // zeros before the sequence
  // Floats of one channel, with room for reading a tile and a margin beyond the end.
  int64_t length() const { return round_up(lead() + 2 * first() + images * step() + TILE, TILE); }
};

// A norm with known statistics, of one channel.
struct Norm {
  float mean, scale, shift;
};

// Factors of the gradient of a norm, of one channel.
struct Projection {
  float scale, mean_dy, slope, mean_x;
};

struct Primitives {
  const char *name;

  // z[row][TILE] = max(x * scale + shift, 0), x with `stride` floats a row.
  void (*rectify)(const float *x, int64_t stride, int64_t rows, const float *scale, const float *shift, float *z);

  // y[row][width] = sum over inputs and taps of weight * x[input][offset of the tap + pixel]; width is a multiple of
  // LANES up to TILE. Weights are packed by `pack_weights`.
  void (*multiply)(const float *x, int64_t stride, int64_t inputs, const int64_t *offsets, int64_t taps,
                   const float *weights, int64_t rows, float *y, int64_t y_stride, int64_t width);

  // sums[row][column] += sum over pixels of x[row][pixel] * y[pixel][column]; columns is a multiple of LANES.
  void (*accumulate)(const float *x, int64_t stride, int64_t rows, const float *y, int64_t columns, float *sums,
                     int64_t pixels);

  // The gradient of relu(gamma x + beta) and a product after it, for one tile. z is the result of `rectify`, dy
  // (outputs, TILE). Adds to `dx` its gradient, and to `d_gamma` and `d_beta` (rows, LANES) theirs.
  void (*differentiate_reader)(const float *x, int64_t stride, int64_t rows, const float *gamma, const float *z,
                               const float *dy, int64_t outputs, const float *weights, float *dx, int64_t dx_stride,
                               float *d_gamma, float *d_beta);

  // y = scale * (dy - mean_dy) + slope * (x - mean_x), the gradient of a norm for its input.
  void (*project)(const Projection &by, const float *dy, const float *x, int64_t count, float *y);

  // y = (x - mean) * scale.
  void (*standardize)(const float *x, int64_t count, float mean, float scale, float *y);

  // y[pixel][row] = x[row][pixel] for TILE pixels; y has `pitch` floats a pixel, a multiple of 8, and all are written.
  void (*transpose)(const float *x, int64_t stride, int64_t rows, float *y, int64_t pitch);

  // Adds to sums[0] the sum of x, to sums[1] that of x * y.
  void (*sum)(const float *x, const float *y, int64_t count, double *sums);

  // Writes one channel of each image, `image_stride` floats apart, into a padded sequence (`lead()` floats before it are
  // zeroed too); with a norm, as max((x - mean) * scale + shift, 0).
  void (*pad)(const Padding &padding, const float *x, int64_t image_stride, const Norm *norm, float *y);

  // y = x where `by` is positive, else 0.
  void (*pass)(const float *x, const float *by, int64_t count, float *y);
};

extern const Primitives AVX2, AVX512;

// The instruction set in use: the widest that this processor has, unless `choose` was called.
const Primitives &primitives();

// Chooses an instruction set by name ("avx2", "avx512"). Returns false if the processor lacks it or there is none.
bool choose(const char *name);

// Packs weight[row][input][tap], found at multiples of the steps, for `multiply`. Rows are filled up with zeros.
void pack_weights(const float *weights, int64_t rows, int64_t inputs, int64_t taps, int64_t row_step, int64_t input_step,
                  int64_t tap_step, float *packed);
inline int64_t count_packed(int64_t rows, int64_t inputs, int64_t taps) { return round_up(rows, ROWS) * inputs * taps; }

}  // namespace native
