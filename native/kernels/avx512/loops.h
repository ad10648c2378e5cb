// SPDX-License-Identifier: Apache-2.0
// Loops that the shared source cannot say: bytes permuted by a register, table entries gathered, planes interleaved.
#pragma once
#include <immintrin.h>

#include "kernels/shared/loops_reductions.h"

namespace hexforge {
namespace {

// 256-entry table by two permutes of 128 entries each and a blend on the top bit.
void table_u8_vbmi(const std::uint8_t* x, const std::uint8_t* entries, std::uint8_t* y, std::int64_t n) {
  const __m512i t0 = _mm512_loadu_si512(entries), t1 = _mm512_loadu_si512(entries + 64),
                t2 = _mm512_loadu_si512(entries + 128), t3 = _mm512_loadu_si512(entries + 192);
  const auto look_up = [&](__m512i q) {
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(q), _mm512_permutex2var_epi8(t0, q, t1),
                                  _mm512_permutex2var_epi8(t2, q, t3));
  };
  std::int64_t i = 0;
  for (; i + 64 <= n; i += 64) _mm512_storeu_si512(y + i, look_up(_mm512_loadu_si512(x + i)));
  if (i < n) {
    const __mmask64 mask = ~0ull >> (64 - (n - i));
    _mm512_mask_storeu_epi8(y + i, mask, look_up(_mm512_maskz_loadu_epi8(mask, x + i)));
  }
}

// As `hmx_columns`: a group of four rows is what one instruction adds up for 16 columns. One row alone has two sums for
// each column, of even and odd groups, as it would wait for one.
template <int Rows, bool Wide>
void hmx_group_sums(const std::uint8_t* low, const std::int8_t* high, std::int64_t row, const std::uint8_t* w,
                    std::int64_t blocks, std::int64_t stride, std::int32_t* sums) {
  constexpr int kWays = Rows == 1 ? 2 : 1;
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80)), ones = _mm512_set1_epi8(1);
  __m512i of_low[kWays][Rows][2], of_high[kWays][Rows][2], columns[kWays][2];
  for (int way = 0; way < kWays; ++way) {
    for (int half = 0; half < 2; ++half) {
      columns[way][half] = _mm512_setzero_si512();
      for (int r = 0; r < Rows; ++r) of_low[way][r][half] = of_high[way][r][half] = _mm512_setzero_si512();
    }
  }
  const auto four = [](const void* x) {
    std::int32_t bits;
    __builtin_memcpy(&bits, x, 4);
    return _mm512_set1_epi32(bits);
  };
  for (std::int64_t block = 0; block < blocks; ++block, w += stride) {
#pragma GCC unroll 8
    for (int group = 0; group < kHmxGroups; ++group) {
      const int way = group % kWays;
      const std::int64_t at = block * kHmxBlock + group * kHmxTogether;
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m512i bytes = _mm512_loadu_si512(w + group * 128 + half * 64), centered = _mm512_xor_si512(bytes, flip);
        columns[way][half] = _mm512_dpbusd_epi32(columns[way][half], ones, centered);
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) {
          of_low[way][r][half] = _mm512_dpbusd_epi32(of_low[way][r][half], four(low + r * row + at), centered);
          if constexpr (Wide)
            of_high[way][r][half] = _mm512_dpbusd_epi32(of_high[way][r][half], bytes, four(high + r * row + at));
        }
      }
    }
  }
  const auto store = [&](const __m512i* parts, std::int32_t* y) {
    __m512i sum = parts[0];
    if constexpr (kWays == 2) sum = _mm512_add_epi32(sum, parts[1]);
    _mm512_storeu_si512(y, sum);
  };
  for (int half = 0; half < 2; ++half) {
    __m512i parts[kWays];
    for (int r = 0; r < Rows; ++r) {
      for (int way = 0; way < kWays; ++way) parts[way] = of_low[way][r][half];
      store(parts, sums + r * kHmxBlock + half * 16);
      std::int32_t all = 0;  // bytes were not centered beside the high part
      if constexpr (Wide) {
        for (std::int64_t k = 0; k < blocks * kHmxBlock; ++k) all += high[r * row + k];
      }
      for (int way = 0; way < kWays; ++way) parts[way] = of_high[way][r][half];
      parts[0] = _mm512_sub_epi32(parts[0], _mm512_set1_epi32(128 * all));
      store(parts, sums + (Rows + r) * kHmxBlock + half * 16);
    }
    for (int way = 0; way < kWays; ++way) parts[way] = columns[way][half];
    store(parts, sums + 2 * Rows * kHmxBlock + half * 16);
  }
}

void hmx_columns_vnni(const std::uint8_t* low, const std::int8_t* high, std::int64_t row, int rows,
                      const std::uint8_t* w, std::int64_t blocks, std::int64_t stride, std::int32_t* sums) {
  const auto with = [&]<int Rows>() {
    high ? hmx_group_sums<Rows, true>(low, high, row, w, blocks, stride, sums)
         : hmx_group_sums<Rows, false>(low, high, row, w, blocks, stride, sums);
  };
  switch (rows) {
    case 1: return with.template operator()<1>();
    case 2: return with.template operator()<2>();
    case 3: return with.template operator()<3>();
    default: return with.template operator()<4>();
  }
}

