// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "loops_body.h"

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

// As `softmax`, for rows of at most 32 values: distances gathered from the table 16 at a time. The sum is an exact integer,
// and every result is the same product, clamped and rounded.
template <class Q>
void softmax_short(const Q* x, std::int64_t n, const std::uint32_t* table, double scale, std::int32_t zero, std::int32_t low,
                   std::int32_t high, Q* y) {
  if (n > 32) return softmax<Q>(x, n, table, scale, zero, low, high, y);
  const __mmask32 mask = n == 32 ? ~0u : (1u << n) - 1;
  const __mmask16 first = static_cast<__mmask16>(mask), second = static_cast<__mmask16>(mask >> 16);
  const auto wide = [](const Q* from, __mmask16 some) {
    if constexpr (sizeof(Q) == 1) return _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(some, from));
    else return _mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(some, from));
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
    return _mm512_add_epi64(_mm512_cvtepu32_epi64(_mm512_castsi512_si256(e)), _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(e, 1)));
  };
  const auto sum = static_cast<std::uint64_t>(_mm512_reduce_add_epi64(_mm512_add_epi64(sums(e0), sums(e1))));
  const __m512d factor = _mm512_set1_pd(scale / static_cast<double>(sum));
  const __m512d least = _mm512_set1_pd(low - zero), greatest = _mm512_set1_pd(high - zero);
  const auto steps = [&](__m256i e) {
    const __m512d f = _mm512_mul_pd(_mm512_cvtepu32_pd(e), factor);
    return _mm512_cvtpd_epi32(_mm512_min_pd(_mm512_max_pd(f, least), greatest));
  };
  const auto store = [&](__m512i e, __mmask16 some, Q* to) {
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(steps(_mm512_castsi512_si256(e))), steps(_mm512_extracti64x4_epi64(e, 1)), 1);
    const __m512i q = _mm512_add_epi32(both, _mm512_set1_epi32(zero));
    if constexpr (sizeof(Q) == 1) _mm512_mask_cvtepi32_storeu_epi8(to, some, q);
    else _mm512_mask_cvtepi32_storeu_epi16(to, some, q);
  };
  store(e0, first, y);
  if (second) store(e1, second, y + 16);
}

Loops with_vectors(Loops all) {
  all.softmax_u8 = softmax_short<std::uint8_t>;
  all.softmax_s16 = softmax_short<std::int16_t>;
  return all;
}

}  // namespace

const Loops kLoopsAvx512 = with_vectors(loops_here(table_u8_vbmi));
}  // namespace hexforge
