#include "convolution.h"

#include <algorithm>
#include <cstring>

#include "work.h"

namespace native {

namespace {

// Working memory of both directions; a direction counts and takes only what it uses.
struct Scratch {
  float *forward = nullptr, *backward = nullptr, *sums = nullptr;
  Arena::Each x{}, y{}, columns{}, dy{};

  Scratch(const ConvolutionShape &shape, const Split &split, const Padding &widest, bool differentiate, Arena &arena) {
    const int64_t taps = shape.size * shape.size, columns_of = round_up(shape.inputs, LANES);
    x = arena.take_each(shape.inputs * widest.length());
    y = arena.take_each(std::max(shape.inputs, shape.outputs) * widest.pixels());
    if (!differentiate) {
      forward = arena.take(count_packed(shape.outputs, shape.inputs, taps));
      return;
    }
    backward = arena.take(count_packed(shape.inputs, shape.outputs, taps));
    columns = arena.take_each(columns_of * widest.length());
    dy = arena.take_each(shape.outputs * widest.length());
    sums = arena.take(split.pieces * taps * shape.outputs * columns_of);
  }
};

Split split_of(const ConvolutionShape &shape) { return {shape.images, shape.height * shape.width}; }

Padding padding_of(const ConvolutionShape &shape, int64_t images) {
  return {images, shape.height, shape.width, shape.size / 2};
}

size_t count(const ConvolutionShape &shape, bool differentiate) {
  const Split split = split_of(shape);
  Arena arena;
  Scratch(shape, split, padding_of(shape, split.band), differentiate, arena);
  return arena.used();
}

void pad_all(const Padding &padding, const float *images, int64_t channels, float *padded) {
  const int64_t plane = padding.height * padding.width;
  for (int64_t channel = 0; channel < channels; channel++)
    primitives().pad(padding, images + channel * plane, channels * plane, nullptr,
                     padded + channel * padding.length());
}

// Where a tap of the kernel reads, from the pixel of its result on.
int64_t offset_of(const Padding &padding, int64_t size, int64_t tap) {
  const int64_t before = (size - 1) / 2;
  return (tap / size - before) * padding.pitch() + tap % size - before;
}

void unpad_all(const Padding &padding, const float *y, int64_t channels, float *images) {
  const int64_t plane = padding.height * padding.width;
  for (int64_t channel = 0; channel < channels; channel++)
    unpad(padding, y + channel * padding.pixels(), images + channel * plane, channels * plane);
}

}  // namespace

size_t count_scratch(const ConvolutionShape &shape) { return count(shape, false); }

size_t count_gradient_scratch(const ConvolutionShape &shape) { return count(shape, true); }

void convolve(const ConvolutionShape &shape, const float *x, const float *kernel, float *y, float *scratch) {
  const Split split = split_of(shape);
  Arena arena(scratch);
  const Scratch memory(shape, split, padding_of(shape, split.band), false, arena);
  const int64_t plane = shape.height * shape.width;
  pack_kernel(kernel, shape.size, shape.inputs, shape.outputs, false, memory.forward);
  run_parallel(split.pieces, [&](int64_t piece) {
    split.each_band(piece, [&](int64_t image, int64_t images) {
      const Padding padding = padding_of(shape, images);
      pad_all(padding, x + image * shape.inputs * plane, shape.inputs, memory.x.mine());
      convolve_padded(padding, shape.size, memory.x.mine(), shape.inputs, memory.forward, shape.outputs, false,
                      memory.y.mine());
      unpad_all(padding, memory.y.mine(), shape.outputs, y + image * shape.outputs * plane);
    });
  });
}

void differentiate_convolution(const ConvolutionShape &shape, const float *dy, const float *x, const float *kernel,
                               float *dx, float *d_kernel, float *scratch) {
  const Split split = split_of(shape);
  Arena arena(scratch);
  const Scratch memory(shape, split, padding_of(shape, split.band), true, arena);
  const int64_t plane = shape.height * shape.width, taps = shape.size * shape.size;
  const int64_t columns = round_up(shape.inputs, LANES), sums = taps * shape.outputs * columns;
  pack_kernel(kernel, shape.size, shape.inputs, shape.outputs, true, memory.backward);
  run_parallel(split.pieces, [&](int64_t piece) {
    clear(memory.sums + piece * sums, sums);
    split.each_band(piece, [&](int64_t image, int64_t images) {
      const Padding padding = padding_of(shape, images);
      pad_all(padding, x + image * shape.inputs * plane, shape.inputs, memory.x.mine());
      pad_all(padding, dy + image * shape.outputs * plane, shape.outputs, memory.dy.mine());
      transpose_padded(padding, memory.x.mine(), shape.inputs, memory.columns.mine(), columns);
      accumulate_kernel(padding, shape.size, memory.dy.mine(), shape.outputs, memory.columns.mine(), columns,
                        memory.sums + piece * sums);
      if (dx == nullptr) return;
      convolve_padded(padding, shape.size, memory.dy.mine(), shape.outputs, memory.backward, shape.inputs, true,
                      memory.y.mine());
      unpad_all(padding, memory.y.mine(), shape.inputs, dx + image * shape.inputs * plane);
    });
  });
  finish_kernel(memory.sums, split.pieces, taps, shape.inputs, shape.outputs, d_kernel);
}

void convolve_padded(const Padding &padding, int64_t size, const float *x, int64_t inputs, const float *packed,
                     int64_t outputs, bool backward, float *y) {
  const int64_t pixels = padding.pixels();
  int64_t offsets[MAX_SIZE * MAX_SIZE];
  for (int64_t tap = 0; tap < size * size; tap++)
    offsets[tap] = backward ? -offset_of(padding, size, tap) : offset_of(padding, size, tap);
  for (int64_t pixel = 0; pixel < pixels; pixel += TILE)
    primitives().multiply(x + origin(padding) + pixel, padding.length(), inputs, offsets, size * size, packed, outputs,
                          y + pixel, pixels, std::min<int64_t>(TILE, pixels - pixel));
}

void accumulate_kernel(const Padding &padding, int64_t size, const float *dy, int64_t outputs, const float *x,
                       int64_t columns, float *sums) {
  const int64_t pixels = padding.pixels();
  for (int64_t pixel = 0; pixel < pixels; pixel += TILE)
    for (int64_t tap = 0; tap < size * size; tap++)
      primitives().accumulate(dy + origin(padding) + pixel, padding.length(), outputs,
                              x + (origin(padding) + pixel + offset_of(padding, size, tap)) * columns, columns,
                              sums + tap * outputs * columns, std::min<int64_t>(TILE, pixels - pixel));
}

void transpose_padded(const Padding &padding, const float *x, int64_t channels, float *y, int64_t columns) {
  for (int64_t pixel = 0; pixel < padding.length(); pixel += TILE)
    primitives().transpose(x + pixel, padding.length(), channels, y + pixel * columns, columns);
}

void unpad(const Padding &padding, const float *y, float *images, int64_t image_stride) {
  for (int64_t image = 0; image < padding.images; image++)
    for (int64_t row = 0; row < padding.height; row++)
      std::memcpy(images + image * image_stride + row * padding.width, y + image * padding.step() + row * padding.pitch(),
                  static_cast<size_t>(padding.width) * sizeof(float));
}

void pack_kernel(const float *kernel, int64_t size, int64_t inputs, int64_t outputs, bool backward, float *packed) {
  const int64_t taps = size * size, tap = inputs * outputs;
  if (backward) {
    pack_weights(kernel, inputs, outputs, taps, outputs, 1, tap, packed);
  } else {
    pack_weights(kernel, outputs, inputs, taps, 1, outputs, tap, packed);
  }
}

void finish_kernel(float *sums, int64_t pieces, int64_t taps, int64_t inputs, int64_t outputs, float *kernel) {
  const int64_t columns = round_up(inputs, LANES);
  add_parts(sums, pieces, taps * outputs * columns);
  for (int64_t tap = 0; tap < taps; tap++)
    for (int64_t input = 0; input < inputs; input++)
      for (int64_t output = 0; output < outputs; output++)
        *kernel++ = sums[(tap * outputs + output) * columns + input];
}

}  // namespace native
