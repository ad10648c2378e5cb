// SPDX-License-Identifier: Apache-2.0
// Halves, given by their bits, as the float32 that kernels read, and back (kernels/half.h).
#pragma once
#include <cstddef>
#include <cstdint>

namespace hexforge {

void widen_halves(const std::uint16_t* halves, float* wide, std::size_t count);
void narrow_halves(const float* wide, std::uint16_t* halves, std::size_t count);
void narrow_matrix_halves(const float* wide, std::uint16_t* halves, std::size_t count);

// [3][3][channels][outputs] weights in float16 as the 4 x 4 cells of Winograd's F(2x2, 3x3): blocks of 64 outputs, of
// each cell after cell, [channels][outputs up to a multiple of 16]. A cell is exact in double and rounded once. Blocks
// [block, block_end) are written.
void winograd_cells(const std::uint16_t* halves, float* cells, std::size_t channels, std::size_t outputs,
                    std::size_t block, std::size_t block_end);

}  // namespace hexforge
