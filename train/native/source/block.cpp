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

// The geometry of a block: how its batch is cut, and the sizes of its parts.
struct Plan {
  const BlockShape &shape;
  Split split;
  int64_t pixels, all, last, columns;
  Padding widest;

  explicit Plan(const BlockShape &shape_)
      : shape(shape_),
        split(shape_.images, shape_.pixels()),
        pixels(shape_.pixels()),
        all(shape_.channels(shape_.layers)),
        last(shape_.channels(std::max<int64_t>(shape_.layers - 1, 0))),
        columns(round_up(shape_.inner, LANES)),
        widest(padding(split.band)) {}

  Padding padding(int64_t images) const { return {images, shape.height, shape.width, SIZE / 2}; }
  int64_t count() const { return shape.images * pixels; }
  bool is_direct() const { return pixels % TILE == 0; }  // tiles never cross images
  // Values of a channel of a piece whose images lie side by side, with room for whole tiles.
  int64_t pitch() const { return round_up(split.piece * pixels, TILE); }
  // Values of a batch so laid, with room for a tile that begins anywhere in the last channel.
  int64_t count_grouped() const { return split.pieces * all * pitch() + TILE; }
};

// Maps of some channels for a batch. The images of a group lie side by side in each of its channels. TensorFlow has groups
// of one image. Where tiles cross images, the maps that all layers read are kept in groups of a piece's images.
template <typename Value>
struct Planes {
  Value *data;
  int64_t channels, pixels;
  int64_t group = 1, pitch = pixels;  // images of a group, and values of a channel in one

  Value *at(int64_t image, int64_t channel) const {
    return data + (image / group * channels + channel) * pitch + image % group * pixels;
  }
  int64_t image_stride() const { return group == 1 ? channels * pitch : pixels; }  // within a group, or else from group to group
};

// The maps of all channels as the layers read them: given ones, or where tiles cross images, their like in groups.
template <typename Value>
Planes<Value> arrange_maps(const Plan &plan, Value *given, std::remove_const_t<Value> *grouped) {
  if (plan.is_direct()) return {given, plan.all, plan.pixels};
  return {grouped, plan.all, plan.pixels, plan.split.piece, plan.pitch()};
}

// Copies the maps of some images, if both are not the same.
template <typename Value, typename Other>
void copy_maps(const Planes<Value> &from, const Planes<Other> &to, int64_t first, int64_t end) {
  if (from.data == to.data) return;
  for (int64_t image = first; image < end; image++)
    for (int64_t channel = 0; channel < from.channels; channel++)
      std::copy_n(from.at(image, channel), from.pixels, to.at(image, channel));
}

