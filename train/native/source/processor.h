// What differs between kinds of processors outside of vectors.
#pragma once

#include <cstdint>

#if !defined(__aarch64__)
#include <immintrin.h>
#endif

namespace native {

#if defined(__aarch64__)

// Waits a little, in a loop that looks at memory.
inline void wait() { asm volatile("isb" : : : "memory"); }

// Lets the arithmetic of this thread round to nearest, raise no exceptions, and neither take nor make denormals; returns
// what `restore_arithmetic` needs.
inline unsigned take_arithmetic() {
  constexpr uint64_t NO_DENORMALS = 1 << 24;
  uint64_t before;
  asm volatile("mrs %0, fpcr\n\tmsr fpcr, %1" : "=&r"(before) : "r"(NO_DENORMALS) : "memory");
  return static_cast<unsigned>(before);
}
inline void restore_arithmetic(unsigned state) {
  asm volatile("msr fpcr, %0" : : "r"(uint64_t{state}) : "memory");
}

// Whether a result is known to be too small for a normal number before it is rounded, or after; see underflow.h.
constexpr bool FLUSHES_BEFORE_ROUNDING = true;

// Returns whether a result of this thread was replaced by 0 because it was too small, since the last call.
inline bool take_underflow() {
  constexpr uint64_t UNDERFLOW = 1 << 3;
  uint64_t status;
  asm volatile("mrs %0, fpsr" : "=r"(status) : : "memory");
  if ((status & UNDERFLOW) == 0) return false;
  asm volatile("msr fpsr, %0" : : "r"(status & ~UNDERFLOW) : "memory");
  return true;
}

#else

inline void wait() { _mm_pause(); }

inline unsigned take_arithmetic() {
  constexpr unsigned DEFAULT = 0x1f80, NO_DENORMALS = 0x8040;  // to nearest, no exceptions
  const unsigned before = _mm_getcsr();
  _mm_setcsr(DEFAULT | NO_DENORMALS);
  return before;
}
inline void restore_arithmetic(unsigned state) { _mm_setcsr(state); }

constexpr bool FLUSHES_BEFORE_ROUNDING = false;
inline bool take_underflow() { return false; }

#endif

}  // namespace native
