// SPDX-License-Identifier: Apache-2.0
// Integers times packed weights whose blocks of inputs have a float scale each: one row of activations, or many. Floats
// are integers here, too: so many units of their block. One source for every set; what a set does better by its own
// instructions has a line here.
#pragma once
#include <bit>

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

// Totals of V vectors of outputs: of integers in float64, in steps of the output.
template <int V>
struct StepTotals {
  using Number = double;
  const PackedScaling& by;
  Doubles total[V][2] = {};

  void add(int i, const Integers& exact, const Reals& scale, std::int64_t) { add_scaled(exact, scale, by, total[i]); }
  void store_all(double* to) const {
#pragma GCC unroll 4
    for (int i = 0; i < V; ++i) {
      store(to + i * kLanes, total[i][0]);
      store(to + i * kLanes + kLanes / 2, total[i][1]);
    }
  }
};

// A sum of units, rounded once, and added to a total.
inline Reals add_units(const Integers& exact, float unit, const Reals& scale, const Reals& total) {
  return fused(__builtin_convertvector(exact, Reals) * splat(unit), scale, total);
}

// The same of floats, in float32.
template <int V>
struct UnitTotals {
  using Number = float;
  const float* units;
  Reals total[V] = {};

  void add(int i, const Integers& exact, const Reals& scale, std::int64_t block) {
    total[i] = add_units(exact, units[block], scale, total[i]);
  }
  void store_all(float* to) const {
#pragma GCC unroll 4
    for (int i = 0; i < V; ++i) store(to + i * kLanes, total[i]);
  }
};

