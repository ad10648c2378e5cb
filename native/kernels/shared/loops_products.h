// SPDX-License-Identifier: Apache-2.0
// Loops of products that are no tiles: a few rows, recurrences, wide weights, cells of Winograd. One source for every
// set.
#pragma once
#include <cstddef>

#include "kernels/loops.h"

namespace hexforge {
namespace {

// A few rows of a product of matrices: y += a[k] * b[k][..] row by row; sums of integers are exact.
template <class T, class Sum>
void add_rows(const T* a, Sum zero_a, const T* b, Sum zero_b, std::int64_t k, std::int64_t stride, std::int64_t n,
              Sum* y) {
  for (std::int64_t i = 0; i < k; ++i) {
    const Sum x = static_cast<Sum>(a[i]) - zero_a;
    for (std::int64_t j = 0; j < n; ++j) y[j] += x * (static_cast<Sum>(b[i * stride + j]) - zero_b);
  }
}

// The same with bytes for b, in integers of 32 bits as far as these are exact.
void add_rows_of_bytes(const std::int16_t* a, double zero_a, const std::uint8_t* b, double zero_b, std::int64_t k,
                       std::int64_t stride, std::int64_t n, double* y) {
  constexpr std::int64_t kExact = 128;  // 2^16 * 255 * 128 < 2^31
  const std::int32_t zero = static_cast<std::int32_t>(zero_a);
  std::int32_t sums[kAddedColumns];
  for (std::int64_t first = 0; first < k; first += kExact) {
    const std::int64_t last = k - first < kExact ? k : first + kExact;
    std::int64_t total = 0, i = first;
    for (std::int64_t j = 0; j < n; ++j) sums[j] = 0;
    for (; i + 4 <= last; i += 4) {
      const std::uint8_t *b0 = b + i * stride, *b1 = b0 + stride, *b2 = b1 + stride, *b3 = b2 + stride;
      const std::int32_t x0 = a[i] - zero, x1 = a[i + 1] - zero, x2 = a[i + 2] - zero, x3 = a[i + 3] - zero;
      for (std::int64_t j = 0; j < n; ++j) sums[j] += x0 * b0[j] + x1 * b1[j] + x2 * b2[j] + x3 * b3[j];
      total += x0 + x1 + x2 + x3;
    }
    for (; i < last; ++i) {
      const std::int32_t x = a[i] - zero;
      for (std::int64_t j = 0; j < n; ++j) sums[j] += x * b[i * stride + j];
      total += x;
    }
    const double less = zero_b * static_cast<double>(total);
    for (std::int64_t j = 0; j < n; ++j) y[j] += sums[j] - less;
  }
}

void hmx_columns(const std::uint8_t* low, const std::int8_t* high, std::int64_t row, int rows, const std::uint8_t* w,
                 std::int64_t blocks, std::int64_t stride, std::int32_t* sums) {
  constexpr int kGroup = kHmxBlock * kHmxTogether;
  for (int i = 0; i < (2 * rows + 1) * kHmxBlock; ++i) sums[i] = 0;
  std::int32_t* columns = sums + 2 * rows * kHmxBlock;
  for (std::int64_t group = 0; group < blocks * kHmxGroups; ++group) {
    const std::uint8_t* from = w + group / kHmxGroups * stride + group % kHmxGroups * kGroup;
    std::int32_t centered[kHmxTogether][kHmxBlock];
    for (int c = 0; c < kHmxBlock; ++c) {
      for (int k = 0; k < kHmxTogether; ++k) centered[k][c] = from[c * kHmxTogether + k] - 128;
    }
    for (int k = 0; k < kHmxTogether; ++k) {
      for (int c = 0; c < kHmxBlock; ++c) columns[c] += centered[k][c];
      for (int r = 0; r < rows; ++r) {
        const std::int64_t at = r * row + group * kHmxTogether + k;
        const std::int32_t of_low = low[at], of_high = high ? high[at] : 0;
        std::int32_t *y = sums + r * kHmxBlock, *z = sums + (rows + r) * kHmxBlock;
        for (int c = 0; c < kHmxBlock; ++c) y[c] += of_low * centered[k][c];
        if (high) {
          for (int c = 0; c < kHmxBlock; ++c) z[c] += of_high * centered[k][c];
        }
      }
    }
  }
}

void dot_2x4(const std::int16_t* __restrict x, std::int64_t x_row, const std::int16_t* __restrict w, std::int64_t w_row,
             std::int64_t n, std::int64_t* __restrict sums) {
  constexpr std::int64_t kChunk = 480;  // products of 16 bits and of nine, whose sum stays below 2^31
  for (std::int64_t first = 0; first < n; first += kChunk) {
    const std::int64_t count = n - first < kChunk ? n - first : kChunk;
    const std::int16_t *x0 = x + first, *x1 = x0 + x_row;
    const std::int16_t *w0 = w + first, *w1 = w0 + w_row, *w2 = w1 + w_row, *w3 = w2 + w_row;
    std::int32_t a0 = 0, a1 = 0, a2 = 0, a3 = 0, b0 = 0, b1 = 0, b2 = 0, b3 = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      a0 += x0[i] * w0[i];
      a1 += x0[i] * w1[i];
      a2 += x0[i] * w2[i];
      a3 += x0[i] * w3[i];
      b0 += x1[i] * w0[i];
      b1 += x1[i] * w1[i];
      b2 += x1[i] * w2[i];
      b3 += x1[i] * w3[i];
    }
    sums[0] += a0;
    sums[1] += a1;
    sums[2] += a2;
    sums[3] += a3;
    sums[4] += b0;
    sums[5] += b1;
    sums[6] += b2;
    sums[7] += b3;
  }
}

constexpr std::size_t kTaps = 9;

// Of three rows the four that Winograd's cells have there; sums of float16 numbers are exact in double.
template <typename Out>
[[gnu::always_inline]] inline void spread(const double* g0, const double* g1, const double* g2, Out* c0, Out* c1,
                                          Out* c2, Out* c3) {
  for (std::size_t o = 0; o < kCellOutputs; ++o) {
    const double outer = g0[o] + g2[o], inner = g1[o];
    c0[o] = static_cast<Out>(g0[o]);
    c1[o] = static_cast<Out>(0.5 * (outer + inner));
    c2[o] = static_cast<Out>(0.5 * (outer - inner));
    c3[o] = static_cast<Out>(g2[o]);
  }
}

// The 16 cells of 64 outputs of one channel.
void winograd_cells(const float (*taps)[kCellOutputs], float (*cells)[kCellOutputs]) {
  double g[kTaps][kCellOutputs], middle[12][kCellOutputs];
  for (std::size_t tap = 0; tap < kTaps; ++tap) {
    for (std::size_t o = 0; o < kCellOutputs; ++o) g[tap][o] = taps[tap][o];
  }
  for (std::size_t c = 0; c < 3; ++c) {
    spread(g[c], g[3 + c], g[6 + c], middle[c], middle[3 + c], middle[6 + c], middle[9 + c]);
  }
  for (std::size_t r = 0; r < 4; ++r) {
    spread(middle[3 * r], middle[3 * r + 1], middle[3 * r + 2], cells[4 * r], cells[4 * r + 1], cells[4 * r + 2],
           cells[4 * r + 3]);
  }
}

}  // namespace
}  // namespace hexforge
