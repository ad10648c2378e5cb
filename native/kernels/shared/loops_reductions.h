// SPDX-License-Identifier: Apache-2.0
// Loops over the channels of pixels and along rows: pools, softmax, moments, normalizations. One source for every set.
#pragma once
#include <cmath>
#include <type_traits>

#include "kernels/shared/loops_pointwise.h"
#include "kernels/shared/vector.h"

namespace hexforge {
namespace {

// The greatest of every channel of a piece, or the first NaN; how many channels are left is what shorter pieces are
// for.
template <class T, int Bytes>
std::int64_t max_pieces(const T* const* rows, std::int64_t count, std::int64_t c, std::int64_t channels, T* y) {
  using Piece = Vector<T, Bytes>;
  constexpr std::int64_t kPiece = Bytes / sizeof(T);
  for (; c + kPiece <= channels; c += kPiece) {
    Piece best, row;
    load(best, rows[0] + c);
    for (std::int64_t r = 1; r < count; ++r) {
      load(row, rows[r] + c);
      if constexpr (std::is_floating_point_v<T>) {
        best = ((row > best) | (row != row)) ? row : best;
      } else {
        best = row > best ? row : best;
      }
    }
    store(y + c, best);
  }
  return c;
}

template <class T>
void max_rows(const T* const* rows, std::int64_t count, std::int64_t channels, T* y) {
  std::int64_t c = max_pieces<T, 64>(rows, count, 0, channels, y);
  c = max_pieces<T, 16>(rows, count, c, channels, y);
  for (; c < channels; ++c) {
    T best = rows[0][c];
    for (std::int64_t r = 1; r < count; ++r) best = rows[r][c] > best || rows[r][c] != rows[r][c] ? rows[r][c] : best;
    y[c] = best;
  }
}

template <class Real, class Q>
void mean_rows(const Q* const* rows, std::int64_t count, std::int64_t channels, const Affine& k, Q* y) {
  constexpr std::int64_t kChunk = 256;
  const Real factor = static_cast<Real>(k.a);
  const Real low = static_cast<Real>(k.low - k.zero), high = static_cast<Real>(k.high - k.zero);
  const std::int32_t offset = static_cast<std::int32_t>(count) * k.zero_a, zero = k.zero;
  for (std::int64_t c0 = 0; c0 < channels; c0 += kChunk) {
    const std::int64_t n = channels - c0 < kChunk ? channels - c0 : kChunk;
    std::int32_t sums[kChunk];
    for (std::int64_t c = 0; c < n; ++c) sums[c] = -offset;
    for (std::int64_t r = 0; r < count; ++r) {
      const Q* row = rows[r] + c0;
      for (std::int64_t c = 0; c < n; ++c) sums[c] += row[c];
    }
    for (std::int64_t c = 0; c < n; ++c) {
      y[c0 + c] = round_and_clamp<Real, Q>(static_cast<Real>(sums[c]) * factor, low, high, zero);
    }
  }
}

template <class Q>
void softmax(const Q* x, std::int64_t n, const std::uint32_t* table, double scale, std::int32_t zero, std::int32_t low,
             std::int32_t high, Q* y) {
  Q most = x[0];
  for (std::int64_t i = 1; i < n; ++i) most = x[i] > most ? x[i] : most;
  std::uint64_t sum = 0;
  const double least = low - zero, greatest = high - zero;
  for (std::int64_t i = 0; i < n; ++i) sum += table[most - x[i]];
  const double factor = scale / static_cast<double>(sum);
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = round_and_clamp<double, Q>(static_cast<double>(table[most - x[i]]) * factor, least, greatest, zero);
  }
}

template <class Q>
void moments(const Q* x, std::int64_t n, std::int64_t* sum, std::int64_t* squares) {
  std::int64_t s = 0, q = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t v = x[i];
    s += v;
    q += v * v;
  }
  *sum += s;
  *squares += q;
}

template <class Q>
void channel_moments(const Q* x, std::int64_t n, std::int64_t* sum, std::int64_t* squares) {
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t v = x[i];
    sum[i] += v;
    squares[i] += v * v;
  }
}

template <class Q>
void normalize(const Q* x, std::int64_t n, const double* mean, const double* factor, int step, const double* gamma,
               const double* beta, const Affine& k, Q* y) {
  const double low = k.low - k.zero, high = k.high - k.zero;
  const std::int32_t zero = k.zero;
  if (step) {
    for (std::int64_t i = 0; i < n; ++i) {
      y[i] = round_and_clamp<double, Q>((x[i] - mean[i]) * factor[i] * gamma[i] + beta[i], low, high, zero);
    }
  } else {
    const double m = mean[0], f = factor[0];
    for (std::int64_t i = 0; i < n; ++i) {
      y[i] = round_and_clamp<double, Q>((x[i] - m) * f * gamma[i] + beta[i], low, high, zero);
    }
  }
}

// The sums of some vectors of channels, row after row.
template <int Count>
std::int64_t sum_pieces(const float* const* rows, std::int64_t count, std::int64_t c, std::int64_t channels, float* y) {
  for (; c + Count * kLanes <= channels; c += Count * kLanes) {
    Reals sums[Count] = {};
    for (std::int64_t r = 0; r < count; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < Count; ++v) sums[v] = sums[v] + load<Reals>(rows[r] + c + v * kLanes);
    }
    for (int v = 0; v < Count; ++v) store(y + c + v * kLanes, sums[v]);
  }
  return c;
}

void mean_f32(const float* const* rows, std::int64_t count, std::int64_t channels, float divisor, float* y) {
  std::int64_t c = sum_pieces<4>(rows, count, 0, channels, y);
  c = sum_pieces<1>(rows, count, c, channels, y);
  for (; c < channels; ++c) {
    float sum = 0.0f;
    for (std::int64_t r = 0; r < count; ++r) sum += rows[r][c];
    y[c] = sum;
  }
  for (c = 0; c < channels; ++c) y[c] /= divisor;
  round_to_half(y, y, channels);
}

}  // namespace
}  // namespace hexforge
