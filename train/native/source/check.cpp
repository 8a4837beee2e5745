// The part of the library's interface that is not TensorFlow's: threads, instruction sets and a check of the bits.
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <new>
#include <type_traits>

#include "block.h"
#include "convolution.h"
#include "layers.h"
#include "primitives.h"
#include "threads.h"
#include "transition.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

using namespace native;

// A fixed sequence of numbers, and a digest (FNV-1a) of what is computed from them.
class Case {
 public:
  template <typename Value = float>
  Value *make(int64_t count) {
    auto *values = reinterpret_cast<Value *>(reserve(count));
    for (int64_t i = 0; i < count; ++i) {
      seed_ = seed_ * 6364136223846793005ULL + 1442695040888963407ULL;
      narrow(static_cast<float>(static_cast<int32_t>(seed_ >> 32)) / 1073741824.0F, values[i]);
    }
    return values;
  }
  template <typename Value = float>
  Value *result(int64_t count) {
    results_[number_] = reserve(count);
    sizes_[number_++] = count * static_cast<int64_t>(sizeof(Value));
    return reinterpret_cast<Value *>(results_[number_ - 1]);
  }
  float *reserve(size_t count) {
    float *start = memory_.get() + used_;
    used_ += round_up(static_cast<int64_t>(count), 16);
    return start;
  }
  // Working memory, in which nothing may be read before it is written.
  float *waste(size_t count) {
    float *start = reserve(count);
    std::memset(start, 0xff, count * sizeof(float));
    return start;
  }
  bool has_memory() const { return memory_ != nullptr; }
  uint64_t digest() const {
    uint64_t state = 14695981039346656037ULL;
    for (int i = 0; i < number_; ++i)
      for (int64_t j = 0; j < sizes_[i]; ++j)
        state = (state ^ reinterpret_cast<const unsigned char *>(results_[i])[j]) * 1099511628211ULL;
    return state;
  }

 private:
  static constexpr int64_t FLOATS = int64_t{1} << 22;
  std::unique_ptr<float[]> memory_{new (std::nothrow) float[FLOATS]};
  int64_t used_ = 0, sizes_[60] = {};
  float *results_[60] = {};
  int number_ = 0;
  uint64_t seed_ = 1;
};

