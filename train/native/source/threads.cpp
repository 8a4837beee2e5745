#include "threads.h"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include <immintrin.h>

namespace native {

namespace {

constexpr int SPINS = 4000;  // about 50 microseconds: the regions of one step follow each other faster than that

thread_local int slot = 0;

class Pool {
 public:
  explicit Pool(int count) : owner_(getpid()) {
    for (int i = 1; i < count; i++) helpers_.emplace_back([this, i] { help(i); });
  }

  bool fits(int count) const { return owner_ == getpid() && static_cast<int>(helpers_.size()) + 1 == count; }
  bool is_inherited() const { return owner_ != getpid(); }  // a fork copies no threads

  void run(int64_t pieces, void (*work)(void *, int64_t), void *context) {
    {
      const std::lock_guard<std::mutex> hold(mutex_);
      work_ = work;
      context_ = context;
      pieces_ = pieces;
      next_.store(0, std::memory_order_relaxed);
      busy_.store(static_cast<int>(helpers_.size()), std::memory_order_relaxed);
      round_.fetch_add(1, std::memory_order_release);
    }
    start_.notify_all();
    take();
    for (int spin = 0; busy_.load(std::memory_order_acquire) != 0; spin++) {
      if (spin < SPINS) {
        _mm_pause();
      } else {
        std::this_thread::yield();
      }
    }
  }

  void end() {
    {
      const std::lock_guard<std::mutex> hold(mutex_);
      ended_ = true;
      round_.fetch_add(1, std::memory_order_release);
    }
    start_.notify_all();
    for (std::thread &helper : helpers_) helper.join();
  }

 private:
  void take() {
    for (int64_t piece = next_.fetch_add(1); piece < pieces_; piece = next_.fetch_add(1)) work_(context_, piece);
  }

  void help(int number) {
    slot = number;
    for (int64_t seen = 0;;) {
      for (int spin = 0; spin < SPINS && round_.load(std::memory_order_acquire) == seen; spin++) _mm_pause();
      {
        std::unique_lock<std::mutex> hold(mutex_);
        start_.wait(hold, [&] { return round_.load(std::memory_order_relaxed) != seen; });
        if (ended_) return;
        seen = round_.load(std::memory_order_relaxed);
      }
      take();
      busy_.fetch_sub(1, std::memory_order_release);
    }
  }

  const pid_t owner_;
  std::vector<std::thread> helpers_;
  std::mutex mutex_;
  std::condition_variable start_;
  std::atomic<int64_t> round_{0}, next_{0};
  std::atomic<int> busy_{0};
  void (*work_)(void *, int64_t) = nullptr;
  void *context_ = nullptr;
  int64_t pieces_ = 0;
  bool ended_ = false;
};

std::mutex calls;  // one call of run_pieces at a time
Pool *pool = nullptr;
int wanted = 1;

}  // namespace

void set_threads(int count) {
  const std::lock_guard<std::mutex> hold(calls);
  wanted = count < 1 ? 1 : count > MAX_THREADS ? MAX_THREADS : count;
}

int count_threads() { return wanted; }

int thread_slot() { return slot; }

void run_pieces(int64_t pieces, void (*work)(void *context, int64_t piece), void *context) {
  const std::lock_guard<std::mutex> hold(calls);
  if (wanted == 1 || pieces == 1) {
    slot = 0;
    for (int64_t piece = 0; piece < pieces; piece++) work(context, piece);
    return;
  }
  if (pool == nullptr || !pool->fits(wanted)) {
    // The pool of a forked process's parent is left alone: its threads and locks are not here.
    if (pool != nullptr && !pool->is_inherited()) {
      pool->end();
      delete pool;
    }
    pool = new Pool(wanted);
  }
  slot = 0;
  pool->run(pieces, work, context);
}

}  // namespace native
