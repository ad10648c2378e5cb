// SPDX-License-Identifier: Apache-2.0
// Integers times packed weights whose blocks of inputs have a float scale each: one row of activations, or many. One
// source for every set; what a set does better by its own instructions has a line here.
#pragma once
#include "kernels/shared/loops_packed.h"
#include "kernels/shared/rounding.h"

namespace hexforge {
namespace {

#if defined(__AVX2__) || defined(__aarch64__)
inline Doubles fused(Doubles a, double b, Doubles c) {
#if defined(__AVX512F__)
  return (Doubles)_mm512_fmadd_pd((__m512d)a, _mm512_set1_pd(b), (__m512d)c);
#elif defined(__AVX2__)
  return (Doubles)_mm256_fmadd_pd((__m256d)a, _mm256_set1_pd(b), (__m256d)c);
#else
  return (Doubles)vfmaq_f64((float64x2_t)c, (float64x2_t)a, vdupq_n_f64(b));
#endif
}
#endif

// by.in * scale / by.out, each rounded, of a vector of scales. Where in and out are of float32's numbers a product with
// their ratio in two parts is that number: in * scale has at most 48 bits and out 24, so the quotient is at least 2^-25
// of a last place away from where it would round otherwise, and the product is at most 2^-52 off.
inline void of_output(const Reals& scale, const PackedScaling& by, Doubles* factors) {
  HalfReals halves[2];
  std::memcpy(halves, &scale, sizeof scale);
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const Doubles wide = doubles(halves[i]);
#if defined(__AVX2__) || defined(__aarch64__)
    if (by.ratio != 0) {
      factors[i] = fused(wide, by.ratio, wide * by.ratio_rest);
      continue;
    }
#endif
    factors[i] = by.in * wide / by.out;
  }
}

// One vector of sums of a block, exact, times what its scale is of the output's.
inline void add_scaled(const Integers& exact, const Reals& scale, const PackedScaling& by, Doubles* totals) {
  HalfIntegers sums[2];
  Doubles factors[2];
  std::memcpy(sums, &exact, sizeof exact);
  of_output(scale, by, factors);
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) totals[i] += doubles(sums[i]) * factors[i];
}

