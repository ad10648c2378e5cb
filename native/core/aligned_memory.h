// SPDX-License-Identifier: Apache-2.0
// Memory that begins at a multiple of a power of two; Windows has its own functions for it.
#pragma once
#include <cstdlib>
#if defined(_WIN32)
#include <malloc.h>
#endif

namespace hexforge {

// `bytes` is a multiple of `alignment`; null where there is no memory.
inline void* allocate_aligned(std::size_t alignment, std::size_t bytes) {
#if defined(_WIN32)
  return _aligned_malloc(bytes, alignment);
#else
  return std::aligned_alloc(alignment, bytes);
#endif
}

inline void free_aligned(void* memory) {
#if defined(_WIN32)
  _aligned_free(memory);
#else
  std::free(memory);
#endif
}

}  // namespace hexforge
