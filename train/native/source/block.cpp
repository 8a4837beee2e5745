#include "block.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "convolution.h"
#include "work.h"

namespace native {

namespace {

constexpr int64_t SIZE = 3, TAPS = SIZE * SIZE;
const int64_t HERE = 0;

// Maps of some channels for a batch. The images of a group lie side by side in each of its channels. TensorFlow has groups
// of one image. If a tile spans several images, maps are stored per group of images.
template <typename Value>
struct Planes {
  Value *data;
  int64_t channels, pixels;
  int64_t group = 1, pitch = pixels;  // images of a group, and values of a channel in one

  Value *at(int64_t image, int64_t channel) const {
    return data + (image / group * channels + channel) * pitch + image % group * pixels;
  }
  MapsOf<const Value> maps(int64_t image, int64_t channel) const { return {at(image, channel), pitch, image_stride()}; }
  int64_t image_stride() const { return group == 1 ? channels * pitch : pixels; }  // within a group, or else from group to group
};

// Ranges of channels of about the same size.
struct Shares {
  int64_t channels, size, number;

  int64_t begin(int64_t index) const { return index * size; }
  int64_t end(int64_t index) const { return std::min(begin(index) + size, channels); }
};

// The geometry of a block: how its batch is cut, and the sizes of its parts.
struct Plan {
  const BlockShape &shape;
  Split split;
  int64_t shares, pixels, all, last, columns;

  explicit Plan(const BlockShape &shape_)
      : shape(shape_),
        split(shape_.images, shape_.pixels()),
        shares(count_shares(split.pieces)),
        pixels(shape_.pixels()),
        all(shape_.channels(shape_.layers)),
        last(shape_.channels(std::max<int64_t>(shape_.layers - 1, 0))),
        columns(round_up(shape_.inner, LANES)) {}

  // How the maps of some images, of at most `most`, lie for the 3x3 convolutions.
  template <typename Value>
  Layout layout(int64_t images, int64_t most) const {
    return choose_layout<Value>(images, most, shape.height, shape.width, SIZE);
  }
  int64_t count() const { return shape.images * pixels; }
  bool is_direct() const { return pixels % TILE == 0; }  // tiles never cross images
  // Maps of a batch as layers read them: in groups of so many images, with room for whole tiles in each channel.
  int64_t group() const { return is_direct() ? 1 : split.piece; }
  int64_t pitch() const { return round_up(group() * pixels, TILE); }
  int64_t count_laid(int64_t channels) const { return (shape.images + group() - 1) / group() * channels * pitch(); }
  template <typename Value>
  Planes<Value> lay(Value *data, int64_t channels) const {
    return {data, channels, pixels, group(), pitch()};
  }

  // Small maps make few pieces, because each has sums of its own. Threads that would have none take shares of one: of its
  // channels or, where nothing is added up over its images, of these. So the number of threads changes no sum.
  static int64_t count_shares(int64_t pieces) {
    const int64_t threads = count_threads();
    return pieces >= 2 * threads ? 1 : (threads + pieces - 1) / pieces;
  }

  Shares share(int64_t channels, int64_t multiple) const {
    const int64_t size = round_up(std::max<int64_t>((channels + shares - 1) / shares, 1), multiple);
    return {channels, size, (channels + size - 1) / size};
  }

  // Calls work(piece, begin, end) for the channels of each piece, in shares that begin at a multiple of `multiple`.
  template <typename Work>
  void each_share(int64_t channels, int64_t multiple, const Work &work) const {
    const Shares of = share(channels, multiple);
    run_parallel(split.pieces * of.number,
                 [&](int64_t index) { work(index / of.number, of.begin(index % of.number), of.end(index % of.number)); });
  }

  // Calls work(first image, number of images) for bands of all images, of at most `band()`; and then, when all of a piece
  // are done, finish(piece, begin, end) for its channels.
  template <typename Work, typename Finish>
  void each_band(const Work &work, int64_t channels, const Finish &finish) const {
    if (shares > 1) {
      each_band(work);
      return each_share(channels, 1, finish);
    }
    run_parallel(split.pieces, [&](int64_t piece) {
      split.each_band(piece, work);
      finish(piece, 0, channels);
    });
  }
  // Calls work(first image, number of images) for a piece: for as few images at once as tiles allow.
  template <typename Work>
  void each_run(int64_t piece, const Work &work) const {
    if (is_direct()) return split.each_band(piece, work);
    work(split.begin(piece), split.end(piece) - split.begin(piece));
  }
  int64_t band() const { return std::min(split.band, (split.piece + shares - 1) / shares); }
  template <typename Work>
  void each_band(const Work &work) const {
    run_parallel(split.pieces * shares, [&](int64_t index) {
      const int64_t begin = split.begin(index / shares), end = split.end(index / shares);
      const int64_t size = (end - begin + shares - 1) / shares, first = begin + index % shares * size;
      split.each_band(first, std::min(first + size, end), work);
    });
  }
};

// Memory for the maps of all channels as the layers read them, with room for a tile that begins anywhere in the last one.
// Not needed where they lie as TensorFlow has them.
template <typename Value>
Value *take_maps(const Plan &plan, Arena &arena) {
  return plan.is_direct() ? nullptr : arena.take<Value>(plan.count_laid(plan.all) + TILE);
}

// Copies all maps, if both are not the same.
template <typename Value, typename Other>
void copy_maps(const Plan &plan, const Planes<Value> &from, const Planes<Other> &to) {
  if (from.data == to.data) return;
  plan.each_share(from.channels, 1, [&](int64_t piece, int64_t begin, int64_t end) {
    for (int64_t image = plan.split.begin(piece); image < plan.split.end(piece); image++) {
      const Value *map = from.at(image, begin);
      Other *copy = to.at(image, begin);
      for (int64_t channel = begin; channel < end; channel++, map += from.pitch, copy += to.pitch)
        copy_row(map, from.pixels, copy);
    }
  });
}

// Clears what lies beyond the images of each piece, so that products of the last tile with 0 are 0.
template <typename Value>
void clear_rest(const Plan &plan, const Planes<Value> &planes) {
  if (plan.is_direct()) return;
  plan.each_share(planes.channels, 1, [&](int64_t piece, int64_t begin, int64_t end) {
    const int64_t first = plan.split.begin(piece), used = (plan.split.end(piece) - first) * planes.pixels;
    for (int64_t channel = begin; channel < end; channel++)
      clear(planes.at(first, channel) + used, planes.pitch - used);
  });
}

// A tile of some channels: pixels [start, start + count) of the images of a piece, laid one after the other.
struct Tile {
  int64_t image, start, count;

