// A dense block with bottleneck in training and inference, on maps (images, channels, height, width).
//
// A layer reads all earlier maps of its block: norm, ReLU, 1x1 convolution to `inner` maps, norm, ReLU, 3x3 convolution
// to `growth` maps (Huang et al., arXiv 1608.06993). All readers of a map use the same batch statistics, so maps are
// normalised once, and each reader scales, shifts and rectifies them again in both directions. Values of maps are float32
// or bfloat16, all else is float32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dropout.h"

namespace native {

struct BlockShape {
  int64_t images, height, width;
  int64_t first;   // channels that the block starts from
  int64_t layers;
  int64_t inner;   // channels between a layer's convolutions
  int64_t growth;  // channels that each layer adds
  Dropout dropout = {};  // in training

  // Of the results of a layer's convolutions.
  Dropout drop_first(int64_t layer) const { return dropout.at(layer).at(0); }
  Dropout drop_second(int64_t layer) const { return dropout.at(layer).at(1); }
  int64_t pixels() const { return height * width; }
  int64_t channels(int64_t layer) const { return first + layer * growth; }  // that a layer reads; layers: all
  int64_t layer(int64_t channels) const { return (channels - first) / growth; }
};

// The weights of a layer, or their gradients. Kernels are (height, width, inputs, outputs), as TensorFlow stores them.
template <typename Float>
struct LayerOf {
  Float *gamma1, *beta1, *kernel1;  // (channels,), (channels,), (1, 1, channels, inner)
  Float *gamma2, *beta2, *kernel2;  // (inner,), (inner,), (3, 3, inner, growth)
};
using Layer = LayerOf<const float>;
using LayerGradient = LayerOf<float>;

// Statistics of a batch, one value a channel. `variance` is unbiased, for running averages; `scale` is
// 1 / sqrt(biased variance + epsilon), by which maps are normalised.
template <typename Float>
struct StatisticsOf {
  Float *mean, *variance, *scale;
};
using Statistics = StatisticsOf<const float>;
using StatisticsOut = StatisticsOf<float>;

constexpr double EPSILON = 1e-5;
constexpr int64_t MAX_GROWTH = 1024, MAX_INNER = 4096;  // larger blocks are refused

// Numbers of floats that the functions below need as working memory, aligned to 64 bytes.
template <typename Value>
size_t count_scratch(const BlockShape &shape);
template <typename Value>
size_t count_gradient_scratch(const BlockShape &shape);
template <typename Value>
size_t count_inference_scratch(const BlockShape &shape);

// Number of values of a layer between its convolutions. Small maps of several images lie side by side, with room for whole
// tiles. `order_between` copies them as (layers, images, inner, height, width).
int64_t count_between(const BlockShape &shape);
template <typename Value>
void order_between(const BlockShape &shape, const Value *between, Value *ordered);

// Runs a block with the statistics of the batch. Writes `maps` (images, all channels, height, width), normalised but not
// scaled; `between` (layers, `count_between`), the results of the 1x1 convolutions, laid as layers read them; the
// statistics of all maps (all channels,) and those between the convolutions (layers, inner).
template <typename Value>
void run_block(const BlockShape &shape, const Value *x, const Layer *layers, Value *maps, Value *between,
               const StatisticsOut &features, const StatisticsOut &inner, float *scratch);

// Writes the gradients of x and of all weights, from the gradient of `maps` and what `run_block` wrote. `worked` is memory
// of the size of `upstream`, and may be `upstream`, which is then written over.
template <typename Value>
void differentiate_block(const BlockShape &shape, const Value *upstream, const Value *maps, const Value *between,
                         const float *features_scale, const Statistics &inner, const Layer *layers, Value *dx,
                         const LayerGradient *gradients, Value *worked, float *scratch);

// Runs a block with given statistics, means and variances: (all channels,), and (layers, inner) as `inner_*`.
template <typename Value>
void infer_block(const BlockShape &shape, const Value *x, const Layer *layers, const float *mean, const float *variance,
                 const float *inner_mean, const float *inner_variance, Value *maps, float *scratch);

}  // namespace native
