// SPDX-License-Identifier: Apache-2.0
// Float convolutions whose weights are the cells of Winograd's F(2x2, 3x3) (winograd_tile.h).
#pragma once
#include "conv.h"
#include "program.h"

namespace hexforge {

constexpr std::int64_t kWinogradTaps = 16;  // of the weights: their cells

// Throws where the geometry is not one that has such tiles.
void require_winograd(const ConvArgs& a, std::int64_t groups);

// The step of a convolution whose tensors and constants were checked; offsets are channels of input and output.
Run winograd_run(const ConvArgs& args, std::int64_t x_offset, std::int64_t y_offset, bool residual);

}  // namespace hexforge
