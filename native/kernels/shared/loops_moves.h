// SPDX-License-Identifier: Apache-2.0
// Elements of four bytes moved from columns to rows, and floats rounded on the way. One source for every set.
#pragma once
#include <utility>

#include "kernels/half.h"
#include "kernels/shared/vector.h"

namespace hexforge {
namespace {

// Numbers as the vector unit rounds them.
inline Reals rounded_halves(Reals v) {
#if defined(__F16C__)
  bool beyond;
#if defined(__AVX512F__)
  beyond = _mm512_cmp_ps_mask(_mm512_abs_ps((__m512)v), _mm512_set1_ps(65504.0f), _CMP_NLE_UQ) != 0;
  if (!beyond) [[likely]]
    return (Reals)_mm512_cvtph_ps(_mm512_cvtps_ph(
        _mm512_castsi512_ps(_mm512_or_si512((__m512i)v, _mm512_set1_epi32(1))), _MM_FROUND_TO_NEAREST_INT));
#else
  beyond = beyond_float16((__m256)v);
  if (!beyond) [[likely]]
    return (Reals)widened(narrowed(without_ties((__m256)v)));
#endif
#endif
  for (int i = 0; i < kLanes; ++i) v[i] = to_half(v[i]);
  return v;
}

// Elements of two rows in turn: those of their first, or of their second halves.
template <bool Second, class V, std::size_t... I>
inline V interleaved(V a, V b, std::index_sequence<I...>) {
  constexpr int kCount = sizeof...(I), kFirst = Second ? kCount / 2 : 0;
  return __builtin_shufflevector(a, b, (static_cast<int>(I) % 2 * kCount + kFirst + static_cast<int>(I) / 2)...);
}

// y[r][c] = x[c][r] for a square whose rows are vectors: rounds of interleaving each row with the one half a square
// below it.
template <int Bytes, bool Half>
[[gnu::always_inline]] inline void transpose_square(const float* x, std::int64_t stride_x, float* y,
                                                    std::int64_t stride_y) {
  constexpr int kSide = Bytes / 4;
  using Row = Vector<float, Bytes>;
  using Places = std::make_index_sequence<kSide>;
  Row a[kSide], b[kSide];
#pragma GCC unroll 16
  for (int i = 0; i < kSide; ++i) {
    load(a[i], x + i * stride_x);
    if constexpr (Half && Bytes == kRegister) {
      a[i] = rounded_halves(a[i]);
    } else if constexpr (Half) {
      for (int j = 0; j < kSide; ++j) a[i][j] = to_half(a[i][j]);
    }
  }
#pragma GCC unroll 4
  for (int round = 1; round < kSide; round *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < kSide / 2; ++i) {
      b[2 * i] = interleaved<false>(a[i], a[i + kSide / 2], Places());
      b[2 * i + 1] = interleaved<true>(a[i], a[i + kSide / 2], Places());
    }
#pragma GCC unroll 16
    for (int i = 0; i < kSide; ++i) a[i] = b[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < kSide; ++i) store(y + i * stride_y, a[i]);
}

// Whole squares, then what is left beside and below them in smaller ones.
template <int Bytes, bool Half>
void transpose_part(const float* x, std::int64_t stride_x, float* y, std::int64_t stride_y, std::int64_t rows,
                    std::int64_t columns) {
  if constexpr (Bytes < 16) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c)
        y[r * stride_y + c] = Half ? to_half(x[c * stride_x + r]) : x[c * stride_x + r];
    }
  } else {
    constexpr std::int64_t kSide = Bytes / 4;
    const std::int64_t whole_rows = rows / kSide * kSide, whole_columns = columns / kSide * kSide;
    const auto square = [=](std::int64_t r, std::int64_t c) __attribute__((always_inline)) {
      transpose_square<Bytes, Half>(x + c * stride_x + r, stride_x, y + r * stride_y + c, stride_y);
    };
    // Along the side whose lines lie farther apart, so that few lines of it are walked at once.
    if (stride_y > stride_x) {
      for (std::int64_t r = 0; r < whole_rows; r += kSide) {
        for (std::int64_t c = 0; c < whole_columns; c += kSide) square(r, c);
      }
    } else {
      for (std::int64_t c = 0; c < whole_columns; c += kSide) {
        for (std::int64_t r = 0; r < whole_rows; r += kSide) square(r, c);
      }
    }
    if (whole_columns < columns) {
      transpose_part<Bytes / 2, Half>(x + whole_columns * stride_x, stride_x, y + whole_columns, stride_y, whole_rows,
                                      columns - whole_columns);
    }
    if (whole_rows < rows) {
      transpose_part<Bytes / 2, Half>(x + whole_rows, stride_x, y + whole_rows * stride_y, stride_y, rows - whole_rows,
                                      columns);
    }
  }
}

void transpose_f32(const float* x, std::int64_t stride_x, float* y, std::int64_t stride_y, std::int64_t rows,
                   std::int64_t columns, bool half) {
  half ? transpose_part<kRegister, true>(x, stride_x, y, stride_y, rows, columns)
       : transpose_part<kRegister, false>(x, stride_x, y, stride_y, rows, columns);
}

}  // namespace
}  // namespace hexforge
