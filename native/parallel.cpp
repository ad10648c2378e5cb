#include "parallel.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <queue>
#include <thread>
#include <vector>

namespace hexforge {
namespace {

struct Loop {
  const std::function<void(std::int64_t, std::int64_t)>* body;
  std::int64_t n, chunk;
  std::atomic<std::int64_t> next{0};
  std::atomic<std::int64_t> done{0};
  std::mutex mutex;
  std::condition_variable finished;

  void work() {
    for (;;) {
      const std::int64_t begin = next.fetch_add(chunk, std::memory_order_relaxed);
      if (begin >= n) return;
      const std::int64_t end = std::min(n, begin + chunk);
      (*body)(begin, end);
      if (done.fetch_add(end - begin, std::memory_order_acq_rel) + end - begin == n) {
        std::lock_guard lock(mutex);
        finished.notify_all();
      }
    }
  }
};

class Pool {
 public:
  static Pool& get() {
    static Pool* pool = new Pool;  // never destroyed: workers may outlive static destruction
    return *pool;
  }
  void offer(const std::shared_ptr<Loop>& loop, int workers) {
    std::lock_guard lock(mutex_);
    while (static_cast<int>(size_) < workers) {
      std::thread([this] { serve(); }).detach();
      ++size_;
    }
    for (int i = 0; i < workers; ++i) loops_.push(loop);
    wake_.notify_all();
  }

 private:
  void serve() {
    for (;;) {
      std::shared_ptr<Loop> loop;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return !loops_.empty(); });
        loop = std::move(loops_.front());
        loops_.pop();
      }
      loop->work();
    }
  }
  std::mutex mutex_;
  std::condition_variable wake_;
  std::queue<std::shared_ptr<Loop>> loops_;
  std::size_t size_ = 0;
};

}  // namespace

void parallel_for(int threads, std::int64_t n, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (n <= 0) return;
  const std::int64_t pieces = std::min<std::int64_t>(threads, (n + grain - 1) / grain);
  if (pieces <= 1) {
    body(0, n);
    return;
  }
  const auto loop = std::make_shared<Loop>();
  loop->body = &body;
  loop->n = n;
  loop->chunk = std::max(grain, (n + pieces * 4 - 1) / (pieces * 4));
  Pool::get().offer(loop, static_cast<int>(pieces) - 1);
  loop->work();
  std::unique_lock lock(loop->mutex);
  loop->finished.wait(lock, [&] { return loop->done.load(std::memory_order_acquire) == n; });
}

}  // namespace hexforge
