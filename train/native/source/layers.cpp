#include "layers.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "primitives.h"
#include "rectifier.h"
#include "threads.h"

namespace native {

namespace {

// e^x for x <= 0, by Taylor's series: the C library chooses its own by processor.
double exponentiate(double x) {
  if (!(x > -745.0)) return x != x ? x : 0.0;
  const auto power = static_cast<int64_t>(x * 1.4426950408889634 - 0.5);
  const double rest = (x - static_cast<double>(power) * 0.693147180369123816490) -
                      static_cast<double>(power) * 1.90821492927058770002e-10;  // log 2 in two parts
  double sum = 1.0;
  for (int i = 16; i > 0; --i) sum = 1.0 + sum * rest / i;
  const int64_t bits = (power < -1000 ? power + 1000 + 1023 : power + 1023) << 52;
  double scale;
  std::memcpy(&scale, &bits, sizeof scale);
  return power < -1000 ? sum * scale * 9.33263618503218878990e-302 : sum * scale;  // 2^-1000
}

// The natural logarithm of x >= 1, by the series of the inverse hyperbolic tangent.
double logarithm(double x) {
  if (!(x < 1e300)) return x;
  int64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  int64_t power = (bits >> 52) - 1023;
  bits = (bits & ((int64_t{1} << 52) - 1)) | (int64_t{1023} << 52);
  double part;
  std::memcpy(&part, &bits, sizeof part);
  if (part > 1.4142135623730951) part *= 0.5, ++power;
  const double t = (part - 1.0) / (part + 1.0), square = t * t;
  double sum = 0.0;
  for (int i = 25; i > 0; i -= 2) sum = sum * square + 1.0 / i;
  return static_cast<double>(power) * 0.693147180559945309417 + 2.0 * t * sum;
}

}  // namespace

namespace {

constexpr int64_t COLUMNS = 64;  // of pooled maps that are computed at once
constexpr int64_t SUMMED = 256;  // channels that a thread takes at once, at most

// Returns the larger one, or the one that is not a number.
float larger(float x, float y) { return y > x || y != y ? y : x; }

// The pixels of a window of 3 in steps of 2, along one axis.
struct Window {
  int64_t begin, end;

  Window(int64_t number, int64_t size)
      : begin(std::max<int64_t>(2 * number - size % 2, 0)), end(std::min(2 * number - size % 2 + 3, size)) {}
};

template <typename Value>
void take_maxima(const MapsShape &shape, const Rectifier &rectifier, const Value *from, Value *to) {
  const int64_t height = pool(Pooling::MAXIMUM, shape.height), width = pool(Pooling::MAXIMUM, shape.width);
  for (int64_t row = 0; row < height; ++row)
    for (int64_t start = 0; start < width; start += COLUMNS) {
      const int64_t count = std::min(width - start, COLUMNS);
      const Window rows(row, shape.height);
      const int64_t first = Window(start, shape.width).begin, last = Window(start + count - 1, shape.width).end;
      // What lies outside of the maps is 0 here, which is not above any rectified value.
      float highest[2 * COLUMNS + 1] = {}, next[2 * COLUMNS + 1];
      float *const inside = highest + first - (2 * start - shape.width % 2);
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        rectifier.run(from + i * shape.width + first, last - first, next);
        INDEPENDENT for (int64_t j = 0; j < last - first; ++j) inside[j] = larger(inside[j], next[j]);
      }
      INDEPENDENT for (int64_t i = 0; i < count; ++i)
        narrow(larger(larger(highest[2 * i], highest[2 * i + 1]), highest[2 * i + 2]), to[row * width + start + i]);
    }
}

// Gives the gradient of each maximum to its pixel.
template <typename Value>
void spread_maxima(const MapsShape &shape, const Rectifier &rectifier, const Value *x, const Value *from, Value *to) {
  const int64_t height = pool(Pooling::MAXIMUM, shape.height), width = pool(Pooling::MAXIMUM, shape.width);
  std::memset(to, 0, static_cast<size_t>(shape.pixels()) * sizeof(Value));
  for (int64_t row = 0; row < height; ++row)
    for (int64_t column = 0; column < width; ++column) {
      const Window rows(row, shape.height), columns(column, shape.width);
      int64_t best = rows.begin * shape.width + columns.begin;
      float highest = rectifier.at(widen(x[best]));
      for (int64_t i = rows.begin; i < rows.end; ++i)
        for (int64_t j = columns.begin; j < columns.end; ++j) {
          const float value = rectifier.at(widen(x[i * shape.width + j]));
          if (value > highest) highest = value, best = i * shape.width + j;
        }
      narrow(widen(to[best]) + widen(from[row * width + column]), to[best]);
    }
}

}  // namespace

