// SPDX-License-Identifier: Apache-2.0
// float32 rounded to the nearest float16 (ties to even) and back, in place of float16 storage.
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__F16C__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace hexforge {
namespace {

inline float to_half(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const std::uint32_t sign = bits & 0x80000000u, magnitude = bits & 0x7fffffffu;
  std::uint32_t rounded;
  if (magnitude > 0x7f800000u) {
    rounded = 0x7fc00000u | (magnitude & 0x7fe000u);  // NaN: quiet, its upper bits kept, as the instruction does
  } else if (magnitude >= 0x477ff000u) {
    rounded = 0x7f800000u;               // 65520 and above: infinity
  } else if (magnitude < 0x38800000u) {  // below 2^-14: subnormal halves, steps of 2^-24
    float scaled;
    std::memcpy(&scaled, &magnitude, 4);
    scaled = (scaled + 0.5f) - 0.5f;  // ulp of [0.5, 1) is 2^-24
    std::memcpy(&rounded, &scaled, 4);
  } else {
    rounded = (magnitude + 0xfffu + (magnitude >> 13 & 1)) & ~0x1fffu;
  }
  rounded |= sign;
  std::memcpy(&value, &rounded, 4);
  return value;
}

// The float16 pattern of a float32, rounded to nearest even.
inline std::uint16_t half_bits(float value) {
  const float rounded = to_half(value);
  std::uint32_t bits;
  std::memcpy(&bits, &rounded, 4);
  const std::uint16_t sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude == 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    float scaled;
    std::memcpy(&scaled, &magnitude, 4);
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(scaled * 16777216.0f));
  }
  return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>((magnitude - 0x38000000u) >> 13));
}

inline void to_half_bits(const float* x, std::uint16_t* bits, std::int64_t n) {
  std::int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(bits + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
  }
#elif defined(__aarch64__)
  for (; i < n / 4 * 4; i += 4) { vst1_u16(bits + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(x + i)))); }
#endif
  for (; i < n; ++i) bits[i] = half_bits(x[i]);
}

inline void round_to_half(const float* x, float* y, std::int64_t n) {
  std::int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT)));
  }
#elif defined(__aarch64__)
  for (; i < n / 4 * 4; i += 4) vst1q_f32(y + i, vcvt_f32_f16(vcvt_f16_f32(vld1q_f32(x + i))));
#endif
  for (; i < n; ++i) y[i] = to_half(x[i]);
}

// The number that a float16 pattern is; exact.
inline float of_half(std::uint16_t pattern) {
  const std::uint32_t sign = (pattern & 0x8000u) << 16, exponent = pattern >> 10 & 31u, fraction = pattern & 0x3ffu;
  std::uint32_t bits = sign | (exponent + 112) << 23 | fraction << 13;
  if (exponent == 31)
    bits =
        sign | 0x7f800000u | (fraction ? 0x400000u | fraction << 13 : 0);  // a NaN becomes quiet, as by the instruction
  if (exponent == 0) {
    const float small = static_cast<float>(fraction) * 0x1p-24f;
    std::memcpy(&bits, &small, 4);
    bits |= sign;
  }
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline void widen_halves(const std::uint16_t* x, float* y, std::int64_t n) {
  std::int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i))));
#elif defined(__aarch64__)
  for (; i < n / 4 * 4; i += 4) vst1q_f32(y + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x + i))));
#endif
  for (; i < n; ++i) y[i] = of_half(x[i]);
}

}  // namespace
}  // namespace hexforge
