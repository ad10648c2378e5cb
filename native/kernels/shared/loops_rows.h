// SPDX-License-Identifier: Apache-2.0
// Sums in order along rows of floats, some rows at a time: each has a lane. One source for every instruction set.
#pragma once
#include <cmath>

#include "kernels/loops.h"
#include "kernels/shared/loops_moves.h"
#include "kernels/shared/loops_pointwise.h"
#include "kernels/shared/vector.h"

namespace hexforge {
namespace {

constexpr int kRowsAtOnce = kRegister / 8;

// each(values) with the i-th value of each of some rows, in order of i.
template <class Each>
[[gnu::always_inline]] inline void along_rows(const float* x, std::int64_t n, const Each& each) {
  constexpr std::int64_t kColumns = 128;
  float columns[kColumns * kRowsAtOnce];
  for (std::int64_t i = 0; i < n; i += kColumns) {
    const std::int64_t count = n - i < kColumns ? n - i : kColumns;
    transpose_part<kRowsAtOnce * 4, false>(x + i, n, columns, kRowsAtOnce, count, kRowsAtOnce);
    for (std::int64_t j = 0; j < count; ++j) each(doubles(load<HalfReals>(columns + j * kRowsAtOnce)));
  }
}

template <bool Rows>
[[gnu::always_inline]] inline void norm_of(const float* x, std::int64_t n, const RowNorm& k, double* means,
                                           double* factors) {
  const auto factor = [&](double power) {
    if (k.kind != 2) power /= static_cast<double>(n);
    return 1.0 /
           (k.kind == 2 ? (std::sqrt(power) > k.epsilon ? std::sqrt(power) : k.epsilon) : std::sqrt(power + k.epsilon));
  };
  if constexpr (Rows) {
    Doubles mean = {}, power = {};
    if (k.kind == 0) {
      along_rows(x, n, [&](Doubles v) { mean += v; });
      mean /= static_cast<double>(n);
    }
    along_rows(x, n, [&](Doubles v) {
      const Doubles d = v - mean;
      power += d * d;
    });
    for (int r = 0; r < kRowsAtOnce; ++r) {
      means[r] = mean[r];
      factors[r] = factor(power[r]);
    }
  } else {
    double mean = 0, power = 0;
    if (k.kind == 0) {
      for (std::int64_t i = 0; i < n; ++i) mean += x[i];
      mean /= static_cast<double>(n);
    }
    for (std::int64_t i = 0; i < n; ++i) power += (x[i] - mean) * (x[i] - mean);
    *means = mean;
    *factors = factor(power);
  }
}

void normalize_f32(const float* x, std::int64_t n, double mean, double factor, const float* gamma, const float* beta,
                   float* y) {
  for (std::int64_t i = 0; i < n; ++i) { y[i] = static_cast<float>((x[i] - mean) * factor * gamma[i] + beta[i]); }
  round_to_half(y, y, n);
}

void normalize_rows_f32(const float* x, std::int64_t rows, std::int64_t n, const RowNorm& k, float* y) {
  double means[kRowsAtOnce], factors[kRowsAtOnce];
  for (std::int64_t r = 0; r < rows;) {
    const bool some = r + kRowsAtOnce <= rows;
    some ? norm_of<true>(x + r * n, n, k, means, factors) : norm_of<false>(x + r * n, n, k, means, factors);
    for (int i = 0; i < (some ? kRowsAtOnce : 1); ++i, ++r)
      normalize_f32(x + r * n, n, means[i], factors[i], k.gamma, k.beta, y + r * n);
  }
}

// totals[c] of some channels over pixels in order: of x, or of the squared distances to the means.
template <bool Squares, int Count>
void add_channels(const float* x, std::int64_t pixels, std::int64_t stride, const double* means, double* totals) {
  Doubles sums[Count] = {}, middle[Count] = {};
  for (int v = 0; Squares && v < Count; ++v) middle[v] = load<Doubles>(means + v * kRowsAtOnce);
  for (std::int64_t p = 0; p < pixels; ++p) {
#pragma GCC unroll 8
    for (int v = 0; v < Count; ++v) {
      const Doubles d = doubles(load<HalfReals>(x + p * stride + v * kRowsAtOnce)) - middle[v];
      sums[v] += Squares ? d * d : d;
    }
  }
  for (int v = 0; v < Count; ++v) store(totals + v * kRowsAtOnce, sums[v]);
}

void channel_totals_f32(const float* x, std::int64_t pixels, std::int64_t stride, std::int64_t channels,
                        const double* means, double* totals) {
  std::int64_t c = 0;
  const auto piece = [&]<int Count>() {
    for (; c + Count * kRowsAtOnce <= channels; c += Count * kRowsAtOnce) {
      means ? add_channels<true, Count>(x + c, pixels, stride, means + c, totals + c)
            : add_channels<false, Count>(x + c, pixels, stride, nullptr, totals + c);
    }
  };
  piece.template operator()<8>();
  piece.template operator()<4>();
  piece.template operator()<1>();
  for (; c < channels; ++c) {
    double sum = 0;
    for (std::int64_t p = 0; p < pixels; ++p) {
      const double d = x[p * stride + c] - (means ? means[c] : 0.0);
      sum += means ? d * d : d;
    }
    totals[c] = sum;
  }
}

void normalize_pixels_f32(const float* x, std::int64_t pixels, std::int64_t channels, const double* means,
                          const double* factors, const float* gamma, const float* beta, float* y) {
  for (std::int64_t p = 0; p < pixels; ++p, x += channels, y += channels) {
    for (std::int64_t c = 0; c < channels; ++c)
      y[c] = static_cast<float>((x[c] - means[c]) * factors[c] * gamma[c] + beta[c]);
    round_to_half(y, y, channels);
  }
}

inline float greatest(const float* x, std::int64_t n) {
  float most = x[0];
  std::int64_t i = 0;
  if (n >= kLanes) {
    Reals best = load<Reals>(x);
    for (i = kLanes; i + kLanes <= n; i += kLanes) {
      const Reals v = load<Reals>(x + i);
      best = v > best ? v : best;
    }
    for (int l = 0; l < kLanes; ++l) most = best[l] > most ? best[l] : most;
  }
  for (; i < n; ++i) most = x[i] > most ? x[i] : most;
  return most;
}

// y / sum in float64, rounded to float32 and then to a half. A product with the reciprocal lies so near that a little
// less and a little more mostly round to the same half, which is the quotient's then: rounding keeps the order.
inline void divide_row(float* y, std::int64_t n, double sum) {
  const float over = static_cast<float>(1.0 / sum), less = over * (1 - 0x1p-20f), more = over * (1 + 0x1p-20f);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Reals e = load<Reals>(y + i), low = rounded_halves(e * less), high = rounded_halves(e * more);
    const Integers same = low == high;
    bool all = true;
#if defined(__AVX512F__)
    all = _mm512_movepi32_mask((__m512i)same) == 0xffff;
#elif defined(__AVX2__)
    all = _mm256_movemask_ps((__m256)same) == 0xff;
#else
    for (int l = 0; l < kLanes; ++l) all &= same[l] != 0;
#endif
    if (all) [[likely]] {
      store(y + i, low);
    } else {
      for (int l = 0; l < kLanes; ++l) y[i + l] = to_half(static_cast<float>(e[l] / sum));
    }
  }
  for (; i < n; ++i) y[i] = to_half(static_cast<float>(y[i] / sum));
}

void softmax_rows_f32(const float* x, std::int64_t rows, std::int64_t n, const float* exponentials, float* y) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float *from = x + r * n, most = greatest(from, n);
    float* to = y + r * n;
    for (std::int64_t i = 0; i < n; ++i) to[i] = from[i] - most;
    table_f32(to, exponentials, to, n);
  }
  std::int64_t r = 0;
  for (; r + kRowsAtOnce <= rows; r += kRowsAtOnce) {
    Doubles sums = {};
    along_rows(y + r * n, n, [&](Doubles v) { sums += v; });
    for (int i = 0; i < kRowsAtOnce; ++i) divide_row(y + (r + i) * n, n, sums[i]);
  }
  for (; r < rows; ++r) {
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += y[r * n + i];
    divide_row(y + r * n, n, sum);
  }
}

}  // namespace
}  // namespace hexforge
