// SPDX-License-Identifier: Apache-2.0
#include "kernels/halves.h"

#include <cstring>

#include "core/level.h"
#include "kernels/loops.h"

namespace hexforge {
namespace {

constexpr std::size_t kBlock = 64, kLane = 16, kTaps = 9;

// Of three rows the four that Winograd's cells have there; sums of float16 numbers are exact in double.
template <typename Out>
[[gnu::always_inline]] inline void spread(const double* g0, const double* g1, const double* g2, Out* c0, Out* c1,
                                          Out* c2, Out* c3) {
  for (std::size_t o = 0; o < kBlock; ++o) {
    const double outer = g0[o] + g2[o], inner = g1[o];
    c0[o] = static_cast<Out>(g0[o]);
    c1[o] = static_cast<Out>(0.5 * (outer + inner));
    c2[o] = static_cast<Out>(0.5 * (outer - inner));
    c3[o] = static_cast<Out>(g2[o]);
  }
}

// The 16 cells of 64 outputs of one channel.
[[gnu::always_inline]] inline void cells_of(const float (*taps)[kBlock], float (*cells)[kBlock]) {
  double g[kTaps][kBlock], middle[12][kBlock];
  for (std::size_t tap = 0; tap < kTaps; ++tap) {
    for (std::size_t o = 0; o < kBlock; ++o) g[tap][o] = taps[tap][o];
  }
  for (std::size_t c = 0; c < 3; ++c) {
    spread(g[c], g[3 + c], g[6 + c], middle[c], middle[3 + c], middle[6 + c], middle[9 + c]);
  }
  for (std::size_t r = 0; r < 4; ++r) {
    spread(middle[3 * r], middle[3 * r + 1], middle[3 * r + 2], cells[4 * r], cells[4 * r + 1], cells[4 * r + 2],
           cells[4 * r + 3]);
  }
}

void cells_portable(const float (*taps)[kBlock], float (*cells)[kBlock]) { cells_of(taps, cells); }
#if defined(__x86_64__)
__attribute__((target("avx2"))) void cells_avx2(const float (*taps)[kBlock], float (*cells)[kBlock]) {
  cells_of(taps, cells);
}
#endif

}  // namespace

void winograd_cells(const std::uint16_t* halves, float* cells, std::size_t channels, std::size_t outputs,
                    std::size_t block, std::size_t block_end) {
  auto make = cells_portable;
#if defined(__x86_64__)
  if (current_level() >= Level::avx2) make = cells_avx2;
#endif
  float taps[kTaps][kBlock] = {}, made[16][kBlock];
  for (; block < block_end; ++block) {
    const std::size_t first = block * kBlock;
    float* to = cells + first * 16 * channels;
    const std::size_t count = outputs - first < kBlock ? outputs - first : kBlock;
    const std::size_t lanes = (count + kLane - 1) / kLane * kLane;
    for (std::size_t channel = 0; channel < channels; ++channel) {
      for (std::size_t tap = 0; tap < kTaps; ++tap) {
        widen_halves(halves + (tap * channels + channel) * outputs + first, taps[tap], count);
      }
      make(taps, made);
      for (std::size_t cell = 0; cell < 16; ++cell) {
        std::memcpy(to + (cell * channels + channel) * lanes, made[cell], count * sizeof(float));
      }
    }
  }
}

void widen_halves(const std::uint16_t* halves, float* wide, std::size_t count) {
  loops(current_level()).widen_half(halves, wide, static_cast<std::int64_t>(count));
}

void narrow_halves(const float* wide, std::uint16_t* halves, std::size_t count) {
  loops(current_level()).narrow_half(wide, halves, static_cast<std::int64_t>(count));
}

}  // namespace hexforge
