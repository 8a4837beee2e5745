// TensorFlow's wheel has XLA's headers, but not LLVM's, and one of XLA's names two types of LLVM in a class that is not
// used here. They are declared so that it can be read; nothing is made of them.
#ifndef REHEARSAL_LLVM_ADT_H
#define REHEARSAL_LLVM_ADT_H
namespace llvm {
template <class T>
struct SmallVector {};
template <class T>
struct ArrayRef {
  ArrayRef(const SmallVector<T>&) {}
};
}  // namespace llvm
#endif