  // Calls copy(image, pixel, position in the tile, number) for each part of the tile that lies within one image.
  template <typename Copy>
  void each_part(int64_t pixels, const Copy &copy) const {
    for (int64_t done = 0; done < count;) {
      const int64_t at = start + done, pixel = at % pixels, number = std::min(count - done, pixels - pixel);
      copy(image + at / pixels, pixel, done, number);
      done += number;
    }
  }
};

template <typename Value>
struct Rows {
  Value *data;
  int64_t stride;
};

// Where the rows of a tile are, which lies within a group.
template <typename Value>
Rows<Value> locate(const Planes<Value> &planes, const Tile &tile) {
  return {planes.at(tile.image + tile.start / planes.pixels, 0) + tile.start % planes.pixels, planes.pitch};
}

// Drops values of the channels [begin, end), before which maps may have others.
template <typename Value>
void drop(const Plan &plan, const Dropout &dropout, const Planes<Value> &x, int64_t x_channel, int64_t begin, int64_t end,
          int64_t first, int64_t images) {
  for (int64_t image = first; image < first + images && dropout.drops(); image++)
    for (int64_t channel = begin; channel < end; channel++)
      dropout.at(image).at(channel).apply(x.at(image, x_channel + channel), 0, plan.pixels);
}

// Calls work(tile, next tile). After the last one comes that of the next image, or one without pixels.
template <typename Work>
void each_tile(const Plan &plan, int64_t first, int64_t images, const Work &work) {
  const int64_t end = images * plan.pixels, further = plan.is_direct() ? (plan.shape.images - first) * plan.pixels : end;
  const auto at = [&](int64_t start) { return Tile{first, start, std::clamp<int64_t>(further - start, 0, TILE)}; };
  for (int64_t start = 0; start < end; start += TILE) work(at(start), at(start + TILE));
}

// The rows [begin, end) of the next tile, if there is one.
template <typename Value>
RowsAhead<std::remove_const_t<Value>> locate_next(const Planes<Value> &planes, const Tile &next, int64_t begin, int64_t end) {
  if (next.count == 0) return {};
  const Rows<Value> rows = locate(planes, next);
  return {rows.data + begin * rows.stride, rows.stride, end - begin};
}

// The same in two halves, of the tile at the same place `images` further, if maps of so many images have it.
template <typename Value>
NextRows<std::remove_const_t<Value>> locate_ahead(const Planes<Value> &planes, int64_t of, Tile tile, int64_t images,
                                                  int64_t begin, int64_t end) {
  tile.image += images;
  if (planes.group > 1 || tile.image + (tile.start + tile.count - 1) / planes.pixels >= of) return {};
  const int64_t half = (begin + end) / 2;
  return {locate_next(planes, tile, begin, half), locate_next(planes, tile, half, end)};
}

// Sums over the pixels of a piece, for some channels: of x, and of x * y. (pieces, channels, 2)
class PlaneSums {
 public:
  PlaneSums(const Plan &plan, int64_t most, Arena &arena)
      : plan_(plan), sums_(arena.take<double>(plan.split.pieces * most * 2)) {}

  // The same for the channels [begin, end) of `channels`; both maps may have others before them.
  template <typename Value, typename Other>
  void add(int64_t piece, int64_t begin, int64_t end, const Planes<Value> &x, int64_t x_channel, const Planes<Other> &y,
           int64_t y_channel, int64_t channels) const {
    const int64_t first = plan_.split.begin(piece);
    add(piece, begin, end, x, x_channel, y, y_channel, channels, first, plan_.split.end(piece) - first);
  }

  // The same for some images of a piece, which are added to those before them.
  template <typename Value, typename Other>
  void add(int64_t piece, int64_t begin, int64_t end, const Planes<Value> &x, int64_t x_channel, const Planes<Other> &y,
           int64_t y_channel, int64_t channels, int64_t first, int64_t images) const {
    double *sums = sums_ + (piece * channels + begin) * 2;
    if (first == plan_.split.begin(piece)) std::fill_n(sums, 2 * (end - begin), 0.0);
    primitives<std::remove_const_t<Value>>().sum(x.maps(first, x_channel + begin), y.maps(first, y_channel + begin),
                                                 end - begin, images, plan_.pixels, sums);
  }

