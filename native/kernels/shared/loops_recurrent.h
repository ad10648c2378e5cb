// SPDX-License-Identifier: Apache-2.0
// What recurrent layers sum up and look up. One source for every instruction set.
#pragma once
#include "kernels/loops.h"
#include "kernels/shared/loops_pointwise.h"
#include "kernels/shared/vector.h"

namespace hexforge {
namespace {

// A register of numbers from the patterns of halves within float16.
inline Reals reals_of(const std::uint16_t* from) {
#if defined(__AVX512F__)
  return (Reals)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__AVX2__)
  return (Reals)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#elif defined(__aarch64__)
  return (Reals)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
#else
  return Reals{of_half(from[0]), of_half(from[1]), of_half(from[2]), of_half(from[3])};
#endif
}

// sum + x * w, where the product is exact in float32 or, if not Exact, is rounded first.
template <bool Exact>
inline void add_product(Reals& sum, Reals x, Reals w) {
#if defined(__AVX512F__)
  if constexpr (Exact) {
    sum = (Reals)_mm512_fmadd_ps((__m512)x, (__m512)w, (__m512)sum);
    return;
  }
#elif defined(__AVX2__)
  if constexpr (Exact) {
    sum = (Reals)_mm256_fmadd_ps((__m256)x, (__m256)w, (__m256)sum);
    return;
  }
#endif
  sum = sum + x * w;
}

// Rows and vectors of sums that live in registers while k advances.
template <bool Exact, int Rows, int Slices>
[[gnu::noinline]] void slice_sums(const float* x, std::int64_t stride_x, const std::uint16_t* w, std::int64_t k,
                                  float* y, std::int64_t stride_y) {
  constexpr int kParts = kSlice / kLanes, kVectors = Slices * kParts;
  Reals sums[Rows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sums[r][v] = load<Reals>(y + r * stride_y + v * kLanes);
  for (std::int64_t i = 0; i < k; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const Reals weights = reals_of(w + (v / kParts) * k * kSlice + i * kSlice + v % kParts * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) add_product<Exact>(sums[r][v], Reals{} + x[r * stride_x + i], weights);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) store(y + r * stride_y + v * kLanes, sums[r][v]);
}

template <bool Exact, int Rows>
void rows_of_slices(const float* x, std::int64_t stride_x, const std::uint16_t* w, std::int64_t k, std::int64_t slices,
                    float* y, std::int64_t stride_y) {
  // One row has sums enough for the latency of an addition, some rows as many as there are registers for.
  constexpr int kMost = Rows == 1 ? (kRegister == 16 ? 2 : 8 * kLanes / kSlice) : kRegister == 64 ? 4 : 1;
  std::int64_t s = 0;
  const auto piece = [&]<int Slices>() {
    for (; s + Slices <= slices; s += Slices) {
      slice_sums<Exact, Rows, Slices>(x, stride_x, w + s * k * kSlice, k, y + s * kSlice, stride_y);
    }
  };
  if constexpr (kMost >= 8) piece.template operator()<8>();
  if constexpr (kMost >= 4) piece.template operator()<4>();
  if constexpr (kMost >= 2) piece.template operator()<2>();
  piece.template operator()<1>();
}

// y[row][16 * slice + lane] += sum over k of x[row][k] * w[slice][k][lane], one k after the other.
template <bool Exact>
void add_slices(const float* x, std::int64_t stride_x, std::int64_t rows, const std::uint16_t* w, std::int64_t k,
                std::int64_t slices, float* y, std::int64_t stride_y) {
  std::int64_t r = 0;
  const auto piece = [&]<int Rows>() {
    for (; r + Rows <= rows; r += Rows)
      rows_of_slices<Exact, Rows>(x + r * stride_x, stride_x, w, k, slices, y + r * stride_y, stride_y);
  };
  if constexpr (kRegister == 64) piece.template operator()<6>();
  piece.template operator()<4>();
  piece.template operator()<2>();
  piece.template operator()<1>();
}

// A table over the patterns of float16, of numbers that are rounded as the vector unit does.
inline void look_up_slice(const float* table, const float* sums, float* y) {
  std::uint16_t bits[kSlice];
  for (int i = 0; i < kSlice; i += kHalfLanes) {
#if defined(__F16C__) || defined(__aarch64__)
    if (const FloatGroup v = load_group(sums + i); !beyond_float16(v)) [[likely]] {
      store_group(bits + i, narrowed(without_ties(v)));
      continue;
    }
#endif
    for (int j = i; j < i + static_cast<int>(kHalfLanes); ++j) bits[j] = half_bits(sums[j]);
  }
  for (int i = 0; i < kSlice; ++i) y[i] = table[bits[i]];
}

// As the vector unit rounds.
inline void round_slice(float* x) {
  for (int i = 0; i < kSlice; i += kHalfLanes) {
#if defined(__F16C__) || defined(__aarch64__)
    if (const FloatGroup v = load_group(x + i); !beyond_float16(v)) [[likely]] {
      store_group(x + i, widened(narrowed(without_ties(v))));
      continue;
    }
#endif
    for (int j = i; j < i + static_cast<int>(kHalfLanes); ++j) x[j] = to_half(x[j]);
  }
}

void lstm_cells(const LstmCells& l, const float* sums, const float* peephole, float* c, float* wide) {
  float gate[4][kSlice], squashed[4][kSlice];
  const float* given = sums;
  for (int g = 4 - l.gates; g < 4; ++g, given += kSlice) {
    for (int i = 0; i < kSlice; ++i) gate[g][i] = given[i];
  }
  if (peephole) {
    for (int i = 0; i < kSlice; ++i) gate[0][i] += peephole[i] * c[i];
    for (int i = 0; i < kSlice; ++i) gate[1][i] += peephole[kSlice + i] * c[i];
  }
  if (l.gates == 4) look_up_slice(l.sigmoid, gate[0], squashed[0]);
  look_up_slice(l.sigmoid, gate[1], squashed[1]);
  look_up_slice(l.tanh, gate[2], squashed[2]);
  for (int i = 0; i < kSlice; ++i) {
    const float admit = l.gates == 4 ? squashed[0][i] : 1.0f - squashed[1][i];
    const float kept = squashed[1][i] * c[i], added = admit * squashed[2][i], sum = kept + added;
    const float least = sum < -l.cell_clip ? -l.cell_clip : sum;
    c[i] = l.cell_clip > 0 ? (least > l.cell_clip ? l.cell_clip : least) : sum;
  }
  round_slice(c);
  if (peephole) {
    for (int i = 0; i < kSlice; ++i) gate[3][i] += peephole[2 * kSlice + i] * c[i];
  }
  look_up_slice(l.sigmoid, gate[3], squashed[3]);
  look_up_slice(l.tanh, c, squashed[2]);
  for (int i = 0; i < kSlice; ++i) wide[i] = squashed[3][i] * squashed[2][i];
}

void gru_gates(const float* sigmoid, const float* from_x, const float* from_h, float* update, float* reset) {
  float sums[kSlice];
  for (int i = 0; i < kSlice; ++i) sums[i] = from_x[i] + from_h[i];
  look_up_slice(sigmoid, sums, update);
  for (int i = 0; i < kSlice; ++i) sums[i] = from_x[kSlice + i] + from_h[kSlice + i];
  look_up_slice(sigmoid, sums, reset);
}

void gru_states(const float* tanh, const float* from_x, const float* from_h, const float* update, const float* factor,
                const float* before, float* h) {
  float sums[kSlice], fresh[kSlice];
  for (int i = 0; i < kSlice; ++i) {
    const float state = factor ? factor[i] * from_h[i] : from_h[i];
    sums[i] = from_x[i] + state;
  }
  look_up_slice(tanh, sums, fresh);
  for (int i = 0; i < kSlice; ++i) {
    const float added = (1.0f - update[i]) * fresh[i], kept = update[i] * before[i];
    h[i] = added + kept;
  }
  round_slice(h);
}

}  // namespace
}  // namespace hexforge
