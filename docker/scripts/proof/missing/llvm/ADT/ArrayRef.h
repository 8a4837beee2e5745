// What the headers of TensorFlow 2.19's wheel use of LLVM's own, which the wheel lacks. No GPU code uses it.
#pragma once
#include <cstddef>
#include <vector>

namespace llvm {
template <typename T>
using SmallVector = std::vector<T>;

template <typename T>
class ArrayRef {
 public:
  ArrayRef(const std::vector<T> &items) : first_(items.data()), size_(items.size()) {}
  const T *begin() const { return first_; }
  const T *end() const { return first_ + size_; }
  std::size_t size() const { return size_; }

 private:
  const T *first_;
  std::size_t size_;
};
}  // namespace llvm
