// What lies between two blocks: scale, shift and ReLU by channel, the average of 2x2 pixels, and a 1x1 convolution. The last row
// or column of an odd size is left out. The averages are computed while the convolution packs them, so they are never stored.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layers.h"

namespace native {

// Numbers of floats that the functions below need as working memory, aligned to 64 bytes. The shape is that of x.
template <typename Value>
size_t count_transition_scratch(const MapsShape &shape, int64_t outputs);
template <typename Value>
size_t count_transition_gradient_scratch(const MapsShape &shape, int64_t outputs);

// y (images, outputs, height / 2, width / 2) = the averages of max(gamma x + beta, 0), convolved with a kernel (1, 1,
// channels, outputs). A value that is not a number stays.
template <typename Value>
void run_transition(const MapsShape &shape, const Value *x, const float *gamma, const float *beta, const float *kernel,
                    int64_t outputs, Value *y, float *scratch);

template <typename Value>
void differentiate_transition(const MapsShape &shape, const Value *dy, const Value *x, const float *gamma,
                              const float *beta, const float *kernel, int64_t outputs, Value *dx, float *d_gamma,
                              float *d_beta, float *d_kernel, float *scratch);

}  // namespace native