// As `softmax`, for rows of at most 32 values: distances gathered from the table 16 at a time. The sum is an exact
// integer, and every result is the same product, clamped and rounded.
template <class Q>
void softmax_short(const Q* x, std::int64_t n, const std::uint32_t* table, double scale, std::int32_t zero,
                   std::int32_t low, std::int32_t high, Q* y) {
  if (n > 32) return softmax<Q>(x, n, table, scale, zero, low, high, y);
  const __mmask32 mask = n == 32 ? ~0u : (1u << n) - 1;
  const __mmask16 first = static_cast<__mmask16>(mask), second = static_cast<__mmask16>(mask >> 16);
  const auto wide = [](const Q* from, __mmask16 some) {
    if constexpr (sizeof(Q) == 1)
      return _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(some, from));
    else
      return _mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(some, from));
  };
  const __m512i q0 = wide(x, first), q1 = second ? wide(x + 16, second) : q0;
  const __m512i lowest = _mm512_set1_epi32(INT32_MIN);
  const __m512i most = _mm512_set1_epi32(_mm512_reduce_max_epi32(
      _mm512_max_epi32(_mm512_mask_mov_epi32(lowest, first, q0), _mm512_mask_mov_epi32(lowest, second, q1))));
  const auto entries = [&](__m512i q, __mmask16 some) {
    return _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), some, _mm512_sub_epi32(most, q), table, 4);
  };
  const __m512i e0 = entries(q0, first), e1 = second ? entries(q1, second) : _mm512_setzero_si512();
  const auto sums = [](__m512i e) {
    return _mm512_add_epi64(_mm512_cvtepu32_epi64(_mm512_castsi512_si256(e)),
                            _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(e, 1)));
  };
  const auto sum = static_cast<std::uint64_t>(_mm512_reduce_add_epi64(_mm512_add_epi64(sums(e0), sums(e1))));
  const __m512d factor = _mm512_set1_pd(scale / static_cast<double>(sum));
  const __m512d least = _mm512_set1_pd(low - zero), greatest = _mm512_set1_pd(high - zero);
  const auto steps = [&](__m256i e) {
    const __m512d f = _mm512_mul_pd(_mm512_cvtepu32_pd(e), factor);
    return _mm512_cvtpd_epi32(_mm512_min_pd(_mm512_max_pd(f, least), greatest));
  };
  const auto store = [&](__m512i e, __mmask16 some, Q* to) {
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(steps(_mm512_castsi512_si256(e))),
                                            steps(_mm512_extracti64x4_epi64(e, 1)), 1);
    const __m512i q = _mm512_add_epi32(both, _mm512_set1_epi32(zero));
    if constexpr (sizeof(Q) == 1)
      _mm512_mask_cvtepi32_storeu_epi8(to, some, q);
    else
      _mm512_mask_cvtepi32_storeu_epi16(to, some, q);
  };
  store(e0, first, y);
  if (second) store(e1, second, y + 16);
}

