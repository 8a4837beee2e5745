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

// Each thread has a range of the pieces, and takes of other ranges when its own is done. So a thread has the same images in
// each round, which its caches may still hold, and asks for most pieces without waiting for another.
class Pool {
 public:
  explicit Pool(int count) : owner_(getpid()), ranges_(static_cast<size_t>(count)) {
    for (int i = 1; i < count; i++) helpers_.emplace_back([this, i] { help(i); });
  }

  bool fits(int count) const { return owner_ == getpid() && static_cast<int>(ranges_.size()) == count; }
  bool is_inherited() const { return owner_ != getpid(); }  // a fork copies no threads

  // A thread that sleeps is not waited for: only pieces that were taken are.
  void run(uint32_t pieces, void (*work)(void *, int64_t), void *context) {
    work_ = work;
    context_ = context;
    pieces_ = pieces;
    open_.store(pieces, std::memory_order_relaxed);
    const uint64_t round = ++round_;  // 32 bits, as in a ticket
    int64_t sleeping, missing;
    {
      const std::lock_guard<std::mutex> hold(mutex_);
      for (size_t i = 0; i < ranges_.size(); i++)
        ranges_[i].ticket.store((round << 32) | (begin(i + 1) - begin(i)), std::memory_order_release);
      sleeping = sleeping_;
      missing = static_cast<int64_t>(pieces) - 1 - (static_cast<int64_t>(helpers_.size()) - sleeping);
    }
    // No more threads are woken than there are pieces: each that finds none has cost the others time.
    if (missing >= sleeping) {
      start_.notify_all();
    } else {
      for (; missing > 0; missing--) start_.notify_one();
    }
    take(0, round);
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
  struct alignas(64) Range {
    std::atomic<uint64_t> ticket{0};  // the number of the round, and how many of its pieces nobody has taken
  };

  // The first piece of a range.
  uint32_t begin(size_t range) const {
    return static_cast<uint32_t>((uint64_t{pieces_} * range + ranges_.size() - 1) / ranges_.size());
  }

  // Runs pieces of a round until none is left or the round is over. While a piece is open, its round cannot end, so the
  // work is read only after a piece was taken.
  void take(size_t number, uint64_t round) {
    const Ready ready;
    for (size_t i = 0; i < ranges_.size(); i++) {
      const size_t range = (number + i) % ranges_.size();
      std::atomic<uint64_t> &left = ranges_[range].ticket;
      uint32_t done = 0;
      for (uint64_t ticket = left.load(std::memory_order_acquire); ticket >> 32 == round && static_cast<uint32_t>(ticket) != 0;) {
        if (!left.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acquire)) continue;
        work_(context_, begin(range + 1) - static_cast<uint32_t>(ticket));
        done++;
        ticket = left.load(std::memory_order_acquire);
      }
      if (done > 0) open_.fetch_sub(done, std::memory_order_release);
    }
  }

  void help(int number) {
    slot = number;
    const std::atomic<uint64_t> &own = ranges_[static_cast<size_t>(number)].ticket;
    for (uint64_t seen = 0;;) {
      const auto is_new = [&] { return own.load(std::memory_order_acquire) >> 32 != seen; };
      for (int spin = 0; spin < SPINS && !is_new(); spin++) wait();
      if (!is_new()) {
        std::unique_lock<std::mutex> hold(mutex_);
        sleeping_++;
        start_.wait(hold, [&] { return ended_ || is_new(); });
        sleeping_--;
        if (ended_) return;
      }
      seen = own.load(std::memory_order_acquire) >> 32;
      take(static_cast<size_t>(number), seen);
    }
  }

  const pid_t owner_;
  std::vector<Range> ranges_;  // one for each thread, the caller's first
  std::vector<std::thread> helpers_;
  std::mutex mutex_;
  std::condition_variable start_;
  std::atomic<uint32_t> open_{0};  // pieces that are not finished
  uint32_t pieces_ = 0;
  uint32_t round_ = 0;
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