template <typename Value>
void scale_rectify(const MapsShape &shape, const Value *x, const float *gamma, const float *beta, Pooling pooling,
                   Value *y) {
  const int64_t pixels = shape.pixels(), pooled = pool(pooling, shape.height) * pool(pooling, shape.width);
  run_parallel(shape.images * shape.channels, [=](int64_t map) {
    const Rectifier rectifier{gamma[map % shape.channels], beta[map % shape.channels]};
    const Value *from = x + map * pixels;
    Value *to = y + map * pooled;
    if (pooling == Pooling::MAXIMUM) return take_maxima(shape, rectifier, from, to);
    rectifier.run(from, pixels, to);
  });
}

template <typename Value>
void differentiate_scale_rectify(const MapsShape &shape, const Value *dy, const Value *x, const float *gamma,
                                 const float *beta, Pooling pooling, Value *dx, float *d_gamma, float *d_beta) {
  const int64_t pixels = shape.pixels(), pooled = pool(pooling, shape.height) * pool(pooling, shape.width);
  // Maps follow each other in memory by channels, so threads take as many neighbours as they can.
  const int64_t share = (shape.channels + count_threads() - 1) / count_threads();
  run_parts(shape.channels, std::min(share, SUMMED), [=](int64_t first, int64_t number) {
    double sums[SUMMED][2] = {};
    for (int64_t image = 0; image < shape.images; ++image)
      for (int64_t i = 0; i < number; ++i) {
        const int64_t channel = first + i, map = image * shape.channels + channel;
        const Rectifier rectifier{gamma[channel], beta[channel]};
        const Value *from = x + map * pixels, *above = dy + map * pooled;
        Value *to = dx + map * pixels;
        if (pooling == Pooling::MAXIMUM) spread_maxima(shape, rectifier, from, above, to);
        primitives<Value>().differentiate_rectifier(pooling == Pooling::NONE ? above : to, from, pixels, rectifier.scale,
                                                    rectifier.shift, to, sums[i]);
      }
    for (int64_t i = 0; i < number; ++i) {
      d_beta[first + i] = to_float(sums[i][0]);
      d_gamma[first + i] = to_float(sums[i][1]);
    }
  });
}

#define INSTANTIATE(Value)                                                                                              \
  template void scale_rectify(const MapsShape &, const Value *, const float *, const float *, Pooling, Value *);        \
  template void differentiate_scale_rectify(const MapsShape &, const Value *, const Value *, const float *,             \
                                            const float *, Pooling, Value *, float *, float *);

INSTANTIATE(float)
INSTANTIATE(Bfloat)

template <typename Value>
void drop(const MapsShape &shape, const Dropout &dropout, const Value *x, Value *y) {
  const int64_t pixels = shape.pixels();
  std::copy(x, x + shape.images * shape.channels * pixels, y);
  run_parallel(shape.images, [=](int64_t image) {
    for (int64_t channel = 0; channel < shape.channels; ++channel)
      dropout.at(image).at(channel).apply(y + (image * shape.channels + channel) * pixels, 0, pixels);
  });
}

template void drop(const MapsShape &, const Dropout &, const float *, float *);
template void drop(const MapsShape &, const Dropout &, const Bfloat *, Bfloat *);

