// Runs numbered pieces of work on a fixed set of threads.
#pragma once

#include <cstdint>

namespace native {

// Of a batch, a block or a convolution has so many pieces at most; further threads would find nothing to do. The number
// decides the order of sums, and so the bits.
constexpr int PIECES = 32;
constexpr int MAX_THREADS = PIECES;

// Sets the number of threads of later calls of `run_parallel`, the caller's included.
void set_threads(int count);
int count_threads();

// Calls work(context, piece) for each piece in [0, pieces), in any order and on any thread; returns when all are done.
void run_pieces(int64_t pieces, void (*work)(void *context, int64_t piece), void *context);

// Returns the number of the thread that runs a piece, in [0, count_threads()): it owns that part of working memory.
int thread_slot();

template <typename Work>
void run_parallel(int64_t pieces, const Work &work) {
  run_pieces(
      pieces, [](void *context, int64_t piece) { (*static_cast<const Work *>(context))(piece); },
      const_cast<Work *>(&work));
}

// The same for parts of some things: calls work(first, number) for at most `part` of them at a time.
template <typename Work>
void run_parts(int64_t count, int64_t part, const Work &work) {
  run_parallel((count + part - 1) / part, [&](int64_t index) {
    work(index * part, count - index * part < part ? count - index * part : part);
  });
}

}  // namespace native
