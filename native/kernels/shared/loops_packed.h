// SPDX-License-Identifier: Apache-2.0
// Products with weights of few bits that are multiplied as they lie, packed: one row of activations, or many. One
// source for every set; what a set does better by its own instructions has a line here.
#pragma once
#include "kernels/fused.h"
#include "kernels/loops.h"
#include "kernels/shared/vector.h"

namespace hexforge {
namespace {

inline Reals splat(float x) {
#if defined(__AVX512F__)
  return (Reals)_mm512_set1_ps(x);
#elif defined(__AVX2__)
  return (Reals)_mm256_set1_ps(x);
#else
  return Reals{x, x, x, x};
#endif
}

inline Integers splat(std::int32_t x) {
#if defined(__AVX512F__)
  return (Integers)_mm512_set1_epi32(x);
#elif defined(__AVX2__)
  return (Integers)_mm256_set1_epi32(x);
#else
  return Integers{x, x, x, x};
#endif
}

// a * b + c, rounded once.
inline Reals fused(Reals a, Reals b, Reals c) {
#if defined(__AVX512F__)
  return (Reals)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
  return (Reals)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
  return (Reals)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  for (int i = 0; i < kLanes; ++i) c[i] = fused_multiply_add(a[i], b[i], c[i]);
  return c;
#endif
}

// The same of a product that float32 holds: a half times a code.
inline Reals add_product(Reals a, Reals b, Reals c) {
#if defined(__AVX2__) || defined(__aarch64__)
  return fused(a, b, c);
#else
  return a * b + c;
#endif
}

// The codes in the lowest bits of each lane, less `zero`, as numbers. Sets that look up 16 entries by a permute have
// the zero point, where it is one for all, in the table.
template <int Bits>
struct Codes {
  static constexpr std::int32_t kMask = (1 << Bits) - 1;
#if defined(__AVX512F__)
  static constexpr bool kTable = Bits <= 4;
#else
  static constexpr bool kTable = false;
#endif
  Reals table;

  explicit Codes(std::int32_t zero) {
    for (int i = 0; i < kLanes; ++i) table[i] = static_cast<float>((kTable ? i & kMask : 0) - zero);
  }
  Reals operator()(Integers codes) const {
#if defined(__AVX512F__)
    if constexpr (kTable) return (Reals)_mm512_permutexvar_ps((__m512i)codes, (__m512)table);
#endif
    return __builtin_convertvector(codes & kMask, Reals) + table;
  }
};

// Scales of a vector of outputs.
inline Reals scales_of(const PackedWeights& w, std::int64_t at) {
  if (!w.half_scales) return load<Reals>(w.scales + at);
#if defined(__AVX512F__)
  return (Reals)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w.half_scales + at)));
#elif defined(__AVX2__)
  return (Reals)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w.half_scales + at)));
#else
  Reals v;
  for (int i = 0; i < kLanes; ++i) v[i] = of_half(w.half_scales[at + i]);
  return v;
#endif
}

// What is read next but the processor does not foresee: the next page of weights. Nothing happens where there is none.
inline void fetch(const std::uint32_t* codes) { __builtin_prefetch(codes + 1024); }

// Vectors of outputs that are computed at a time.
constexpr int kTogether = 4;

template <int Bits, int V, bool Zeros>
void row_f32(const PackedWeights& w, std::int64_t first, const float* x, float* sums) {
  constexpr int kCodes = 32 / Bits;
  const Codes<Bits> codes(Zeros ? 0 : w.zero);
  const std::uint32_t* from = w.codes + first;
  Reals total[V] = {};
  for (std::int64_t at = first; at < w.depth / w.block * w.lanes; at += w.lanes) {
    Reals sum[V] = {}, zero[V] = {};
    if constexpr (Zeros) {
      for (int i = 0; i < V; ++i) zero[i] = __builtin_convertvector(widen(w.zeros + at + i * kLanes), Reals);
    }
    for (std::int64_t k = 0; k < w.block; k += kCodes, from += w.lanes, x += kCodes) {
      Integers v[V];
      for (int i = 0; i < V; ++i) {
        v[i] = load<Integers>(from + i * kLanes);
        fetch(from + i * kLanes);
      }
#pragma GCC unroll 16
      for (int c = 0; c < kCodes; ++c) {
        const Reals xk = splat(x[c]);
#pragma GCC unroll 4
        for (int i = 0; i < V; ++i) {
          Reals q = codes(v[i] >> (c * Bits));
          if constexpr (Zeros) q = q - zero[i];
          sum[i] = add_product(q, xk, sum[i]);
        }
      }
    }
    for (int i = 0; i < V; ++i) total[i] = fused(sum[i], scales_of(w, at + i * kLanes), total[i]);
  }
  for (int i = 0; i < V; ++i) store(sums + first + i * kLanes, total[i]);
}

