// Plain host code: the patched headers must leave it as it was.
#include <cmath>
#include <complex>
#include <limits>

static_assert(std::numeric_limits<__float128>::is_specialized && std::numeric_limits<__float128>::digits == 113,
              "host code must keep numeric_limits<__float128>");

int main() { return 0; }
