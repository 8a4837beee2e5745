// Plain host code for aarch64, whose `long double` has 113 binary digits. It runs under qemu.
#include <cmath>
#include <complex>
#include <limits>

static_assert(sizeof(void *) == 8 && std::numeric_limits<long double>::digits == 113,
              "this is not host code for aarch64");

int main() { return std::abs(std::complex<float>(3, 4)) == 5 ? 0 : 1; }
