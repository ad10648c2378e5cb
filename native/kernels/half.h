// SPDX-License-Identifier: Apache-2.0
// The half of the chip, in float32: 11 bits of significand, neither infinity nor NaN; exponent 31 is an ordinary one.
// The vector unit rounds ties away from zero and saturates at 131008; the matrix unit rounds ties to even, and what
// IEEE 754 makes infinite (65520 and above) is the pattern 0x7c00, which is 65536 here (docs/numerics.md, "float16").
#pragma once
#include <cstdint>
#include <cstring>

#include "core/float_overflow.h"
#if defined(__F16C__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace hexforge {
namespace {

constexpr float kMatrixLimit = 65536.0f;
constexpr std::uint32_t kLargestFloat16 = 0x477fe000u, kLargestHalf = 0x47ffe000u;  // 65504 and 131008

inline std::uint32_t float_bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

inline float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// A magnitude, by its bits, rounded to 11 bits of significand, ties to even; below 2^-14 to steps of 2^-24.
inline std::uint32_t nearest_even(std::uint32_t magnitude) {
  if (magnitude >= 0x38800000u) return (magnitude + 0xfffu + (magnitude >> 13 & 1)) & ~0x1fffu;
  return float_bits((float_of(magnitude) + 0.5f) - 0.5f);  // ulp of [0.5, 1) is 2^-24
}

// What is past 65504 is worth a note, but for 65536: masks are made of it.
[[gnu::cold, gnu::noinline, maybe_unused]] void note_overflow(std::uint32_t magnitude) {
  if (magnitude != 0x47800000u) raise_overflow();
}

// As the vector unit rounds: the lowest bit of a float32 is set, so that no tie is one any more. NaN is 131008.
inline float to_half(float value) {
  const std::uint32_t bits = float_bits(value), sign = bits & 0x80000000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    note_overflow(magnitude);
    return float_of(kLargestHalf);
  }
  const std::uint32_t rounded = nearest_even(magnitude | 1);
  if (rounded > kLargestFloat16) [[unlikely]]
    note_overflow(rounded);
  return float_of(sign | (rounded < kLargestHalf ? rounded : kLargestHalf));
}

// As the matrix unit rounds.
inline float to_matrix_half(float value) {
  const std::uint32_t bits = float_bits(value), sign = bits & 0x80000000u, magnitude = bits & 0x7fffffffu;
  if (magnitude < 0x477ff000u) return float_of(sign | nearest_even(magnitude));
  raise_overflow();
  return magnitude > 0x7f800000u ? kMatrixLimit : float_of(sign | float_bits(kMatrixLimit));
}

// The pattern of a number that is a half.
inline std::uint16_t pattern_of(float half) {
  const std::uint32_t bits = float_bits(half), magnitude = bits & 0x7fffffffu;
  const std::uint16_t sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  if (magnitude < 0x38800000u)
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(float_of(magnitude) * 16777216.0f));
  return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>((magnitude - 0x38000000u) >> 13));
}

inline std::uint16_t half_bits(float value) { return pattern_of(to_half(value)); }
inline std::uint16_t matrix_half_bits(float value) { return pattern_of(to_matrix_half(value)); }

// The number that a pattern is; exact.
inline float of_half(std::uint16_t pattern) {
  const std::uint32_t sign = (pattern & 0x8000u) << 16, exponent = pattern >> 10 & 31u, fraction = pattern & 0x3ffu;
  if (exponent == 0) return float_of(sign | float_bits(static_cast<float>(fraction) * 0x1p-24f));
  return float_of(sign | (exponent + 112) << 23 | fraction << 13);
}

