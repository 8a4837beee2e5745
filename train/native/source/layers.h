// The parts of a network outside of convolutions and blocks, on maps (images, channels, height, width). Values
// are float32, or bfloat16 in maps that are scaled and rectified.
//
// Each sum has one order of additions that depends on the shapes alone. Products of two floats are exact in double, in
// which sums are made, so fused and separate multiply-adds agree.
#pragma once

#include <cstdint>

#include "dropout.h"

namespace native {

struct MapsShape {
  int64_t images, channels, height, width;

  int64_t pixels() const { return height * width; }
};

enum class Pooling {
  NONE,
  MAXIMUM,  // of 3x3 pixels, in steps of 2, padded as TensorFlow's SAME
};

// Height or width of pooled maps.
inline int64_t pool(Pooling pooling, int64_t size) {
  return pooling == Pooling::NONE ? size : (size + 1) / 2;
}

// y = max(gamma x + beta, 0) by channel, pooled; a value that is not a number stays.
template <typename Value>
void scale_rectify(const MapsShape &shape, const Value *x, const float *gamma, const float *beta, Pooling pooling,
                   Value *y);

// Writes the gradients; without pooling dx may be dy. The gradient of a maximum goes to the first of equal pixels.
template <typename Value>
void differentiate_scale_rectify(const MapsShape &shape, const Value *dy, const Value *x, const float *gamma,
                                 const float *beta, Pooling pooling, Value *dx, float *d_gamma, float *d_beta);

// y = x without the values that are dropped.
template <typename Value>
void drop(const MapsShape &shape, const Dropout &dropout, const Value *x, Value *y);

// Averages all pixels of a map: y (images, channels). `shape` is that of x.
void average_pixels(const MapsShape &shape, const float *x, float *y);
void differentiate_average_pixels(const MapsShape &shape, const float *dy, float *dx);

struct DenseShape {
  int64_t images, inputs, outputs;
};

// y = x kernel + bias, of x (images, inputs), kernel (inputs, outputs) and bias (outputs,).
void run_dense(const DenseShape &shape, const float *x, const float *kernel, const float *bias, float *y);
void differentiate_dense(const DenseShape &shape, const float *dy, const float *x, const float *kernel, float *dx,
                         float *d_kernel, float *d_bias);

// Writes the mean over images of the cross entropy with `targets`, and its gradient for the logits. Both are (images,
// classes).
void cross_entropy(int64_t images, int64_t classes, const float *logits, const float *targets, float *loss,
                   float *gradient);

// A step of gradient descent with Nesterov momentum and a penalty on the weights: g = gradient + decay weight,
// new velocity = momentum velocity + g, new weight = weight - rate (g + momentum new velocity). `new_velocity` may be
// `gradient`.
void update_by_momentum(int64_t count, const float *weight, const float *velocity, const float *gradient, float rate,
                        float momentum, float decay, float *new_weight, float *new_velocity);

// Returns base^exponent, for exponents from 0 on.
float raise(float base, int32_t exponent);

}  // namespace native
