// Convolutions with stride 1 and padding that keeps height and width, float32, on maps (images, channels, height, width).
#pragma once

#include <cstddef>
#include <cstdint>

#include "primitives.h"

namespace native {

struct ConvolutionShape {
  int64_t images, height, width, inputs, outputs;
  int64_t size;  // height and width of the kernel, at most MAX_SIZE; an even one reaches further down and right
};

constexpr int64_t MAX_SIZE = 15;

// Numbers of floats that the functions below need as working memory, aligned to 64 bytes.
size_t count_scratch(const ConvolutionShape &shape);
size_t count_gradient_scratch(const ConvolutionShape &shape);

// Convolves x with a kernel (size, size, inputs, outputs).
void convolve(const ConvolutionShape &shape, const float *x, const float *kernel, float *y, float *scratch);

// Writes the gradients of x (not if dx is null) and of the kernel.
void differentiate_convolution(const ConvolutionShape &shape, const float *dy, const float *x, const float *kernel,
                               float *dx, float *d_kernel, float *scratch);

// The parts, for padded maps: `padding.length()` floats a channel, with the first pixel at `origin`.

inline int64_t origin(const Padding &padding) { return padding.lead() + padding.first(); }

// Convolves padded maps with packed weights; y has `padding.pixels()` floats a channel, the first pixel first. With
// `backward`, computes the gradient of the convolution's input from that of its result.
void convolve_padded(const Padding &padding, int64_t size, const float *x, int64_t inputs, const float *packed,
                     int64_t outputs, bool backward, float *y);

// Adds to sums (size * size, outputs, columns) the gradient of the kernel, from the padded gradient dy of the result and
// the padded maps x as (pixels, columns): the inputs, and zeros up to a multiple of LANES.
void accumulate_kernel(const Padding &padding, int64_t size, const float *dy, int64_t outputs, const float *x,
                       int64_t columns, float *sums);

// Transposes padded maps for `accumulate_kernel`.
void transpose_padded(const Padding &padding, const float *x, int64_t channels, float *y, int64_t columns);

// Copies one channel from the result of `convolve_padded` to images that are `image_stride` floats apart.
void unpad(const Padding &padding, const float *y, float *images, int64_t image_stride);

// Packs a kernel (size, size, inputs, outputs) for `convolve_padded`.
void pack_kernel(const float *kernel, int64_t size, int64_t inputs, int64_t outputs, bool backward, float *packed);

// Adds up the sums of all pieces and writes them as a kernel.
void finish_kernel(float *sums, int64_t pieces, int64_t taps, int64_t inputs, int64_t outputs, float *kernel);

}  // namespace native