  // For all pieces.
  template <typename Value, typename Other>
  void add_all(const Planes<Value> &x, int64_t x_channel, const Planes<Other> &y, int64_t y_channel,
               int64_t channels) const {
    plan_.each_share(channels, 1, [&](int64_t piece, int64_t begin, int64_t end) {
      add(piece, begin, end, x, x_channel, y, y_channel, channels);
    });
  }

  // Returns (channels, 2): the sums over the batch.
  const double *total(int64_t channels) const {
    add_parts(sums_, plan_.split.pieces, channels * 2);
    return sums_;
  }

 private:
  const Plan &plan_;
  double *sums_;
};

void finish_statistics(const Plan &plan, const double *sums, int64_t channels, const StatisticsOut &out, int64_t at) {
  const auto count = static_cast<double>(plan.count());
  for (int64_t channel = 0; channel < channels; channel++) {
    const double mean = sums[2 * channel] / count;
    double biased = sums[2 * channel + 1] / count - mean * mean;
    biased = 0 > biased ? 0 : biased;
    out.mean[at + channel] = to_float(mean);
    out.variance[at + channel] = to_float(count > 1 ? biased * (count / (count - 1)) : biased);
    out.scale[at + channel] = to_float(1 / std::sqrt(biased + EPSILON));
  }
}

// Norms with known statistics; `deviation` is 1 / sqrt(variance + epsilon).
void fold(int64_t channels, const float *gamma, const float *beta, const float *mean, const float *deviation,
          Norm *norms) {
  for (int64_t channel = 0; channel < channels; channel++)
    norms[channel] = {mean[channel], multiply(gamma[channel], deviation[channel]), beta[channel]};
}

// Normalises the channels [begin, end), before which maps may have others: y = (x - mean) * scale.
template <typename Value>
void standardize(const Plan &plan, const Planes<const Value> &x, int64_t x_channel, const Planes<Value> &y,
                 int64_t y_channel, int64_t begin, int64_t end, const float *mean, const float *scale, int64_t first,
                 int64_t images) {
  // Images that lie side by side in both are one row.
  const bool one_row = x.image_stride() == plan.pixels && y.image_stride() == plan.pixels;
  const int64_t at_once = one_row ? images : 1;
  for (int64_t image = first; image < first + images; image += at_once)
    for (int64_t channel = begin; channel < end; channel++) {
      primitives<Value>().standardize(x.at(image, x_channel + channel), at_once * plan.pixels, mean[channel],
                                      scale[channel], y.at(image, y_channel + channel));
    }
}

template <typename Value>
Planes<const Value> constant(const Planes<Value> &planes) {
  return {planes.data, planes.channels, planes.pixels, planes.group, planes.pitch};
}

// The shares of a layer's results between its convolutions, whose packed weights can be computed with alone.
template <typename Value>
Shares share_inner(const Plan &plan) {
  return plan.share(plan.shape.inner, PACKED_ROWS<Value>);
}

// Norm, ReLU and 1x1 convolution of a layer for some images.
template <typename Value>
struct Reader {
  Value *packed;
  Arena::Each<Value> rectified, arranged;

  Reader(const Plan &plan, Arena &arena)
      : packed(arena.take<Value>(count_packed<Value>(plan.shape.inner, plan.last, 1))),
        rectified(arena.take_each<Value>(plan.last * TILE)),
        arranged(arena.take_each<Value>(count_arranged<Value>(plan.last, TILE))) {}

  void pack(const Plan &plan, const float *kernel, int64_t channels) const {
    pack_weights(kernel, plan.shape.inner, channels, 1, 1, plan.shape.inner, &HERE, packed);
  }

  // Writes the results [begin, end).
  void run(const Plan &plan, const Planes<Value> &from, int64_t channels, const Layer &layer, const Planes<Value> &to,
           int64_t to_first, int64_t first, int64_t images, int64_t begin, int64_t end) const {
    const Value *weights = packed + count_packed<Value>(begin, channels, 1);
    each_tile(plan, first, images, [&](const Tile &tile, const Tile &next) {
      const Rows<Value> x = locate(from, tile), y = locate(to, Tile{tile.image - to_first, tile.start, tile.count});
      primitives<Value>().rectify(x.data, x.stride, channels, layer.gamma1, layer.beta1, rectified.mine());
      primitives<Value>().multiply(arrange(rectified.mine(), TILE, channels, TILE, arranged.mine()), TILE, channels, &HERE,
                                   1, weights, end - begin, y.data + begin * y.stride, y.stride, TILE,
                                   {locate_next(from, next, 0, channels)});
    });
  }
};

// Norm with known statistics, ReLU and 3x3 convolution of a layer for some images.
template <typename Value>
struct Grower {
  Layout widest;
  Value *packed;
  Norm *norms;
  int64_t *runs = nullptr;
  Arena::Each<Value> laid, arranged, result{};

  Grower(const Plan &plan, Arena &arena)
      : widest(plan.layout<Value>(plan.band(), plan.band())),
        packed(arena.take<Value>(count_packed<Value>(plan.shape.growth, plan.shape.inner, count_taps(widest, SIZE)))),
        norms(arena.take<Norm>(plan.shape.inner)),
        laid(arena.take_each<Value>(plan.shape.inner * widest.length())),
        arranged(arena.take_each<Value>(count_arranged<Value>(plan.shape.inner, widest.length()))) {
    if (has_runs<Value>(widest)) {  // results are written where they belong
      runs = arena.take<int64_t>(count_runs(widest));
    } else {
      result = arena.take_each<Value>(plan.shape.growth * widest.span());
    }
  }

