#include "transition.h"

#include <algorithm>

#include "convolution.h"
#include "rectifier.h"
#include "work.h"

namespace native {

namespace {

constexpr int64_t COLUMNS = 64;  // averages that are computed at once
template <typename Value>
constexpr int64_t LINE = 64 / sizeof(Value);  // values that come from memory together

template <typename Value>
void average_squares(const MapsShape &shape, const Rectifier &rectifier, const Value *from, Value *to) {
  const int64_t height = shape.height / 2, width = shape.width / 2;
  for (int64_t row = 0; row < height; ++row)
    for (int64_t start = 0; start < width; start += COLUMNS) {
      const int64_t count = std::min(width - start, COLUMNS);
      float above[2 * COLUMNS], below[2 * COLUMNS];
      const Value *x = from + 2 * (row * shape.width + start), *next = x + shape.pixels();
      Value *y = to + row * width + start;
      for (int64_t i = 0; i < 2 * count; i += LINE<Value>) {  // the next channel lies in another page
        __builtin_prefetch(next + i, 0, 2);
        __builtin_prefetch(next + shape.width + i, 0, 2);
      }
      rectifier.run(x, 2 * count, above);
      rectifier.run(x + shape.width, 2 * count, below);
      INDEPENDENT for (int64_t i = 0; i < count; ++i)
        narrow(((above[2 * i] + above[2 * i + 1]) + (below[2 * i] + below[2 * i + 1])) * 0.25f, y[i]);
    }
}

// Gives each pixel of one map its share of the gradient of its square.
template <typename Value>
void spread_squares(const MapsShape &shape, const Value *from, Value *to) {
  const int64_t width = shape.width, squares = width / 2, rows = shape.height / 2 * 2;
  for (int64_t row = 0; row < rows; row += 2, from += squares) {
    Value *const above = to + row * width, *const below = above + width;
    for (int64_t i = 0; i < 2 * width; i += LINE<Value>) __builtin_prefetch(above + shape.pixels() + i, 1);
    INDEPENDENT for (int64_t i = 0; i < squares; ++i) {
      Value share;
      narrow(widen(from[i]) * 0.25f, share);
      above[2 * i] = above[2 * i + 1] = below[2 * i] = below[2 * i + 1] = share;
    }
    if (width % 2) above[width - 1] = below[width - 1] = Value{};
  }
  std::fill(to + rows * width, to + shape.pixels(), Value{});
}

// The averages, as the convolution packs them. A 1x1 convolution has no padding: the averages of an image lie side by side,
// or those of each pixel if there are few.
template <typename Value>
class Averages final : public Source<Value> {
 public:
  Averages(const MapsShape &shape, const Value *x, const float *gamma, const float *beta, Value *dx = nullptr,
           double *sums = nullptr)
      : shape_(shape), x_(x), gamma_(gamma), beta_(beta), dx_(dx), sums_(sums) {}

  void lay(const Layout &layout, int64_t image, int64_t channel, Value *laid) const override {
    const Rectifier by{gamma_[channel], beta_[channel]};
    for (int64_t i = 0; i < layout.images; ++i) {
      const Value *from = x_ + at(image + i, channel) * shape_.pixels();
      if (layout.is_interleaved()) {
        Value averages[Layout::MAX_INTERLEAVED];
        average_squares(shape_, by, from, averages);
        transpose_small(averages, 1, layout.plane(), layout.plane(), laid + i, layout.room);
      } else {
        average_squares(shape_, by, from, laid + i * layout.plane());
      }
    }
    for (int64_t pixel = 0; pixel < layout.plane() && layout.is_interleaved(); ++pixel)
      clear(laid + pixel * layout.room + layout.images, layout.room - layout.images);
    const int64_t used = layout.is_interleaved() ? layout.span() : layout.images * layout.plane();
    clear(laid + used, layout.length() - used);
  }

  bool wants_gradient() const override { return dx_ != nullptr; }

