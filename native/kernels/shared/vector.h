// SPDX-License-Identifier: Apache-2.0
// The compiler's vectors behind a type of ours: as many lanes as the instruction set that is compiled for has. What the
// compilers write well stays theirs (arithmetic, comparisons, `mask ? a : b`); conversions have a line for each set.
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "kernels/half.h"

namespace hexforge {
namespace {

// `Bytes` bytes of T. Wider than a register it is some of them.
template <class T, int Bytes>
using Vector __attribute__((vector_size(Bytes))) = T;

#if defined(__AVX512F__)
constexpr int kRegister = 64;
#elif defined(__AVX2__)
constexpr int kRegister = 32;
#else
constexpr int kRegister = 16;
#endif
constexpr int kLanes = kRegister / 4;
using Reals = Vector<float, kRegister>;
using Integers = Vector<std::int32_t, kRegister>;
using Doubles = Vector<double, kRegister>;
using HalfIntegers = Vector<std::int32_t, kRegister / 2>;  // as many as there are doubles
using HalfReals = Vector<float, kRegister / 2>;

template <class V>
inline V load(const void* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
// By reference: how vectors wider than a register are returned depends on the instruction set.
template <class V>
inline void load(V& v, const void* from) {
  std::memcpy(&v, from, sizeof v);
}

template <class V>
inline void store(void* to, const V& v) {
  std::memcpy(to, &v, sizeof v);
}

// Bytes and words as integers.
inline Integers widen(const std::uint8_t* from) {
#if defined(__AVX512F__)
  return (Integers)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#elif defined(__AVX2__)
  return (Integers)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
#else
  return Integers{from[0], from[1], from[2], from[3]};
#endif
}

inline HalfIntegers widen(const std::int16_t* from) {
#if defined(__AVX512F__)
  return (HalfIntegers)_mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#elif defined(__AVX2__)
  return (HalfIntegers)_mm_cvtepi16_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
#else
  return HalfIntegers{from[0], from[1]};
#endif
}

// Integers that fit as bytes and words.
inline void narrow(std::uint8_t* to, Integers v) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8((__m512i)v));
#elif defined(__AVX2__)
  const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(words, words));
#else
  for (int i = 0; i < kLanes; ++i) to[i] = static_cast<std::uint8_t>(v[i]);
#endif
}

inline void narrow(std::int16_t* to, HalfIntegers v) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtepi32_epi16((__m256i)v));
#elif defined(__AVX2__)
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packs_epi32((__m128i)v, (__m128i)v));
#else
  for (int i = 0; i < kLanes / 2; ++i) to[i] = static_cast<std::int16_t>(v[i]);
#endif
}

inline void narrow(float* to, Reals v) { store(to, v); }

// The nearest integers, ties to even, of less than 2^22 and 2^31.
inline Integers nearest_integers(Reals v) {
#if defined(__AVX512F__)
  return (Integers)_mm512_cvtps_epi32((__m512)v);
#elif defined(__AVX2__)
  return (Integers)_mm256_cvtps_epi32((__m256)v);
#else
  return __builtin_convertvector((v + 12582912.0f) - 12582912.0f, Integers);
#endif
}

inline HalfIntegers nearest_integers(Doubles v) {
#if defined(__AVX512F__)
  return (HalfIntegers)_mm512_cvtpd_epi32((__m512d)v);
#elif defined(__AVX2__)
  return (HalfIntegers)_mm256_cvtpd_epi32((__m256d)v);
#else
  return __builtin_convertvector((v + 6755399441055744.0) - 6755399441055744.0, HalfIntegers);
#endif
}

// Rounded to float16, ties to even; infinite from 65520 on, until what follows clamps it to the matrix unit's range.
inline Reals halves(Reals v) {
#if defined(__AVX512F__)
  return (Reals)_mm512_cvtph_ps(_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__AVX2__)
  return (Reals)_mm256_cvtph_ps(_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
#else
  float values[kLanes];
  store(values, v);
  round_to_matrix_half(values, values, kLanes);
  return load<Reals>(values);
#endif
}

// The entries of a table over the patterns of a half, for numbers as the matrix unit rounds them.
inline Reals look_up_halves(const float* table, Reals v) {
#if defined(__AVX512F__)
  return (Reals)_mm512_i32gather_ps(_mm512_cvtepu16_epi32(_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT)), table,
                                    4);
#elif defined(__AVX2__)
  return (Reals)_mm256_i32gather_ps(table, _mm256_cvtepu16_epi32(_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT)),
                                    4);
#else
  float values[kLanes];
  std::uint16_t patterns[kLanes];
  store(values, v);
  to_matrix_half_bits(values, patterns, kLanes);
  for (int i = 0; i < kLanes; ++i) values[i] = table[patterns[i]];
  return load<Reals>(values);
#endif
}

using Longs = Vector<std::int64_t, kRegister>;

// Integers of at most 53 bits, exactly.
inline Doubles doubles(Longs v) {
#if defined(__AVX512DQ__) || defined(__aarch64__)
  return __builtin_convertvector(v, Doubles);
#else
  // The halves become fractions of 2^84 and of 2^52; what they are too large by is one number.
  using Bits = Vector<std::uint64_t, kRegister>;
  const Doubles high = (Doubles)(((Bits)v >> 32) ^ 0x4530000080000000u),
                low = (Doubles)(((Bits)v & 0xffffffffu) | 0x4330000000000000u);
  return (high - (0x1p84 + 0x1p63 + 0x1p52)) + low;
#endif
}

// Half a register of integers or float32 numbers; the compilers convert these in parts.
inline Doubles doubles(HalfIntegers v) {
#if defined(__AVX512F__)
  return (Doubles)_mm512_cvtepi32_pd((__m256i)v);
#elif defined(__AVX2__)
  return (Doubles)_mm256_cvtepi32_pd((__m128i)v);
#else
  return __builtin_convertvector(v, Doubles);
#endif
}

inline Doubles doubles(HalfReals v) {
#if defined(__AVX512F__)
  return (Doubles)_mm512_cvtps_pd((__m256)v);
#elif defined(__AVX2__)
  return (Doubles)_mm256_cvtps_pd((__m128)v);
#else
  return __builtin_convertvector(v, Doubles);
#endif
}

// A register of bytes added up, added to some 64-bit lanes.
inline void add_bytes(Longs& sums, const void* bytes) {
#if defined(__AVX512F__)
  sums += (Longs)_mm512_sad_epu8(_mm512_loadu_si512(bytes), _mm512_setzero_si512());
#elif defined(__AVX2__)
  sums += (Longs)_mm256_sad_epu8(_mm256_loadu_si256(static_cast<const __m256i*>(bytes)), _mm256_setzero_si256());
#elif defined(__aarch64__)
  sums += (Longs)vpaddlq_u32(vpaddlq_u16(vpaddlq_u8(vld1q_u8(static_cast<const std::uint8_t*>(bytes)))));
#else
  for (int i = 0; i < kRegister; ++i) sums[0] += static_cast<const std::uint8_t*>(bytes)[i];
#endif
}

// The same of the first n, where a set reads no more than it is told.
#if defined(__AVX512BW__)
constexpr bool kReadsSome = true;
inline void add_some_bytes(Longs& sums, const void* bytes, std::int64_t n) {
  sums += (Longs)_mm512_sad_epu8(_mm512_maskz_loadu_epi8((1ull << n) - 1, bytes), _mm512_setzero_si512());
}
#else
constexpr bool kReadsSome = false;
inline void add_some_bytes(Longs&, const void*, std::int64_t) {}
#endif

}  // namespace
}  // namespace hexforge