  void prepare() const {
    if (runs != nullptr) list_runs(widest, runs);
  }

  void pack(const Plan &plan, const Layer &layer, const float *mean, const float *deviation) const {
    pack_kernel(widest, layer.kernel2, SIZE, plan.shape.inner, plan.shape.growth, false, packed);
    fold(plan.shape.inner, layer.gamma2, layer.beta2, mean, deviation, norms);
  }

  // Reads maps of `of` images, from `from_first` on.
  void run(const Plan &plan, const Planes<const Value> &from, int64_t from_first, int64_t of, const Planes<Value> &to,
           int64_t channel, int64_t first, int64_t images) const {
    const Layout layout = plan.layout<Value>(images, plan.band());
    const int64_t length = layout.length();
    for (int64_t input = 0; input < plan.shape.inner; input++)
      primitives<Value>().lay(layout, from.at(first - from_first, input), from.image_stride(), norms + input,
                              laid.mine() + input * length);
    if (runs != nullptr) {
      return each_tile(plan, first, images, [&](const Tile &tile, const Tile &) {
        const Rows<Value> y = locate(to, tile);
        convolve_runs<Value>(layout, SIZE, runs, tile.start, laid.mine(), plan.shape.inner, packed, plan.shape.growth,
                             false, y.data + channel * y.stride, y.stride, tile.count,
                             locate_ahead(from, of, {first - from_first, tile.start, tile.count}, images, 0,
                                          plan.shape.inner));
      });
    }
    convolve_laid(layout, SIZE, arrange(laid.mine(), length, plan.shape.inner, length, arranged.mine()),
                  plan.shape.inner, packed, plan.shape.growth, false, result.mine());
    for (int64_t output = 0; output < plan.shape.growth; output++)
      take_images(layout, result.mine() + output * layout.span(), to.at(first, channel + output), to.image_stride());
  }
};

template <typename Value>
struct ForwardScratch {
  Reader<Value> reader;
  Grower<Value> grower;
  PlaneSums sums;
  Value *maps;  // in groups, where tiles cross images

  ForwardScratch(const Plan &plan, Arena &arena)
      : reader(plan, arena),
        grower(plan, arena),
        sums(plan, std::max({plan.shape.first, plan.shape.inner, plan.shape.growth}), arena),
        maps(take_maps<Value>(plan, arena)) {}
};

template <typename Value>
struct InferenceScratch {
  Reader<Value> reader;
  Grower<Value> grower;
  Arena::Each<Value> between;
  float *scale, *inner_scale;
  Value *maps;  // in groups, where tiles cross images

  InferenceScratch(const Plan &plan, Arena &arena)
      : reader(plan, arena),
        grower(plan, arena),
        between(arena.take_each<Value>(plan.shape.inner * round_up(plan.split.band * plan.pixels, TILE))),
        scale(arena.take(plan.all)),
        inner_scale(arena.take(plan.shape.inner)),
        maps(take_maps<Value>(plan, arena)) {}
};

// The working memory of the backward pass.
template <typename Value>
struct GradientScratch {
  PlaneSums sums;
  Value *maps;      // in groups, where tiles cross images
  Value *gradient;  // of all maps, laid so
  Layout widest;    // for the 3x3 convolutions
  Value *d_between, *packed1, *packed2;
  float *d_kernel1, *d_kernel2, *d_gamma, *d_beta;
  TapPlaces *places;  // of the 3x3 kernel
  int64_t *runs = nullptr;
  Norm *norms;
  Arena::Each<Value> rectified, d_inner, arranged1, columns1;
  Arena::Each<Value> d_new, laid, columns2, d_laid, arranged2, d_rectified{};

  GradientScratch(const Plan &plan, Arena &arena)
      : sums(plan, std::max({plan.shape.first, plan.shape.inner, plan.shape.growth}), arena),
        maps(take_maps<Value>(plan, arena)),
        gradient(take_maps<Value>(plan, arena)),
        widest(plan.layout<Value>(plan.split.band, plan.split.band)) {
    const BlockShape &shape = plan.shape;
    const int64_t pieces = plan.split.pieces, length = widest.length(), last = round_up(plan.last, LANES);
    d_between = arena.take<Value>(plan.count_laid(shape.inner));
    packed1 = arena.take<Value>(count_packed<Value>(plan.last, shape.inner, 1));
    packed2 = arena.take<Value>(count_packed<Value>(shape.inner, shape.growth, count_taps(widest, SIZE)));
    d_kernel1 = arena.take(pieces * last * plan.columns);
    d_kernel2 = arena.take(pieces * count_kernel2(plan));
    d_gamma = arena.take(pieces * plan.last * LANES);
    d_beta = arena.take(pieces * plan.last * LANES);
    norms = arena.take<Norm>(shape.inner);
    places = arena.take<TapPlaces>(count_places<Value>(widest, SIZE));
    rectified = arena.take_each<Value>(round_up(PACKED_ROWS<Value>, LANES) * TILE);
    d_inner = arena.take_each<Value>(shape.inner * TILE);
    arranged1 = arena.take_each<Value>(count_arranged<Value>(shape.inner, TILE));
    columns1 = arena.take_each<Value>(TILE * plan.columns);
    d_new = arena.take_each<Value>(plan.split.band * plan.pixels);
    laid = arena.take_each<Value>(plan.columns * length);
    columns2 = arena.take_each<Value>(count_transposed<Value>(widest, shape.inner, shape.growth));
    d_laid = arena.take_each<Value>(round_up(shape.growth, LANES) * length);
    arranged2 = arena.take_each<Value>(count_arranged<Value>(shape.growth, length));
    if (has_runs<Value>(widest)) {  // results are written where they belong
      runs = arena.take<int64_t>(count_runs(widest));
    } else {
      d_rectified = arena.take_each<Value>(shape.inner * widest.span());
    }
  }

