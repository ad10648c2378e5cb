// SPDX-License-Identifier: Apache-2.0
// Float convolutions by Winograd's tiles: their weights as cells, and how the tiles are split into tasks.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <tuple>
#include <vector>

#include "core/aligned_memory.h"
#include "core/parallel.h"
#include "core/program.h"
#include "kernels/conv.h"
#include "kernels/halves.h"
#include "steps/products/winograd.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace hexforge {
namespace {

constexpr std::int64_t kMostTiles = 196, kStep = 7;  // tiles of a task: a multiple of the tallest product's rows
constexpr std::int64_t kMostInput = 1 << 17;  // floats of a task's transformed input, about: half a level-2 cache
constexpr double kLeastMacs = 2e5;            // products that are worth a thread

std::int64_t divided_up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

// A convolution in tasks: `units` of `unit` tiles, times `shares` of `share` blocks of output channels.
struct Split {
  std::int64_t unit, units, share, shares;
};

// By tiles, by blocks, or by both: whatever keeps the busiest member shortest. Every task transforms its input, and a
// member reads the weights of every task from beyond its caches.
Split split_of(const ConvArgs& a, std::int64_t tiles, std::int64_t blocks, int members) {
  const std::int64_t most =
      std::clamp(kMostInput / (kWinogradTaps * a.channels) / kStep * kStep, 8 * kStep, kMostTiles);
  if (members == 1 || tiles == 0) {
    const std::int64_t units = divided_up(tiles, most);
    return {std::min(most, divided_up(divided_up(tiles, std::max<std::int64_t>(1, units)), kStep) * kStep), units,
            blocks, 1};
  }
  // cycles of a tile: its input, and of every block its products and its results; of a block, its weights
  const double input = 4.0 * static_cast<double>(a.channels), block = 64.0 * static_cast<double>(a.channels) + 250,
               weights = 512.0 * static_cast<double>(a.channels);
  Split best{};
  double least = 0;
  for (std::int64_t shares = 1; shares <= blocks; shares += 1 + shares / 4) {
    const std::int64_t share = divided_up(blocks, shares), found = divided_up(blocks, share);
    for (std::int64_t rounds = 1; rounds <= 4; ++rounds) {
      const std::int64_t parts = std::clamp<std::int64_t>(divided_up(rounds * members, found), 1, tiles);
      const std::int64_t unit = std::min(most, divided_up(tiles, parts)), units = divided_up(tiles, unit);
      const std::int64_t tasks = divided_up(found * units, members);
      const double one = static_cast<double>(unit) * (input + static_cast<double>(share) * block) +
                         static_cast<double>(share) * weights;
      const double cost = static_cast<double>(tasks) * one;
      if (least != 0 && cost >= least) continue;
      best = {unit, units, share, found};
      least = cost;
    }
  }
  return best;
}

WinogradScratch scratch_for(const ConvArgs& a, std::int64_t tiles) {
  thread_local std::vector<float> memory;
  const std::int64_t row = divided_up(a.channels, kLane) * kLane;
  const std::int64_t input_cell = tiles * row + kLane,
                     product_cell = tiles * kBlock + kLane;  // not a multiple of a page
  const auto needed = static_cast<std::size_t>(kWinogradTaps * (input_cell + product_cell) + kLane);
  if (memory.size() < needed) memory.resize(needed);
  float* start = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64 / 4;
  ConvArgs product;
  product.taps = 1;
  product.steps = a.channels;
  return {start, start + kWinogradTaps * input_cell, row, input_cell, product_cell, working_memory(product, false)};
}

constexpr std::int64_t kPage = 1 << 21;  // the large ones

// Memory that the system may give large pages: a run reads all of it.
float* allocated(std::int64_t bytes) {
  const std::int64_t page = bytes >= kPage ? kPage : 64, whole = (bytes + page - 1) / page * page;
  void* memory = allocate_aligned(static_cast<std::size_t>(page), static_cast<std::size_t>(whole));
  if (!memory) throw std::bad_alloc();
#if defined(__linux__)
  if (page == kPage) madvise(memory, static_cast<std::size_t>(whole), MADV_HUGEPAGE);
#endif
  return static_cast<float*>(memory);
}

}  // namespace