// Instructions for float16 do all but exponent 31: a group of numbers that has one goes element by element.
#if defined(__F16C__)
constexpr std::int64_t kHalfLanes = 8;
using FloatGroup = __m256;
using PatternGroup = __m128i;
inline FloatGroup load_group(const float* x) { return _mm256_loadu_ps(x); }
inline PatternGroup load_group(const std::uint16_t* x) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(x)); }
inline void store_group(float* y, FloatGroup v) { _mm256_storeu_ps(y, v); }
inline void store_group(std::uint16_t* y, PatternGroup v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(y), v); }
inline bool beyond_float16(FloatGroup v) {
  const __m256 magnitude = _mm256_and_ps(v, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)));
  return _mm256_movemask_ps(_mm256_cmp_ps(magnitude, _mm256_set1_ps(65504.0f), _CMP_NLE_UQ)) != 0;
}
inline bool beyond_float16(PatternGroup v) {
  const __m128i exponents = _mm_and_si128(v, _mm_set1_epi16(0x7c00));
  return _mm_movemask_epi8(_mm_cmpeq_epi16(exponents, _mm_set1_epi16(0x7c00))) != 0;
}
inline FloatGroup without_ties(FloatGroup v) { return _mm256_or_ps(v, _mm256_castsi256_ps(_mm256_set1_epi32(1))); }
inline PatternGroup narrowed(FloatGroup v) { return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT); }
inline FloatGroup widened(PatternGroup v) { return _mm256_cvtph_ps(v); }
inline FloatGroup in_matrix_range(FloatGroup v) {
  return _mm256_max_ps(_mm256_min_ps(v, _mm256_set1_ps(kMatrixLimit)), _mm256_set1_ps(-kMatrixLimit));
}
#elif defined(__aarch64__)
constexpr std::int64_t kHalfLanes = 4;
using FloatGroup = float32x4_t;
using PatternGroup = uint16x4_t;
inline FloatGroup load_group(const float* x) { return vld1q_f32(x); }
inline PatternGroup load_group(const std::uint16_t* x) { return vld1_u16(x); }
inline void store_group(float* y, FloatGroup v) { vst1q_f32(y, v); }
inline void store_group(std::uint16_t* y, PatternGroup v) { vst1_u16(y, v); }
inline bool beyond_float16(FloatGroup v) {
  const uint32x4_t magnitude = vandq_u32(vreinterpretq_u32_f32(v), vdupq_n_u32(0x7fffffffu));
  return vmaxvq_u32(magnitude) > kLargestFloat16;
}
inline bool beyond_float16(PatternGroup v) { return vmaxv_u16(vand_u16(v, vdup_n_u16(0x7c00))) == 0x7c00; }
inline FloatGroup without_ties(FloatGroup v) {
  return vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(v), vdupq_n_u32(1)));
}
inline PatternGroup narrowed(FloatGroup v) { return vreinterpret_u16_f16(vcvt_f16_f32(v)); }
inline FloatGroup widened(PatternGroup v) { return vcvt_f32_f16(vreinterpret_f16_u16(v)); }
// By comparisons: of a NaN that signals the instructions for minima make a NaN, and here every NaN becomes the limit.
inline FloatGroup in_matrix_range(FloatGroup v) {
  const float32x4_t most = vdupq_n_f32(kMatrixLimit), least = vdupq_n_f32(-kMatrixLimit);
  const float32x4_t below = vbslq_f32(vcltq_f32(v, most), v, most);
  return vbslq_f32(vcgtq_f32(below, least), below, least);
}
#else
constexpr std::int64_t kHalfLanes = 1;
#endif

inline void to_half_bits(const float* x, std::uint16_t* bits, std::int64_t n) {
  std::int64_t i = 0;
#if defined(__F16C__) || defined(__aarch64__)
  for (; i <= n - kHalfLanes; i += kHalfLanes) {
    const FloatGroup v = load_group(x + i);
    if (!beyond_float16(v)) [[likely]] {
      store_group(bits + i, narrowed(without_ties(v)));
    } else {
      for (std::int64_t j = i; j < i + kHalfLanes; ++j) bits[j] = half_bits(x[j]);
    }
  }
#endif
  for (; i < n; ++i) bits[i] = half_bits(x[i]);
}

inline void to_matrix_half_bits(const float* x, std::uint16_t* bits, std::int64_t n) {
  std::int64_t i = 0;
#if defined(__F16C__) || defined(__aarch64__)
  for (; i <= n - kHalfLanes; i += kHalfLanes) { store_group(bits + i, narrowed(in_matrix_range(load_group(x + i)))); }
#endif
  for (; i < n; ++i) bits[i] = matrix_half_bits(x[i]);
}

inline void round_to_half(const float* x, float* y, std::int64_t n) {
  std::int64_t i = 0;
#if defined(__F16C__) || defined(__aarch64__)
  for (; i <= n - kHalfLanes; i += kHalfLanes) {
    const FloatGroup v = load_group(x + i);
    if (!beyond_float16(v)) [[likely]] {
      store_group(y + i, widened(narrowed(without_ties(v))));
    } else {
      for (std::int64_t j = i; j < i + kHalfLanes; ++j) y[j] = to_half(x[j]);
    }
  }
#endif
  for (; i < n; ++i) y[i] = to_half(x[i]);
}

inline void round_to_matrix_half(const float* x, float* y, std::int64_t n) {
  std::int64_t i = 0;
#if defined(__F16C__) || defined(__aarch64__)
  for (; i <= n - kHalfLanes; i += kHalfLanes) {
    store_group(y + i, in_matrix_range(widened(narrowed(in_matrix_range(load_group(x + i))))));
  }
#endif
  for (; i < n; ++i) y[i] = to_matrix_half(x[i]);
}

inline void widen_halves(const std::uint16_t* x, float* y, std::int64_t n) {
  std::int64_t i = 0;
#if defined(__F16C__) || defined(__aarch64__)
  for (; i <= n - kHalfLanes; i += kHalfLanes) {
    const PatternGroup v = load_group(x + i);
    if (!beyond_float16(v)) [[likely]] {
      store_group(y + i, widened(v));
    } else {
      for (std::int64_t j = i; j < i + kHalfLanes; ++j) y[j] = of_half(x[j]);
    }
  }
#endif
  for (; i < n; ++i) y[i] = of_half(x[i]);
}

}  // namespace
}  // namespace hexforge