template <int Bits, bool Zeros>
void some_row_f32(const PackedWeights& w, const float* x, float* sums) {
  std::int64_t first = 0;
  for (; first + kTogether * kLanes <= w.lanes; first += kTogether * kLanes)
    row_f32<Bits, kTogether, Zeros>(w, first, x, sums);
  for (; first < w.lanes; first += kLanes) row_f32<Bits, 1, Zeros>(w, first, x, sums);
}

// One row times the outputs of a block, each block of codes summed in order and then times its scale, in order.
void packed_row_f32(const PackedWeights& w, const float* x, float* sums) {
  const auto pick = [&]<int Bits>() {
    w.zeros ? some_row_f32<Bits, true>(w, x, sums) : some_row_f32<Bits, false>(w, x, sums);
  };
  if (w.bits == 2) return pick.template operator()<2>();
  if (w.bits == 4) return pick.template operator()<4>();
  pick.template operator()<8>();
}

template <int Bits>
void unpack_f32(const PackedWeights& w, std::int64_t block, float* panel) {
  constexpr int kCodes = 32 / Bits;
  const Codes<Bits> codes(w.zeros ? 0 : w.zero);
  const std::uint32_t* from = w.codes + block * w.block / kCodes * w.lanes;
  for (std::int64_t k = 0; k < w.block; k += kCodes, panel += kCodes * w.lanes) {
    for (std::int64_t i = 0; i < w.lanes; i += kLanes, from += kLanes) {
      const Integers v = load<Integers>(from);
      Reals zero = {};
      if (w.zeros) zero = __builtin_convertvector(widen(w.zeros + block * w.lanes + i), Reals);
#pragma GCC unroll 16
      for (int c = 0; c < kCodes; ++c) store(panel + c * w.lanes + i, codes(v >> (c * Bits)) - zero);
    }
  }
}

