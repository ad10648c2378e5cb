// SPDX-License-Identifier: Apache-2.0
// Kernels of hexforge._native.
#pragma once
#include <cstddef>
#include <cstdint>

namespace hexforge {

// out[r][c] = clamp(round_half_even(accumulators[r][c] * multipliers[c]) + zero_point, low, high)
template <typename Out>
void requantize(const double* accumulators, const double* multipliers, Out* out, std::size_t rows,
                std::size_t channels, std::int64_t zero_point, std::int64_t low, std::int64_t high);

}  // namespace hexforge
