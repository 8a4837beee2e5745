#include "convolution.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "work.h"

namespace native {

namespace {

// Working memory of both directions; a direction counts and takes only what it uses.
template <typename Value>
struct Scratch {
  Value *packed;
  float *sums = nullptr;
  TapPlaces *places = nullptr;
  Arena::Each<Value> x, y, arranged, transposed{}, dy{};

  Scratch(const ConvolutionShape &shape, const Split &split, const Layout &widest, bool differentiate, Arena &arena) {
    const int64_t taps = shape.size * shape.size, length = widest.length();
    int64_t from = shape.inputs, to = shape.outputs;
    if (differentiate) std::swap(from, to);
    packed = arena.take<Value>(count_packed<Value>(to, from, count_taps(widest, shape.size)));
    x = arena.take_each<Value>(round_up(shape.inputs, LANES) * length);
    y = arena.take_each<Value>(to * widest.span());
    arranged = arena.take_each<Value>(count_arranged<Value>(from, length));
    if (!differentiate) return;
    transposed = arena.take_each<Value>(count_transposed<Value>(widest, shape.inputs, shape.outputs));
    dy = arena.take_each<Value>(round_up(shape.outputs, LANES) * length);
    sums = arena.take(split.pieces * taps * count_kernel_sums(shape.inputs, shape.outputs));
    places = arena.take<TapPlaces>(count_places<Value>(widest, shape.size));
  }
};

Split split_of(const ConvolutionShape &shape) { return {shape.images, shape.height * shape.width}; }

template <typename Value>
Layout layout_of(const ConvolutionShape &shape, const Split &split, int64_t images) {
  return choose_layout<Value>(images, split.band, shape.height, shape.width, shape.size);
}

template <typename Value>
size_t count(const ConvolutionShape &shape, bool differentiate) {
  const Split split = split_of(shape);
  Arena arena;
  Scratch<Value>(shape, split, layout_of<Value>(shape, split, split.band), differentiate, arena);
  return arena.used();
}

// Maps as they are. The gradient of x is not wanted if dx is null.
template <typename Value>
struct Maps final : Source<Value> {
  const Value *x;
  Value *dx;
  int64_t channels, plane;

  Maps(const Value *x_, Value *dx_, int64_t channels_, int64_t plane_)
      : x(x_), dx(dx_), channels(channels_), plane(plane_) {}
  void lay(const Layout &layout, int64_t image, int64_t channel, Value *laid) const override {
    primitives<Value>().lay(layout, x + (image * channels + channel) * plane, channels * plane, nullptr, laid);
  }
  bool wants_gradient() const override { return dx != nullptr; }
  void take_gradient(const Layout &layout, int64_t image, int64_t channel, const Value *gradient) const override {
    take_images(layout, gradient, dx + (image * channels + channel) * plane, channels * plane);
  }
};

template <typename Value>
void lay_all(const Layout &layout, const Source<Value> &source, int64_t image, int64_t channels, Value *laid) {
  for (int64_t channel = 0; channel < channels; channel++)
    source.lay(layout, image, channel, laid + channel * layout.length());
}

// The rows and columns from the pixel of a result to the one that a tap of the kernel reads; for the gradient of the
// convolution's input, those in the other direction.
struct Reach {
  int64_t down, right;

  Reach(int64_t size, int64_t tap, bool backward) {
    const int64_t before = (size - 1) / 2;
    down = backward ? before - tap / size : tap / size - before;
    right = backward ? before - tap % size : tap % size - before;
  }
  int64_t offset(const Layout &layout) const { return layout.place(0, down, right); }
  bool is_within(const Layout &layout, int64_t row, int64_t column) const {
    return 0 <= row + down && row + down < layout.height && 0 <= column + right && column + right < layout.width;
  }
  // The number of pixels of a map from which it stays within the map.
  int64_t count_pixels(const Layout &layout) const {
    return std::max<int64_t>(layout.height - std::abs(down), 0) * std::max<int64_t>(layout.width - std::abs(right), 0);
  }
};

// The taps of a kernel that weights are packed for, see `count_taps`.
struct PackedTaps {
  int64_t count = 0, taps[MAX_SIZE * MAX_SIZE];