// R rows times V vectors of outputs over one block of codes, added to the totals.
template <int R, int V>
void tile_f32(const PackedWeights& w, std::int64_t at, std::int64_t first, const float* panel, const float* x,
              float* totals) {
  Reals sum[R][V] = {};
  for (std::int64_t k = 0; k < w.block; ++k) {
    Reals q[V];
#pragma GCC unroll 4
    for (int i = 0; i < V; ++i) q[i] = load<Reals>(panel + k * w.lanes + i * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const Reals xk = splat(x[r * w.block + k]);
#pragma GCC unroll 4
      for (int i = 0; i < V; ++i) sum[r][i] = add_product(q[i], xk, sum[r][i]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < V; ++i) {
    const Reals scale = scales_of(w, at + i * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      float* total = totals + r * w.lanes + first + i * kLanes;
      store(total, fused(sum[r][i], scale, load<Reals>(total)));
    }
  }
}

constexpr int kTileRows = 4;
constexpr int kTileVectors = kRegister == 64 ? 4 : 2;

// Every tile of some rows and all lanes: tile.operator()<rows, vectors>(first row, first lane).
template <class Tile>
void for_tiles(std::int64_t rows, std::int64_t lanes, const Tile& tile) {
  const auto with = [&]<int V>(std::int64_t first) {
    std::int64_t r = 0;
    for (; r + kTileRows <= rows; r += kTileRows) tile.template operator()<kTileRows, V>(r, first);
    for (; r < rows; ++r) tile.template operator()<1, V>(r, first);
  };
  std::int64_t first = 0;
  for (; first + kTileVectors * kLanes <= lanes; first += kTileVectors * kLanes)
    with.template operator()<kTileVectors>(first);
  for (; first < lanes; first += kLanes) with.template operator()<1>(first);
}

// Many rows: a block of codes becomes numbers once for all of them. The same sums in the same order.
void packed_rows_f32(const PackedWeights& w, const float* x, std::int64_t rows, float* panel, float* totals) {
  for (std::int64_t i = 0; i < rows * w.lanes; ++i) totals[i] = 0;
  for (std::int64_t block = 0; block < w.depth / w.block; ++block, x += rows * w.block) {
    w.bits == 2   ? unpack_f32<2>(w, block, panel)
    : w.bits == 4 ? unpack_f32<4>(w, block, panel)
                  : unpack_f32<8>(w, block, panel);
    for_tiles(rows, w.lanes, [&]<int R, int V>(std::int64_t r, std::int64_t first) {
      tile_f32<R, V>(w, block * w.lanes + first, first, panel + first, x + r * w.block, totals + r * w.lanes);
    });
  }
}

// R rows of a times V vectors of b's columns.
template <int R, int V>
void columns_f32(const float* a, std::int64_t row_a, const float* b, std::int64_t row_b, std::int64_t k, float* y,
                 std::int64_t row_y) {
  Reals sum[R][V] = {};
  for (std::int64_t i = 0; i < k; ++i) {
    Reals q[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) q[v] = load<Reals>(b + i * row_b + v * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const Reals x = splat(a[r * row_a + i]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[r][v] = fused(x, q[v], sum[r][v]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) store(y + r * row_y + v * kLanes, sum[r][v]);
  }
}

template <int R>
void rows_f32(const float* a, std::int64_t row_a, const float* b, std::int64_t row_b, std::int64_t k, std::int64_t n,
              float* y, std::int64_t row_y) {
  constexpr int kVectors = 4 / (kRegister == 64 ? 1 : 2);
  std::int64_t j = 0;
  for (; j + kVectors * kLanes <= n; j += kVectors * kLanes)
    columns_f32<R, kVectors>(a, row_a, b + j, row_b, k, y + j, row_y);
  for (; j + kLanes <= n; j += kLanes) columns_f32<R, 1>(a, row_a, b + j, row_b, k, y + j, row_y);
  for (; j < n; ++j) {
    for (int r = 0; r < R; ++r) {
      float sum = 0;
      for (std::int64_t i = 0; i < k; ++i) sum = fused_multiply_add(a[r * row_a + i], b[i * row_b + j], sum);
      y[r * row_y + j] = sum;
    }
  }
}

void few_rows_f32(const float* a, std::int64_t row_a, std::int64_t rows, const float* b, std::int64_t row_b,
                  std::int64_t k, std::int64_t n, float* y, std::int64_t row_y) {
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4) rows_f32<4>(a + r * row_a, row_a, b, row_b, k, n, y + r * row_y, row_y);
  for (; r + 2 <= rows; r += 2) rows_f32<2>(a + r * row_a, row_a, b, row_b, k, n, y + r * row_y, row_y);
  for (; r < rows; ++r) rows_f32<1>(a + r * row_a, row_a, b, row_b, k, n, y + r * row_y, row_y);
}

void add_bias_f32(const float* x, const float* bias, float* y, std::int64_t n) {
  if (bias) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] + bias[i];
    x = y;
  }
  round_to_matrix_half(x, y, n);
}

// Adds to each lane the products of its four codes, bytes of 4 bits, with four signed bytes.
inline void add_dots(Integers& sum, Integers even, Integers odd, const std::int8_t* x) {
  std::int32_t at_even, at_odd;
  std::memcpy(&at_even, x, 4);
  std::memcpy(&at_odd, x + 4, 4);
#if defined(__AVX512VNNI__)
  sum = (Integers)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)even, _mm512_set1_epi32(at_even));
  sum = (Integers)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)odd, _mm512_set1_epi32(at_odd));
#elif defined(__AVX2__)
  // Pairs of products of 4 and 8 bits, and two such pairs, stay within 16 bits.
  const __m256i words = _mm256_add_epi16(_mm256_maddubs_epi16((__m256i)even, _mm256_set1_epi32(at_even)),
                                         _mm256_maddubs_epi16((__m256i)odd, _mm256_set1_epi32(at_odd)));
  sum += (Integers)_mm256_madd_epi16(words, _mm256_set1_epi16(1));