template <typename Value>
uint64_t run_case(Case &c) {
  const BlockShape b{3, 5, 6, 5, 2, 8, 3};
  const int64_t pixels = b.images * b.pixels(), channels = b.channels(b.layers), inner = b.layers * b.inner;
  Layer layers[2];
  LayerGradient gradients[2];
  for (int64_t i = 0; i < b.layers; ++i) {
    const int64_t inputs = b.channels(i), last = 9 * b.inner * b.growth;
    layers[i] = {c.make(inputs), c.make(inputs), c.make(inputs * b.inner), c.make(b.inner), c.make(b.inner), c.make(last)};
    gradients[i] = {c.result(inputs),  c.result(inputs),  c.result(inputs * b.inner),
                    c.result(b.inner), c.result(b.inner), c.result(last)};
  }
  const Value *x = c.make<Value>(b.first * pixels), *upstream = c.make<Value>(channels * pixels);
  Value *maps = c.result<Value>(channels * pixels), *ordered = c.result<Value>(inner * pixels);
  auto *between = reinterpret_cast<Value *>(c.waste(b.layers * count_between(b)));
  Value *dx = c.result<Value>(b.first * pixels);
  const StatisticsOut features{c.result(channels), c.result(channels), c.result(channels)};
  const StatisticsOut within{c.result(inner), c.result(inner), c.result(inner)};
  run_block(b, x, layers, maps, between, features, within, c.waste(count_scratch<Value>(b)));
  order_between(b, between, ordered);
  auto *worked = reinterpret_cast<Value *>(c.waste(channels * pixels));
  differentiate_block(b, upstream, maps, between, features.scale, {within.mean, within.variance, within.scale}, layers,
                      dx, gradients, worked, c.waste(count_gradient_scratch<Value>(b)));
  // Each array is made in a statement of its own, because compilers order the arguments of a call as they like.
  Value *inferred = c.result<Value>(channels * pixels);
  infer_block(b, x, layers, features.mean, features.variance, within.mean, within.variance, inferred,
              c.waste(count_inference_scratch<Value>(b)));
  const Value *maps_in = c.make<Value>(7 * pixels);
  const float *kernel = c.make(16 * 7 * 11);
  const Value *dy = c.make<Value>(11 * pixels);
  for (const int64_t size : {3, 4}) {
    const ConvolutionShape s{3, 5, 6, 7, 11, size};
    Value *y = c.result<Value>(11 * pixels), *d_maps = c.result<Value>(7 * pixels);
    float *d_kernel = c.result(size * size * 7 * 11);
    convolve(s, maps_in, kernel, y, c.waste(count_scratch<Value>(s)));
    differentiate_convolution(s, dy, maps_in, kernel, d_maps, d_kernel,
                              c.waste(count_gradient_scratch<Value>(s)));
  }
  const MapsShape m{3, 7, 5, 6};
  const float *gamma = c.make(7), *beta = c.make(7);
  const Value *above = c.make<Value>(7 * pixels);
  Value *rectified = c.result<Value>(7 * pixels), *kept = c.result<Value>(7 * pixels);
  drop(m, Dropout(0.25f).at(3).at(-1), above, kept);
  float *averages = c.result(21);
  for (const Pooling pooling : {Pooling::NONE, Pooling::MAXIMUM}) {
    const int64_t pooled = 21 * pool(pooling, m.height) * pool(pooling, m.width);
    Value *y_pooled = pooling == Pooling::NONE ? rectified : c.result<Value>(pooled);
    Value *d_rectified = c.result<Value>(7 * pixels);
    float *d_gamma = c.result(7), *d_beta = c.result(7);
    scale_rectify(m, maps_in, gamma, beta, pooling, y_pooled);
    differentiate_scale_rectify(m, above, maps_in, gamma, beta, pooling, d_rectified, d_gamma, d_beta);
  }
  Value *y_transition = c.result<Value>(3 * 11 * 2 * 3), *d_transition = c.result<Value>(7 * pixels);
  float *d_gamma = c.result(7), *d_beta = c.result(7), *d_kernel = c.result(7 * 11);
  run_transition(m, maps_in, gamma, beta, kernel, 11, y_transition, c.waste(count_transition_scratch<Value>(m, 11)));
  differentiate_transition(m, dy, maps_in, gamma, beta, kernel, 11, d_transition, d_gamma, d_beta, d_kernel,
                           c.waste(count_transition_gradient_scratch<Value>(m, 11)));
  if constexpr (std::is_same_v<Value, float>) {  // what is always computed in float32
    float *d_averages = c.result(7 * pixels);
    average_pixels(m, rectified, averages);
    differentiate_average_pixels(m, averages, d_averages);
    const DenseShape d{3, 7, 4};
    const float targets[] = {0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0};
    float *logits = c.result(12), *d_logits = c.result(12), *loss = c.result(1);
    float *dx_dense = c.result(21), *d_dense = c.result(28), *d_bias = c.result(4);
    float *weights = c.result(28), *velocity = c.result(28);
    run_dense(d, averages, kernel, gamma, logits);
    cross_entropy(3, 4, logits, targets, loss, d_logits);
    differentiate_dense(d, d_logits, averages, kernel, dx_dense, d_dense, d_bias);
    update_by_momentum(28, kernel, maps_in, d_dense, 0.1F, 0.9F, 1e-4F, weights, velocity);
  }
  return c.digest();
}

}  // namespace

EXPORTED void toolkit_set_threads(int count) { set_threads(count); }

EXPORTED const char *toolkit_instructions() { return instructions().name; }

EXPORTED const char *toolkit_source() { return NATIVE_SOURCE; }

EXPORTED int toolkit_choose(const char *name) { return choose(name); }

// Runs a small case by an instruction set, in float32 and in bfloat16; returns the digests of the results, or null if the
// processor lacks the set.
EXPORTED const char *toolkit_check(const char *name) {
  static char text[34];
  Case floats, bfloats;
  if (!choose(name) || !floats.has_memory() || !bfloats.has_memory()) return nullptr;
  std::snprintf(text, sizeof text, "%016llx %016llx", static_cast<unsigned long long>(run_case<float>(floats)),
                static_cast<unsigned long long>(run_case<Bfloat>(bfloats)));
  return text;
}