  PackedTaps(const Layout &layout, int64_t size) {
    for (int64_t tap = 0; tap < size * size; tap++)
      if (!layout.is_interleaved() || Reach(size, tap, false).count_pixels(layout) > 0) taps[count++] = tap;
  }
};

// Where the taps of a kernel read in padded maps, from the pixel of a result on.
struct Offsets {
  int64_t of_tap[MAX_SIZE * MAX_SIZE];

  Offsets(const Layout &layout, int64_t size, bool backward) {
    for (int64_t tap = 0; tap < size * size; tap++) of_tap[tap] = Reach(size, tap, backward).offset(layout);
  }
};

// Computes each pixel of interleaved maps by the taps that read within its map.
void convolve_interleaved(const Layout &layout, int64_t size, const float *x, int64_t inputs, const float *packed,
                          int64_t outputs, bool backward, float *y) {
  const PackedTaps all(layout, size);
  const int64_t images = round_up(layout.images, LANES);
  for (int64_t row = 0; row < layout.height; row++)
    for (int64_t column = 0; column < layout.width; column++) {
      int64_t numbers[MAX_SIZE * MAX_SIZE + 1], offsets[MAX_SIZE * MAX_SIZE], steps[MAX_SIZE * MAX_SIZE];
      int64_t count = 0;
      for (int64_t number = 0; number < all.count; number++) {
        const Reach reach(size, all.taps[number], backward);
        if (!reach.is_within(layout, row, column)) continue;
        offsets[count] = reach.offset(layout);
        numbers[count++] = number;
      }
      numbers[count] = all.count + numbers[0];
      for (int64_t tap = 0; tap < count; tap++) steps[tap] = numbers[tap + 1] - numbers[tap];
      const Taps taps{offsets, steps, count, numbers[0], all.count};
      for (int64_t image = 0; image < images; image += TILE) {
        const int64_t at = layout.place(image, row, column);
        primitives<float>().multiply_taps(x + layout.origin() + at, layout.length(), inputs, taps, packed, outputs, y + at,
                                          layout.span(), std::min<int64_t>(TILE, images - image));
      }
    }
}

// The number of products of a convolution, for each pair of an input and an output.
template <typename Value>
int64_t count_products(const Layout &layout, int64_t size) {
  if (!layout.is_interleaved())
    return (has_runs<Value>(layout) ? layout.images * layout.plane() : layout.span()) * size * size;
  int64_t products = 0;
  for (int64_t tap = 0; tap < size * size; tap++)
    products += Reach(size, tap, false).count_pixels(layout) * round_up(layout.images, LANES);
  return products;
}

}  // namespace

template <typename Value>
size_t count_scratch(const ConvolutionShape &shape) {
  return count<Value>(shape, false);
}

template <typename Value>
size_t count_gradient_scratch(const ConvolutionShape &shape) {
  return count<Value>(shape, true);
}

template <typename Value>
void convolve(const ConvolutionShape &shape, const Source<Value> &x, const float *kernel, Value *y, float *scratch) {
  const Split split = split_of(shape);
  Arena arena(scratch);
  const Layout widest = layout_of<Value>(shape, split, split.band);
  const Scratch<Value> memory(shape, split, widest, false, arena);
  const int64_t plane = shape.height * shape.width;
  pack_kernel(widest, kernel, shape.size, shape.inputs, shape.outputs, false, memory.packed);
  run_parallel(split.pieces, [&](int64_t piece) {
    split.each_band(piece, [&](int64_t image, int64_t images) {
      const Layout layout = layout_of<Value>(shape, split, images);
      lay_all(layout, x, image, shape.inputs, memory.x.mine());
      const Value *from =
          arrange(memory.x.mine(), layout.length(), shape.inputs, layout.length(), memory.arranged.mine());
      convolve_laid(layout, shape.size, from, shape.inputs, memory.packed, shape.outputs, false, memory.y.mine());
      for (int64_t output = 0; output < shape.outputs; output++)
        take_images(layout, memory.y.mine() + output * layout.span(), y + (image * shape.outputs + output) * plane,
                    shape.outputs * plane);
    });
  });
}

template <typename Value>
void differentiate_convolution(const ConvolutionShape &shape, const Value *dy, const Source<Value> &x,
                               const float *kernel, float *d_kernel, float *scratch) {
  const Split split = split_of(shape);
  Arena arena(scratch);
  const Layout widest = layout_of<Value>(shape, split, split.band);
  const Scratch<Value> memory(shape, split, widest, true, arena);
  const int64_t taps = shape.size * shape.size, sums = taps * count_kernel_sums(shape.inputs, shape.outputs);
  const Maps<Value> above(dy, nullptr, shape.outputs, shape.height * shape.width);
  pack_kernel(widest, kernel, shape.size, shape.inputs, shape.outputs, true, memory.packed);
  list_places<Value>(widest, shape.size, memory.places);
  run_parallel(split.pieces, [&](int64_t piece) {
    clear(memory.sums + piece * sums, sums);
    split.each_band(piece, [&](int64_t image, int64_t images) {
      const Layout layout = layout_of<Value>(shape, split, images);
      lay_all(layout, x, image, shape.inputs, memory.x.mine());
      lay_all<Value>(layout, above, image, shape.outputs, memory.dy.mine());
      accumulate_kernel(layout, shape.size, memory.dy.mine(), shape.outputs, memory.x.mine(), shape.inputs,
                        memory.sums + piece * sums, memory.transposed.mine(), memory.places);
      if (!x.wants_gradient()) return;
      const Value *from =
          arrange(memory.dy.mine(), layout.length(), shape.outputs, layout.length(), memory.arranged.mine());
      convolve_laid(layout, shape.size, from, shape.outputs, memory.packed, shape.inputs, true, memory.y.mine());
      for (int64_t input = 0; input < shape.inputs; input++)
        x.take_gradient(layout, image, input, memory.y.mine() + input * layout.span());
    });
  });
  add_parts(memory.sums, split.pieces, sums);
  finish_kernel<Value>(memory.sums, taps, shape.inputs, shape.outputs, d_kernel, shape.inputs);
}

template <typename Value>
void convolve(const ConvolutionShape &shape, const Value *x, const float *kernel, Value *y, float *scratch) {
  convolve<Value>(shape, Maps<Value>(x, nullptr, shape.inputs, shape.height * shape.width), kernel, y, scratch);
}

template <typename Value>
void differentiate_convolution(const ConvolutionShape &shape, const Value *dy, const Value *x, const float *kernel,
                               Value *dx, float *d_kernel, float *scratch) {
  const Maps<Value> maps(x, dx, shape.inputs, shape.height * shape.width);
  differentiate_convolution<Value>(shape, dy, maps, kernel, d_kernel, scratch);
}

template <typename Value>
Layout choose_layout(int64_t images, int64_t most, int64_t height, int64_t width, int64_t size) {
  const Layout padded{images, height, width, size / 2};
  if (!std::is_same_v<Value, float> || padded.plane() > Layout::MAX_INTERLEAVED) return padded;
  const Layout interleaved{images, height, width, 0, round_up(most, LANES)};
  Layout widest = padded, other = interleaved;
  widest.images = other.images = most;  // so that all bands lie alike
  return count_products<Value>(other, size) < count_products<Value>(widest, size) ? interleaved : padded;
}

template <typename Value>
void convolve_laid(const Layout &layout, int64_t size, const Value *x, int64_t inputs, const Value *packed,
                   int64_t outputs, bool backward, Value *y) {
  if constexpr (std::is_same_v<Value, float>)
    if (layout.is_interleaved()) return convolve_interleaved(layout, size, x, inputs, packed, outputs, backward, y);
  const int64_t span = layout.span(), values = std::is_same_v<Value, float> ? 1 : 2;  // a pixel of arranged maps
  const Offsets offsets(layout, size, backward);
  for (int64_t pixel = 0; pixel < span; pixel += TILE)
    primitives<Value>().multiply(x + (layout.origin() + pixel) * values, layout.length(), inputs, offsets.of_tap,
                                 size * size, packed, outputs, y + pixel, span, std::min<int64_t>(TILE, span - pixel), {});
}

int64_t count_taps(const Layout &layout, int64_t size) { return PackedTaps(layout, size).count; }

void list_runs(const Layout &layout, int64_t *at) {
  for (int64_t image = 0; image < layout.images; image++)
    for (int64_t row = 0; row < layout.height; row++)
      for (int64_t column = 0; column < layout.width; column += RUN) *at++ = layout.place(image, row, column);
}

template <typename Value>
void convolve_runs(const Layout &layout, int64_t size, const int64_t *runs, int64_t pixel, const Value *x,
                   int64_t inputs, const Value *packed, int64_t outputs, bool backward, Value *y, int64_t y_stride,
                   int64_t width, const NextRows<Value> &next) {
  const Offsets offsets(layout, size, backward);
  primitives<Value>().multiply_runs({runs + pixel / RUN, layout.width}, x + layout.origin(), layout.length(), inputs,
                                    offsets.of_tap, size * size, packed, outputs, y, y_stride, width, next);
}

template <typename Value>
void list_places(const Layout &layout, int64_t size, TapPlaces *places) {
  if (count_places<Value>(layout, size) == 0) return;
  const int64_t pixels = layout.images * layout.plane();
  for (int64_t start = 0; start < pixels; start += TILE)
    for (int64_t tap = 0; tap < size * size; tap++, places++) {
      const Reach reach(size, tap, false);
      places->count = 0;
      for (int64_t pixel = start; pixel < std::min(start + TILE, pixels); pixel++) {
        const int64_t row = pixel % layout.plane() / layout.width, column = pixel % layout.width;
        if (!reach.is_within(layout, row, column)) continue;
        const int64_t at = layout.origin() + layout.place(pixel / layout.plane(), row, column);
        places->places[places->count++] = {static_cast<int32_t>(at), static_cast<int32_t>(at + reach.offset(layout))};
      }
    }
}

template <typename Value>
void accumulate_kernel(const Layout &layout, int64_t size, const Value *dy, int64_t outputs, const Value *x,
                       int64_t inputs, float *sums, Value *transposed, const TapPlaces *places) {
  const Value *rows = x, *others = dy;
  int64_t number = inputs, columns = outputs;
  if (TRANSPOSES_INPUTS<Value>) std::swap(rows, others), std::swap(number, columns);
  const int64_t pitch = round_up(columns, LANES), span = layout.span(), length = layout.length();
  for (int64_t pixel = 0; pixel < length; pixel += TILE)
    primitives<Value>().transpose(others + pixel, length, columns, transposed + pixel * pitch, pitch);
  if constexpr (TRANSPOSES_INPUTS<Value>) {
    for (int64_t at = 0; at < count_places<Value>(layout, size); at++, places++) {
      int64_t count = places->count;
      while (count > 0 && layout.image_at(places->places[count - 1].x - layout.origin()) >= layout.images) count--;
      primitives<Value>().accumulate_places(rows, length, number, transposed, pitch,
                                            sums + at % (size * size) * count_kernel_sums(inputs, outputs),
                                            places->places, count);
    }
    return;
  }
  for (int64_t pixel = 0; pixel < span; pixel += TILE)
    for (int64_t tap = 0; tap < size * size; tap++) {
      const int64_t at = layout.origin() + pixel;
      primitives<Value>().accumulate(rows + at + Reach(size, tap, false).offset(layout), length, number,
                                     transposed + at * pitch, pitch, sums + tap * count_kernel_sums(inputs, outputs),
                                     std::min<int64_t>(TILE, span - pixel), {});
    }
}

template <typename Value>
void take_images(const Layout &layout, const Value *y, Value *images, int64_t image_stride) {
  if (layout.is_interleaved())
    return transpose_small(y, layout.plane(), layout.images, layout.room, images, image_stride);
  for (int64_t image = 0; image < layout.images; image++)
    for (int64_t row = 0; row < layout.height; row++)
      copy_row(y + layout.place(image, row, 0), layout.width, images + image * image_stride + row * layout.width);
}

template <typename Value>
void pack_kernel(const Layout &layout, const float *kernel, int64_t size, int64_t inputs, int64_t outputs, bool backward,
                 Value *packed) {
  PackedTaps taps(layout, size);
  for (int64_t number = 0; number < taps.count; number++) taps.taps[number] *= inputs * outputs;
  if (backward) {
    pack_weights(kernel, inputs, outputs, taps.count, outputs, 1, taps.taps, packed);
  } else {
    pack_weights(kernel, outputs, inputs, taps.count, 1, outputs, taps.taps, packed);
  }
}

template <typename Value>
void finish_kernel(const float *sums, int64_t taps, int64_t inputs, int64_t outputs, float *kernel, int64_t all_inputs) {
  const int64_t step = TRANSPOSES_INPUTS<Value> ? round_up(inputs, LANES) : round_up(outputs, LANES);
  run_parts(inputs, LANES, [&](int64_t first, int64_t number) {
    for (int64_t tap = 0; tap < taps; tap++) {
      const float *from = sums + tap * count_kernel_sums(inputs, outputs);
      float *to = kernel + tap * all_inputs * outputs;
      for (int64_t input = first; input < first + number; input++)
        for (int64_t output = 0; output < outputs; output++)
          to[input * outputs + output] =
              TRANSPOSES_INPUTS<Value> ? from[output * step + input] : from[input * step + output];
    }
  });
}

#define INSTANTIATE(Value)                                                                                            \
  template size_t count_scratch<Value>(const ConvolutionShape &);                                                     \
  template size_t count_gradient_scratch<Value>(const ConvolutionShape &);                                            \
  template void convolve(const ConvolutionShape &, const Source<Value> &, const float *, Value *, float *);           \
  template void differentiate_convolution(const ConvolutionShape &, const Value *, const Source<Value> &,            \
                                          const float *, float *, float *);                                           \
  template void convolve(const ConvolutionShape &, const Value *, const float *, Value *, float *);                   \
  template void differentiate_convolution(const ConvolutionShape &, const Value *, const Value *, const float *,      \
                                          Value *, float *, float *);                                                 \
  template Layout choose_layout<Value>(int64_t, int64_t, int64_t, int64_t, int64_t);                                  \
  template void convolve_laid(const Layout &, int64_t, const Value *, int64_t, const Value *, int64_t, bool, Value *); \
  template void accumulate_kernel(const Layout &, int64_t, const Value *, int64_t, const Value *, int64_t, float *,  \
                                  Value *, const TapPlaces *);                                                        \
  template void convolve_runs(const Layout &, int64_t, const int64_t *, int64_t, const Value *, int64_t,             \
                              const Value *, int64_t, bool, Value *, int64_t, int64_t, const NextRows<Value> &);       \
  template void list_places<Value>(const Layout &, int64_t, TapPlaces *);                                             \
  template void take_images(const Layout &, const Value *, Value *, int64_t);                                         \
  template void pack_kernel(const Layout &, const float *, int64_t, int64_t, int64_t, bool, Value *);                 \
  template void finish_kernel<Value>(const float *, int64_t, int64_t, int64_t, float *, int64_t);

INSTANTIATE(float)
INSTANTIATE(Bfloat)

}  // namespace native