// Clears what lies beyond the images of a piece, so that products of the last tile with 0 are 0.
template <typename Value>
void clear_rest(const Planes<Value> &planes, int64_t first, int64_t end) {
  const int64_t used = (end - first) * planes.pixels;
  if (used >= planes.pitch) return;
  for (int64_t channel = 0; channel < planes.channels; channel++)
    clear(planes.at(first, channel) + used, planes.pitch - used);
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

// Drops values of some channels.
template <typename Value>
void drop(const Plan &plan, const Dropout &dropout, const Planes<Value> &x, int64_t x_channel, int64_t channels,
          int64_t first, int64_t images) {
  for (int64_t image = first; image < first + images; image++)
    for (int64_t channel = 0; channel < channels; channel++)
      dropout.at(image).at(channel).apply(x.at(image, x_channel + channel), 0, plan.pixels);
}

template <typename Work>
void each_tile(const Plan &plan, int64_t first, int64_t images, const Work &work) {
  for (int64_t start = 0; start < images * plan.pixels; start += TILE)
    work(Tile{first, start, std::min<int64_t>(TILE, images * plan.pixels - start)});
}

// Sums over the pixels of a piece, for some channels: of x, and of x * y. (pieces, channels, 2)
class PlaneSums {
 public:
  PlaneSums(const Plan &plan, int64_t most, Arena &arena)
      : plan_(plan), sums_(arena.take<double>(plan.split.pieces * most * 2)) {}

  template <typename Value, typename Other>
  void add(int64_t piece, const Planes<Value> &x, int64_t x_channel, const Planes<Other> &y, int64_t y_channel,
           int64_t channels) const {
    for (int64_t channel = 0; channel < channels; channel++) {
      double *sums = sums_ + (piece * channels + channel) * 2;
      sums[0] = sums[1] = 0;
      for (int64_t image = plan_.split.begin(piece); image < plan_.split.end(piece); image++)
        primitives<std::remove_const_t<Value>>().sum(x.at(image, x_channel + channel), y.at(image, y_channel + channel), plan_.pixels, sums);
    }
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

// Normalises some channels: y = (x - mean) * scale.
template <typename Value>
void standardize(const Plan &plan, const Planes<const Value> &x, int64_t x_channel, const Planes<Value> &y,
                 int64_t y_channel, int64_t channels, const float *mean, const float *scale, int64_t first,
                 int64_t images) {
  for (int64_t image = first; image < first + images; image++)
    for (int64_t channel = 0; channel < channels; channel++) {
      primitives<Value>().standardize(x.at(image, x_channel + channel), plan.pixels, mean[channel], scale[channel],
                                      y.at(image, y_channel + channel));
    }
}

template <typename Value>
Planes<const Value> constant(const Planes<Value> &planes) {
  return {planes.data, planes.channels, planes.pixels, planes.group, planes.pitch};
}

// Norm, ReLU and 1x1 convolution of a layer for some images.
template <typename Value>
struct Reader {
  Value *packed;
  Arena::Each<Value> rectified, arranged, result;

  Reader(const Plan &plan, Arena &arena)
      : packed(arena.take<Value>(count_packed<Value>(plan.shape.inner, plan.last, 1))),
        rectified(arena.take_each<Value>(plan.last * TILE)),
        arranged(arena.take_each<Value>(count_arranged<Value>(plan.last, TILE))),
        result(arena.take_each<Value>(plan.shape.inner * TILE)) {}

  void pack(const Plan &plan, const float *kernel, int64_t channels) const {
    pack_weights(kernel, plan.shape.inner, channels, 1, 1, plan.shape.inner, 0, packed);
  }

  void run(const Plan &plan, const Planes<Value> &from, int64_t channels, const Layer &layer, const Planes<Value> &to,
           int64_t to_first, int64_t first, int64_t images) const {
    each_tile(plan, first, images, [&](const Tile &tile) {
      const Rows<Value> x = locate(from, tile);
      primitives<Value>().rectify(x.data, x.stride, channels, layer.gamma1, layer.beta1, rectified.mine());
      const Tile target{tile.image - to_first, tile.start, tile.count};
      const Rows<Value> y = plan.is_direct() ? locate(to, target) : Rows<Value>{result.mine(), TILE};
      primitives<Value>().multiply(arrange(rectified.mine(), TILE, channels, TILE, arranged.mine()), TILE, channels, &HERE,
                                   1, packed, plan.shape.inner, y.data, y.stride, TILE);
      if (plan.is_direct()) return;
      target.each_part(plan.pixels, [&](int64_t image, int64_t pixel, int64_t position, int64_t number) {
        for (int64_t channel = 0; channel < plan.shape.inner; channel++)
          std::copy_n(y.data + channel * TILE + position, number, to.at(image, channel) + pixel);
      });
    });
  }
};

// Norm with known statistics, ReLU and 3x3 convolution of a layer for some images.
template <typename Value>
struct Grower {
  Value *packed;
  Norm *norms;
  Arena::Each<Value> padded, arranged, result;

  Grower(const Plan &plan, Arena &arena)
      : packed(arena.take<Value>(count_packed<Value>(plan.shape.growth, plan.shape.inner, TAPS))),
        norms(arena.take<Norm>(plan.shape.inner)),
        padded(arena.take_each<Value>(plan.shape.inner * plan.widest.length())),
        arranged(arena.take_each<Value>(count_arranged<Value>(plan.shape.inner, plan.widest.length()))),
        result(arena.take_each<Value>(plan.shape.growth * plan.widest.pixels())) {}

  void pack(const Plan &plan, const Layer &layer, const float *mean, const float *deviation) const {
    pack_kernel(layer.kernel2, SIZE, plan.shape.inner, plan.shape.growth, false, packed);
    fold(plan.shape.inner, layer.gamma2, layer.beta2, mean, deviation, norms);
  }

  void run(const Plan &plan, const Planes<const Value> &from, int64_t from_first, const Planes<Value> &to,
           int64_t channel, int64_t first, int64_t images) const {
    const Padding padding = plan.padding(images);
    const int64_t length = padding.length();
    for (int64_t input = 0; input < plan.shape.inner; input++)
      primitives<Value>().pad(padding, from.at(first - from_first, input), from.image_stride(), norms + input,
                              padded.mine() + input * length);
    convolve_padded(padding, SIZE, arrange(padded.mine(), length, plan.shape.inner, length, arranged.mine()),
                    plan.shape.inner, packed, plan.shape.growth, false, result.mine());
    for (int64_t output = 0; output < plan.shape.growth; output++)
      unpad(padding, result.mine() + output * padding.pixels(), to.at(first, channel + output), to.image_stride());
  }
};

template <typename Value>
struct ForwardScratch {
  Reader<Value> reader;
  Grower<Value> grower;
  PlaneSums sums;
  Value *maps = nullptr;  // in groups, where tiles cross images

  ForwardScratch(const Plan &plan, Arena &arena)
      : reader(plan, arena),
        grower(plan, arena),
        sums(plan, std::max({plan.shape.first, plan.shape.inner, plan.shape.growth}), arena) {
    if (!plan.is_direct()) maps = arena.take<Value>(plan.count_grouped());
  }
};

template <typename Value>
struct InferenceScratch {
  Reader<Value> reader;
  Grower<Value> grower;
  Arena::Each<Value> between;
  float *scale, *inner_scale;
  Value *maps = nullptr;  // in groups, where tiles cross images

  InferenceScratch(const Plan &plan, Arena &arena)
      : reader(plan, arena),
        grower(plan, arena),
        between(arena.take_each<Value>(plan.split.band * plan.shape.inner * plan.pixels)),
        scale(arena.take(plan.all)),
        inner_scale(arena.take(plan.shape.inner)) {
    if (!plan.is_direct()) maps = arena.take<Value>(plan.count_grouped());
  }
};

// The working memory of the backward pass.
template <typename Value>
struct GradientScratch {
  PlaneSums sums;
  Value *maps = nullptr;  // in groups, where tiles cross images
  Value *gradient;        // of all maps, as they are laid
  Value *d_between, *packed1, *packed2;
  float *d_kernel1, *d_kernel2, *d_gamma, *d_beta;
  Norm *norms;
  Arena::Each<Value> rectified, d_inner, arranged1, columns1;
  Arena::Each<Value> d_new, padded, columns2, d_padded, arranged2, d_rectified;

  GradientScratch(const Plan &plan, Arena &arena)
      : sums(plan, std::max({plan.shape.first, plan.shape.inner, plan.shape.growth}), arena) {
    const BlockShape &shape = plan.shape;
    const int64_t pieces = plan.split.pieces, length = plan.widest.length(), last = round_up(plan.last, LANES);
    if (!plan.is_direct()) maps = arena.take<Value>(plan.count_grouped());
    gradient = arena.take<Value>(plan.is_direct() ? shape.images * plan.all * plan.pixels : plan.count_grouped());
    d_between = arena.take<Value>(shape.images * shape.inner * plan.pixels);
    packed1 = arena.take<Value>(count_packed<Value>(plan.last, shape.inner, 1));
    packed2 = arena.take<Value>(count_packed<Value>(shape.inner, shape.growth, TAPS));
    d_kernel1 = arena.take(pieces * last * plan.columns);
    d_kernel2 = arena.take(pieces * TAPS * count_kernel_sums(shape.inner, shape.growth));
    d_gamma = arena.take(pieces * plan.last * LANES);
    d_beta = arena.take(pieces * plan.last * LANES);
    norms = arena.take<Norm>(shape.inner);
    rectified = arena.take_each<Value>(last * TILE);
    d_inner = arena.take_each<Value>(shape.inner * TILE);
    arranged1 = arena.take_each<Value>(count_arranged<Value>(shape.inner, TILE));
    columns1 = arena.take_each<Value>(TILE * plan.columns);
    d_new = arena.take_each<Value>(plan.split.band * plan.pixels);
    padded = arena.take_each<Value>(plan.columns * length);
    columns2 = arena.take_each<Value>(count_transposed<Value>(plan.widest, shape.inner, shape.growth));
    d_padded = arena.take_each<Value>(round_up(shape.growth, LANES) * length);
    arranged2 = arena.take_each<Value>(count_arranged<Value>(shape.growth, length));
    d_rectified = arena.take_each<Value>(shape.inner * plan.widest.pixels());
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
    run_parallel(plan.split.pieces,
                 [&](int64_t piece) { memory.sums.add(piece, gradient, channel, maps, channel, channels); });
    return memory.sums.total(channels);
  }

  // The 3x3 convolution of a layer, and the norm and ReLU before it: writes `d_between` as the gradient of the norm's
  // result, and the gradients of gamma2, beta2 and kernel2.
  void differentiate_grower(int64_t channel, const Planes<const Value> &between, const Layer &layer, const float *mean,
                            const float *deviation, const float *features_scale, const LayerGradient &out) const {
    const BlockShape &shape = plan.shape;
    const double *sums = sum_gradient(channel, shape.growth);
    const Planes<Value> d_between{memory.d_between, shape.inner, plan.pixels};
    const int64_t kernel_sums = TAPS * count_kernel_sums(shape.inner, shape.growth);
    pack_kernel(layer.kernel2, SIZE, shape.inner, shape.growth, true, memory.packed2);
    fold(shape.inner, layer.gamma2, layer.beta2, mean, deviation, memory.norms);
    // The sums of this region use the same memory as those that it reads.
    Projection projections[MAX_GROWTH];
    for (int64_t i = 0; i < shape.growth; i++)
      projections[i] = project_normalized(plan, sums + 2 * i, features_scale[channel + i]);
    run_parallel(plan.split.pieces, [&](int64_t piece) {
      clear(memory.d_kernel2 + piece * kernel_sums, kernel_sums);
      plan.split.each_band(piece, [&](int64_t first, int64_t images) {
        differentiate_band(piece, first, images, channel, between, projections);
      });
      memory.sums.add(piece, d_between, 0, between, 0, shape.inner);
    });
    finish_kernel<Value>(memory.d_kernel2, plan.split.pieces, TAPS, shape.inner, shape.growth, out.kernel2);
    const double *inner = memory.sums.total(shape.inner);
    for (int64_t i = 0; i < shape.inner; i++) {
      out.beta2[i] = to_float(inner[2 * i]);
      const double centered = inner[2 * i + 1] - inner[2 * i] * static_cast<double>(mean[i]);
      out.gamma2[i] = to_float(centered * static_cast<double>(deviation[i]));
    }
  }

  void differentiate_band(int64_t piece, int64_t first, int64_t images, int64_t channel,
                          const Planes<const Value> &between, const Projection *projections) const {
    const BlockShape &shape = plan.shape;
    const Padding padding = plan.padding(images);
    const int64_t length = padding.length(), pixels = padding.pixels();
    const Planes<Value> d_between{memory.d_between, shape.inner, plan.pixels};
    Value *d_padded = memory.d_padded.mine(), *padded = memory.padded.mine(), *result = memory.d_rectified.mine();
    const Dropout dropout = shape.drop_second(shape.layer(channel));
    for (int64_t i = 0; i < shape.growth; i++) {
      for (int64_t image = 0; image < images; image++) {
        Value *d_new = memory.d_new.mine() + image * plan.pixels;
        primitives<Value>().project(projections[i], gradient.at(first + image, channel + i),
                                    maps.at(first + image, channel + i), plan.pixels, d_new);
        dropout.at(first + image).at(i).apply(d_new, 0, plan.pixels);
      }
      primitives<Value>().pad(padding, memory.d_new.mine(), plan.pixels, nullptr, d_padded + i * length);
    }
    for (int64_t i = 0; i < shape.inner; i++)
      primitives<Value>().pad(padding, between.at(first, i), between.image_stride(), memory.norms + i,
                       padded + i * length);
    accumulate_kernel(padding, SIZE, d_padded, shape.growth, padded, shape.inner,
                      memory.d_kernel2 + piece * TAPS * count_kernel_sums(shape.inner, shape.growth),
                      memory.columns2.mine());
    convolve_padded(padding, SIZE, arrange(d_padded, length, shape.growth, length, memory.arranged2.mine()), shape.growth,
                    memory.packed2, shape.inner, true, result);
    for (int64_t i = 0; i < shape.inner; i++) {
      primitives<Value>().pass(result + i * pixels, padded + i * length + origin(padding), pixels, result + i * pixels);
      unpad(padding, result + i * pixels, d_between.at(first, i), d_between.image_stride());
    }
  }

  // The 1x1 convolution of a layer, and the norm and ReLU before it: adds to the gradient of all earlier maps, and
  // writes those of gamma1, beta1 and kernel1.
  void differentiate_reader(int64_t channels, const Planes<const Value> &between, const Layer &layer, const float *mean,
                            const float *deviation, const LayerGradient &out) const {
    const BlockShape &shape = plan.shape;
    const int64_t inner = shape.inner, kernel_sums = round_up(channels, LANES) * plan.columns, lane_sums = channels * LANES;
    const auto count = static_cast<double>(plan.count());
    const Planes<const Value> d_between{memory.d_between, inner, plan.pixels};
    Projection by[MAX_INNER];
    for (int64_t i = 0; i < inner; i++) {
      const double scale = static_cast<double>(layer.gamma2[i]) * static_cast<double>(deviation[i]);
      const double slope = scale * static_cast<double>(deviation[i]) * static_cast<double>(out.gamma2[i]) / count;
      by[i] = {to_float(scale), to_float(static_cast<double>(out.beta2[i]) / count),
               to_float(-slope), mean[i]};
    }
    const Dropout dropout = shape.drop_first(shape.layer(channels));
    pack_weights(layer.kernel1, channels, inner, 1, inner, 1, 0, memory.packed1);
    run_parallel(plan.split.pieces, [&](int64_t piece) {
      float *d_kernel = memory.d_kernel1 + piece * kernel_sums;
      float *d_gamma = memory.d_gamma + piece * lane_sums, *d_beta = memory.d_beta + piece * lane_sums;
      Value *d_inner = memory.d_inner.mine(), *rectified = memory.rectified.mine();
      clear(d_kernel, kernel_sums);
      clear(d_gamma, lane_sums);
      clear(d_beta, lane_sums);
      const int64_t first = plan.split.begin(piece), images = plan.split.end(piece) - first;
      each_tile(plan, first, images, [&](const Tile &tile) {
        if (tile.count < TILE) clear(d_inner, inner * TILE);
        tile.each_part(plan.pixels, [&](int64_t image, int64_t pixel, int64_t position, int64_t number) {
          for (int64_t i = 0; i < inner; i++) {
            Value *segment = d_inner + i * TILE + position;
            primitives<Value>().project(by[i], d_between.at(image, i) + pixel, between.at(image, i) + pixel, number,
                                        segment);
            dropout.at(image).at(i).apply(segment, pixel, number);
          }
        });
        primitives<Value>().transpose(d_inner, TILE, inner, memory.columns1.mine(), plan.columns);
        const auto *d_arranged = arrange(d_inner, TILE, inner, TILE, memory.arranged1.mine());
        const Rows<const Value> x = locate(maps, tile);
        const Rows<Value> dx = locate(gradient, tile);
        primitives<Value>().rectify(x.data, x.stride, channels, layer.gamma1, layer.beta1, rectified);
        primitives<Value>().accumulate(rectified, TILE, channels, memory.columns1.mine(), plan.columns, d_kernel, TILE);
        primitives<Value>().differentiate_reader(x.data, x.stride, channels, layer.gamma1, rectified, d_arranged,
                                                 inner, memory.packed1, dx.data, dx.stride, d_gamma, d_beta);
      });
    });
    add_parts(memory.d_kernel1, plan.split.pieces, kernel_sums);
    add_parts(memory.d_gamma, plan.split.pieces, lane_sums);
    add_parts(memory.d_beta, plan.split.pieces, lane_sums);
    for (int64_t channel = 0; channel < channels; channel++) {
      std::copy_n(memory.d_kernel1 + channel * plan.columns, inner, out.kernel1 + channel * inner);
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
  const Planes<Value> maps = arrange_maps(plan, maps_data, memory.maps), result{maps_data, plan.all, plan.pixels};

  const auto normalize = [&](const Planes<const Value> &from, int64_t from_channel, int64_t channel, int64_t channels) {
    finish_statistics(plan, memory.sums.total(channels), channels, features, channel);
    run_parallel(split.pieces, [&](int64_t piece) {
      standardize(plan, from, from_channel, maps, channel, channels, features.mean + channel, features.scale + channel,
                  split.begin(piece), split.end(piece) - split.begin(piece));
    });
  };

  run_parallel(split.pieces, [&](int64_t piece) {
    clear_rest(maps, split.begin(piece), split.end(piece));
    memory.sums.add(piece, input, 0, input, 0, shape.first);
  });
  normalize(input, 0, 0, shape.first);
  for (int64_t index = 0; index < shape.layers; index++) {
    const int64_t channels = shape.channels(index), at = index * shape.inner;
    const Planes<Value> between{between_data + index * shape.images * shape.inner * plan.pixels, shape.inner, plan.pixels};
    memory.reader.pack(plan, layers[index].kernel1, channels);
    run_parallel(split.pieces, [&](int64_t piece) {
      const int64_t first = split.begin(piece);
      memory.reader.run(plan, maps, channels, layers[index], between, 0, first, split.end(piece) - first);
      drop(plan, shape.drop_first(index), between, 0, shape.inner, first, split.end(piece) - first);
      memory.sums.add(piece, between, 0, between, 0, shape.inner);
    });
    finish_statistics(plan, memory.sums.total(shape.inner), shape.inner, inner, at);
    memory.grower.pack(plan, layers[index], inner.mean + at, inner.scale + at);
    run_parallel(split.pieces, [&](int64_t piece) {
      split.each_band(piece, [&](int64_t first, int64_t images) {
        memory.grower.run(plan, constant(between), 0, maps, channels, first, images);
        drop(plan, shape.drop_second(index), maps, channels, shape.growth, first, images);
      });
      memory.sums.add(piece, maps, channels, maps, channels, shape.growth);
    });
    normalize(constant(maps), channels, channels, shape.growth);
  }
  run_parallel(split.pieces, [&](int64_t piece) { copy_maps(maps, result, split.begin(piece), split.end(piece)); });
}

template <typename Value>
void differentiate_block(const BlockShape &shape, const Value *upstream, const Value *maps, const Value *between_data,
                         const float *features_scale, const Statistics &inner, const Layer *layers, Value *dx,
                         const LayerGradient *gradients, float *scratch) {
  const Plan plan(shape);
  Arena arena(scratch);
  const GradientScratch<Value> memory(plan, arena);
  const Planes<const Value> given{maps, plan.all, plan.pixels}, given_gradient{upstream, plan.all, plan.pixels};
  const Planes<Value> grouped = arrange_maps<Value>(plan, nullptr, memory.maps);
  const Planes<Value> gradient = arrange_maps(plan, memory.gradient, memory.gradient);
  const Backward<Value> backward{plan, memory, plan.is_direct() ? given : constant(grouped), gradient};
  run_parallel(plan.split.pieces, [&](int64_t piece) {
    const int64_t begin = plan.split.begin(piece), end = plan.split.end(piece);
    copy_maps(given_gradient, gradient, begin, end);
    if (plan.is_direct()) return;
    copy_maps(given, grouped, begin, end);
    clear_rest(grouped, begin, end);
    clear_rest(gradient, begin, end);
  });
  for (int64_t index = shape.layers - 1; index >= 0; index--) {
    const int64_t channels = shape.channels(index), at = index * shape.inner;
    const Planes<const Value> between{between_data + index * shape.images * shape.inner * plan.pixels, shape.inner,
                                      plan.pixels};
    backward.differentiate_grower(channels, between, layers[index], inner.mean + at, inner.scale + at, features_scale,
                                  gradients[index]);
    backward.differentiate_reader(channels, between, layers[index], inner.mean + at, inner.scale + at, gradients[index]);
  }
  const double *sums = backward.sum_gradient(0, shape.first);
  run_parallel(plan.split.pieces, [&](int64_t piece) {
    for (int64_t image = plan.split.begin(piece); image < plan.split.end(piece); image++)
      for (int64_t channel = 0; channel < shape.first; channel++) {
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
  const Split &split = plan.split;
  const Planes<const Value> input{x, shape.first, plan.pixels};
  const Planes<Value> maps = arrange_maps(plan, maps_data, memory.maps), result{maps_data, plan.all, plan.pixels};
  const auto deviate = [](const float *variances, int64_t channels, float *scale) {
    for (int64_t i = 0; i < channels; i++)
      scale[i] = to_float(1 / std::sqrt(static_cast<double>(variances[i]) + EPSILON));
  };
  deviate(variance, plan.all, memory.scale);
  const auto each_band = [&](const auto &work) {
    run_parallel(split.pieces, [&](int64_t piece) { split.each_band(piece, work); });
  };
  each_band([&](int64_t first, int64_t images) {
    standardize(plan, input, 0, maps, 0, shape.first, mean, memory.scale, first, images);
  });
  for (int64_t index = 0; index < shape.layers; index++) {
    const int64_t channels = shape.channels(index), at = index * shape.inner;
    memory.reader.pack(plan, layers[index].kernel1, channels);
    deviate(inner_variance + at, shape.inner, memory.inner_scale);
    memory.grower.pack(plan, layers[index], inner_mean + at, memory.inner_scale);
    each_band([&](int64_t first, int64_t images) {
      const Planes<Value> between{memory.between.mine(), shape.inner, plan.pixels};
      memory.reader.run(plan, maps, channels, layers[index], between, first, first, images);
      memory.grower.run(plan, constant(between), first, maps, channels, first, images);
      standardize(plan, constant(maps), channels, maps, channels, shape.growth, mean + channels,
                  memory.scale + channels, first, images);
    });
  }
  run_parallel(split.pieces, [&](int64_t piece) { copy_maps(maps, result, split.begin(piece), split.end(piece)); });
}

#define INSTANTIATE(Value)                                                                                           \
  template size_t count_scratch<Value>(const BlockShape &);                                                          \
  template size_t count_gradient_scratch<Value>(const BlockShape &);                                                 \
  template size_t count_inference_scratch<Value>(const BlockShape &);                                                \
  template void run_block(const BlockShape &, const Value *, const Layer *, Value *, Value *, const StatisticsOut &, \
                          const StatisticsOut &, float *);                                                           \
  template void differentiate_block(const BlockShape &, const Value *, const Value *, const Value *, const float *,  \
                                    const Statistics &, const Layer *, Value *, const LayerGradient *, float *);     \
  template void infer_block(const BlockShape &, const Value *, const Layer *, const float *, const float *,          \
                            const float *, const float *, Value *, float *);

INSTANTIATE(float)
INSTANTIATE(Bfloat)

}  // namespace native
