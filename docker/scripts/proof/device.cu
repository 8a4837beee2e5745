// What TensorFlow's kernels include, compiled twice by clang: for the device and for the host.
#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <vector>

#ifndef __CUDA_ARCH__
#if _GLIBCXX_RELEASE >= 14  // earlier ones do not specialize it
static_assert(std::numeric_limits<__float128>::is_specialized && std::numeric_limits<__float128>::digits == 113,
              "the host pass of a CUDA file must keep numeric_limits<__float128>");
#endif
#endif

__global__ void clamp(float *values, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = std::min(std::abs(values[i]), std::numeric_limits<float>::max());
}
