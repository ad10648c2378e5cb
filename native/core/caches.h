// SPDX-License-Identifier: Apache-2.0
// What steps do for the caches; results never depend on it.
#pragma once
#include <cstdint>

namespace hexforge {

// Brings a table that will be read in no order into the caches, in order: misses one after the other cost far more.
// Only where so many `reads` would touch most of its lines anyway.
inline void fetch_table(const void* table, std::int64_t bytes, std::int64_t reads) {
  constexpr std::int64_t kLine = 64, kLeastReads = 4096;
  if (!table || reads < kLeastReads) return;
  for (std::int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(static_cast<const char*>(table) + i, 0, 2);
}

}  // namespace hexforge
