// SPDX-License-Identifier: Apache-2.0
// Threads that share the pieces of a loop. Each output is computed by one thread, so results never depend on how many.
//
// A run holds a crew of pooled workers from its first loop that is worth it until its end: they are woken once and then
// wait for the next loop without sleeping, for a bounded time. A worker that another process has pushed off its core
// holds nobody up: what it has not begun, others do.
#pragma once
#include <cstdint>
#include <mutex>

namespace hexforge {

// How long workers without work stay awake, in microseconds, during a run and behind one; 0: they sleep at once.
struct Spinning {
  std::int32_t during_us = 1000;
  std::int32_t after_us = 100;
};

// The workers of one run. The thread that makes it is its first member; loops on that thread use it until it ends.
class Crew {
 public:
  explicit Crew(Spinning spinning);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
};

// A loop's body without the allocation of a std::function.
struct Body {
  const void* object;
  void (*call)(const void*, std::int64_t, std::int64_t);
};

void parallel_loop(int threads, std::int64_t n, std::int64_t grain, Body body);

// body(begin, end) over [0, n) in chunks of at least `grain`, the least that is worth a thread of its own. Member i of
// the crew begins with the i-th part of [0, n) in every loop, so that it finds in its cache what it has just written.
// A loop inside a body runs on the thread that meets it.
template <class Function>
void parallel_for(int threads, std::int64_t n, std::int64_t grain, const Function& function) {
  parallel_loop(threads, n, grain, {&function, [](const void* object, std::int64_t begin, std::int64_t end) {
                                      (*static_cast<const Function*>(object))(begin, end);
                                    }});
}

// How many parts of at least `least` there are in `cost`, at most one for each thread.
int worthwhile(int threads, double cost, double least);

// While it lives, the loops of the thread that made it run on that thread alone, piece after piece as the members of a
// crew would take them if each had a core: how long the longest of them works is what no machine undercuts.
class TimedLoops {
 public:
  TimedLoops();
  ~TimedLoops();
  TimedLoops(const TimedLoops&) = delete;
  TimedLoops& operator=(const TimedLoops&) = delete;
  double all = 0, longest = 0;  // seconds in loops so far: of all members, and of those that the others wait for
  double passed = 0;            // what timing them took
  int loops = 0;                // loops that were split
};

// Splits every loop as far as it goes, however small: for tests.
void split_everything(bool wanted);

// Held by a fork, so that the child finds what it guards whole.
std::mutex& fork_mutex();

}  // namespace hexforge