// `rest` is what all of a row's integers are more than their planes say, 0 without Rest.
template <int Planes, bool Rest, bool Zeros, int V, class Totals>
void row_scaled(const PackedWeights& w, std::int64_t first, const std::int8_t* x, const std::int32_t* starts,
                std::int32_t rest, Totals totals, typename Totals::Number* to) {
  constexpr std::int8_t kOnes[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  const std::uint32_t* from = w.codes + first;
  const auto least = static_cast<std::int32_t>(-w.zero * w.block);
  for (std::int64_t block = 0, at = first; block < w.depth / w.block; ++block, at += w.lanes) {
    Integers sum[Planes + Rest][V];
#pragma GCC unroll 4
    for (int i = 0; i < V; ++i) {
#pragma GCC unroll 2
      for (int p = 0; p < Planes; ++p) {
        sum[p][i] = splat(starts[p]);
        if constexpr (Zeros) sum[p][i] *= widen(w.zeros + at + i * kLanes);
      }
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
      if constexpr (Rest) exact += rest * sum[Planes][i];
      if constexpr (Planes == 2) exact += 256 * sum[1][i];
      totals.add(i, exact, scales_of(w, at + i * kLanes), block);
      fetch_scales(w, at + i * kLanes);
    }
  }
  totals.store_all(to + first);
}

// One row of one plane of bytes or two times the outputs of a block, whose blocks of inputs have a float scale each.
void packed_row_scaled(const PackedWeights& w, int planes, const std::int8_t* x, const std::int32_t* starts,
                       const PackedScaling& by, double* totals) {
  const auto pick = [&]<int Planes, bool Rest>() {
    for_vectors<kTogether>(w.lanes, [&]<int V>(std::int64_t first) {
      row_scaled<Planes, Rest, false, V>(w, first, x, starts, by.rest, StepTotals<V>{by}, totals);
    });
  };
  if (planes == 1) return by.rest ? pick.template operator()<1, true>() : pick.template operator()<1, false>();
  by.rest ? pick.template operator()<2, true>() : pick.template operator()<2, false>();
}

// The same of floats as units.
void packed_row_units(const PackedWeights& w, const std::int8_t* x, const std::int32_t* starts, const float* units,
                      float* totals) {
  for_vectors<kTogether>(w.lanes, [&]<int V>(std::int64_t first) {
    (w.zeros ? row_scaled<2, false, true, V, UnitTotals<V>>
             : row_scaled<2, false, false, V, UnitTotals<V>>)(w, first, x, starts, 0, UnitTotals<V>{units}, totals);
  });
}

void to_units(const float* x, std::int64_t blocks, std::int64_t block, std::int64_t stride, std::int16_t* values,
              float* units) {
  constexpr std::uint32_t kMagnitude = 0x7fffffff;
  constexpr float kLargestNumber = 131008, kRounding = 12582912;  // whose last place is 1
  const auto power = [](int exponent) { return std::bit_cast<float>((127 + exponent) << 23); };
  for (std::int64_t b = 0; b < blocks; ++b, x += block, values += stride * block, units += stride) {
    std::uint32_t most = 0;
    for (std::int64_t i = 0; i < block; ++i) most = std::max(most, std::bit_cast<std::uint32_t>(x[i]) & kMagnitude);
    // Halves are below 2^17; what is infinite or no number counts as the largest of them.
    most = std::min(most, std::bit_cast<std::uint32_t>(kLargestNumber));
    int exponent = std::max(static_cast<int>(most >> 23), 64) - 126 - 15;  // the largest is below 2^15 of that
    exponent += std::bit_cast<float>(most) * power(-exponent) > static_cast<float>(kMostUnits);
    const float by = power(-exponent);
    *units = power(exponent);
    for (std::int64_t i = 0; i < block; ++i) {
      const float low = x[i] < kLargestNumber ? x[i] : kLargestNumber,
                  within = low > -kLargestNumber ? low : -kLargestNumber;
      values[i] = static_cast<std::int16_t>((within * by + kRounding) - kRounding);
    }
  }
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

// Of every eight inputs of a row the first four beside the last four, as codes lie in a word: 0, 4, 1, 5, 2, 6, 3, 7.
// Of each block of a row the sum of products of neighbours (0 1 + 2 3 + 4 5 + 6 7), and whether a number is so large
// that a code added to it has no 16 bits.
void pair_rows(std::int16_t* x, std::int64_t blocks, std::int64_t block, std::int32_t* products, std::uint8_t* large) {
  using Eight = Vector<std::int16_t, 16>;
  for (std::int64_t b = 0; b < blocks; ++b, x += block) {
    std::uint32_t sum = 0;
    bool any = false;
    std::int64_t i = 0;
#if defined(__AVX512VNNI__)
    const __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
    for (; i + 32 <= block; i += 32) {
      const __m512i v = _mm512_shuffle_epi8(_mm512_loadu_si512(x + i), order);
      sum += static_cast<std::uint32_t>(products_of_pairs(v));
      any |= any_large(v);
      _mm512_storeu_si512(x + i, v);
    }
#endif
    for (; i < block; i += 8) {
      if constexpr (kHalvesProducts) {
        for (int k = 0; k < 8; k += 2) {
          for (const std::int16_t one : {x[i + k], x[i + k + 1]})
            any |= one > INT16_MAX - kMostCode || one < INT16_MIN + kMostCode;
          sum += static_cast<std::uint32_t>(x[i + k] * x[i + k + 1]);
        }
      }
      Eight v;
      load(v, x + i);
      store(x + i, __builtin_shufflevector(v, v, 0, 4, 1, 5, 2, 6, 3, 7));
    }
    products[b] = static_cast<std::int32_t>(sum);
    large[b] = any;
  }
}

// A block of codes less their zero, as 16-bit pairs in the order of `pair_rows`. Of each output what its sums begin
// with (-zero_a times the weights; less the products of the weights, where products are halved), and what its scale is
// of the output's.
struct WideBlock {
  std::uint32_t* panel;  // [block / 4][2][lanes]
  std::int32_t starts[2][kPackedOutputs];
  double factors[kPackedOutputs];  // not of units
};

// Codes that are read only when all rows have been multiplied by those before them.
inline void fetch_next_block(const std::uint32_t* codes) { __builtin_prefetch(codes, 0, 2); }

void unpack_scaled(const PackedWeights& w, std::int64_t block, std::int32_t zero_a, const PackedScaling* by,
                   WideBlock& to) {
  using Words = Vector<std::uint16_t, kRegister>;
  const std::uint32_t* from = w.codes + block * w.block / 8 * w.lanes;
  for (std::int64_t i = 0; i < w.lanes; i += kLanes) {
    Integers sum = {}, products = {};
    const Integers zero = w.zeros ? widen(w.zeros + block * w.lanes + i) : splat(w.zero), zeros = zero | zero << 16;
    std::uint32_t* panel = to.panel + i;
    for (std::int64_t k = 0; k < w.block; k += 8, panel += 4 * w.lanes) {
      const Words v = load<Words>(from + k / 8 * w.lanes + i);
      fetch_next_block(from + (k + w.block) / 8 * w.lanes + i);
      Integers q[4];
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {
        q[c] = (Integers)((v >> (4 * c) & 15) - (Words)zeros);
        add_pairs(sum, q[c], splat(0x00010001));
        store(panel + c * w.lanes, q[c]);
      }
      add_pairs(products, q[0], q[1]);
      add_pairs(products, q[2], q[3]);
    }
    store(to.starts[0] + i, sum * -zero_a);
    store(to.starts[1] + i, sum * -zero_a - products);
    if (!by) continue;
    Doubles factors[2];
    of_output(scales_of(w, block * w.lanes + i), *by, factors);
    store(to.factors + i, factors[0]);
    store(to.factors + i + kLanes / 2, factors[1]);
  }
}

// Exact sums of R rows times V vectors of outputs over one block.
template <bool Halved, int R, int V>
[[gnu::always_inline]] inline void tile_sums(const PackedWeights& w, const WideBlock& block, std::int64_t first,
                                             const std::int16_t* x, const std::int32_t* products,
                                             Integers (&sum)[R][V]) {
#pragma GCC unroll 4
  for (int i = 0; i < V; ++i) {
    const Integers start = load<Integers>(block.starts[Halved] + first + i * kLanes);
#pragma GCC unroll 8
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
#pragma GCC unroll 8
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
}

// Sums of a tile added to totals in float64, and in float32.
template <int R, int V>
[[gnu::always_inline]] inline void add_tile(const PackedWeights& w, const WideBlock& block, std::int64_t,
                                            std::int64_t first, const float*, const Integers (&sum)[R][V],
                                            double* totals) {
#pragma GCC unroll 4
  for (int i = 0; i < V; ++i) {
    const double* factors = block.factors + first + i * kLanes;
    const Doubles low = load<Doubles>(factors), high = load<Doubles>(factors + kLanes / 2);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      double* total = totals + r * w.lanes + first + i * kLanes;
      HalfIntegers halves[2];
      std::memcpy(halves, &sum[r][i], sizeof halves);
      store(total, load<Doubles>(total) + doubles(halves[0]) * low);
      store(total + kLanes / 2, load<Doubles>(total + kLanes / 2) + doubles(halves[1]) * high);
    }
  }
}

template <int R, int V>
[[gnu::always_inline]] inline void add_tile(const PackedWeights& w, const WideBlock&, std::int64_t block,
                                            std::int64_t first, const float* units, const Integers (&sum)[R][V],
                                            float* totals) {
#pragma GCC unroll 4
  for (int i = 0; i < V; ++i) {
    const Reals scale = scales_of(w, block * w.lanes + first + i * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      float* total = totals + r * w.lanes + first + i * kLanes;
      store(total, add_units(sum[r][i], units[r], scale, load<Reals>(total)));
    }
  }
}

// One function: its sums stay in registers.
template <bool Halved, int R, int V, class Number>
void tile_scaled(const PackedWeights& w, const WideBlock& wide, const PackedRows& x, std::int64_t block,
                 std::int64_t row, std::int64_t first, Number* totals) {
  const std::int64_t at = block * x.rows + row;
  Integers sum[R][V];
  tile_sums<Halved, R, V>(w, wide, first, x.values + at * w.block, x.products + at, sum);
  add_tile(w, wide, block, first, x.units ? x.units + at : nullptr, sum, totals + row * w.lanes);
}

// As one row after the other: a block of codes becomes 16-bit integers once for all of them.
template <class Number>
void rows_scaled(const PackedWeights& w, const PackedRows& x, const PackedScaling* by, std::uint32_t* panel,
                 Number* totals) {
  constexpr int kRows = kRegister == 64 ? 8 : 4;
  WideBlock wide;
  wide.panel = panel;
  for (std::int64_t i = 0; i < x.rows * w.lanes; ++i) totals[i] = 0;
  for (std::int64_t block = 0; block < w.depth / w.block; ++block) {
    unpack_scaled(w, block, x.zero, by, wide);
    for_tiles<kRows, 2>(x.rows, w.lanes, [&]<int R, int V>(std::int64_t r, std::int64_t first) {
      bool halved = kHalvesProducts;
      if (x.any_large) halved &= std::memchr(x.large + block * x.rows + r, 1, R) == nullptr;
      (halved ? tile_scaled<kHalvesProducts, R, V, Number> : tile_scaled<false, R, V, Number>)(w, wide, x, block, r,
                                                                                               first, totals);
    });
  }
}

void packed_rows_scaled(const PackedWeights& w, const PackedRows& x, const PackedScaling& by, std::uint32_t* panel,
                        double* totals) {
  rows_scaled(w, x, &by, panel, totals);
}

void packed_rows_units(const PackedWeights& w, const PackedRows& x, std::uint32_t* panel, float* totals) {
  rows_scaled(w, x, nullptr, panel, totals);
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
