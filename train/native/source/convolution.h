// Convolutions with stride 1 and padding that keeps height and width, on maps (images, channels, height, width).
//
// Values of maps are float32 or bfloat16. Kernels are float32, and rounded for maps in bfloat16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "primitives.h"

namespace native {

struct ConvolutionShape {
  int64_t images, height, width, inputs, outputs;
  int64_t size;  // height and width of the kernel, at most MAX_SIZE; an even one reaches further down and right
};

constexpr int64_t MAX_SIZE = 15;

// Numbers of floats that the functions below need as working memory, aligned to 64 bytes.
template <typename Value>
size_t count_scratch(const ConvolutionShape &shape);
template <typename Value>
size_t count_gradient_scratch(const ConvolutionShape &shape);

// Convolves x with a kernel (size, size, inputs, outputs).
template <typename Value>
void convolve(const ConvolutionShape &shape, const Value *x, const float *kernel, Value *y, float *scratch);

// Writes the gradients of x (not if dx is null) and of the kernel.
template <typename Value>
void differentiate_convolution(const ConvolutionShape &shape, const Value *dy, const Value *x, const float *kernel,
                               Value *dx, float *d_kernel, float *scratch);

// What a convolution reads, one channel of the images from `image` on at a time, and what takes the gradient of that.
template <typename Value>
class Source {
 public:
  // Writes them as a layout says, with all of its zeros.
  virtual void lay(const Layout &layout, int64_t image, int64_t channel, Value *laid) const = 0;
  virtual bool wants_gradient() const = 0;
  // The gradient has `layout.span()` values, from the first pixel on.
  virtual void take_gradient(const Layout &layout, int64_t image, int64_t channel, const Value *gradient) const = 0;

 protected:
  ~Source() = default;
};

// The same with an input that is computed while it is packed.
template <typename Value>
void convolve(const ConvolutionShape &shape, const Source<Value> &x, const float *kernel, Value *y, float *scratch);
template <typename Value>
void differentiate_convolution(const ConvolutionShape &shape, const Value *dy, const Source<Value> &x,
                               const float *kernel, float *d_kernel, float *scratch);

// The parts, for maps that lie as a layout says, with `layout.length()` values a channel.

// Returns how the maps of some images lie, of which there are at most `most`: interleaved where that takes fewer products,
// in float32. In bfloat16 they are padded, because terms that are left out change the order of sums.
template <typename Value>
Layout choose_layout(int64_t images, int64_t most, int64_t height, int64_t width, int64_t size);

// Convolves maps, arranged, with packed weights; y has `layout.span()` values a channel, from the first pixel on. With
// `backward`, computes the gradient of the convolution's input from that of its result.
template <typename Value>
void convolve_laid(const Layout &layout, int64_t size, const Value *x, int64_t inputs, const Value *packed,
                   int64_t outputs, bool backward, Value *y);

// Returns whether a tile of padded maps is computed without padding: in float32, where maps are whole vectors and rows
// whole runs. Runs of four take more loads, which pays only where a third of a tile would be padding. In bfloat16 pairs of
// channels lie together, so that runs are not as in the maps.
template <typename Value>
bool has_runs(const Layout &layout) {
  const bool suits = layout.width % (2 * RUN) == 0 || layout.width == RUN;
  return std::is_same_v<Value, float> && !layout.is_interleaved() && suits && layout.plane() % LANES == 0;
}

// Where the runs of padded maps are, from the first pixel on.
inline int64_t count_runs(const Layout &layout) { return round_up(layout.images * layout.plane(), TILE) / RUN; }
void list_runs(const Layout &layout, int64_t *at);

// Convolves padded maps with packed weights as `convolve_laid`, for `width` pixels of a tile, which begins at `pixel`
// of those without padding.
template <typename Value>
void convolve_runs(const Layout &layout, int64_t size, const int64_t *runs, int64_t pixel, const Value *x,
                   int64_t inputs, const Value *packed, int64_t outputs, bool backward, Value *y, int64_t y_stride,
                   int64_t width, const NextRows<Value> &next);

// The pixels of a tile, of those without padding, at which a tap of a kernel reads within the map: where they are in the
// gradient of the result, and in the input.
struct TapPlaces {
  int64_t count;
  Place places[TILE];
};

// The same for all tiles of maps and all taps. Sums in bfloat16 need none, because they include the padding.
template <typename Value>
int64_t count_places(const Layout &layout, int64_t size) {
  const int64_t pixels = layout.images * layout.plane();
  return std::is_same_v<Value, float> ? (pixels + TILE - 1) / TILE * size * size : 0;
}
template <typename Value>
void list_places(const Layout &layout, int64_t size, TapPlaces *places);

// Adds to `size` * `size` * `count_kernel_sums` sums the gradient of a kernel, from maps x and the gradient dy of the
// result; the places may be of maps with more images. One of both is transposed: in float32 the inputs, of which layers
// have more than outputs, so that sums fill vectors. In bfloat16 the outputs, because two pixels are kept together, and the
// inputs are shifted by one. Maps have memory for a multiple of LANES channels.
template <typename Value>
void accumulate_kernel(const Layout &layout, int64_t size, const Value *dy, int64_t outputs, const Value *x,
                       int64_t inputs, float *sums, Value *transposed, const TapPlaces *places);
template <typename Value>
constexpr bool TRANSPOSES_INPUTS = std::is_same_v<Value, float>;
template <typename Value>
int64_t count_transposed(const Layout &layout, int64_t inputs, int64_t outputs) {
  return round_up(TRANSPOSES_INPUTS<Value> ? inputs : outputs, LANES) * layout.length();
}
inline int64_t count_kernel_sums(int64_t inputs, int64_t outputs) {
  return round_up(inputs, LANES) * round_up(outputs, LANES);
}

// Copies one channel from the result of `convolve_laid` to images that are `image_stride` values apart.
template <typename Value>
void take_images(const Layout &layout, const Value *y, Value *images, int64_t image_stride);

// Packs a kernel (size, size, inputs, outputs) for the functions above, and the number of its taps that are packed: those
// that read within interleaved maps from any pixel, or all.
int64_t count_taps(const Layout &layout, int64_t size);
template <typename Value>
void pack_kernel(const Layout &layout, const float *kernel, int64_t size, int64_t inputs, int64_t outputs, bool backward,
                 Value *packed);

// Writes sums as a kernel, or as some inputs of one that has `all_inputs`.
template <typename Value>
void finish_kernel(const float *sums, int64_t taps, int64_t inputs, int64_t outputs, float *kernel, int64_t all_inputs);

}  // namespace native
