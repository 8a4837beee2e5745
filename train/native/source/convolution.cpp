#include "convolution.h"

#include <algorithm>
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

  Scratch(const ConvolutionShape &shape, const Split &split, const Padding &widest, bool differentiate, Arena &arena) {
    const int64_t taps = shape.size * shape.size, length = widest.length();
    int64_t from = shape.inputs, to = shape.outputs;
    if (differentiate) std::swap(from, to);
    packed = arena.take<Value>(count_packed<Value>(to, from, taps));
    x = arena.take_each<Value>(round_up(shape.inputs, LANES) * length);
    y = arena.take_each<Value>(to * widest.pixels());
    arranged = arena.take_each<Value>(count_arranged<Value>(from, length));
    if (!differentiate) return;
    transposed = arena.take_each<Value>(count_transposed<Value>(widest, shape.inputs, shape.outputs));
    dy = arena.take_each<Value>(round_up(shape.outputs, LANES) * length);
    sums = arena.take(split.pieces * taps * count_kernel_sums(shape.inputs, shape.outputs));
    places = arena.take<TapPlaces>(count_places<Value>(widest, shape.size));
  }
};

Split split_of(const ConvolutionShape &shape) { return {shape.images, shape.height * shape.width}; }

Padding padding_of(const ConvolutionShape &shape, int64_t images) {
  return {images, shape.height, shape.width, shape.size / 2};
}

template <typename Value>
size_t count(const ConvolutionShape &shape, bool differentiate) {
  const Split split = split_of(shape);
  Arena arena;
  Scratch<Value>(shape, split, padding_of(shape, split.band), differentiate, arena);
  return arena.used();
}

template <typename Value>
void pad_all(const Padding &padding, const Value *images, int64_t channels, Value *padded) {
  const int64_t plane = padding.height * padding.width;
  for (int64_t channel = 0; channel < channels; channel++)
    primitives<Value>().pad(padding, images + channel * plane, channels * plane, nullptr,
                            padded + channel * padding.length());
}

// Where a tap of the kernel reads, from the pixel of its result on.
int64_t offset_of(const Padding &padding, int64_t size, int64_t tap) {
  const int64_t before = (size - 1) / 2;
  return (tap / size - before) * padding.pitch() + tap % size - before;
}

// The same of all taps, for a convolution or for the gradient of its input.
struct Offsets {
  int64_t of_tap[MAX_SIZE * MAX_SIZE];

  Offsets(const Padding &padding, int64_t size, bool backward) {
    for (int64_t tap = 0; tap < size * size; tap++)
      of_tap[tap] = backward ? -offset_of(padding, size, tap) : offset_of(padding, size, tap);
  }
};