std::shared_ptr<WinogradCells> WinogradCells::of(const std::uint16_t* halves, std::int64_t channels,
                                                 std::int64_t outputs) {
  static std::map<std::tuple<const void*, std::int64_t, std::int64_t>, std::weak_ptr<WinogradCells>> known;
  const std::lock_guard lock(fork_mutex());
  std::erase_if(known, [](const auto& one) { return one.second.expired(); });
  auto& place = known[{halves, channels, outputs}];
  std::shared_ptr<WinogradCells> found = place.lock();
  if (!found) place = found = std::shared_ptr<WinogradCells>(new WinogradCells(halves, channels, outputs));
  return found;
}

WinogradCells::~WinogradCells() { free_aligned(made_.load()); }

const float* WinogradCells::get(int threads) {
  if (const float* made = made_.load(std::memory_order_acquire)) return made;
  const std::int64_t blocks = (outputs_ + kBlock - 1) / kBlock, block = times({kWinogradTaps, channels_, kBlock});
  float* cells = allocated(times({blocks, block, 4}) + kWeightSlack);
  std::memset(cells + (blocks - 1) * block, 0, static_cast<std::size_t>(block * 4 + kWeightSlack));
  parallel_for(threads, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    winograd_cells(halves_, cells, static_cast<std::size_t>(channels_), static_cast<std::size_t>(outputs_),
                   static_cast<std::size_t>(begin), static_cast<std::size_t>(end));
  });
  float* before = nullptr;  // of two runs that make them at the same time, one is the first: nobody waits
  if (made_.compare_exchange_strong(before, cells, std::memory_order_acq_rel)) return cells;
  free_aligned(cells);
  return before;
}

Run winograd_run(const ConvArgs& args, std::shared_ptr<WinogradCells> cells, std::int64_t x_offset,
                 std::int64_t y_offset, bool residual) {
  const std::int64_t tiles = times({args.batch, (args.out[1] + 1) / 2, (args.out[2] + 1) / 2});
  const std::int64_t blocks = divided_up(args.out_channels, kBlock);
  const double macs = static_cast<double>(tiles) * kWinogradTaps * static_cast<double>(args.channels) *
                      static_cast<double>(args.out_channels);
  return [=](const Operands& operands) {
    ConvArgs a = args;
    a.x = operands.in<float>() + x_offset;
    a.y = operands.out<float>() + y_offset;
    a.residual_f32 = residual ? operands.in<float>(1) : nullptr;
    const WinogradKernel kernel = conv_kernels().winograd;
    const int members = worthwhile(operands.threads(), macs, kLeastMacs);
    if (cells) a.weights = cells->get(operands.threads());
    const Split split = split_of(a, tiles, blocks, members);
    parallel_for(members, split.shares * split.units, 1, [&](std::int64_t begin, std::int64_t end) {
      const WinogradScratch scratch = scratch_for(a, split.unit);
      for (; begin < end; ++begin) {
        const std::int64_t block = begin / split.units * split.share, first = begin % split.units * split.unit;
        kernel(a, first, std::min(tiles, first + split.unit), block, std::min(blocks, block + split.share), scratch);
      }
    });
  };
}

void require_winograd(const ConvArgs& a, std::int64_t groups) {
  const auto all = [](const std::int64_t (&of)[3], std::int64_t value) {
    return of[0] == value && of[1] == value && of[2] == value;
  };
  const bool kernel = a.kernel[0] == 1 && a.kernel[1] == 3 && a.kernel[2] == 3;
  if (!kernel || !all(a.stride, 1) || !all(a.dilation, 1) || a.in[0] != 1 || a.out[0] != 1 || a.pad[0] != 0 ||
      groups != 1 || a.row_taps) {
    throw std::invalid_argument("conv: only 3x3 kernels of stride 1, without groups, have Winograd's tiles");
  }
}

}  // namespace hexforge