  // Sums of a piece for the gradient of a 3x3 kernel, of which those of a share of its inputs lie together.
  static int64_t count_kernel2(const Plan &plan) {
    const Shares shares = share_inner<Value>(plan);
    return shares.number * TAPS * count_kernel_sums(shares.size, plan.shape.growth);
  }
};

template <typename Scratch>
size_t count(const BlockShape &shape) {
  Arena arena;
  const Plan plan(shape);
  Scratch(plan, arena);
  return arena.used();
}

// The gradient of a map before it was normalised by its `deviation`: deviation (G - mean(G) - xhat mean(G xhat)).
Projection project_normalized(const Plan &plan, const double *sums, float deviation) {
  const auto count = static_cast<double>(plan.count());
  return {deviation, to_float(sums[0] / count),
          to_float(-static_cast<double>(deviation) * (sums[1] / count)), 0};
}

// The backward pass of one block.
template <typename Value>
struct Backward {
  const Plan &plan;
  const GradientScratch<Value> &memory;
  const Planes<const Value> maps;
  const Planes<Value> gradient;

  // Adds up what the gradient of some maps needs: (channels, 2).
  const double *sum_gradient(int64_t channel, int64_t channels) const {
    memory.sums.add_all(gradient, channel, maps, channel, channels);
    return memory.sums.total(channels);
  }

  // The 3x3 convolution of a layer, and the norm and ReLU before it: writes `d_between` as the gradient of the norm's
  // result, and the gradients of gamma2, beta2 and kernel2.
  void differentiate_grower(int64_t channel, const Planes<const Value> &between, const Layer &layer, const float *mean,
                            const float *deviation, const float *features_scale, const LayerGradient &out) const {
    const BlockShape &shape = plan.shape;
    const double *sums = sum_gradient(channel, shape.growth);
    const Planes<Value> d_between = plan.lay(memory.d_between, shape.inner);
    pack_kernel(memory.widest, layer.kernel2, SIZE, shape.inner, shape.growth, true, memory.packed2);
    fold(shape.inner, layer.gamma2, layer.beta2, mean, deviation, memory.norms);
    // The sums of this region use the same memory as those that it reads.
    Projection projections[MAX_GROWTH];
    for (int64_t i = 0; i < shape.growth; i++)
      projections[i] = project_normalized(plan, sums + 2 * i, features_scale[channel + i]);
    const Shares shares = share_inner<Value>(plan);
    const int64_t sums_of_share = TAPS * count_kernel_sums(shares.size, shape.growth);
    const int64_t sums_of_piece = shares.number * sums_of_share;
    plan.each_share(shape.inner, PACKED_ROWS<Value>, [&](int64_t piece, int64_t begin, int64_t end) {
      float *d_kernel = memory.d_kernel2 + piece * sums_of_piece + begin / shares.size * sums_of_share;
      clear(d_kernel, sums_of_share);
      plan.split.each_band(piece, [&](int64_t first, int64_t images) {
        differentiate_band(first, images, begin, end, channel, between, projections, d_kernel);
        memory.sums.add(piece, begin, end, d_between, 0, between, 0, shape.inner, first, images);
      });
    });
    add_parts(memory.d_kernel2, plan.split.pieces, sums_of_piece);
    for (int64_t share = 0; share < shares.number; share++)
      finish_kernel<Value>(memory.d_kernel2 + share * sums_of_share, TAPS, shares.end(share) - shares.begin(share),
                           shape.growth, out.kernel2 + shares.begin(share) * shape.growth, shape.inner);
    const double *inner = memory.sums.total(shape.inner);
    for (int64_t i = 0; i < shape.inner; i++) {
      out.beta2[i] = to_float(inner[2 * i]);
      const double centered = inner[2 * i + 1] - inner[2 * i] * static_cast<double>(mean[i]);
      out.gamma2[i] = to_float(centered * static_cast<double>(deviation[i]));
    }
  }

