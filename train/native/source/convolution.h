// Convolutions with stride 1 and padding that keeps height and width, float32, on maps (images, channels, height, width).
#pragma once

#include <cstddef>
#include <cstdint>

namespace native {

struct ConvolutionShape {
  int64_t images, height, width, inputs, outputs;
  int64_t size;  // height and width of the kernel, odd
};

// Numbers of floats that the functions below need as working memory, aligned to 64 bytes.
size_t count_scratch(const ConvolutionShape &shape);
size_t count_gradient_scratch(const ConvolutionShape &shape);

// Convolves x with a kernel (size, size, inputs, outputs).
void convolve(const ConvolutionShape &shape, const float *x, const float *kernel, float *y, float *scratch);

// Writes the gradients of x (not if dx is null) and of the kernel.
void differentiate_convolution(const ConvolutionShape &shape, const float *dy, const float *x, const float *kernel,
                               float *dx, float *d_kernel, float *scratch);

}  // namespace native
