#include "threads.h"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "primitives.h"
#include "processor.h"

namespace native {

namespace {

constexpr int SPINS = 4000;  // about 50 microseconds: the regions of one step follow each other faster than that

thread_local int slot = 0;

// Makes this thread ready for primitives.
class Ready {
 public:
  Ready() : instructions_(instructions()), state_(instructions_.enter()) {}
  Ready(const Ready &) = delete;
  Ready &operator=(const Ready &) = delete;
  ~Ready() { instructions_.leave(state_); }

 private:
  const Instructions &instructions_;
  const unsigned state_;
};

class Pool {
 public:
  explicit Pool(int count) : owner_(getpid()) {
    for (int i = 1; i < count; i++) helpers_.emplace_back([this, i] { help(i); });
  }

  bool fits(int count) const { return owner_ == getpid() && static_cast<int>(helpers_.size()) + 1 == count; }
  bool is_inherited() const { return owner_ != getpid(); }  // a fork copies no threads

  // A thread that sleeps is not waited for: only pieces that were taken are.
  void run(uint32_t pieces, void (*work)(void *, int64_t), void *context) {
    work_ = work;
    context_ = context;
    open_.store(pieces, std::memory_order_relaxed);
    const uint64_t ticket = (++round_ << 32) | pieces;
    int64_t sleeping, missing;
    {
      const std::lock_guard<std::mutex> hold(mutex_);
      ticket_.store(ticket, std::memory_order_release);
      sleeping = sleeping_;
      missing = static_cast<int64_t>(pieces) - 1 - (static_cast<int64_t>(helpers_.size()) - sleeping);
    }
    // No more threads are woken than there are pieces: each that finds none has cost the others time.
    if (missing >= sleeping) {
      start_.notify_all();
    } else {
      for (; missing > 0; missing--) start_.notify_one();
    }
    take(ticket);
    for (int spin = 0; open_.load(std::memory_order_acquire) != 0; spin++) {
      if (spin < SPINS) {
        wait();
      } else {
        std::this_thread::yield();
      }
    }
  }

  void end() {
    {
      const std::lock_guard<std::mutex> hold(mutex_);
      ended_ = true;
    }
    start_.notify_all();
    for (std::thread &helper : helpers_) helper.join();
  }

 private:
  // Runs pieces of the round that the ticket is of, until none is left or the round is over. While a piece is open, its
  // round cannot end, so the work is read only after a piece was taken.
  void take(uint64_t ticket) {
    const uint64_t round = ticket >> 32;
    const Ready ready;
    while (ticket >> 32 == round && static_cast<uint32_t>(ticket) != 0) {
      if (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acquire)) continue;
      work_(context_, static_cast<uint32_t>(ticket) - 1);
      open_.fetch_sub(1, std::memory_order_release);
      ticket = ticket_.load(std::memory_order_acquire);
    }
  }

  void help(int number) {
    slot = number;
    for (uint64_t seen = 0;;) {
      const auto is_new = [&] { return ticket_.load(std::memory_order_acquire) >> 32 != seen; };
      for (int spin = 0; spin < SPINS && !is_new(); spin++) wait();
      if (!is_new()) {
        std::unique_lock<std::mutex> hold(mutex_);
        sleeping_++;
        start_.wait(hold, [&] { return ended_ || is_new(); });
        sleeping_--;
        if (ended_) return;
      }
      const uint64_t ticket = ticket_.load(std::memory_order_acquire);
      seen = ticket >> 32;
      take(ticket);
    }
  }

  const pid_t owner_;
  std::vector<std::thread> helpers_;
  std::mutex mutex_;
  std::condition_variable start_;
  std::atomic<uint64_t> ticket_{0};  // the number of the round, and how many of its pieces nobody has taken
  std::atomic<uint32_t> open_{0};    // pieces that are not finished
  uint64_t round_ = 0;
  int64_t sleeping_ = 0;  // helpers that wait for a call, or were called and have not yet begun
  void (*work_)(void *, int64_t) = nullptr;
  void *context_ = nullptr;
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
  if (wanted == 1 || pieces == 1 || pieces > UINT32_MAX) {
    slot = 0;
    const Ready ready;
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
  pool->run(static_cast<uint32_t>(pieces), work, context);
}

}  // namespace native
