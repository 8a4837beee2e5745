// Plain host code: the patched headers must leave it as it was.
#include <cmath>
#include <complex>
#include <limits>

#if _GLIBCXX_RELEASE >= 14  // earlier ones do not specialize it
static_assert(std::numeric_limits<__float128>::is_specialized && std::numeric_limits<__float128>::digits == 113,
              "host code must keep numeric_limits<__float128>");
#endif

int main() { return 0; }
