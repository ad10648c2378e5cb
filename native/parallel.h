// Threads that share the chunks of a loop. Each output is computed by one thread, so results never depend on how many.
#pragma once
#include <cstdint>
#include <functional>

namespace hexforge {

// body(begin, end) over [0, n) in chunks of at least `grain`, by the caller and up to threads - 1 pooled workers.
void parallel_for(int threads, std::int64_t n, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace hexforge
