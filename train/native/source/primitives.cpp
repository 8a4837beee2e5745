// Compiled once for each instruction set, with NATIVE_PRIMITIVES as the name of the table.
#include "primitives.h"

#include "products.h"
#include "vectors.h"

namespace {

using native::LANES;
using native::Layout;
using native::MapsOf;
using native::NextRows;
using native::Norm;
using native::Projection;
using native::ROWS;
using native::take_underflow;
using native::TILE;

constexpr int PARTS = LANES / Vector::LANES;
constexpr int SUMMED = 2;  // channels whose sums are taken together

template <typename Value>
void rectify_rows(const Value *x, int64_t stride, int64_t rows, const float *scale, const float *shift, Value *z) {
  for (int64_t row = 0; row < rows; row++, x += stride, z += TILE) {
    const Vector by = broadcast(scale[row]), plus = broadcast(shift[row]);
#pragma GCC unroll 8
    for (int i = 0; i < TILE; i += Vector::LANES) store(z + i, rectify(multiply_add(load(x + i), by, plus)));
  }
}

// The pixels of a product, a vector after the other: side by side, or in runs of at least LENGTH. A cursor has Q vectors of
// one input, from where its first pixel is or, of runs, from where their places count.
struct SideBySide {
  template <int Q>
  struct Cursor {
    const float *at;
    Cursor(const SideBySide &, const float *x) : at(x) {}
    void advance(int64_t stride) { at += stride; }
    Vector load_vector(int64_t offset, int q) const { return load(at + offset + q * Vector::LANES); }
  };
  SideBySide from(int64_t) const { return *this; }
  int64_t skip(int64_t pixel) const { return pixel; }
};
template <int LENGTH>
struct InRuns {
  const int64_t *at;
  template <int Q>
  struct Cursor {
    static constexpr bool WHOLE = LENGTH >= Vector::LANES;  // then a pointer to each vector spares additions for each tap
    const float *of[WHOLE ? Q : 1];
    const int64_t *at;
    Cursor(const InRuns &runs, const float *x) : at(runs.at) {
#pragma GCC unroll 8
      for (int q = 0; q < (WHOLE ? Q : 1); q++) of[q] = WHOLE ? x + at[q * Vector::LANES / native::RUN] : x;
    }
    void advance(int64_t stride) {
#pragma GCC unroll 8
      for (int q = 0; q < (WHOLE ? Q : 1); q++) of[q] += stride;
    }
    Vector load_vector(int64_t offset, int q) const {
      if constexpr (WHOLE) return load(of[q] + offset);
      return load_runs<LENGTH>(of[0] + offset, at + q * Vector::LANES / native::RUN);
    }
  };
  InRuns from(int64_t pixel) const { return {at + pixel / native::RUN}; }
  int64_t skip(int64_t) const { return 0; }
};

// All taps that weights are packed for, as `Taps` are some of them.
struct AllTaps {
  const int64_t *offsets;
  int64_t count, packed = count;
  static constexpr int64_t first = 0;
  static int64_t step(int64_t) { return 1; }
};

// The one tap of a 1x1 convolution.
struct OneTap {
  static constexpr int64_t offsets[] = {0}, count = 1, packed = 1, first = 0;
  static int64_t step(int64_t) { return 1; }
};

// What a product that reads nothing ahead does in each step.
struct Nothing {
  Nothing part(int64_t, int64_t, int64_t) const { return *this; }
  void step(int64_t) const {}
};

// Reads ahead where a step has many taps: a line of both parts in each.
struct InEachStep {
  NextRows<float> next;
  InEachStep part(int64_t begin, int64_t number, int64_t of) const { return {next.part(begin, number, of)}; }
  [[gnu::always_inline]] void step(int64_t number) const {
    next.rows.fetch(number);
    next.others.fetch(number);
  }
};

// Asks for the memory of R rows of results of Q vectors, two lines in each of the first steps. The rows lie in pages of their
// own, so that the stores after the last step would wait for one line after the other.
template <int R, int Q>
[[gnu::always_inline]] inline void expect_results(const float *y, int64_t y_stride, int64_t step) {
  constexpr int LINE = 16, OF_ROW = (Q * Vector::LANES + LINE - 1) / LINE;
  const auto ask = [=](int64_t line) { __builtin_prefetch(y + line / OF_ROW * y_stride + line % OF_ROW * LINE, 1); };
  if (2 * step < R * OF_ROW) ask(2 * step), ask(2 * step + 1);
}

// Computes R of ROWS rows of a product for Q vectors of pixels, and stores `rows` of them.
template <int R, int Q, bool settled = false, typename Pixels, typename Taps, typename Next>
inline void multiply_rows(const Pixels &pixels, const float *x, int64_t stride, int64_t inputs, Taps taps,
                          const float *weights, float *y, int64_t y_stride, int64_t rows, const Next &next) {
  Vector sums[R][Q];
#pragma GCC unroll 8
  for (int row = 0; row < R; row++)
#pragma GCC unroll 8
    for (int q = 0; q < Q; q++) sums[row][q] = broadcast(0);
  const float *by = weights + ROWS * taps.first;
  typename Pixels::template Cursor<Q> cursor(pixels, x);
  for (int64_t input = 0; input < inputs; input++, cursor.advance(stride)) {
    next.step(input);
    expect_results<R, Q>(y, y_stride, input);
    for (int64_t tap = 0; tap < taps.count; by += ROWS * taps.step(tap), tap++) {
      const int64_t offset = taps.offsets[tap];
      Vector values[Q];
#pragma GCC unroll 8
      for (int q = 0; q < Q; q++) values[q] = cursor.load_vector(offset, q);
#pragma GCC unroll 8
      for (int row = 0; row < R; row++) {
        const Vector weight = broadcast(by[row]);
#pragma GCC unroll 8
        for (int q = 0; q < Q; q++) sums[row][q] = multiply_add<settled>(weight, values[q], sums[row][q]);
      }
    }
  }
  if constexpr (!settled)
    if (take_underflow())
      return multiply_rows<R, Q, true>(pixels, x, stride, inputs, taps, weights, y, y_stride, rows, next);
#pragma GCC unroll 8
  for (int row = 0; row < R; row++) {
    if (row >= rows) break;
#pragma GCC unroll 8
    for (int q = 0; q < Q; q++) store(y + row * y_stride + q * Vector::LANES, sums[row][q]);
  }
}

// Computes at most ROWS rows of a product; of fewer, no more than one is computed in vain.
template <int Q, typename Taps, typename Pixels = SideBySide, typename Next = Nothing>
inline void multiply_some(const float *x, int64_t stride, int64_t inputs, const Taps &taps, const float *weights, float *y,
                          int64_t y_stride, int64_t rows, const Pixels &pixels = {}, const Next &next = {}) {
  if (rows > 4) return multiply_rows<ROWS, Q>(pixels, x, stride, inputs, taps, weights, y, y_stride, rows, next);
  if (rows > 2) return multiply_rows<4, Q>(pixels, x, stride, inputs, taps, weights, y, y_stride, rows, next);
  multiply_rows<2, Q>(pixels, x, stride, inputs, taps, weights, y, y_stride, rows, next);
}

template <typename Pixels, typename Taps, typename Next = Nothing>
void multiply_pixels(const Pixels &pixels, const float *x, int64_t stride, int64_t inputs, const Taps &taps,
                     const float *weights, int64_t rows, float *y, int64_t y_stride, int64_t width,
                     const Next &next = {}) {
  for (int64_t row = 0; row < rows; row += ROWS, weights += ROWS * inputs * taps.packed) {
    const int64_t left = rows - row < ROWS ? rows - row : ROWS;
    const auto brought = next.part(row, ROWS, rows);
    float *to = y + row * y_stride;
    int64_t pixel = 0;
    for (; pixel + COLUMNS * Vector::LANES <= width; pixel += COLUMNS * Vector::LANES)
      multiply_some<COLUMNS>(x + pixels.skip(pixel), stride, inputs, taps, weights, to + pixel, y_stride, left,
                             pixels.from(pixel), brought);
    for (; pixel < width; pixel += LANES)
      multiply_some<PARTS>(x + pixels.skip(pixel), stride, inputs, taps, weights, to + pixel, y_stride, left,
                           pixels.from(pixel), brought);
  }
}

void multiply(const float *x, int64_t stride, int64_t inputs, const int64_t *offsets, int64_t taps,
              const float *weights, int64_t rows, float *y, int64_t y_stride, int64_t width,
              const NextRows<float> &next) {
  if (taps == 1 && *offsets == 0)
    return multiply_pixels(SideBySide(), x, stride, inputs, OneTap(), weights, rows, y, y_stride, width, next);
  multiply_pixels(SideBySide(), x, stride, inputs, AllTaps{offsets, taps}, weights, rows, y, y_stride, width);
}

void multiply_taps(const float *x, int64_t stride, int64_t inputs, const native::Taps &taps, const float *weights,
                   int64_t rows, float *y, int64_t y_stride, int64_t width) {
  multiply_pixels(SideBySide(), x, stride, inputs, taps, weights, rows, y, y_stride, width);
}

// Calls work(pixels) with the greatest length of runs, up to a vector's, that these have.
template <typename Work>
void with_runs(const native::Runs &runs, const Work &work) {
  if (Vector::LANES >= 16 && runs.length % 16 == 0) return work(InRuns<16>{runs.at});
  if (Vector::LANES >= 8 && runs.length % 8 == 0) return work(InRuns<8>{runs.at});
  work(InRuns<4>{runs.at});
}

void multiply_runs(const native::Runs &runs, const float *x, int64_t stride, int64_t inputs, const int64_t *offsets,
                   int64_t taps, const float *weights, int64_t rows, float *y, int64_t y_stride, int64_t width,
                   const NextRows<float> &next) {
  with_runs(runs, [&](auto pixels) {
    multiply_pixels(pixels, x, stride, inputs, AllTaps{offsets, taps}, weights, rows, y, y_stride, width,
                    InEachStep{next});
  });
}

void pass_runs(const native::Runs &runs, const float *x, const float *by, int64_t count, float *y) {
  with_runs(runs, [&](auto pixels) {
    for (int64_t i = 0; i < count; i += Vector::LANES) {
      const typename decltype(pixels)::template Cursor<1> cursor(pixels.from(i), by);
      store(y + i, pass(load(x + i), cursor.load_vector(0, 0)));
    }
  });
}

void arrange(const float *, int64_t, int64_t, int64_t, float *) {}  // they are as they should be

// The terms of a sum over pixels: those that follow each other in both factors, or those at given places.
struct Following {
  int64_t count;
  int64_t x(int64_t term) const { return term; }
  int64_t y(int64_t term) const { return term; }
};
struct Placed {
  const native::Place *places;
  int64_t count;
  int64_t x(int64_t term) const { return places[term].x; }
  int64_t y(int64_t term) const { return places[term].y; }
};

template <int R, int Q, bool settled = false, typename Terms, typename Next>
inline void accumulate_rows(const float *x, int64_t stride, const float *y, int64_t columns, float *sums,
                            const Terms &terms, const Next &next) {
  Vector kept[R][Q];
#pragma GCC unroll 8
  for (int row = 0; row < R; row++)
#pragma GCC unroll 8
    for (int q = 0; q < Q; q++) kept[row][q] = load(sums + row * columns + q * Vector::LANES);
  for (int64_t term = 0; term < terms.count; term++) {
    const float *from = y + terms.y(term) * columns, *pixel = x + terms.x(term);
    next.step(term);
    Vector values[Q];
#pragma GCC unroll 8
    for (int q = 0; q < Q; q++) values[q] = load(from + q * Vector::LANES);
#pragma GCC unroll 8
    for (int row = 0; row < R; row++) {
      const Vector by = broadcast(pixel[row * stride]);
#pragma GCC unroll 8
      for (int q = 0; q < Q; q++) kept[row][q] = multiply_add<settled>(by, values[q], kept[row][q]);
    }
  }
  if constexpr (!settled)
    if (take_underflow()) return accumulate_rows<R, Q, true>(x, stride, y, columns, sums, terms, next);
#pragma GCC unroll 8
  for (int row = 0; row < R; row++)
#pragma GCC unroll 8
    for (int q = 0; q < Q; q++) store(sums + row * columns + q * Vector::LANES, kept[row][q]);
}

template <int R, typename Terms, typename Next>
void accumulate_columns(const float *x, int64_t stride, const float *y, int64_t columns, float *sums, const Terms &terms,
                        const Next &next) {
  constexpr int64_t WIDE = ACCUMULATED * Vector::LANES;
  int64_t column = 0;
  for (; column + WIDE <= columns; column += WIDE)
    accumulate_rows<R, ACCUMULATED>(x, stride, y + column, columns, sums + column, terms, next);
  for (; column < columns; column += LANES)
    accumulate_rows<R, PARTS>(x, stride, y + column, columns, sums + column, terms, next);
}

template <typename Terms, typename Next>
void accumulate_terms(const float *x, int64_t stride, int64_t rows, const float *y, int64_t columns, float *sums,
                      const Terms &terms, const Next &next) {
  int64_t row = 0;
  for (; row + ROWS <= rows; row += ROWS)
    accumulate_columns<ROWS>(x + row * stride, stride, y, columns, sums + row * columns, terms, next.part(row, ROWS, rows));
  for (; row + 2 <= rows; row += 2)
    accumulate_columns<2>(x + row * stride, stride, y, columns, sums + row * columns, terms, next.part(row, 2, rows));
  if (row < rows) accumulate_columns<1>(x + row * stride, stride, y, columns, sums + row * columns, terms, next.part(row, 1, rows));
}

void accumulate(const float *x, int64_t stride, int64_t rows, const float *y, int64_t columns, float *sums,
                int64_t pixels, const NextRows<float> &next) {
  accumulate_terms(x, stride, rows, y, columns, sums, Following{pixels}, next);
}

void accumulate_places(const float *x, int64_t stride, int64_t rows, const float *y, int64_t columns, float *sums,
                       const native::Place *places, int64_t count) {
  accumulate_terms(x, stride, rows, y, columns, sums, Placed{places, count}, Nothing());
}

// Computes some rows of a product for one tile, in float32; returns the next rows' weights.
const float *multiply_tile(const float *x, int64_t inputs, const float *weights, float *y, int64_t rows,
                           const NextRows<float> &next) {
  for (int pixel = 0; pixel < TILE; pixel += COLUMNS * Vector::LANES)
    multiply_some<COLUMNS>(x + pixel, TILE, inputs, OneTap(), weights, y + pixel, TILE, rows, SideBySide(), next);
  return weights + ROWS * inputs;
}

const Bfloat *multiply_tile(const Bfloat *x, int64_t inputs, const Bfloat *weights, float *y, int64_t rows,
                            const NextRows<Bfloat> &next) {
  static const int64_t here = 0;
  return multiply_block(x, TILE, inputs, &here, 1, weights, y, rows, TILE, next);
}

template <typename Value>
void differentiate_reader(const Value *x, int64_t stride, int64_t rows, const float *gamma, const Value *z,
                          const Value *dy, int64_t outputs, const Value *weights, Value *dx, int64_t dx_stride,
                          float *d_gamma, float *d_beta, const NextRows<Value> &next) {
  constexpr int AT_ONCE = sizeof(Value) == sizeof(float) ? ROWS : LANES;
  alignas(64) float dz[AT_ONCE * TILE];
  for (int64_t start = 0; start < rows; start += AT_ONCE) {
    const int64_t end = start + AT_ONCE < rows ? start + AT_ONCE : rows;
    weights = multiply_tile(dy, outputs, weights, dz, end - start, next.part(start, AT_ONCE, rows));
    for (int64_t row = start; row < end; row++) {
      const Vector by = broadcast(gamma[row]);
      Vector gammas[PARTS], betas[PARTS];
      for (int part = 0; part < PARTS; part++) {
        gammas[part] = load(d_gamma + row * LANES + part * Vector::LANES);
        betas[part] = load(d_beta + row * LANES + part * Vector::LANES);
      }
#pragma GCC unroll 4
      for (int group = 0; group < TILE; group += LANES)
#pragma GCC unroll 2
        for (int part = 0; part < PARTS; part++) {
          const int i = group + part * Vector::LANES;
          const Vector d = pass(load(dz + (row - start) * TILE + i), load(z + row * TILE + i));
          gammas[part] = multiply_add(d, load(x + row * stride + i), gammas[part]);
          betas[part] = add(betas[part], d);
          store(dx + row * dx_stride + i, multiply_add(d, by, load(dx + row * dx_stride + i)));
        }
      for (int part = 0; part < PARTS; part++) {
        store(d_gamma + row * LANES + part * Vector::LANES, gammas[part]);
        store(d_beta + row * LANES + part * Vector::LANES, betas[part]);
      }
    }
  }
}

// Stores work(first lane, number of lanes) for all vectors of an array. What is stored by lanes cannot be read again before it
// is in the cache, so whole vectors are stored whole.
template <typename Value, typename Work>
inline void fill(Value *y, int64_t count, const Work &work) {
  int64_t i = 0;
  for (; i + Vector::LANES <= count; i += Vector::LANES) store(y + i, work(i, Vector::LANES));
  if (i < count) store(y + i, work(i, count - i), count - i);
}

template <typename Value>
void project(const Projection &by, const Value *dy, const Value *x, int64_t count, Value *y) {
  const Vector scale = broadcast(by.scale), mean_dy = broadcast(by.mean_dy);
  const Vector slope = broadcast(by.slope), mean_x = broadcast(by.mean_x);
  fill(y, count, [&](int64_t i, int64_t left) {
    const Vector sloped = multiply(slope, subtract(load(x + i, left), mean_x));
    return multiply_add(scale, subtract(load(dy + i, left), mean_dy), sloped);
  });
}

template <typename Value>
void standardize(const Value *x, int64_t count, float mean, float scale, Value *y) {
  const Vector center = broadcast(mean), by = broadcast(scale);
  fill(y, count, [&](int64_t i, int64_t left) { return multiply(subtract(load(x + i, left), center), by); });
}

template <typename Value>
void differentiate_rectifier(const Value *dy, const Value *x, int64_t count, float scale, float shift, Value *dx,
                             double *sums) {
  const Vector by = broadcast(scale), plus = broadcast(shift);
  alignas(64) Value passed[TILE];
  Sums plain, product;
  for (int64_t start = 0; start < count; start += TILE, dy += TILE, x += TILE, dx += TILE) {
    const int64_t number = count - start < TILE ? count - start : TILE;
    fill(passed, number,
         [&](int64_t i, int64_t left) { return pass(load(dy + i, left), multiply_add(load(x + i, left), by, plus)); });
    for (int64_t i = 0; i < number; i += 8) {
      const Eight value = load_8(passed + i, number - i);
      plain.add(value);
      product.add_product(value, load_8(x + i, number - i));
    }
    fill(dx, number, [&](int64_t i, int64_t left) { return multiply(load(passed + i, left), by); });
  }
  store_2(sums, add(load_2(sums), fold(plain, product)));
}

// Transposes floats, or pairs of bfloat16.
template <typename Value>
void transpose(const Value *x, int64_t stride, int64_t rows, Value *y, int64_t pitch) {
  using Word = float __attribute__((may_alias));
  constexpr int VALUES = sizeof(Word) / sizeof(Value);
  const auto *from = reinterpret_cast<const Word *>(x);
  auto *to = reinterpret_cast<Word *>(y);
  int64_t row = 0;
  for (; row + 8 <= rows; row += 8, from += 8 * (stride / VALUES))
    for (int word = 0; word < TILE / VALUES; word += 8)
      transpose_8(from + word, stride / VALUES, to + word * pitch + row, pitch);
  for (; row < pitch; row++, from += stride / VALUES)
    for (int word = 0; word < TILE / VALUES; word++) to[word * pitch + row] = row < rows ? from[word] : 0.0F;
}

// The sums of N channels, each of which is a chain of additions of its own; of `squares`, x and y are the same.
template <int N, bool squares, typename Value>
inline void sum_channels(const MapsOf<const Value> &x, const MapsOf<const Value> &y, int64_t channel, int64_t images,
                         int64_t pixels, double *sums) {
  Two total[N];
  for (int n = 0; n < N; n++) total[n] = load_2(sums + 2 * n);
  for (int64_t image = 0; image < images; image++) {
    Sums plain[N], product[N];
    const Value *from = x.at(channel, image), *by = y.at(channel, image);
    const auto add_8 = [&](int64_t i, auto... left) {
#pragma GCC unroll 2
      for (int n = 0; n < N; n++) {
        const Eight value = load_8(from + n * x.channel_step + i, left...);
        plain[n].add(value);
        product[n].add_product(value, squares ? value : load_8(by + n * y.channel_step + i, left...));
      }
    };
    int64_t i = 0;
    for (; i + 8 <= pixels; i += 8) add_8(i);
    if (i < pixels) add_8(i, pixels - i);
    for (int n = 0; n < N; n++) total[n] = add(total[n], fold(plain[n], product[n]));
  }
  for (int n = 0; n < N; n++) store_2(sums + 2 * n, total[n]);
}

template <typename Value>
void sum(const MapsOf<const Value> &x, const MapsOf<const Value> &y, int64_t channels, int64_t images, int64_t pixels,
         double *sums) {
  int64_t channel = 0;
  if (pixels == 1) {  // the sums of an image are its value and its product
    for (; channel < channels; channel++, sums += 2)
      for (int64_t image = 0; image < images; image++) {
        const auto value = static_cast<double>(native::widen(*x.at(channel, image)));
        sums[0] += value;
        sums[1] += value * static_cast<double>(native::widen(*y.at(channel, image)));
      }
    return;
  }
  const auto add = [&](auto squares) {
    for (; channel + SUMMED <= channels; channel += SUMMED, sums += 2 * SUMMED)
      sum_channels<SUMMED, squares>(x, y, channel, images, pixels, sums);
    for (; channel < channels; channel++, sums += 2) sum_channels<1, squares>(x, y, channel, images, pixels, sums);
  };
  if (x.first == y.first) return add(std::true_type());
  add(std::false_type());
}

constexpr int CHUNK = 256;  // values that `lay` normalizes at once

template <typename Value>
inline void clear(Value *from, Value *to) {
  if (from < to) std::memset(static_cast<void *>(from), 0, static_cast<size_t>(to - from) * sizeof(Value));
}

// A norm and ReLU of some values.
struct Normalizer {
  Vector mean, scale, shift;

