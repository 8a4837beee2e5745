// How work on a batch is cut into pieces, and where its memory is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "primitives.h"
#include "threads.h"

namespace native {

// A batch is cut into pieces by its shape alone, never by the number of threads, because each piece has sums of its own.
struct Split {
  static constexpr int64_t PIECES = native::PIECES;  // at most
  static constexpr int64_t BAND_PIXELS = 256;  // at least, so that small maps fill tiles

  int64_t images, band, piece, pieces;

  Split(int64_t images_, int64_t pixels) : images(images_) {
    band = (BAND_PIXELS + pixels - 1) / pixels;
    band = band < images ? band : images;
    piece = round_up((images + PIECES - 1) / PIECES, band);
    pieces = (images + piece - 1) / piece;
  }
  int64_t begin(int64_t number) const { return number * piece; }
  int64_t end(int64_t number) const { return begin(number + 1) < images ? begin(number + 1) : images; }

  // Calls work(first image, number of images) for each band of a piece, or of some images.
  template <typename Work>
  void each_band(int64_t number, const Work &work) const {
    each_band(begin(number), end(number), work);
  }
  template <typename Work>
  void each_band(int64_t first, int64_t last, const Work &work) const {
    for (int64_t image = first; image < last; image += band) work(image, last - image < band ? last - image : band);
  }
};

// Hands out parts of a block of memory; without a block it only counts.
class Arena {
 public:
  explicit Arena(float *base = nullptr) : base_(base) {}
  template <typename Value = float>
  Value *take(int64_t values) {
    float *start = base_ == nullptr ? nullptr : base_ + used_;
    used_ += round_up(values * sizeof(Value), 64) / sizeof(float);
    return reinterpret_cast<Value *>(start);
  }
  // One part for each thread.
  template <typename Value>
  struct Each {
    Value *base = nullptr;
    int64_t values = 0;
    Value *mine() const { return base + thread_slot() * values; }
  };
  template <typename Value>
  Each<Value> take_each(int64_t values) {
    values = round_up(values, 64 / sizeof(Value));
    return {take<Value>(values * count_threads()), values};
  }
  size_t used() const { return used_; }

 private:
  float *base_;
  int64_t used_ = 0;
};

// Adds `parts` arrays of `count` numbers, one after the other in memory, in a fixed tree; the result is the first.
void add_parts(float *parts, int64_t number, int64_t count);
void add_parts(double *parts, int64_t number, int64_t count);

template <typename Value>
void clear(Value *x, int64_t count) {
  std::memset(x, 0, static_cast<size_t>(count) * sizeof(Value));
}

}  // namespace native