template <typename Value>
void unpad_all(const Padding &padding, const Value *y, int64_t channels, Value *images) {
  const int64_t plane = padding.height * padding.width;
  for (int64_t channel = 0; channel < channels; channel++)
    unpad(padding, y + channel * padding.pixels(), images + channel * plane, channels * plane);
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
void convolve(const ConvolutionShape &shape, const Value *x, const float *kernel, Value *y, float *scratch) {
  const Split split = split_of(shape);
  Arena arena(scratch);
  const Scratch<Value> memory(shape, split, padding_of(shape, split.band), false, arena);
  const int64_t plane = shape.height * shape.width;
  pack_kernel(kernel, shape.size, shape.inputs, shape.outputs, false, memory.packed);
  run_parallel(split.pieces, [&](int64_t piece) {
    split.each_band(piece, [&](int64_t image, int64_t images) {
      const Padding padding = padding_of(shape, images);
      pad_all(padding, x + image * shape.inputs * plane, shape.inputs, memory.x.mine());
      const Value *from =
          arrange(memory.x.mine(), padding.length(), shape.inputs, padding.length(), memory.arranged.mine());
      convolve_padded(padding, shape.size, from, shape.inputs, memory.packed, shape.outputs, false, memory.y.mine());
      unpad_all(padding, memory.y.mine(), shape.outputs, y + image * shape.outputs * plane);
    });
  });
}

template <typename Value>
void differentiate_convolution(const ConvolutionShape &shape, const Value *dy, const Value *x, const float *kernel,
                               Value *dx, float *d_kernel, float *scratch) {
  const Split split = split_of(shape);
  Arena arena(scratch);
  const Scratch<Value> memory(shape, split, padding_of(shape, split.band), true, arena);
  const int64_t plane = shape.height * shape.width, taps = shape.size * shape.size;
  const int64_t sums = taps * count_kernel_sums(shape.inputs, shape.outputs);
  pack_kernel(kernel, shape.size, shape.inputs, shape.outputs, true, memory.packed);
  list_places<Value>(padding_of(shape, split.band), shape.size, memory.places);
  run_parallel(split.pieces, [&](int64_t piece) {
    clear(memory.sums + piece * sums, sums);
    split.each_band(piece, [&](int64_t image, int64_t images) {
      const Padding padding = padding_of(shape, images);
      pad_all(padding, x + image * shape.inputs * plane, shape.inputs, memory.x.mine());
      pad_all(padding, dy + image * shape.outputs * plane, shape.outputs, memory.dy.mine());
      accumulate_kernel(padding, shape.size, memory.dy.mine(), shape.outputs, memory.x.mine(), shape.inputs,
                        memory.sums + piece * sums, memory.transposed.mine(), memory.places);
      if (dx == nullptr) return;
      const Value *from =
          arrange(memory.dy.mine(), padding.length(), shape.outputs, padding.length(), memory.arranged.mine());
      convolve_padded(padding, shape.size, from, shape.outputs, memory.packed, shape.inputs, true, memory.y.mine());
      unpad_all(padding, memory.y.mine(), shape.inputs, dx + image * shape.inputs * plane);
    });
  });
  add_parts(memory.sums, split.pieces, sums);
  finish_kernel<Value>(memory.sums, taps, shape.inputs, shape.outputs, d_kernel, shape.inputs);
}

template <typename Value>
void convolve_padded(const Padding &padding, int64_t size, const Value *x, int64_t inputs, const Value *packed,
                     int64_t outputs, bool backward, Value *y) {
  const int64_t pixels = padding.pixels(), values = std::is_same_v<Value, float> ? 1 : 2;  // a pixel of arranged maps
  const Offsets offsets(padding, size, backward);
  for (int64_t pixel = 0; pixel < pixels; pixel += TILE)
    primitives<Value>().multiply(x + (origin(padding) + pixel) * values, padding.length(), inputs, offsets.of_tap, size * size,
                                 packed, outputs, y + pixel, pixels, std::min<int64_t>(TILE, pixels - pixel));
}

void list_runs(const Padding &padding, int64_t *at) {
  for (int64_t image = 0; image < padding.images; image++)
    for (int64_t row = 0; row < padding.height; row++)
      for (int64_t column = 0; column < padding.width; column += RUN)
        *at++ = image * padding.step() + row * padding.pitch() + column;
}

template <typename Value>
void convolve_runs(const Padding &padding, int64_t size, const int64_t *runs, int64_t pixel, const Value *x,
                   int64_t inputs, const Value *packed, int64_t outputs, bool backward, Value *y, int64_t y_stride,
                   int64_t width) {
  const Offsets offsets(padding, size, backward);
  primitives<Value>().multiply_runs({runs + pixel / RUN, padding.width}, x + origin(padding), padding.length(), inputs,
                                    offsets.of_tap, size * size, packed, outputs, y, y_stride, width);
}

template <typename Value>
void list_places(const Padding &padding, int64_t size, TapPlaces *places) {
  if (count_places<Value>(padding, size) == 0) return;
  const int64_t before = (size - 1) / 2, plane = padding.height * padding.width, pixels = padding.images * plane;
  for (int64_t start = 0; start < pixels; start += TILE)
    for (int64_t tap = 0; tap < size * size; tap++, places++) {
      const int64_t down = tap / size - before, right = tap % size - before, offset = offset_of(padding, size, tap);
      places->count = 0;
      for (int64_t pixel = start; pixel < std::min(start + TILE, pixels); pixel++) {
        const int64_t row = pixel % plane / padding.width, column = pixel % padding.width;
        if (row + down < 0 || row + down >= padding.height || column + right < 0 || column + right >= padding.width) continue;
        const int64_t at = origin(padding) + pixel / plane * padding.step() + row * padding.pitch() + column;
        places->places[places->count++] = {static_cast<int32_t>(at), static_cast<int32_t>(at + offset)};
      }
    }
}

template <typename Value>
void accumulate_kernel(const Padding &padding, int64_t size, const Value *dy, int64_t outputs, const Value *x,
                       int64_t inputs, float *sums, Value *transposed, const TapPlaces *places) {
  const Value *rows = x, *others = dy;
  int64_t number = inputs, columns = outputs;
  if (TRANSPOSES_INPUTS<Value>) std::swap(rows, others), std::swap(number, columns);
  const int64_t pitch = round_up(columns, LANES), pixels = padding.pixels(), length = padding.length();
  for (int64_t pixel = 0; pixel < length; pixel += TILE)
    primitives<Value>().transpose(others + pixel, length, columns, transposed + pixel * pitch, pitch);
  if constexpr (TRANSPOSES_INPUTS<Value>) {
    const int64_t end = origin(padding) + padding.images * padding.step();
    for (int64_t at = 0; at < count_places<Value>(padding, size); at++, places++) {
      int64_t count = places->count;
      while (count > 0 && places->places[count - 1].x >= end) count--;  // of further images
      primitives<Value>().accumulate_places(rows, length, number, transposed, pitch,
                                            sums + at % (size * size) * count_kernel_sums(inputs, outputs),
                                            places->places, count);
    }
    return;
  }
  for (int64_t pixel = 0; pixel < pixels; pixel += TILE)
    for (int64_t tap = 0; tap < size * size; tap++) {
      const int64_t at = origin(padding) + pixel;
      primitives<Value>().accumulate(rows + at + offset_of(padding, size, tap), length, number, transposed + at * pitch,
                                     pitch, sums + tap * count_kernel_sums(inputs, outputs),
                                     std::min<int64_t>(TILE, pixels - pixel));
    }
}

template <typename Value>
void unpad(const Padding &padding, const Value *y, Value *images, int64_t image_stride) {
  for (int64_t image = 0; image < padding.images; image++)
    for (int64_t row = 0; row < padding.height; row++)
      copy_row(y + image * padding.step() + row * padding.pitch(), padding.width,
               images + image * image_stride + row * padding.width);
}

template <typename Value>
void pack_kernel(const float *kernel, int64_t size, int64_t inputs, int64_t outputs, bool backward, Value *packed) {
  const int64_t taps = size * size, tap = inputs * outputs;
  if (backward) {
    pack_weights(kernel, inputs, outputs, taps, outputs, 1, tap, packed);
  } else {
    pack_weights(kernel, outputs, inputs, taps, 1, outputs, tap, packed);
  }
}

template <typename Value>
void finish_kernel(const float *sums, int64_t taps, int64_t inputs, int64_t outputs, float *kernel, int64_t all_inputs) {
  const int64_t step = TRANSPOSES_INPUTS<Value> ? round_up(inputs, LANES) : round_up(outputs, LANES);
  for (int64_t tap = 0; tap < taps; tap++, sums += count_kernel_sums(inputs, outputs), kernel += all_inputs * outputs)
    for (int64_t input = 0; input < inputs; input++)
      for (int64_t output = 0; output < outputs; output++)
        kernel[input * outputs + output] =
            TRANSPOSES_INPUTS<Value> ? sums[output * step + input] : sums[input * step + output];
}

#define INSTANTIATE(Value)                                                                                            \
  template size_t count_scratch<Value>(const ConvolutionShape &);                                                     \
  template size_t count_gradient_scratch<Value>(const ConvolutionShape &);                                            \
  template void convolve(const ConvolutionShape &, const Value *, const float *, Value *, float *);                   \
  template void differentiate_convolution(const ConvolutionShape &, const Value *, const Value *, const float *,      \
                                          Value *, float *, float *);                                                 \
  template void convolve_padded(const Padding &, int64_t, const Value *, int64_t, const Value *, int64_t, bool,       \
                                Value *);                                                                             \
  template void accumulate_kernel(const Padding &, int64_t, const Value *, int64_t, const Value *, int64_t, float *,  \
                                  Value *, const TapPlaces *);                                                        \
  template void convolve_runs(const Padding &, int64_t, const int64_t *, int64_t, const Value *, int64_t,             \
                              const Value *, int64_t, bool, Value *, int64_t, int64_t);                               \
  template void list_places<Value>(const Padding &, int64_t, TapPlaces *);                                            \
  template void unpad(const Padding &, const Value *, Value *, int64_t);                                              \
  template void pack_kernel(const float *, int64_t, int64_t, int64_t, bool, Value *);                                 \
  template void finish_kernel<Value>(const float *, int64_t, int64_t, int64_t, float *, int64_t);

INSTANTIATE(float)
INSTANTIATE(Bfloat)

}  // namespace native