  // The same for some images, and the channels [begin, end) between the convolutions.
  void differentiate_band(int64_t first, int64_t images, int64_t begin, int64_t end, int64_t channel,
                          const Planes<const Value> &between, const Projection *projections, float *d_kernel) const {
    const BlockShape &shape = plan.shape;
    const Layout layout = plan.layout<Value>(images, plan.split.band);
    const int64_t length = layout.length(), span = layout.span(), inner = end - begin;
    const Planes<Value> d_between = plan.lay(memory.d_between, shape.inner);
    Value *d_laid = memory.d_laid.mine(), *laid = memory.laid.mine();
    const Dropout dropout = shape.drop_second(shape.layer(channel));
    for (int64_t i = 0; i < shape.growth; i++) {
      const int64_t at_once = plan.is_direct() ? 1 : images;
      for (int64_t image = 0; image < images; image += at_once)
        primitives<Value>().project(projections[i], gradient.at(first + image, channel + i),
                                    maps.at(first + image, channel + i), at_once * plan.pixels,
                                    memory.d_new.mine() + image * plan.pixels);
      for (int64_t image = 0; image < images && dropout.drops(); image++)
        dropout.at(first + image).at(i).apply(memory.d_new.mine() + image * plan.pixels, 0, plan.pixels);
      primitives<Value>().lay(layout, memory.d_new.mine(), plan.pixels, nullptr, d_laid + i * length);
    }
    for (int64_t i = 0; i < inner; i++)
      primitives<Value>().lay(layout, between.at(first, begin + i), between.image_stride(), memory.norms + begin + i,
                              laid + i * length);
    accumulate_kernel(layout, SIZE, d_laid, shape.growth, laid, inner, d_kernel, memory.columns2.mine(), memory.places);
    const Value *weights = memory.packed2 + count_packed<Value>(begin, shape.growth, count_taps(layout, SIZE));
    if (memory.runs != nullptr) {
      return each_tile(plan, first, images, [&](const Tile &tile, const Tile &) {
        const Rows<Value> y = locate(d_between, tile);
        Value *rows = y.data + begin * y.stride;
        convolve_runs<Value>(layout, SIZE, memory.runs, tile.start, d_laid, shape.growth, weights, inner, true, rows,
                             y.stride, tile.count, locate_ahead(between, shape.images, tile, images, begin, end));
        const Runs runs{memory.runs + tile.start / RUN, layout.width};
        for (int64_t i = 0; i < inner; i++, rows += y.stride)
          primitives<Value>().pass_runs(runs, rows, laid + i * length + layout.origin(), tile.count, rows);
      });
    }
    Value *result = memory.d_rectified.mine();
    convolve_laid(layout, SIZE, arrange(d_laid, length, shape.growth, length, memory.arranged2.mine()), shape.growth,
                  weights, inner, true, result);
    for (int64_t i = 0; i < inner; i++) {
      primitives<Value>().pass(result + i * span, laid + i * length + layout.origin(), span, result + i * span);
      take_images(layout, result + i * span, d_between.at(first, begin + i), d_between.image_stride());
    }
  }

