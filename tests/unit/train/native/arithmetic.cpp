// Computes with numbers from standard input what the kernels are made of, and writes the results to standard output.
//
// The input is three operands of as many numbers as the command line says. The library's source is included as it is.
#define NATIVE_PRIMITIVES MACHINE
#include "primitives.cpp"

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "underflow.h"

namespace {

std::vector<float> x, y, z;

template <typename Result>
void write(const std::vector<Result> &results) {
  std::fwrite(results.data(), sizeof(Result), results.size(), stdout);
}

// Writes work(lanes of x, of y, of z).
template <typename Result = float, typename Work>
void each(const Work &work) {
  std::vector<Result> results(x.size());
  for (size_t i = 0; i < x.size(); i += Vector::LANES)
    store(&results[i], work(load(&x[i]), load(&y[i]), load(&z[i])));
  write(results);
}

template <typename Work>
void each_number(const Work &work) {
  std::vector<float> results(x.size());
  for (size_t i = 0; i < x.size(); i++) results[i] = work(x[i], y[i], z[i]);
  write(results);
}

// Writes `size` results of each work(offset of operands), for operands of 1024 numbers.
template <typename Work>
void each_part(size_t size, const Work &work) {
  std::vector<float> results(size);
  for (size_t i = 0; i + 1024 <= x.size(); i += 1024) {
    std::copy(&z[i], &z[i] + size, results.begin());
    work(i, results.data());
    write(results);
  }
}

const Bfloat *halves(const float *from) { return reinterpret_cast<const Bfloat *>(from); }

}  // namespace

int main(int, char **words) {
  using namespace native;
  for (auto *operand : {&x, &y, &z}) {
    operand->resize(static_cast<size_t>(std::atol(words[1])));
    if (std::fread(operand->data(), sizeof(float), operand->size(), stdin) != operand->size()) return 1;
  }
  const unsigned state = MACHINE.enter();
  each([](Vector a, Vector b, Vector) { return pass(a, b); });
  each([](Vector a, Vector, Vector) { return even(a); });
  each([](Vector a, Vector, Vector) { return odd(a); });
  each<Bfloat>([](Vector a, Vector, Vector) { return a; });
  for (size_t i = 0; i + 1024 <= x.size(); i += 1024) {
    std::vector<float> results(2048);
    for (int j = 0; j < 1024; j += Vector::LANES) store(&results[j], pair(halves(&x[i]) + j, halves(&y[i]) + j));
    for (int j = 0; j < 1024; j += Vector::LANES) store(&results[1024 + j], load(halves(&x[i]) + j));
    write(results);
  }
  each_part(1024, [](size_t i, float *to) { MACHINE.floats.transpose(&x[i], TILE, 13, to, 16); });

  each([](Vector a, Vector b, Vector) { return add(a, b); });
  each([](Vector a, Vector b, Vector) { return subtract(a, b); });
  each([](Vector a, Vector b, Vector) { return multiply(a, b); });
  each([](Vector a, Vector b, Vector c) { return multiply_add(a, b, c); });
  each_number([](float a, float b, float) { return multiply(a, b); });
  each_number([](float a, float b, float c) { return multiply_add(a, b, c); });
  each_number([](float a, float b, float) { return to_float(static_cast<double>(a) * static_cast<double>(b)); });
  each_number([](float a, float, float) { return a / 49.0F; });
  each([](Vector a, Vector b, Vector) { return rectify(multiply(a, b)); });  // which is never a denormal, as in kernels
  // Products of two terms, so that sums stay near the numbers that were given.
  const int64_t here = 0;
  each_part(ROWS * TILE, [&](size_t i, float *to) {
    MACHINE.floats.multiply(&x[i], TILE, 2, &here, 1, &y[i], ROWS, to, TILE, TILE, {});
  });
  each_part(7 * 48, [](size_t i, float *to) { MACHINE.floats.accumulate(&x[i], 2, 7, &y[i], 48, to, 2, {}); });
  each_part(LANES * LANES, [](size_t i, float *to) {
    MACHINE.bfloats.accumulate(halves(&x[i]), DEPTH, LANES, halves(&y[i]), LANES, to, DEPTH, {});
  });
  each_part(12, [](size_t i, float *to) {
    double sums[6] = {};  // of three channels, of which two are added up together
    MACHINE.floats.sum({&x[i], 122, 61}, {&y[i], 122, 61}, 3, 2, 61, sums);
    std::memcpy(to, sums, sizeof sums);
  });
  MACHINE.leave(state);
}
