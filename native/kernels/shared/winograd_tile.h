// SPDX-License-Identifier: Apache-2.0
// 3x3 convolutions of floats with stride 1 by Winograd's F(2x2, 3x3), written once over a vector type V (conv_tile.h):
// four pixels of an output come from 4 x 4 of the input by 16 products instead of 36. Input and weights are transformed
// to 16 cells, every cell is a matrix product, and their results are transformed back. Sums of floats have one order in
// every set, so all give the same bits.
#pragma once
#include "kernels/shared/conv_tile.h"

namespace hexforge {
namespace {

constexpr int kCells = 16;

// 16 floats: one register, or some. By reference only: how they are passed depends on the instruction set.
using Floats = float __attribute__((vector_size(64), aligned(4), may_alias));
inline const Floats& floats(const float* p) { return *reinterpret_cast<const Floats*>(p); }
inline Floats& floats(float* p) { return *reinterpret_cast<Floats*>(p); }

// The 4 x 4 input pixels of a tile; those outside the image are `pad_row`.
inline void find_tile(const ConvArgs& a, std::int64_t tile, const float* (&from)[4][4]) {
  const std::int64_t wide = (a.out[2] + 1) / 2, high = (a.out[1] + 1) / 2;
  const std::int64_t n = tile / (wide * high), top = tile / wide % high * 2 - a.pad[1],
                     left = tile % wide * 2 - a.pad[2];
  for (int i = 0; i < 4; ++i) {
    const bool outside = top + i < 0 || top + i >= a.in[1];
    for (int j = 0; j < 4; ++j) {
      from[i][j] = outside || left + j < 0 || left + j >= a.in[2]
                       ? static_cast<const float*>(a.pad_row)
                       : static_cast<const float*>(a.x) + ((n * a.in[1] + top + i) * a.in[2] + left + j) * a.x_stride;
    }
  }
}

// Rows of a tile, then columns: (d0 - d2, d1 + d2, d2 - d1, d1 - d3).
inline void transform_input(const ConvArgs& a, std::int64_t begin, std::int64_t end, const WinogradScratch& scratch) {
  for (std::int64_t tile = begin; tile < end; ++tile) {
    const float* from[4][4];
    find_tile(a, tile, from);
    float* to = scratch.inputs + (tile - begin) * scratch.input_row;
    for (std::int64_t c = 0; c < a.channels; c += kLane) {
      Floats rows[4][4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const Floats d0 = floats(from[0][j] + c), d1 = floats(from[1][j] + c), d2 = floats(from[2][j] + c),
                     d3 = floats(from[3][j] + c);
        rows[0][j] = d0 - d2;
        rows[1][j] = d1 + d2;
        rows[2][j] = d2 - d1;
        rows[3][j] = d1 - d3;
      }
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        float* cell = to + 4 * i * scratch.input_cell + c;
        floats(cell) = rows[i][0] - rows[i][2];
        floats(cell + scratch.input_cell) = rows[i][1] + rows[i][2];
        floats(cell + 2 * scratch.input_cell) = rows[i][2] - rows[i][1];
        floats(cell + 3 * scratch.input_cell) = rows[i][1] - rows[i][3];
      }
    }
  }
}

// The sums of a tile's four pixels from the cells' products, (m0 + m1 + m2, m1 - m2 - m3) of rows, then of columns;
// false where one is not finite.
inline bool transform_output(const float* products, std::int64_t cell, int vectors, float (&sums)[4][kBlock]) {
  Floats strange = {};
  for (int v = 0; v < vectors; ++v) {
    const float* m = products + v * kLane;
    Floats rows[2][4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const Floats m1 = floats(m + (4 + j) * cell), m2 = floats(m + (8 + j) * cell);
      rows[0][j] = floats(m + j * cell) + m1 + m2;
      rows[1][j] = m1 - m2 - floats(m + (12 + j) * cell);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const Floats left = rows[i][0] + rows[i][1] + rows[i][2], right = rows[i][1] - rows[i][2] - rows[i][3];
      floats(&sums[2 * i][v * kLane]) = left;
      floats(&sums[2 * i + 1][v * kLane]) = right;
      strange += (left - left) + (right - right);
    }
  }
  bool finite = true;
  for (int lane = 0; lane < kLane; ++lane) finite &= strange[lane] == 0;
  return finite;
}

// The same sums tap by tap: an infinity or NaN must not reach pixels whose windows do not hold it. The weights are
// found again from their cells.
[[gnu::noinline, gnu::cold, maybe_unused]] void sum_taps(const ConvArgs& a, std::int64_t tile, const float* weights,
                                                         int lanes, float (&sums)[4][kBlock]) {
  const float* from[4][4];
  find_tile(a, tile, from);
  std::memset(sums, 0, sizeof sums);
  for (int kh = 0; kh < 3; ++kh) {
    for (int kw = 0; kw < 3; ++kw) {
      for (std::int64_t c = 0; c < a.channels; ++c) {
        const auto cell = [&](int i, int j, int lane) {
          return weights[((i * 4 + j) * a.channels + c) * lanes + lane];
        };
        const auto in_row = [&](int i, int lane) {
          return kw == 1 ? cell(i, 1, lane) - cell(i, 2, lane) : cell(i, kw == 0 ? 0 : 3, lane);
        };
        for (int lane = 0; lane < lanes; ++lane) {
          const float w = kh == 1 ? in_row(1, lane) - in_row(2, lane) : in_row(kh == 0 ? 0 : 3, lane);
          for (int p = 0; p < 4; ++p) sums[p][lane] += from[p / 2 + kh][p % 2 + kw][c] * w;
        }
      }
    }
  }
}

// Tiles [begin, end) of blocks [block_begin, block_end).
template <class V>
void run_winograd(const ConvArgs& a, std::int64_t begin, std::int64_t end, std::int64_t block_begin,
                  std::int64_t block_end, const WinogradScratch& scratch) {
  transform_input(a, begin, end, scratch);
  static constexpr float kNothing[kBlock] = {};
  ConvArgs cell;  // a product of matrices, one row for every tile
  cell.out[2] = cell.in[2] = end - begin;
  cell.channels = cell.run = cell.steps = a.channels;
  cell.taps = 1;
  cell.pointwise = true;
  cell.x_stride = scratch.input_row;
  cell.y_stride = kBlock;
  cell.bias_f32 = kNothing;
  cell.low_f32 = -std::numeric_limits<float>::infinity();
  cell.high_f32 = std::numeric_limits<float>::infinity();
  const std::int64_t wide = (a.out[2] + 1) / 2, high = (a.out[1] + 1) / 2;
  for (std::int64_t block = block_begin; block < block_end; ++block) {
    const std::int64_t channel = block * kBlock, lanes = std::min<std::int64_t>(kBlock, a.out_channels - channel);
    const int vectors = static_cast<int>((lanes + kLane - 1) / kLane);
    const char* weights = static_cast<const char*>(a.weights) + block * kCells * a.channels * kBlock * 4;
    cell.out_channels = vectors * kLane;
    for (int i = 0; i < kCells; ++i) {
      cell.x = scratch.inputs + i * scratch.input_cell;
      cell.y = scratch.products + i * scratch.product_cell;
      cell.weights = weights + i * a.channels * vectors * kLane * 4;
      multiply_block<V, 32>(cell, 0, end - begin, 0, vectors, static_cast<const char*>(cell.weights),
                            static_cast<const char*>(cell.weights) + a.channels * vectors * kLane * 4, scratch.product);
    }
    for (std::int64_t tile = begin; tile < end; ++tile) {
      alignas(64) float sums[4][kBlock];
      if (!transform_output(scratch.products + (tile - begin) * kBlock, scratch.product_cell, vectors, sums)) {
        sum_taps(a, tile, reinterpret_cast<const float*>(weights), vectors * kLane, sums);
      }
      const std::int64_t n = tile / (wide * high), top = tile / wide % high * 2, left = tile % wide * 2;
      for (int p = 0; p < 4; ++p) {
        if (top + p / 2 >= a.out[1] || left + p % 2 >= a.out[2]) continue;
        const std::int64_t pixel = (n * a.out[1] + top + p / 2) * a.out[2] + left + p % 2;
        V::store_f32(sums[p], a, channel, static_cast<float*>(a.y) + pixel * a.y_stride + channel, lanes,
                     a.residual_f32 ? a.residual_f32 + pixel * a.residual_stride + channel : nullptr);
      }
    }
  }
}

}  // namespace
}  // namespace hexforge