void average_pixels(const MapsShape &shape, const float *x, float *y) {
  const int64_t pixels = shape.pixels();
  run_parallel(shape.images * shape.channels, [=](int64_t map) {
    double sums[2] = {};
    primitives<float>().sum({x + map * pixels, 0, 0}, {x + map * pixels, 0, 0}, 1, 1, pixels, sums);
    y[map] = to_float(sums[0] / static_cast<double>(pixels));
  });
}

void differentiate_average_pixels(const MapsShape &shape, const float *dy, float *dx) {
  const int64_t pixels = shape.pixels();
  run_parallel(shape.images * shape.channels, [=](int64_t map) {
    const float share = dy[map] / static_cast<float>(pixels);
    for (int64_t i = 0; i < pixels; ++i) dx[map * pixels + i] = share;
  });
}

void run_dense(const DenseShape &shape, const float *x, const float *kernel, const float *bias, float *y) {
  run_parallel(shape.images, [=](int64_t image) {
    for (int64_t output = 0; output < shape.outputs; ++output) {
      double sum = bias[output];
      for (int64_t i = 0; i < shape.inputs; ++i)
        sum += static_cast<double>(x[image * shape.inputs + i]) * kernel[i * shape.outputs + output];
      y[image * shape.outputs + output] = to_float(sum);
    }
  });
}

void differentiate_dense(const DenseShape &shape, const float *dy, const float *x, const float *kernel, float *dx,
                         float *d_kernel, float *d_bias) {
  const int64_t outputs = shape.outputs, inputs = shape.inputs;
  run_parallel(shape.images, [=](int64_t image) {
    for (int64_t i = 0; i < inputs; ++i) {
      double sum = 0.0;
      for (int64_t j = 0; j < outputs; ++j)
        sum += static_cast<double>(dy[image * outputs + j]) * kernel[i * outputs + j];
      dx[image * inputs + i] = to_float(sum);
    }
  });
  run_parallel(inputs + 1, [=](int64_t i) {  // the last row is the bias, whose input is 1
    for (int64_t j = 0; j < outputs; ++j) {
      double sum = 0.0;
      for (int64_t image = 0; image < shape.images; ++image)
        sum += static_cast<double>(dy[image * outputs + j]) * (i < inputs ? x[image * inputs + i] : 1.0f);
      (i < inputs ? d_kernel + i * outputs : d_bias)[j] = to_float(sum);
    }
  });
}

void cross_entropy(int64_t images, int64_t classes, const float *logits, const float *targets, float *loss,
                   float *gradient) {
  double total = 0.0;
  for (int64_t image = 0; image < images; ++image, logits += classes, targets += classes, gradient += classes) {
    float largest = logits[0];
    for (int64_t i = 1; i < classes; ++i) largest = logits[i] > largest ? logits[i] : largest;
    double sum = 0.0;
    for (int64_t i = 0; i < classes; ++i) sum += exponentiate(static_cast<double>(logits[i]) - largest);
    double weight = 0.0;
    for (int64_t i = 0; i < classes; ++i) {
      weight += targets[i];
      if (targets[i] > 0) total += targets[i] * (logarithm(sum) - (static_cast<double>(logits[i]) - largest));
    }
    for (int64_t i = 0; i < classes; ++i) {
      const double likelihood = exponentiate(static_cast<double>(logits[i]) - largest) / sum;
      gradient[i] = to_float((weight * likelihood - targets[i]) / static_cast<double>(images));
    }
  }
  *loss = to_float(total / static_cast<double>(images));
}

void update_by_momentum(int64_t count, const float *weight, const float *velocity, const float *gradient, float rate,
                        float momentum, float decay, float *new_weight, float *new_velocity) {
  INDEPENDENT for (int64_t i = 0; i < count; ++i) {
    const float penalized = multiply_add(decay, weight[i], gradient[i]);
    const float kept = multiply_add(momentum, velocity[i], penalized);
    new_weight[i] = multiply_add(-rate, multiply_add(momentum, kept, penalized), weight[i]);
    new_velocity[i] = kept;
  }
}

float raise(float base, int32_t exponent) {
  double result = 1.0;
  for (double square = base; exponent > 0; exponent /= 2, square *= square)
    if (exponent % 2) result *= square;
  return to_float(result);
}

}  // namespace native
