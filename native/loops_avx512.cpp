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

}  // namespace

const Loops kLoopsAvx512 = loops_here(table_u8_vbmi);
}  // namespace hexforge