#else
  for (int i = 0; i < 4; ++i) {
    sum += (even >> (8 * i) & 15) * std::int32_t{x[i]};
    sum += (odd >> (8 * i) & 15) * std::int32_t{x[4 + i]};
  }
#endif
}

template <int Planes, int V>
void row_bytes(const PackedWeights& w, std::int64_t first, const std::int8_t* x, const std::int32_t* starts,
               std::int32_t* sums) {
  const std::uint32_t* from = w.codes + first;
  Integers total[Planes][V] = {};
  for (std::int64_t at = first; at < w.depth / w.block * w.lanes; at += w.lanes) {
    Integers sum[Planes][V];
    for (int p = 0; p < Planes; ++p, ++starts) {
      for (int i = 0; i < V; ++i) sum[p][i] = splat(*starts);
    }
    for (std::int64_t k = 0; k < w.block; k += 8, from += w.lanes, x += 8 * Planes) {
#pragma GCC unroll 4
      for (int i = 0; i < V; ++i) {
        const Integers v = load<Integers>(from + i * kLanes), even = v & 0x0f0f0f0f, odd = v >> 4 & 0x0f0f0f0f;
        fetch(from + i * kLanes);
#pragma GCC unroll 2
        for (int p = 0; p < Planes; ++p) add_dots(sum[p][i], even, odd, x + 8 * p);
      }
    }
    for (int i = 0; i < V; ++i) {
      if (w.factors) {
        const Integers factor = widen(w.factors + at + i * kLanes);
        for (int p = 0; p < Planes; ++p) total[p][i] += factor * sum[p][i];
      } else {
        for (int p = 0; p < Planes; ++p) total[p][i] += sum[p][i];
      }
    }
  }
  for (int p = 0; p < Planes; ++p) {
    for (int i = 0; i < V; ++i) store(sums + p * w.lanes + first + i * kLanes, total[p][i]);
  }
}

template <int Planes>
void some_row_bytes(const PackedWeights& w, const std::int8_t* x, const std::int32_t* starts, std::int32_t* sums) {
  std::int64_t first = 0;
  for (; first + kTogether * kLanes <= w.lanes; first += kTogether * kLanes)
    row_bytes<Planes, kTogether>(w, first, x, starts, sums);
  for (; first < w.lanes; first += kLanes) row_bytes<Planes, 1>(w, first, x, starts, sums);
}

// One row of one plane of bytes or two times the outputs of a block: exact sums of each plane.
void packed_row_bytes(const PackedWeights& w, int planes, const std::int8_t* x, const std::int32_t* starts,
                      std::int32_t* sums) {
  planes == 1 ? some_row_bytes<1>(w, x, starts, sums) : some_row_bytes<2>(w, x, starts, sums);
}

// One vector of sums of a block, exact, times what its scale is of the output's.
inline void add_scaled(const Integers& exact, const Reals& scale, const PackedScaling& by, Doubles* totals) {
  using HalfReals = Vector<float, kRegister / 2>;
  HalfIntegers sums[2];
  HalfReals scales[2];
  std::memcpy(sums, &exact, sizeof exact);
  std::memcpy(scales, &scale, sizeof scale);
  for (int i = 0; i < 2; ++i)
    totals[i] +=
        __builtin_convertvector(sums[i], Doubles) * (by.in * __builtin_convertvector(scales[i], Doubles) / by.out);
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
    for (int i = 0; i < V; ++i) {
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
    }
  }
  for (int i = 0; i < V; ++i) std::memcpy(totals + first + i * kLanes, total[i], sizeof total[i]);
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

// A block of codes less their zero, as pairs of 16 bits [block / 2][lanes]; of each output -zero_a times their sum, and
// what its scale is of the output's.
void unpack_scaled(const PackedWeights& w, std::int64_t block, std::int32_t zero_a, const PackedScaling& by,
                   std::uint32_t* panel, std::int32_t* starts, double* factors) {
  using HalfReals = Vector<float, kRegister / 2>;
  const std::uint32_t* from = w.codes + block * w.block / 8 * w.lanes;
  for (std::int64_t i = 0; i < w.lanes; i += kLanes) {
    Integers sum = {};
    for (std::int64_t k = 0; k < w.block; k += 8) {
      const Integers v = load<Integers>(from + k / 8 * w.lanes + i);
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {
        const Integers low = (v >> (8 * c) & 15) - w.zero, high = (v >> (8 * c + 4) & 15) - w.zero;
        sum += low + high;
        store(panel + (k / 2 + c) * w.lanes + i, (low & 0xffff) | high << 16);
      }
    }
    store(starts + i, sum * -zero_a);
    const Reals scale = scales_of(w, block * w.lanes + i);
    HalfReals halves[2];
    std::memcpy(halves, &scale, sizeof scale);
    for (int half = 0; half < 2; ++half)
      store(factors + i + half * kLanes / 2, by.in * __builtin_convertvector(halves[half], Doubles) / by.out);
  }
}