// As `softmax`, four rows of 16 bytes at a time, one in each quarter of a register. An entry of the table is four
// bytes, each looked up by permutes; sums and products are those of `softmax`, of even and odd entries apart.
void softmax_rows16(const std::uint8_t* x, std::int64_t rows, const std::uint32_t* table, double scale,
                    std::int32_t zero, std::int32_t low, std::int32_t high, std::uint8_t* y) {
  alignas(64) std::uint8_t bytes[4][256];
  for (int entry = 0; entry < 256; ++entry) {
    for (int k = 0; k < 4; ++k) bytes[k][entry] = static_cast<std::uint8_t>(table[entry] >> (8 * k));
  }
  const __m512i evens = _mm512_set1_epi64(0xffffffff), zeros = _mm512_set1_epi32(zero);
  const __m512d over = _mm512_set1_pd(scale), least = _mm512_set1_pd(low - zero),
                greatest = _mm512_set1_pd(high - zero);
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const __m512i q = _mm512_loadu_si512(x + r * 16);
    __m512i most = _mm512_max_epu8(q, _mm512_shuffle_epi32(q, _MM_PERM_BADC));
    most = _mm512_max_epu8(most, _mm512_shuffle_epi32(most, _MM_PERM_CDAB));
    most = _mm512_max_epu8(most, _mm512_or_si512(_mm512_slli_epi32(most, 16), _mm512_srli_epi32(most, 16)));
    most = _mm512_max_epu8(most, _mm512_or_si512(_mm512_slli_epi16(most, 8), _mm512_srli_epi16(most, 8)));
    const __m512i distance = _mm512_sub_epi8(most, q);
    const __mmask64 upper = _mm512_movepi8_mask(distance);
    __m512i plane[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const std::uint8_t* from = bytes[k];
      plane[k] = _mm512_permutex2var_epi8(_mm512_load_si512(from), distance, _mm512_load_si512(from + 64));
      if (upper) {
        const __m512i far =
            _mm512_permutex2var_epi8(_mm512_load_si512(from + 128), distance, _mm512_load_si512(from + 192));
        plane[k] = _mm512_mask_mov_epi8(plane[k], upper, far);
      }
    }
    const __m512i low_a = _mm512_unpacklo_epi8(plane[0], plane[1]), high_a = _mm512_unpacklo_epi8(plane[2], plane[3]);
    const __m512i low_b = _mm512_unpackhi_epi8(plane[0], plane[1]), high_b = _mm512_unpackhi_epi8(plane[2], plane[3]);
    // Four entries of each row in each of these.
    const __m512i entries[4] = {_mm512_unpacklo_epi16(low_a, high_a), _mm512_unpackhi_epi16(low_a, high_a),
                                _mm512_unpacklo_epi16(low_b, high_b), _mm512_unpackhi_epi16(low_b, high_b)};
    __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      sum = _mm512_add_epi64(sum,
                             _mm512_add_epi64(_mm512_and_si512(entries[k], evens), _mm512_srli_epi64(entries[k], 32)));
    }
    sum = _mm512_add_epi64(sum, _mm512_shuffle_epi32(sum, _MM_PERM_BADC));
    const __m512d factor = _mm512_div_pd(over, _mm512_cvtepu64_pd(sum));
    const auto steps = [&](__m512i e) {
      const __m512d f = _mm512_mul_pd(_mm512_cvtepu64_pd(e), factor);
      return _mm512_cvtpd_epi64(_mm512_min_pd(_mm512_max_pd(f, least), greatest));
    };
    __m512i results[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const __m512i even = steps(_mm512_and_si512(entries[k], evens)), odd = steps(_mm512_srli_epi64(entries[k], 32));
      results[k] = _mm512_add_epi32(_mm512_mask_mov_epi32(even, 0xaaaa, _mm512_slli_epi64(odd, 32)), zeros);
    }
    _mm512_storeu_si512(y + r * 16, _mm512_packus_epi16(_mm512_packus_epi32(results[0], results[1]),
                                                        _mm512_packus_epi32(results[2], results[3])));
  }
  for (; r < rows; ++r) softmax_short<std::uint8_t>(x + r * 16, 16, table, scale, zero, low, high, y + r * 16);
}

// Where the elements of three interleaved vectors come from: of the first two planes, and of the third.
template <class T>
struct Places {
  static constexpr int kCount = 64 / sizeof(T);
  alignas(64) T pair[3][kCount] = {}, third[3][kCount] = {};
  std::uint64_t from_third[3] = {};
  constexpr Places() {
    for (int k = 0; k < 3; ++k) {
      for (int e = 0; e < kCount; ++e) {
        const int at = (k * kCount + e) / 3, plane = (k * kCount + e) % 3;
        pair[k][e] = static_cast<T>(plane == 1 ? kCount + at : at);
        third[k][e] = static_cast<T>(at);
        from_third[k] |= static_cast<std::uint64_t>(plane == 2) << e;
      }
    }
  }
};

template <class T>
void interleave_planes(const void* const* planes, void* out, std::int64_t n) {
  static constexpr Places<T> places;
  constexpr std::int64_t kCount = Places<T>::kCount;
  const T *a = static_cast<const T*>(planes[0]), *b = static_cast<const T*>(planes[1]),
          *c = static_cast<const T*>(planes[2]);
  T* y = static_cast<T*>(out);
  std::int64_t i = 0;
  for (; i + kCount <= n; i += kCount) {
    const __m512i va = _mm512_loadu_si512(a + i), vb = _mm512_loadu_si512(b + i), vc = _mm512_loadu_si512(c + i);
#pragma GCC unroll 3
    for (int k = 0; k < 3; ++k) {
      const __m512i pair = _mm512_load_si512(places.pair[k]), third = _mm512_load_si512(places.third[k]);
      __m512i v;
      if constexpr (sizeof(T) == 1) {
        v = _mm512_mask_permutexvar_epi8(_mm512_permutex2var_epi8(va, pair, vb), places.from_third[k], third, vc);
      } else if constexpr (sizeof(T) == 2) {
        v = _mm512_mask_permutexvar_epi16(_mm512_permutex2var_epi16(va, pair, vb),
                                          static_cast<__mmask32>(places.from_third[k]), third, vc);
      } else {
        v = _mm512_mask_permutexvar_epi32(_mm512_permutex2var_epi32(va, pair, vb),
                                          static_cast<__mmask16>(places.from_third[k]), third, vc);
      }
      _mm512_storeu_si512(y + 3 * i + k * kCount, v);
    }
  }
  for (; i < n; ++i) {
    y[3 * i] = a[i];
    y[3 * i + 1] = b[i];
    y[3 * i + 2] = c[i];
  }
}

void interleave3(const void* const* planes, void* y, std::int64_t n, int element_bytes) {
  if (element_bytes == 1) return interleave_planes<std::uint8_t>(planes, y, n);
  if (element_bytes == 2) return interleave_planes<std::uint16_t>(planes, y, n);
  interleave_planes<std::uint32_t>(planes, y, n);
}

}  // namespace
}  // namespace hexforge
