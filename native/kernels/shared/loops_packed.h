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

// What is read next but the processor does not foresee: the weights two pages on, into the second cache, from which it
// fetches by itself. Nothing happens where there are none.
inline void fetch(const std::uint32_t* codes) { __builtin_prefetch(codes + 2048, 0, 2); }

// The same of scales, of which there are fewer.
inline void fetch_scales(const PackedWeights& w, std::int64_t at) {
  if (w.half_scales)
    __builtin_prefetch(w.half_scales + at + 2048, 0, 2);
  else
    __builtin_prefetch(w.scales + at + 1024, 0, 2);
}

// Vectors of outputs that are computed at a time.
constexpr int kTogether = 4;

// All lanes, V vectors of them at a time while there are so many: some.operator()<vectors>(first lane).
template <int V, class Some>
void for_vectors(std::int64_t lanes, const Some& some) {
  std::int64_t first = 0;
  for (; first + V * kLanes <= lanes; first += V * kLanes) some.template operator()<V>(first);
  for (; first < lanes; first += kLanes) some.template operator()<1>(first);
}

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
#pragma GCC unroll 4
    for (int i = 0; i < V; ++i) {
      total[i] = fused(sum[i], scales_of(w, at + i * kLanes), total[i]);
      fetch_scales(w, at + i * kLanes);
    }
  }
  for (int i = 0; i < V; ++i) store(sums + first + i * kLanes, total[i]);
}

template <int Bits, bool Zeros>
void some_row_f32(const PackedWeights& w, const float* x, float* sums) {
  for_vectors<kTogether>(w.lanes, [&]<int V>(std::int64_t first) { row_f32<Bits, V, Zeros>(w, first, x, sums); });
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

// Every tile of at most R rows, and of all lanes: tile.operator()<rows, vectors>(first row, first lane).
template <int R, int V, class Tile>
void for_tiles(std::int64_t rows, std::int64_t lanes, const Tile& tile) {
  for_vectors<V>(lanes, [&]<int Vectors>(std::int64_t first) {
    std::int64_t r = 0;
    for (; r + R <= rows; r += R) tile.template operator()<R, Vectors>(r, first);
    for (; r + R / 2 <= rows; r += R / 2) tile.template operator()<R / 2, Vectors>(r, first);
    for (; r < rows; ++r) tile.template operator()<1, Vectors>(r, first);
  });
}

// Many rows: a block of codes becomes numbers once for all of them. The same sums in the same order.
void packed_rows_f32(const PackedWeights& w, const float* x, std::int64_t rows, float* panel, float* totals) {
  for (std::int64_t i = 0; i < rows * w.lanes; ++i) totals[i] = 0;
  for (std::int64_t block = 0; block < w.depth / w.block; ++block, x += rows * w.block) {
    w.bits == 2   ? unpack_f32<2>(w, block, panel)
    : w.bits == 4 ? unpack_f32<4>(w, block, panel)
                  : unpack_f32<8>(w, block, panel);
    for_tiles<4, kRegister == 64 ? 4 : 2>(rows, w.lanes, [&]<int R, int V>(std::int64_t r, std::int64_t first) {
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
  for_vectors<kTogether>(w.lanes, [&]<int V>(std::int64_t first) { row_bytes<Planes, V>(w, first, x, starts, sums); });
}

// One row of one plane of bytes or two times the outputs of a block: exact sums of each plane.
void packed_row_bytes(const PackedWeights& w, int planes, const std::int8_t* x, const std::int32_t* starts,
                      std::int32_t* sums) {
  planes == 1 ? some_row_bytes<1>(w, x, starts, sums) : some_row_bytes<2>(w, x, starts, sums);
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
