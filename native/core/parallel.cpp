// SPDX-License-Identifier: Apache-2.0
#include "core/parallel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include "core/float_overflow.h"

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif
#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hexforge {
namespace {

using Clock = std::chrono::steady_clock;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#else
  std::this_thread::yield();
#endif
}

// True once `done` is, false when `limit_us` has passed without. The limit may change while it waits.
template <class Done>
bool spin(const Done& done, const std::atomic<std::int32_t>& limit_us) {
  if (done()) return true;
  const Clock::time_point start = Clock::now();
  for (;;) {
    for (int i = 0; i < 32; ++i) {
      pause();
      if (done()) return true;
    }
    if (Clock::now() - start >= std::chrono::microseconds(limit_us.load(std::memory_order_relaxed))) return done();
  }
}

int processors() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

// The iterations a member has not begun; others take from it when their own are gone.
struct alignas(64) Part {
  std::atomic<std::int64_t> next{0};
  std::int64_t end = 0;
};

struct Loop {
  Body body;
  std::int64_t chunk = 1;
  Part* parts = nullptr;
  int members = 1;
  std::atomic<bool> failed{false}, overflowed{false};
  std::exception_ptr failure;

  // Does the next chunk that a member comes to: of its own part, or of one after it. False where none is left.
  bool chunk_of(int member, int& from) {
    for (; from < members; ++from) {
      Part& part = parts[(member + from) % members];
      const std::int64_t begin = part.next.load(std::memory_order_relaxed) >= part.end
                                     ? part.end
                                     : part.next.fetch_add(chunk, std::memory_order_relaxed);
      if (begin >= part.end) continue;
      body.call(body.object, begin, std::min(part.end, begin + chunk));
      return true;
    }
    return false;
  }

  void work(int member) {
    try {
      for (int from = 0; !failed.load(std::memory_order_relaxed) && chunk_of(member, from);) {}
    } catch (...) {
      if (!failed.exchange(true)) failure = std::current_exception();
    }
  }
};

namespace {

// A state that threads can sleep on until it is another one.
struct SharedState : std::atomic<std::uint32_t> {
  using std::atomic<std::uint32_t>::atomic;
#if defined(__GLIBCXX__) && !defined(_GLIBCXX_HAVE_LINUX_FUTEX)
  // Where libstdc++ has no futex (mingw-w64), its atomic wait looks for a change before it takes its lock, and so
  // sleeps through one that comes in between (bits/atomic_wait.h of GCC 12).
  void wait(std::uint32_t old) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this, old] { return load(std::memory_order_seq_cst) != old; });
  }
  void notify_one() {
    { const std::lock_guard lock(mutex); }  // who has looked under the lock sleeps by now
    changed.notify_one();
  }
  std::mutex mutex;
  std::condition_variable changed;
#endif
};

// A thread and its letter box. It lives as long as the process, so a late look at it is never one at freed memory.
struct alignas(64) Worker {
  enum : std::uint32_t { kIdle, kOffered, kTaken };
  SharedState state{kIdle};
  Loop* loop = nullptr;  // read only between kTaken and kIdle, while the loop's caller waits
  int member = 0;
  alignas(64) std::atomic<bool> asleep{false}, awaited{false};
  std::atomic<std::int32_t> spin_us{0};

  void offer(Loop& work, int as) {
    loop = &work;
    member = as;
    state.store(kOffered, std::memory_order_release);
  }

  // After a fence behind the offer: the worker says that it is asleep before it looks a last time.
  void wake() {
    if (asleep.load(std::memory_order_seq_cst)) state.notify_one();
  }

  // Takes an offer back, or waits until the worker is through with it.
  void close() {
    std::uint32_t seen = state.load(std::memory_order_acquire);
    if (seen == kIdle || (seen == kOffered && state.compare_exchange_strong(seen, kIdle, std::memory_order_acq_rel)))
      return;
    const auto done = [this] { return state.load(std::memory_order_acquire) == kIdle; };
    if (spin(done, spin_us)) return;
    awaited.store(true, std::memory_order_seq_cst);
    while (state.load(std::memory_order_seq_cst) == kTaken) state.wait(kTaken);
    awaited.store(false, std::memory_order_relaxed);
  }

  void serve();
};

thread_local bool in_loop = false;  // in a loop's body, where further loops run on the thread they are met by