  // Writes the sums of each image, because those of a channel are added in the order of the images.
  void take_gradient(const Layout &layout, int64_t image, int64_t channel, const Value *gradient) const override {
    for (int64_t i = 0; i < layout.images; ++i) {
      const int64_t map = at(image + i, channel);
      Value averages[Layout::MAX_INTERLEAVED], *to = dx_ + map * shape_.pixels();
      const Value *from = gradient + i * layout.plane();
      if (layout.is_interleaved()) {
        transpose_small(gradient + i, layout.plane(), 1, layout.room, averages, layout.plane());
        from = averages;
      }
      spread_squares(shape_, from, to);
      std::fill_n(sums_ + 2 * map, 2, 0.0);
      primitives<Value>().differentiate_rectifier(to, x_ + map * shape_.pixels(), shape_.pixels(), gamma_[channel],
                                                  beta_[channel], to, sums_ + 2 * map);
    }
  }

 private:
  int64_t at(int64_t image, int64_t channel) const { return image * shape_.channels + channel; }

  const MapsShape &shape_;
  const Value *x_;
  const float *gamma_, *beta_;
  Value *dx_;
  double *sums_;
};

ConvolutionShape convolved(const MapsShape &shape, int64_t outputs) {
  return {shape.images, shape.height / 2, shape.width / 2, shape.channels, outputs, 1};
}

}  // namespace

template <typename Value>
size_t count_transition_scratch(const MapsShape &shape, int64_t outputs) {
  return count_scratch<Value>(convolved(shape, outputs));
}

template <typename Value>
size_t count_transition_gradient_scratch(const MapsShape &shape, int64_t outputs) {
  Arena arena;
  arena.take<double>(shape.images * shape.channels * 2);
  return arena.used() + count_gradient_scratch<Value>(convolved(shape, outputs));
}

template <typename Value>
void run_transition(const MapsShape &shape, const Value *x, const float *gamma, const float *beta, const float *kernel,
                    int64_t outputs, Value *y, float *scratch) {
  convolve<Value>(convolved(shape, outputs), Averages<Value>(shape, x, gamma, beta), kernel, y, scratch);
}

template <typename Value>
void differentiate_transition(const MapsShape &shape, const Value *dy, const Value *x, const float *gamma,
                              const float *beta, const float *kernel, int64_t outputs, Value *dx, float *d_gamma,
                              float *d_beta, float *d_kernel, float *scratch) {
  Arena arena(scratch);
  double *sums = arena.take<double>(shape.images * shape.channels * 2);
  const Averages<Value> averages(shape, x, gamma, beta, dx, sums);
  differentiate_convolution<Value>(convolved(shape, outputs), dy, averages, kernel, d_kernel, scratch + arena.used());
  run_parts(shape.channels, COLUMNS, [=](int64_t first, int64_t number) {
    for (int64_t channel = first; channel < first + number; ++channel) {
      double plain = 0, product = 0;
      for (int64_t image = 0; image < shape.images; ++image) {
        plain += sums[2 * (image * shape.channels + channel)];
        product += sums[2 * (image * shape.channels + channel) + 1];
      }
      d_beta[channel] = to_float(plain);
      d_gamma[channel] = to_float(product);
    }
  });
}

#define INSTANTIATE(Value)                                                                                              \
  template size_t count_transition_scratch<Value>(const MapsShape &, int64_t);                                         \
  template size_t count_transition_gradient_scratch<Value>(const MapsShape &, int64_t);                                \
  template void run_transition(const MapsShape &, const Value *, const float *, const float *, const float *, int64_t, \
                               Value *, float *);                                                                       \
  template void differentiate_transition(const MapsShape &, const Value *, const Value *, const float *, const float *, \
                                         const float *, int64_t, Value *, float *, float *, float *, float *);

INSTANTIATE(float)
INSTANTIATE(Bfloat)

}  // namespace native
