// SPDX-License-Identifier: Apache-2.0
// Runs many small loops on two threads that sleep whenever they wait: many_loops COUNT. tools/windows.py links it so
// that every lock is taken by `__wrap_pthread_mutex_lock` below, which holds a thread up now and then just before it
// has the lock, as a busy computer does. Where a wake-up is lost in between, the program never ends.
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "core/parallel.h"

extern "C" int __real_pthread_mutex_lock(pthread_mutex_t* mutex);

extern "C" int __wrap_pthread_mutex_lock(pthread_mutex_t* mutex) {
  static std::atomic<unsigned> taken{0};
  if (taken.fetch_add(1) % 8 == 7) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return __real_pthread_mutex_lock(mutex);
}

int main(int count, char** words) {
  if (count != 2) {
    std::fprintf(stderr, "many_loops COUNT\n");
    return 2;
  }
  const hexforge::Crew crew({0, 0});
  std::atomic<long> begun{0}, done{0};
  std::uint32_t drawn = 1;
  const long loops = std::atol(words[1]);
  for (long i = 0; i < loops; ++i) {
    drawn = drawn * 1664525u + 1013904223u;
    const std::uint32_t longest = (drawn >> 16) % 4000;  // about as long as a thread looks before it sleeps
    hexforge::parallel_for(2, 2, 1, [&](std::int64_t begin, std::int64_t end) {
      if (begin == 0 && end == 1) {  // the worker has the other half, and is waited for
        while (begun.load() == i) std::this_thread::yield();
      } else {
        begun.store(i + 1);
        for (volatile std::uint32_t work = longest; work > 0;) work = work - 1;
      }
      done.fetch_add(static_cast<long>(end - begin));
    });
  }
  if (done.load() != 2 * loops) return 1;
  std::printf("%ld loops\n", loops);
  return 0;
}