void Worker::serve() {
  in_loop = true;
  const auto offered = [this] { return state.load(std::memory_order_relaxed) == kOffered; };
  for (;;) {
    if (!spin(offered, spin_us)) {
      asleep.store(true, std::memory_order_seq_cst);
      while (state.load(std::memory_order_seq_cst) != kOffered) state.wait(kIdle);
      asleep.store(false, std::memory_order_relaxed);
    }
    std::uint32_t seen = kOffered;
    if (!state.compare_exchange_strong(seen, kTaken, std::memory_order_acq_rel)) continue;
    loop->work(member);
    if (overflow_seen()) {  // the loop's caller is told
      loop->overflowed.store(true, std::memory_order_relaxed);
      clear_overflow();
    }
    state.exchange(kIdle, std::memory_order_seq_cst);
    if (awaited.load(std::memory_order_seq_cst)) state.notify_one();
  }
}

class Pool {
 public:
  // As many of `count` workers as there are free ones or can be made, `size` in all at most; the last given back first.
  void claim(std::vector<Worker*>& crew, int count, int size, std::int32_t spin_us) {
    std::lock_guard lock(mutex_);
    for (; count > 0; --count) {
      if (free_.empty() && !grow(size)) return;
      crew.push_back(free_.back());
      free_.pop_back();
      crew.back()->spin_us.store(spin_us, std::memory_order_relaxed);
    }
  }
  void release(std::vector<Worker*>& crew, std::size_t keep, std::int32_t spin_us) {
    std::lock_guard lock(mutex_);
    for (; crew.size() > keep; crew.pop_back()) {
      crew.back()->spin_us.store(spin_us, std::memory_order_relaxed);
      free_.push_back(crew.back());
    }
  }
  std::atomic<int> runs{0};  // crews that are at work
  const int cores = processors();

 private:
  bool grow(int size) {
    if (made_ >= size) return false;
    Worker* worker = new Worker;
    try {
      std::thread([worker] { worker->serve(); }).detach();
    } catch (const std::system_error&) {  // no more threads can be had: the others do it
      delete worker;
      return false;
    }
    ++made_;
    free_.push_back(worker);
    return true;
  }
  std::mutex mutex_;
  std::vector<Worker*> free_;
  int made_ = 0;
};

std::atomic<Pool*> pool_now{nullptr};

Pool& pool() {
  Pool* found = pool_now.load(std::memory_order_acquire);
  if (found) return *found;
  auto made = std::make_unique<Pool>();
  if (pool_now.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel)) return *made.release();
  return *found;
}

// What a thread that runs loops holds.
struct Held {
  std::vector<Worker*> workers;
  std::vector<Part> parts;
  Pool* pool = nullptr;
  Spinning spinning;
  int depth = 0;
};
thread_local Held held;

#if defined(__unix__) || defined(__APPLE__)
// A child has the thread that forked and no other: workers, and runs of other threads, are not in it. It begins with a
// new pool; the old one's memory stays where it is, as nobody can tell in which state its mutex was.
void after_fork_in_child() {
  pool_now.store(nullptr, std::memory_order_release);
  held.workers.clear();
  held.pool = nullptr;
  fork_mutex().unlock();
}

const bool handles_forks = [] {
  pthread_atfork([] { fork_mutex().lock(); }, [] { fork_mutex().unlock(); }, after_fork_in_child);
  return true;
}();
#endif

// Fits the crew to the number of runs: the cores are shared evenly, and a run never holds more than its part.
void recruit(int helpers, int threads) {
  Pool& from = *held.pool;
  const int runs = std::max(1, from.runs.load(std::memory_order_relaxed));
  const int share = std::max(1, std::max(from.cores, threads) / runs);
  helpers = std::min(helpers, share - 1);
  const int most = std::min(threads, share) - 1, have = static_cast<int>(held.workers.size());
  if (have > most) from.release(held.workers, static_cast<std::size_t>(most), 0);
  if (have < helpers)
    from.claim(held.workers, helpers - have, std::max(from.cores, threads) - 1, held.spinning.during_us);
}

}  // namespace

std::mutex& fork_mutex() {
  static std::mutex* mutex = new std::mutex;  // never destroyed: a fork may come at the very end
  return *mutex;
}

namespace {
std::atomic<bool> splits_everything{false};
}