template <int Planes, bool Rest, int V>
void row_scaled(const PackedWeights& w, std::int64_t first, const std::int8_t* x, const std::int32_t* starts,
                const PackedScaling& by, double* totals) {
  constexpr std::int8_t kOnes[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  const std::uint32_t* from = w.codes + first;
  const auto least = static_cast<std::int32_t>(-w.zero * w.block);
  Doubles total[V][2] = {};
  for (std::int64_t at = first; at < w.depth / w.block * w.lanes; at += w.lanes) {
    Integers sum[Planes + Rest][V];
#pragma GCC unroll 4
    for (int i = 0; i < V; ++i) {
#pragma GCC unroll 2
      for (int p = 0; p < Planes; ++p) sum[p][i] = splat(starts[p]);
      if constexpr (Rest) sum[Planes][i] = splat(least);
    }
    starts += Planes;
    for (std::int64_t k = 0; k < w.block; k += 8, from += w.lanes, x += 8 * Planes) {
#pragma GCC unroll 4
      for (int i = 0; i < V; ++i) {
        const Integers v = load<Integers>(from + i * kLanes), even = v & 0x0f0f0f0f, odd = v >> 4 & 0x0f0f0f0f;
        fetch(from + i * kLanes);
#pragma GCC unroll 2
        for (int p = 0; p < Planes; ++p) add_dots(sum[p][i], even, odd, x + 8 * p);
        if constexpr (Rest) add_dots(sum[Planes][i], even, odd, kOnes);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < V; ++i) {
      Integers exact = sum[0][i];
      if constexpr (Rest) exact += by.rest * sum[Planes][i];
      if constexpr (Planes == 2) exact += 256 * sum[1][i];
      add_scaled(exact, scales_of(w, at + i * kLanes), by, total[i]);
      fetch_scales(w, at + i * kLanes);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < V; ++i) {
    store(totals + first + i * kLanes, total[i][0]);
    store(totals + first + i * kLanes + kLanes / 2, total[i][1]);
  }
}

template <int Planes, bool Rest>
void some_row_scaled(const PackedWeights& w, const std::int8_t* x, const std::int32_t* starts, const PackedScaling& by,
                     double* totals) {
  std::int64_t first = 0;
  for (; first + kTogether * kLanes <= w.lanes; first += kTogether * kLanes)
    row_scaled<Planes, Rest, kTogether>(w, first, x, starts, by, totals);
  for (; first < w.lanes; first += kLanes) row_scaled<Planes, Rest, 1>(w, first, x, starts, by, totals);
}

// One row of one plane of bytes or two times the outputs of a block, whose blocks of inputs have a float scale each.
void packed_row_scaled(const PackedWeights& w, int planes, const std::int8_t* x, const std::int32_t* starts,
                       const PackedScaling& by, double* totals) {
  const auto pick = [&]<int Planes>() {
    by.rest ? some_row_scaled<Planes, true>(w, x, starts, by, totals)
            : some_row_scaled<Planes, false>(w, x, starts, by, totals);
  };
  planes == 1 ? pick.template operator()<1>() : pick.template operator()<2>();
}

// Adds to each lane the products of its two 16-bit numbers with two others.
inline void add_pairs(Integers& sum, Integers w, Integers x) {
#if defined(__AVX512VNNI__)
  // Inline assembly: GCC 12 spills the accumulators with the intrinsics.
  __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
#elif defined(__AVX2__)
  sum += (Integers)_mm256_madd_epi16((__m256i)w, (__m256i)x);
#else
  sum += (w << 16 >> 16) * (x << 16 >> 16) + (w >> 16) * (x >> 16);
#endif
}

// Winograd's inner product: x0 w0 + x1 w1 = (x0 + w1)(x1 + w0) - x0 x1 - w0 w1, where the products of the xs are one
// number for all outputs, and those of the weights one for all rows. It halves the products and adds two additions for
// each, which pays where these run beside them. Sums are modulo 2^32, and the result fits.
#if defined(__AVX512VNNI__)
constexpr bool kHalvesProducts = true;
inline Integers add_words(Integers a, Integers b) { return (Integers)_mm512_add_epi16((__m512i)a, (__m512i)b); }
#else
constexpr bool kHalvesProducts = false;
inline Integers add_words(Integers a, Integers) { return a; }
#endif
constexpr std::int16_t kMostCode = 15;

#if defined(__AVX512VNNI__)
// Of a vector of 16-bit numbers, in pairs as below: the sum of products of the first two and the last two of every
// four, and whether a number is so large that a code added to it has no 16 bits.
inline std::int32_t products_of_pairs(__m512i v) {
  const __m512i sums = _mm512_madd_epi16(v, _mm512_srli_epi64(v, 32));
  return static_cast<std::int32_t>(_mm512_mask_reduce_add_epi32(0x5555, sums));
}
inline bool any_large(__m512i v) {
  return _mm512_cmpgt_epi16_mask(v, _mm512_set1_epi16(INT16_MAX - kMostCode)) |
         _mm512_cmplt_epi16_mask(v, _mm512_set1_epi16(INT16_MIN + kMostCode));
}
#endif

// Of every four inputs (a, b, c, d) of a row (a, c, b, d); of each block of a row the sum of a b + c d, and whether a
// number is so large that a code added to it has no 16 bits.
void pair_rows(std::int16_t* x, std::int64_t blocks, std::int64_t block, std::int32_t* products, std::uint8_t* large) {
  using Bits = Vector<std::uint64_t, kRegister>;
  for (std::int64_t b = 0; b < blocks; ++b, x += block) {
    std::uint32_t sum = 0;
    bool any = false;
    std::int64_t i = 0;
    for (; i + kRegister / 2 <= block; i += kRegister / 2) {
      Bits v;
      load(v, x + i);
      v = (v & 0xffff00000000ffffu) | (v & 0xffff0000u) << 16 | (v >> 16 & 0xffff0000u);
#if defined(__AVX512VNNI__)
      sum += static_cast<std::uint32_t>(products_of_pairs((__m512i)v));
      any |= any_large((__m512i)v);
#endif
      store(x + i, v);
    }
    for (; i < block; i += 4) {
      for (int k = 0; k < 4; ++k) any |= x[i + k] > INT16_MAX - kMostCode || x[i + k] < INT16_MIN + kMostCode;
      sum += static_cast<std::uint32_t>(x[i] * x[i + 1]) + static_cast<std::uint32_t>(x[i + 2] * x[i + 3]);
      std::swap(x[i + 1], x[i + 2]);
    }
    products[b] = static_cast<std::int32_t>(sum);
    large[b] = any;
  }
}

// A block of codes less their zero, as 16-bit pairs: of every four inputs the first with the third, the second with the
// fourth. Of each output what its sums begin with (-zero_a times the weights; less the products of the weights, where
// products are halved), and what its scale is of the output's.
struct WideBlock {
  std::uint32_t* panel;  // [block / 4][2][lanes]
  std::int32_t starts[2][kPackedOutputs];
  double factors[kPackedOutputs];
};

void unpack_scaled(const PackedWeights& w, std::int64_t block, std::int32_t zero_a, const PackedScaling& by,
                   WideBlock& to) {
  const std::uint32_t* from = w.codes + block * w.block / 8 * w.lanes;
  for (std::int64_t i = 0; i < w.lanes; i += kLanes) {
    Integers sum = {}, products = {};
    std::uint32_t* panel = to.panel + i;
    for (std::int64_t k = 0; k < w.block; k += 8) {
      const Integers v = load<Integers>(from + k / 8 * w.lanes + i);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half, panel += 2 * w.lanes) {
        Integers q[4];
#pragma GCC unroll 4
        for (int c = 0; c < 4; ++c) q[c] = (v >> (16 * half + 4 * c) & 15) - w.zero;
        sum += q[0] + q[1] + q[2] + q[3];
        products += q[0] * q[1] + q[2] * q[3];
        store(panel, (q[0] & 0xffff) | q[2] << 16);
        store(panel + w.lanes, (q[1] & 0xffff) | q[3] << 16);
      }
    }
    store(to.starts[0] + i, sum * -zero_a);
    store(to.starts[1] + i, sum * -zero_a - products);
    Doubles factors[2];
    of_output(scales_of(w, block * w.lanes + i), by, factors);
    store(to.factors + i, factors[0]);
    store(to.factors + i + kLanes / 2, factors[1]);
  }
}

// R rows times V vectors of outputs over one block, added to the totals.
template <bool Halved, int R, int V>
void tile_scaled(const PackedWeights& w, const WideBlock& block, std::int64_t first, const std::int16_t* x,
                 const std::int32_t* products, double* totals) {
  Integers sum[R][V];
#pragma GCC unroll 4
  for (int i = 0; i < V; ++i) {
    const Integers start = load<Integers>(block.starts[Halved] + first + i * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) sum[r][i] = Halved ? start - splat(products[r]) : start;
  }
  const std::uint32_t* panel = block.panel + first;
  for (std::int64_t k = 0; k < w.block; k += 4, panel += 2 * w.lanes, x += 4) {
    Integers even[V], odd[V];
#pragma GCC unroll 4
    for (int i = 0; i < V; ++i) {
      even[i] = load<Integers>(panel + i * kLanes);
      odd[i] = load<Integers>(panel + w.lanes + i * kLanes);
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      std::int32_t pairs[2];
      std::memcpy(pairs, x + r * w.block, sizeof pairs);
      const Integers one = splat(pairs[0]), other = splat(pairs[1]);
#pragma GCC unroll 4
      for (int i = 0; i < V; ++i) {
        if constexpr (Halved) {
          add_pairs(sum[r][i], add_words(one, odd[i]), add_words(other, even[i]));
        } else {
          add_pairs(sum[r][i], even[i], one);
          add_pairs(sum[r][i], odd[i], other);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < V; ++i) {
    const double* factors = block.factors + first + i * kLanes;
    const Doubles low = load<Doubles>(factors), high = load<Doubles>(factors + kLanes / 2);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      double* total = totals + r * w.lanes + i * kLanes;
      HalfIntegers halves[2];
      std::memcpy(halves, &sum[r][i], sizeof halves);
      store(total, load<Doubles>(total) + doubles(halves[0]) * low);
      store(total + kLanes / 2, load<Doubles>(total + kLanes / 2) + doubles(halves[1]) * high);
    }
  }
}

// As `packed_row_scaled` of many rows: a block of codes becomes 16-bit integers once for all of them.
void packed_rows_scaled(const PackedWeights& w, const PackedRows& x, const PackedScaling& by, std::uint32_t* panel,
                        double* totals) {
  WideBlock wide;
  wide.panel = panel;
  for (std::int64_t i = 0; i < x.rows * w.lanes; ++i) totals[i] = 0;
  for (std::int64_t block = 0; block < w.depth / w.block; ++block) {
    unpack_scaled(w, block, x.zero, by, wide);
    for_tiles(x.rows, w.lanes, [&]<int R, int V>(std::int64_t r, std::int64_t first) {
      const std::int64_t at = block * x.rows + r;
      bool halved = kHalvesProducts;
      for (int i = 0; i < R; ++i) halved &= !x.large[at + i];
      (halved ? tile_scaled<kHalvesProducts, R, V> : tile_scaled<false, R, V>)(w, wide, first, x.values + at * w.block,
                                                                               x.products + at,
                                                                               totals + r * w.lanes + first);
    });
  }
}

// y[i] = round_and_clamp(totals[i] + bias[i]), no bias where it is null; low and high are less the zero point.
template <class Q>
void round_totals(const double* totals, const double* bias, double low, double high, std::int32_t zero, Q* y,
                  std::int64_t n) {
  if (bias) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = round_and_clamp<double, Q>(totals[i] + bias[i], low, high, zero);
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i] = round_and_clamp<double, Q>(totals[i] + 0.0, low, high, zero);
  }
}

}  // namespace
}  // namespace hexforge
