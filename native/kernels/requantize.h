// SPDX-License-Identifier: Apache-2.0
// Requantization: float64 accumulators times one scale per channel, to saturated integers, ties to even.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace hexforge {

// out[r][c] = clamp(round_half_even(accumulators[r][c] * multipliers[c]) + zero_point, low, high)
template <typename Out>
void requantize(const double* accumulators, const double* multipliers, Out* out, std::size_t rows, std::size_t channels,
                std::int64_t zero_point, std::int64_t low, std::int64_t high) {
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t channel = 0; channel < channels; ++channel) {
      const std::size_t i = row * channels + channel;
      const double steps = std::nearbyint(accumulators[i] * multipliers[channel]) + static_cast<double>(zero_point);
      out[i] = static_cast<Out>(std::clamp(steps, static_cast<double>(low), static_cast<double>(high)));
    }
  }
}

}  // namespace hexforge
