// How work on a batch is cut into pieces, and where its memory is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "primitives.h"
#include "threads.h"

namespace native {

// A batch is cut into pieces by its shape alone, never by the number of threads, because each piece has sums of its own.
struct Split {
  static constexpr int64_t PIECES = 32;       // at most
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

  // Calls work(first image, number of images) for each band of a piece.
  template <typename Work>
  void each_band(int64_t number, const Work &work) const {
    for (int64_t image = begin(number); image < end(number); image += band)
      work(image, end(number) - image < band ? end(number) - image : band);
  }
};

// Hands out parts of a block of memory; without a block it only counts.
class Arena {
 public:
  explicit Arena(float *base = nullptr) : base_(base) {}
  float *take(int64_t floats) {
    float *start = base_ == nullptr ? nullptr : base_ + used_;
    used_ += round_up(floats, 64 / sizeof(float));
    return start;
  }
  double *take_doubles(int64_t doubles) { return reinterpret_cast<double *>(take(2 * doubles)); }
  Norm *take_norms(int64_t norms) { return reinterpret_cast<Norm *>(take(norms * 3)); }
  // One part for each thread.
  struct Each {
    float *base;
    int64_t floats;
    float *mine() const { return base + thread_slot() * floats; }
  };
  Each take_each(int64_t floats) {
    floats = round_up(floats, 64 / sizeof(float));
    return {take(floats * count_threads()), floats};
  }
  size_t used() const { return used_; }

 private:
  float *base_;
  int64_t used_ = 0;
};

// Adds `parts` arrays of `count` floats, one after the other in memory, in a fixed tree; the result is the first.
void add_parts(float *parts, int64_t number, int64_t count);
// The same for doubles.
void add_parts(double *parts, int64_t number, int64_t count);

void clear(float *x, int64_t count);

}  // namespace native