  // The 1x1 convolution of a layer, and the norm and ReLU before it: adds to the gradient of all earlier maps, and
  // writes those of gamma1, beta1 and kernel1.
  void differentiate_reader(int64_t channels, const Planes<const Value> &between, const Layer &layer, const float *mean,
                            const float *deviation, const LayerGradient &out) const {
    const BlockShape &shape = plan.shape;
    const int64_t inner = shape.inner, kernel_sums = round_up(channels, LANES) * plan.columns, lane_sums = channels * LANES;
    const auto count = static_cast<double>(plan.count());
    const Planes<const Value> d_between = plan.lay<const Value>(memory.d_between, inner);
    Projection by[MAX_INNER];
    for (int64_t i = 0; i < inner; i++) {
      const double scale = static_cast<double>(layer.gamma2[i]) * static_cast<double>(deviation[i]);
      const double slope = scale * static_cast<double>(deviation[i]) * static_cast<double>(out.gamma2[i]) / count;
      by[i] = {to_float(scale), to_float(static_cast<double>(out.beta2[i]) / count),
               to_float(-slope), mean[i]};
    }
    const Dropout dropout = shape.drop_first(shape.layer(channels));
    pack_weights(layer.kernel1, channels, inner, 1, inner, 1, &HERE, memory.packed1);
    plan.each_share(channels, PACKED_ROWS<Value>, [&](int64_t piece, int64_t begin, int64_t end) {
      float *d_kernel = memory.d_kernel1 + piece * kernel_sums + begin * plan.columns;
      float *d_gamma = memory.d_gamma + piece * lane_sums + begin * LANES;
      float *d_beta = memory.d_beta + piece * lane_sums + begin * LANES;
      Value *d_inner = memory.d_inner.mine(), *rectified = memory.rectified.mine();
      clear(d_kernel, (end - begin) * plan.columns);
      clear(d_gamma, (end - begin) * LANES);
      clear(d_beta, (end - begin) * LANES);
      const int64_t first = plan.split.begin(piece), images = plan.split.end(piece) - first;
      each_tile(plan, first, images, [&](const Tile &tile, const Tile &next) {
        const Rows<const Value> y = locate(between, tile), dy = locate(d_between, tile);
        for (int64_t i = 0; i < inner; i++) {
          primitives<Value>().project(by[i], dy.data + i * dy.stride, y.data + i * y.stride, TILE, d_inner + i * TILE);
          clear(d_inner + i * TILE + tile.count, TILE - tile.count);
        }
        tile.each_part(plan.pixels, [&](int64_t image, int64_t pixel, int64_t position, int64_t number) {
          for (int64_t i = 0; i < inner && dropout.drops(); i++)
            dropout.at(image).at(i).apply(d_inner + i * TILE + position, pixel, number);
        });
        primitives<Value>().transpose(d_inner, TILE, inner, memory.columns1.mine(), plan.columns);
        const auto *d_arranged = arrange(d_inner, TILE, inner, TILE, memory.arranged1.mine());
        const Rows<const Value> all_x = locate(maps, tile);
        const Rows<Value> dx = locate(gradient, tile);
        // By few channels at a time, so that all that is computed of them stays in the first-level cache.
        const NextRows<Value> earlier{locate_next(maps, next, begin, end), locate_next(between, next, 0, inner)};
        const NextRows<Value> later{locate_next(gradient, next, begin, end),
                                    locate_next(plan.lay(memory.d_between, inner), next, 0, inner)};
        for (int64_t row = begin; row < end; row += PACKED_ROWS<Value>) {
          const int64_t rows = std::min<int64_t>(PACKED_ROWS<Value>, end - row), at = row - begin;
          const Value *of_rows = all_x.data + row * all_x.stride;
          primitives<Value>().rectify(of_rows, all_x.stride, rows, layer.gamma1 + row, layer.beta1 + row, rectified);
          primitives<Value>().accumulate(rectified, TILE, rows, memory.columns1.mine(), plan.columns,
                                         d_kernel + at * plan.columns, TILE, earlier.part(at, rows, end - begin));
          primitives<Value>().differentiate_reader(of_rows, all_x.stride, rows, layer.gamma1 + row, rectified, d_arranged,
                                                   inner, memory.packed1 + count_packed<Value>(row, inner, 1),
                                                   dx.data + row * dx.stride, dx.stride, d_gamma + at * LANES,
                                                   d_beta + at * LANES, later.part(at, rows, end - begin));
        }
      });
    });
    add_parts(memory.d_kernel1, plan.split.pieces, kernel_sums);
    add_parts(memory.d_gamma, plan.split.pieces, lane_sums);
    add_parts(memory.d_beta, plan.split.pieces, lane_sums);
    run_parts(channels, 16, [&](int64_t begin, int64_t number) {
      for (int64_t channel = begin; channel < begin + number; channel++)
        std::copy_n(memory.d_kernel1 + channel * plan.columns, inner, out.kernel1 + channel * inner);
    });
    for (int64_t channel = 0; channel < channels; channel++) {
      double gamma = 0, beta = 0;
      for (int64_t lane = 0; lane < LANES; lane++) {
        gamma += static_cast<double>(memory.d_gamma[channel * LANES + lane]);
        beta += static_cast<double>(memory.d_beta[channel * LANES + lane]);
      }
      out.gamma1[channel] = to_float(gamma);
      out.beta1[channel] = to_float(beta);
    }
  }
};

}  // namespace

template <typename Value>
size_t count_scratch(const BlockShape &shape) {
  return count<ForwardScratch<Value>>(shape);
}

template <typename Value>
size_t count_gradient_scratch(const BlockShape &shape) {
  return count<GradientScratch<Value>>(shape);
}

template <typename Value>
size_t count_inference_scratch(const BlockShape &shape) {
  return count<InferenceScratch<Value>>(shape);
}

template <typename Value>
void run_block(const BlockShape &shape, const Value *x, const Layer *layers, Value *maps_data, Value *between_data,
               const StatisticsOut &features, const StatisticsOut &inner, float *scratch) {
  const Plan plan(shape);
  Arena arena(scratch);
  const ForwardScratch<Value> memory(plan, arena);
  const Split &split = plan.split;
  const Planes<const Value> input{x, shape.first, plan.pixels};
  const Planes<Value> result{maps_data, plan.all, plan.pixels};
  const Planes<Value> maps = plan.lay(plan.is_direct() ? maps_data : memory.maps, plan.all);

  const auto normalize = [&](const Planes<const Value> &from, int64_t from_channel, int64_t channel, int64_t channels) {
    finish_statistics(plan, memory.sums.total(channels), channels, features, channel);
    plan.each_share(channels, 1, [&](int64_t piece, int64_t begin, int64_t end) {
      standardize(plan, from, from_channel, maps, channel, begin, end, features.mean + channel, features.scale + channel,
                  split.begin(piece), split.end(piece) - split.begin(piece));
    });
  };

  memory.grower.prepare();
  clear_rest(plan, maps);
  memory.sums.add_all(input, 0, input, 0, shape.first);
  normalize(input, 0, 0, shape.first);
  for (int64_t index = 0; index < shape.layers; index++) {
    const int64_t channels = shape.channels(index), at = index * shape.inner;
    const Planes<Value> between = plan.lay(between_data + index * plan.count_laid(shape.inner), shape.inner);
    memory.reader.pack(plan, layers[index].kernel1, channels);
    plan.each_share(shape.inner, PACKED_ROWS<Value>, [&](int64_t piece, int64_t begin, int64_t end) {
      plan.each_run(piece, [&](int64_t first, int64_t images) {
        memory.reader.run(plan, maps, channels, layers[index], between, 0, first, images, begin, end);
        drop(plan, shape.drop_first(index), between, 0, begin, end, first, images);
        memory.sums.add(piece, begin, end, between, 0, between, 0, shape.inner, first, images);
      });
    });
    finish_statistics(plan, memory.sums.total(shape.inner), shape.inner, inner, at);
    memory.grower.pack(plan, layers[index], inner.mean + at, inner.scale + at);
    plan.each_band(
        [&](int64_t first, int64_t images) {
          memory.grower.run(plan, constant(between), 0, shape.images, maps, channels, first, images);
          drop(plan, shape.drop_second(index), maps, channels, 0, shape.growth, first, images);
        },
        shape.growth, [&](int64_t piece, int64_t begin, int64_t end) {
          memory.sums.add(piece, begin, end, maps, channels, maps, channels, shape.growth);
        });
    normalize(constant(maps), channels, channels, shape.growth);
  }
  copy_maps(plan, maps, result);
}

template <typename Value>
void differentiate_block(const BlockShape &shape, const Value *upstream, const Value *maps, const Value *between_data,
                         const float *features_scale, const Statistics &inner, const Layer *layers, Value *dx,
                         const LayerGradient *gradients, Value *worked, float *scratch) {
  const Plan plan(shape);
  Arena arena(scratch);
  const GradientScratch<Value> memory(plan, arena);
  const Planes<const Value> given{maps, plan.all, plan.pixels}, given_gradient{upstream, plan.all, plan.pixels};
  const Planes<Value> laid = plan.lay(memory.maps, plan.all);
  const Planes<Value> gradient = plan.lay(plan.is_direct() ? worked : memory.gradient, plan.all);
  const Backward<Value> backward{plan, memory, plan.is_direct() ? given : constant(laid), gradient};
  list_places<Value>(memory.widest, SIZE, memory.places);
  if (memory.runs != nullptr) list_runs(memory.widest, memory.runs);
  copy_maps(plan, given_gradient, gradient);
  clear_rest(plan, gradient);
  if (!plan.is_direct()) {
    copy_maps(plan, given, laid);
    clear_rest(plan, laid);
  }
  for (int64_t index = shape.layers - 1; index >= 0; index--) {
    const int64_t channels = shape.channels(index), at = index * shape.inner;
    const Planes<const Value> between = plan.lay(between_data + index * plan.count_laid(shape.inner), shape.inner);
    backward.differentiate_grower(channels, between, layers[index], inner.mean + at, inner.scale + at, features_scale,
                                  gradients[index]);
    backward.differentiate_reader(channels, between, layers[index], inner.mean + at, inner.scale + at, gradients[index]);
  }
  const double *sums = backward.sum_gradient(0, shape.first);
  plan.each_share(shape.first, 1, [&](int64_t piece, int64_t begin, int64_t end) {
    for (int64_t image = plan.split.begin(piece); image < plan.split.end(piece); image++)
      for (int64_t channel = begin; channel < end; channel++) {
        const Projection by = project_normalized(plan, sums + 2 * channel, features_scale[channel]);
        primitives<Value>().project(by, backward.gradient.at(image, channel), backward.maps.at(image, channel), plan.pixels,
                             dx + (image * shape.first + channel) * plan.pixels);
      }
  });
}

template <typename Value>
void infer_block(const BlockShape &shape, const Value *x, const Layer *layers, const float *mean, const float *variance,
                 const float *inner_mean, const float *inner_variance, Value *maps_data, float *scratch) {
  const Plan plan(shape);
  Arena arena(scratch);
  const InferenceScratch<Value> memory(plan, arena);
  const Planes<const Value> input{x, shape.first, plan.pixels};
  const Planes<Value> result{maps_data, plan.all, plan.pixels};
  const Planes<Value> maps = plan.lay(plan.is_direct() ? maps_data : memory.maps, plan.all);
  const auto deviate = [](const float *variances, int64_t channels, float *scale) {
    for (int64_t i = 0; i < channels; i++)
      scale[i] = to_float(1 / std::sqrt(static_cast<double>(variances[i]) + EPSILON));
  };
  deviate(variance, plan.all, memory.scale);
  memory.grower.prepare();
  plan.each_band([&](int64_t first, int64_t images) {
    standardize(plan, input, 0, maps, 0, 0, shape.first, mean, memory.scale, first, images);
  });
  for (int64_t index = 0; index < shape.layers; index++) {
    const int64_t channels = shape.channels(index), at = index * shape.inner;
    memory.reader.pack(plan, layers[index].kernel1, channels);
    deviate(inner_variance + at, shape.inner, memory.inner_scale);
    memory.grower.pack(plan, layers[index], inner_mean + at, memory.inner_scale);
    plan.each_band([&](int64_t first, int64_t images) {
      Planes<Value> between{memory.between.mine(), shape.inner, plan.pixels};
      if (!plan.is_direct()) between.group = images, between.pitch = round_up(images * plan.pixels, TILE);
      memory.reader.run(plan, maps, channels, layers[index], between, first, first, images, 0, shape.inner);
      memory.grower.run(plan, constant(between), first, images, maps, channels, first, images);
      standardize(plan, constant(maps), channels, maps, channels, 0, shape.growth, mean + channels,
                  memory.scale + channels, first, images);
    });
  }
  copy_maps(plan, maps, result);
}

int64_t count_between(const BlockShape &shape) {
  return Plan(shape).count_laid(shape.inner);
}

template <typename Value>
void order_between(const BlockShape &shape, const Value *between, Value *ordered) {
  const Plan plan(shape);
  const int64_t layer = shape.images * shape.inner * plan.pixels;
  for (int64_t index = 0; index < shape.layers; index++)
    copy_maps(plan, plan.lay(between + index * plan.count_laid(shape.inner), shape.inner),
              Planes<Value>{ordered + index * layer, shape.inner, plan.pixels});
}

#define INSTANTIATE(Value)                                                                                           \
  template size_t count_scratch<Value>(const BlockShape &);                                                          \
  template size_t count_gradient_scratch<Value>(const BlockShape &);                                                 \
  template size_t count_inference_scratch<Value>(const BlockShape &);                                                \
  template void order_between(const BlockShape &, const Value *, Value *);                                           \
  template void run_block(const BlockShape &, const Value *, const Layer *, Value *, Value *, const StatisticsOut &, \
                          const StatisticsOut &, float *);                                                           \
  template void differentiate_block(const BlockShape &, const Value *, const Value *, const Value *, const float *,  \
                                    const Statistics &, const Layer *, Value *, const LayerGradient *, Value *,      \
                                    float *);                                                                         \
  template void infer_block(const BlockShape &, const Value *, const Layer *, const float *, const float *,          \
                            const float *, const float *, Value *, float *);

INSTANTIATE(float)
INSTANTIATE(Bfloat)

}  // namespace native
