// SPDX-License-Identifier: Apache-2.0
#include "kernels/halves.h"

#include <cstring>

#include "kernels/loops.h"

namespace hexforge {
namespace {

constexpr std::size_t kBlock = 64, kLane = 16, kTaps = 9;

}  // namespace

void winograd_cells(const std::uint16_t* halves, float* cells, std::size_t channels, std::size_t outputs,
                    std::size_t block, std::size_t block_end) {
  const auto make = loops().winograd_cells;
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
  loops().widen_half(halves, wide, static_cast<std::int64_t>(count));
}

void narrow_halves(const float* wide, std::uint16_t* halves, std::size_t count) {
  loops().narrow_half(wide, halves, static_cast<std::int64_t>(count));
}

void narrow_matrix_halves(const float* wide, std::uint16_t* halves, std::size_t count) {
  loops().narrow_matrix_half(wide, halves, static_cast<std::int64_t>(count));
}

}  // namespace hexforge