template <int R, int V>
void tile_scaled(const PackedWeights& w, const std::uint32_t* panel, const std::int32_t* starts, const double* factors,
                 const std::int16_t* x, double* totals) {
  Integers sum[R][V];
#pragma GCC unroll 4
  for (int i = 0; i < V; ++i) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) sum[r][i] = load<Integers>(starts + i * kLanes);
  }
  for (std::int64_t k = 0; k < w.block / 2; ++k) {
    Integers q[V];
#pragma GCC unroll 4
    for (int i = 0; i < V; ++i) q[i] = load<Integers>(panel + k * w.lanes + i * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      std::int32_t pair;
      std::memcpy(&pair, x + r * w.block + 2 * k, 4);
      const Integers xk = splat(pair);
#pragma GCC unroll 4
      for (int i = 0; i < V; ++i) add_pairs(sum[r][i], q[i], xk);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < V; ++i) {
    const Doubles low = load<Doubles>(factors + i * kLanes), high = load<Doubles>(factors + i * kLanes + kLanes / 2);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      double* total = totals + r * w.lanes + i * kLanes;
      HalfIntegers halves[2];
      std::memcpy(halves, &sum[r][i], sizeof halves);
      store(total, load<Doubles>(total) + __builtin_convertvector(halves[0], Doubles) * low);
      total += kLanes / 2;
      store(total, load<Doubles>(total) + __builtin_convertvector(halves[1], Doubles) * high);
    }
  }
}

// As `packed_row_scaled` of many rows: a block of codes becomes 16-bit integers once for all of them.
void packed_rows_scaled(const PackedWeights& w, const std::int16_t* x, std::int64_t rows, std::int32_t zero_a,
                        const PackedScaling& by, std::uint32_t* panel, double* totals) {
  std::int32_t starts[kPackedOutputs];
  double factors[kPackedOutputs];
  for (std::int64_t i = 0; i < rows * w.lanes; ++i) totals[i] = 0;
  for (std::int64_t block = 0; block < w.depth / w.block; ++block, x += rows * w.block) {
    unpack_scaled(w, block, zero_a, by, panel, starts, factors);
    for_tiles(rows, w.lanes, [&]<int R, int V>(std::int64_t r, std::int64_t first) {
      tile_scaled<R, V>(w, panel + first, starts + first, factors + first, x + r * w.block,
                        totals + r * w.lanes + first);
    });
  }
}

// Codes of 4 bits as the integers that they are, in the k-steps of conv.h: Values of them in four bytes.
template <int Values>
void unpack_integers(const PackedWeights& w, std::uint32_t* to) {
  constexpr int kBits = 32 / Values;
  const std::uint32_t* from = w.codes;
  for (std::int64_t k = 0; k < w.depth; k += 8) {
    const std::uint8_t* factors = w.factors ? w.factors + k / w.block * w.lanes : nullptr;
    for (std::int64_t i = 0; i < w.lanes; i += kLanes, from += kLanes) {
      const Integers v = load<Integers>(from), factor = factors ? widen(factors + i) : splat(1);
      for (int step = 0; step < 8 / Values; ++step) {
        Integers cell = {};
        for (int c = 0; c < Values; ++c) {
          const Integers number = ((v >> (4 * (step * Values + c)) & 15) - w.zero) * factor;
          cell |= (number & static_cast<std::int32_t>((1u << kBits) - 1)) << (c * kBits);
        }
        store(to + step * w.lanes + i, cell);
      }
    }
    to += 8 / Values * w.lanes;
  }
}

}  // namespace
}  // namespace hexforge
