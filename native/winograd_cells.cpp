// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <tuple>

#include "halves.h"
#include "parallel.h"
#include "program.h"
#include "winograd.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace hexforge {
namespace {

constexpr std::int64_t kPage = 1 << 21;  // the large ones

// Memory that the system may give large pages: a run reads all of it.
float* allocated(std::int64_t bytes) {
  const std::int64_t page = bytes >= kPage ? kPage : 64, whole = (bytes + page - 1) / page * page;
  void* memory = std::aligned_alloc(static_cast<std::size_t>(page), static_cast<std::size_t>(whole));
  if (!memory) throw std::bad_alloc();
#if defined(__linux__)
  if (page == kPage) madvise(memory, static_cast<std::size_t>(whole), MADV_HUGEPAGE);
#endif
  return static_cast<float*>(memory);
}

}  // namespace

std::shared_ptr<WinogradCells> WinogradCells::of(const std::uint16_t* halves, std::int64_t channels, std::int64_t outputs) {
  static std::map<std::tuple<const void*, std::int64_t, std::int64_t>, std::weak_ptr<WinogradCells>> known;
  const std::lock_guard lock(fork_mutex());
  std::erase_if(known, [](const auto& one) { return one.second.expired(); });
  auto& place = known[{halves, channels, outputs}];
  std::shared_ptr<WinogradCells> found = place.lock();
  if (!found) place = found = std::shared_ptr<WinogradCells>(new WinogradCells(halves, channels, outputs));
  return found;
}

WinogradCells::~WinogradCells() { std::free(made_.load()); }

const float* WinogradCells::get(int threads) {
  if (const float* made = made_.load(std::memory_order_acquire)) return made;
  const std::int64_t blocks = (outputs_ + kBlock - 1) / kBlock, block = times({kWinogradTaps, channels_, kBlock});
  float* cells = allocated(times({blocks, block, 4}) + kWeightSlack);
  std::memset(cells + (blocks - 1) * block, 0, static_cast<std::size_t>(block * 4 + kWeightSlack));
  parallel_for(threads, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    winograd_cells(halves_, cells, static_cast<std::size_t>(channels_), static_cast<std::size_t>(outputs_), static_cast<std::size_t>(begin),
                   static_cast<std::size_t>(end));
  });
  float* before = nullptr;  // of two runs that make them at the same time, one is the first: nobody waits
  if (made_.compare_exchange_strong(before, cells, std::memory_order_acq_rel)) return cells;
  std::free(cells);
  return before;
}

}  // namespace hexforge
