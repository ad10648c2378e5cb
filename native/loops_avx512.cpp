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

// As `softmax` of bytes, for rows of at most 32 values: distances gathered from the table 16 at a time. The sum is an
// exact integer, and every result is the same product, clamped and rounded.
void softmax_u8_short(const std::uint8_t* x, std::int64_t n, const std::uint32_t* table, double scale, std::int32_t zero,
                      std::int32_t low, std::int32_t high, std::uint8_t* y) {
  if (n > 32) return softmax<std::uint8_t>(x, n, table, scale, zero, low, high, y);
  const __mmask32 mask = n == 32 ? ~0u : (1u << n) - 1;
  const __m256i q = _mm256_maskz_loadu_epi8(mask, x);
  __m128i most = _mm_max_epu8(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));  // 0 where there is no value
  most = _mm_max_epu8(most, _mm_srli_si128(most, 8));
  most = _mm_max_epu8(most, _mm_srli_si128(most, 4));
  most = _mm_max_epu8(most, _mm_srli_si128(most, 2));
  most = _mm_max_epu8(most, _mm_srli_si128(most, 1));
  const __m256i distances = _mm256_sub_epi8(_mm256_broadcastb_epi8(most), q);
  const auto entries = [&](__m128i d, __mmask16 some) {
    return _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), some, _mm512_cvtepu8_epi32(d), table, 4);
  };
  const __mmask16 first = static_cast<__mmask16>(mask), second = static_cast<__mmask16>(mask >> 16);
  const __m512i e0 = entries(_mm256_castsi256_si128(distances), first);
  const __m512i e1 = second ? entries(_mm256_extracti128_si256(distances, 1), second) : _mm512_setzero_si512();
  const auto wide = [](__m512i e) {
    return _mm512_add_epi64(_mm512_cvtepu32_epi64(_mm512_castsi512_si256(e)), _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(e, 1)));
  };
  const auto sum = static_cast<std::uint64_t>(_mm512_reduce_add_epi64(_mm512_add_epi64(wide(e0), wide(e1))));
  const __m512d factor = _mm512_set1_pd(scale / static_cast<double>(sum));
  const __m512d least = _mm512_set1_pd(low - zero), greatest = _mm512_set1_pd(high - zero);
  const auto steps = [&](__m256i e) {
    const __m512d f = _mm512_mul_pd(_mm512_cvtepu32_pd(e), factor);
    return _mm512_cvtpd_epi32(_mm512_min_pd(_mm512_max_pd(f, least), greatest));
  };
  const auto store = [&](__m512i e, __mmask16 some, std::uint8_t* to) {
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(steps(_mm512_castsi512_si256(e))), steps(_mm512_extracti64x4_epi64(e, 1)), 1);
    _mm512_mask_cvtepi32_storeu_epi8(to, some, _mm512_add_epi32(both, _mm512_set1_epi32(zero)));
  };
  store(e0, first, y);
  if (second) store(e1, second, y + 16);
}

Loops with_vectors(Loops all) {
  all.softmax_u8 = softmax_u8_short;
  return all;
}

}  // namespace

const Loops kLoopsAvx512 = with_vectors(loops_here(table_u8_vbmi));
}  // namespace hexforge
