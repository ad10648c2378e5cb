// SPDX-License-Identifier: Apache-2.0
#include "context/large_pages.h"

#include <cstring>
#include <map>
#include <mutex>
#include <new>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "context/error.h"
#include "core/aligned_memory.h"

namespace hexforge {
namespace {

constexpr std::int64_t kPage = std::int64_t{1} << 21, kLine = 64;

// So many bytes, and a line of the cache behind them that kernels may read.
std::int64_t whole_lines(std::int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine + kLine; }

// Copies of arrays, which keeps the arrays: no others can be where they are.
struct Block {
  explicit Block(std::int64_t bytes)
      : memory(static_cast<std::byte*>(allocate_aligned(kPage, static_cast<std::size_t>(bytes)))) {
    if (!memory) throw std::bad_alloc();
#if defined(__linux__)
    madvise(memory, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
#endif
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { free_aligned(memory); }
  std::byte* memory;
  std::vector<std::shared_ptr<const void>> sources;
};

struct Copy {
  std::weak_ptr<const Block> block;
  std::int64_t offset;
};
using PlaceInFile = std::pair<const std::byte*, std::int64_t>;
std::mutex mutex;  // guards what follows
std::map<PlaceInFile, Copy>& copies() {
  static std::map<PlaceInFile, Copy> all;
  return all;
}

PlaceInFile place(const StoredArray& array) { return {array.data, array.bytes}; }

}  // namespace

void move_to_large_pages(std::span<StoredArray* const> packed, std::span<StoredArray* const> others) {
  std::vector<StoredArray*> wanted;
  std::int64_t weights = 0;
  for (StoredArray* array : packed) {
    if (array->mapping < 0 || array->bytes == 0) continue;
    weights += array->bytes;
    wanted.push_back(array);
  }
  if (weights < kLeastShared) return;
  for (StoredArray* array : others) {
    if (array->mapping >= 0 && array->bytes > 0 && array->bytes <= kLeastArray) wanted.push_back(array);
  }
  std::map<PlaceInFile, std::pair<std::shared_ptr<const Block>, std::int64_t>> found;
  {
    const std::lock_guard lock(mutex);
    std::erase_if(copies(), [](const auto& entry) { return entry.second.block.expired(); });
    std::map<PlaceInFile, const StoredArray*> absent;
    std::int64_t bytes = 0;
    for (const StoredArray* array : wanted) {
      if (const auto known = copies().find(place(*array)); known != copies().end()) {
        if (auto block = known->second.block.lock()) {
          found[place(*array)] = {std::move(block), known->second.offset};
          continue;
        }
      }
      if (absent.try_emplace(place(*array), array).second) bytes += whole_lines(array->bytes);
    }
    if (!absent.empty()) {
      const auto made = std::make_shared<Block>((bytes + kPage - 1) / kPage * kPage);
      std::int64_t at = 0;
      for (const auto& [key, array] : absent) {
        std::memcpy(made->memory + at, array->data, static_cast<std::size_t>(array->bytes));
        made->sources.push_back(array->owner);
        copies()[key] = {made, at};
        found[key] = {made, at};
        at += whole_lines(array->bytes);
      }
      for (const auto& [key, array] : absent) require_whole(array->mapping);
    }
  }
  for (StoredArray* array : wanted) {
    const auto& [block, offset] = found.at(place(*array));
    array->data = block->memory + offset;
    array->room = kLine;
    array->owner = block;
    array->mapping = -1;
  }
}

}  // namespace hexforge