void split_everything(bool wanted) { splits_everything.store(wanted, std::memory_order_relaxed); }

int worthwhile(int threads, double cost, double least) {
  if (splits_everything.load(std::memory_order_relaxed)) return std::max(1, threads);
  const double parts = cost / least;
  return parts >= threads ? std::max(1, threads) : parts < 1 ? 1 : static_cast<int>(parts);
}

namespace {

thread_local TimedLoops* timed = nullptr;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Chunk by chunk, always by the member that would come to it first.
void time_loop(Loop& loop) {
  std::vector<double> busy(static_cast<std::size_t>(loop.members));
  std::vector<int> from(busy.size());
  const Clock::time_point begin = Clock::now();
  in_loop = true;
  for (std::size_t done = 0; done < busy.size();) {
    std::size_t next = busy.size();
    for (std::size_t i = 0; i < busy.size(); ++i) {
      if (from[i] < loop.members && (next == busy.size() || busy[i] < busy[next])) next = i;
    }
    const Clock::time_point start = Clock::now();
    if (loop.chunk_of(static_cast<int>(next), from[next])) {
      busy[next] += seconds_since(start);
    } else {
      ++done;
    }
  }
  in_loop = false;
  for (double each : busy) timed->all += each;
  timed->longest += *std::max_element(busy.begin(), busy.end());
  timed->passed += seconds_since(begin);
  ++timed->loops;
}

}  // namespace

TimedLoops::TimedLoops() { timed = this; }
TimedLoops::~TimedLoops() { timed = nullptr; }

Crew::Crew(Spinning spinning) {
  if (held.depth++ > 0 || in_loop) return;
  held.pool = &pool();
  held.spinning = spinning;
  held.pool->runs.fetch_add(1, std::memory_order_relaxed);
}

Crew::~Crew() {
  if (--held.depth > 0 || in_loop || !held.pool) return;
  const bool alone = held.pool->runs.fetch_sub(1, std::memory_order_relaxed) == 1;
  if (!held.workers.empty()) held.pool->release(held.workers, 0, alone ? held.spinning.after_us : 0);
  held.pool = nullptr;
}

void parallel_loop(int threads, std::int64_t n, std::int64_t grain, Body body) {
  if (n <= 0) return;
  grain = splits_everything.load(std::memory_order_relaxed) ? 1 : std::max<std::int64_t>(1, grain);
  const int wanted = static_cast<int>(std::min<std::int64_t>(threads, n / grain));
  if (wanted <= 1 || in_loop) return body.call(body.object, 0, n);
  if (!held.pool) {
    const Crew crew{Spinning{}};
    return parallel_loop(threads, n, grain, body);
  }
  if (!timed) recruit(wanted - 1, threads);
  const int members = timed ? wanted : std::min(wanted, 1 + static_cast<int>(held.workers.size()));
  if (members == 1) return body.call(body.object, 0, n);
  if (static_cast<int>(held.parts.size()) < members) held.parts = std::vector<Part>(static_cast<std::size_t>(members));
  const std::int64_t size = n / members, larger = n % members;  // the first `larger` parts have one more
  for (std::int64_t i = 0, begin = 0; i < members; ++i) {
    Part& part = held.parts[static_cast<std::size_t>(i)];
    part.next.store(begin, std::memory_order_relaxed);
    part.end = begin += size + (i < larger);
  }
  // Each part in a few chunks: enough to even out what a thread that was interrupted leaves behind.
  Loop loop{body, std::max(grain, (size + 4) / 4), held.parts.data(), members, {}, {}, {}};
  if (timed) return time_loop(loop);
  // All offers first: stores to lines that other cores hold overlap, read-modify-writes would wait for each other.
  for (int i = 1; i < members; ++i) held.workers[static_cast<std::size_t>(i) - 1]->offer(loop, i);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int i = 1; i < members; ++i) held.workers[static_cast<std::size_t>(i) - 1]->wake();
  in_loop = true;
  loop.work(0);
  in_loop = false;
  for (int i = 1; i < members; ++i) held.workers[static_cast<std::size_t>(i) - 1]->close();
  if (loop.overflowed.load(std::memory_order_relaxed)) raise_overflow();
  if (loop.failure) std::rethrow_exception(loop.failure);
}

}  // namespace hexforge