  explicit Normalizer(const Norm &norm)
      : mean(broadcast(norm.mean)), scale(broadcast(norm.scale)), shift(broadcast(norm.shift)) {}
  template <typename Value>
  Vector operator()(const Value *from, int64_t count) const {
    return rectify(multiply_add(subtract(load(from, count), mean), scale, shift));
  }
};

template <typename Value>
void interleave(const Layout &layout, const Value *x, int64_t image_stride, const Norm *norm, Value *y) {
  const int64_t plane = layout.plane(), at_once = CHUNK / plane;
  alignas(64) Value chunk[CHUNK];
  const Normalizer normalize(norm ? *norm : Norm{});
  for (int64_t image = 0; image < layout.images; image += at_once) {
    const int64_t images = layout.images - image < at_once ? layout.images - image : at_once;
    const Value *from = x + image * image_stride;
    if (image_stride != plane) {
      for (int64_t i = 0; i < images; i++) native::copy_row(from + i * image_stride, plane, chunk + i * plane);
      from = chunk;
    }
    if (norm != nullptr) {
      fill(chunk, images * plane, [&](int64_t i, int64_t left) { return normalize(from + i, left); });
      from = chunk;
    }
    native::transpose_small(from, images, plane, plane, y + image, layout.room);
  }
  for (int64_t pixel = 0; pixel < plane; pixel++)
    clear(y + pixel * layout.room + layout.images, y + (pixel + 1) * layout.room);
  clear(y + layout.span(), y + layout.length());
}

template <typename Value>
void lay(const Layout &layout, const Value *x, int64_t image_stride, const Norm *norm, Value *y) {
  if (layout.is_interleaved()) return interleave(layout, x, image_stride, norm, y);
  const int64_t width = layout.width, pitch = layout.row_step(), plane = layout.plane();
  const int64_t wide = native::round_up(width, Vector::LANES);
  alignas(64) Value normalized[CHUNK];
  const Normalizer normalize_from(norm ? *norm : Norm{});
  Value *const end = y + layout.length();
  clear(y, y + layout.origin());
  y += layout.origin();
  // Small planes side by side fill vectors only together.
  const bool together = norm != nullptr && image_stride == plane && plane <= CHUNK / 4;
  const int64_t at_once = together ? CHUNK / plane : 1;
  for (int64_t image = 0; image < layout.images; image++, x += image_stride) {
    if (together && image % at_once == 0) {
      const int64_t images = layout.images - image < at_once ? layout.images - image : at_once;
      fill(normalized, images * plane, [&](int64_t i, int64_t left) { return normalize_from(x + i, left); });
    }
    for (int64_t row = 0; row < layout.height; row++, y += pitch) {
      const Value *from = together ? normalized + image % at_once * plane + row * width : x + row * width;
      if (norm == nullptr || together) {
        native::copy_row(from, width, y);
        for (int64_t i = width; i < pitch; i++) y[i] = Value{};
        continue;
      }
      const auto normalize = [&](int64_t i, int64_t count) {
        __builtin_prefetch(from + i + plane, 0, 2);  // of the next channel
        store(y + i, normalize_from(from + i, count), count);
      };
      // Whole vectors as long as the plane has values for them. What they write beyond a row is written again after it.
      const int64_t left = plane - row * width, whole = left < wide ? left / Vector::LANES * Vector::LANES : wide;
      int64_t i = 0;
      for (; i < whole; i += Vector::LANES) normalize(i, Vector::LANES);
      for (; i < width; i += Vector::LANES) normalize(i, width - i);
      for (i = width; i < pitch; i++) y[i] = Value{};
    }
    clear(y, y + layout.first());
    y += layout.first();
  }
  clear(y, end);
}

template <typename Value>
void pass_where(const Value *x, const Value *by, int64_t count, Value *y) {
  fill(y, count, [&](int64_t i, int64_t left) { return pass(load(x + i, left), load(by + i, left)); });
}

template <typename Value>
constexpr native::PrimitivesOf<Value> make_primitives() {
  native::PrimitivesOf<Value> made{};
  made.rectify = rectify_rows<Value>;
  made.arrange = arrange;
  made.multiply = multiply;
  made.accumulate = accumulate;
  made.differentiate_reader = differentiate_reader<Value>;
  made.project = project<Value>;
  made.standardize = standardize<Value>;
  made.differentiate_rectifier = differentiate_rectifier<Value>;
  made.transpose = transpose<Value>;
  made.sum = sum<Value>;
  made.lay = lay<Value>;
  made.pass = pass_where<Value>;
  if constexpr (sizeof(Value) == sizeof(float)) {
    made.multiply_taps = multiply_taps;
    made.multiply_runs = multiply_runs;
    made.accumulate_places = accumulate_places;
    made.pass_runs = pass_runs;
  }
  return made;
}

}  // namespace

namespace native {

const Instructions NATIVE_PRIMITIVES = {NAME, enter, leave, make_primitives<float>(), make_primitives<Bfloat>()};

}  // namespace native
