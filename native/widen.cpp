// SPDX-License-Identifier: Apache-2.0
// float16 numbers as float32, every bit kept: by the CPU's instruction where it has one, else by integers.
#include "widen.h"

#include <cstring>

#include "level.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hexforge {
namespace {

float widened(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16, magnitude = half & 0x7fffu;
  std::uint32_t bits;
  if (magnitude >= 0x7c00u) {
    bits = magnitude << 13 | 0x7f800000u;                     // infinity and NaN
    if (magnitude > 0x7c00u) bits |= 0x00400000u;             // quiet, as the instruction makes it
  } else if (magnitude >= 0x0400u) {
    bits = (magnitude << 13) + 0x38000000u;
  } else {
    const float small = static_cast<float>(magnitude) * 0x1p-24f;  // subnormal halves are ordinary floats
    std::memcpy(&bits, &small, 4);
  }
  bits |= sign;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) std::size_t by_instruction(const std::uint16_t* halves, float* wide,
                                                               std::size_t count) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(wide + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(halves + i))));
  }
  return i;
}
#endif

}  // namespace

void widen_halves(const std::uint16_t* halves, float* wide, std::size_t count) {
  std::size_t i = 0;
#if defined(__x86_64__)
  if (current_level() >= Level::avx2) i = by_instruction(halves, wide, count);
#endif
  for (; i < count; ++i) wide[i] = widened(halves[i]);
}

}  // namespace hexforge
