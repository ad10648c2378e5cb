// SPDX-License-Identifier: Apache-2.0
// 16 int32 lanes in two ymm: AVX2, and for bytes its dot products where the CPU has them (AVX-VNNI), else exact ones of
// 16 bits: the product of bytes saturates.
#pragma once
#include <immintrin.h>

#include "kernels/shared/plain_tile.h"

namespace hexforge {
namespace {

struct Avx2 : PlainTile {
  struct Acc {
    __m256i low, high;
  };
  struct Weights {
    __m256i low, high;
  };
  static constexpr int kRows1 = 6;  // twelve sums, two of weights, one of x, one for a product

  static Acc zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static __m256i vector(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static Acc resume(const float* sums) { return {vector(sums), vector(sums + 8)}; }
  static Weights load(const char* p) { return {vector(p), vector(p + 32)}; }
  // 16 float16 numbers as float32, or 32 bytes as 16 bits.
  static constexpr bool kWidens = true;
  template <int Bits>
  static Weights load_half(const char* p) {
    const auto wide = [&](int at) {
      const __m128i narrow = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + at));
      if constexpr (Bits == 32)
        return _mm256_castps_si256(_mm256_cvtph_ps(narrow));
      else
        return _mm256_cvtepi8_epi16(narrow);
    };
    return {wide(0), wide(16)};
  }
  static __m256i broadcast(const char* p) {
    std::int32_t v;
    std::memcpy(&v, p, 4);
    return _mm256_set1_epi32(v);
  }
  template <int Bits>
  static void dot(Acc& acc, __m256i x, Weights w) {
    if constexpr (Bits == 32) {
      acc.low = _mm256_castps_si256(
          _mm256_fmadd_ps(_mm256_castsi256_ps(x), _mm256_castsi256_ps(w.low), _mm256_castsi256_ps(acc.low)));
      acc.high = _mm256_castps_si256(
          _mm256_fmadd_ps(_mm256_castsi256_ps(x), _mm256_castsi256_ps(w.high), _mm256_castsi256_ps(acc.high)));
    } else {
      static_assert(Bits == 16);
      acc.low = _mm256_add_epi32(acc.low, _mm256_madd_epi16(x, w.low));
      acc.high = _mm256_add_epi32(acc.high, _mm256_madd_epi16(x, w.high));
    }
  }
  // One tap of a depthwise convolution: weights of 16 bits in lanes of 32.
  template <int Bits>
  static void multiply_add(Acc& acc, const char* x, const char* w, int lanes) {
    alignas(32) char some[4 * kLane];
    if (lanes < kLane) x = static_cast<const char*>(std::memcpy(some, x, static_cast<std::size_t>(lanes) * Bits / 8));
    if constexpr (Bits == 32) {
      const float *xs = reinterpret_cast<const float*>(x), *ws = reinterpret_cast<const float*>(w);
      acc.low =
          _mm256_castps_si256(_mm256_fmadd_ps(_mm256_loadu_ps(xs), _mm256_loadu_ps(ws), _mm256_castsi256_ps(acc.low)));
      acc.high = _mm256_castps_si256(
          _mm256_fmadd_ps(_mm256_loadu_ps(xs + 8), _mm256_loadu_ps(ws + 8), _mm256_castsi256_ps(acc.high)));
    } else {
      const auto wide = [&](int half) {
        if constexpr (Bits == 8)
          return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(x + half)));
        else
          return _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + 2 * half)));
      };
      acc.low = _mm256_add_epi32(acc.low, _mm256_madd_epi16(wide(0), vector(w)));
      acc.high = _mm256_add_epi32(acc.high, _mm256_madd_epi16(wide(8), vector(w + 32)));
    }
  }
  static void spill(std::int32_t* p, const Acc& acc) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), acc.low);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), acc.high);
  }
};

// Bytes as exact products of 16 bits: weights are widened where they are read, and a lane has two sums until the end.
struct Avx2Bytes : Avx2 {
  struct Acc {
    __m256i part[4];  // of four lanes each
  };
  using Weights = Acc;
  static constexpr int kRows1 = 2;

  static Acc zero() { return {}; }
  static Weights load(const char* p) {
    Weights w;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      w.part[i] = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * i)));
    return w;
  }
  static __m256i broadcast(const char* p) {
    std::int32_t v;
    std::memcpy(&v, p, 4);
    return _mm256_cvtepu8_epi16(_mm_set1_epi32(v));
  }
  template <int Bits>
  static void dot(Acc& acc, __m256i x, const Weights& w) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) acc.part[i] = _mm256_add_epi32(acc.part[i], _mm256_madd_epi16(x, w.part[i]));
  }
  static void spill(std::int32_t* p, const Acc& acc) {
    for (int half = 0; half < 2; ++half) {
      const __m256i sums = _mm256_hadd_epi32(acc.part[2 * half], acc.part[2 * half + 1]);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8 * half), _mm256_permute4x64_epi64(sums, 0xd8));
    }
  }
};

// Bytes by the dot products of AVX-VNNI; where a CPU has them in the encoding of AVX-512 only, by those: the same
// instruction on the same registers, so that such a CPU shows what one without AVX-512 computes.
template <bool Vex>
struct Avx2Vnni : Avx2 {
  // By value: what an asm statement writes by reference GCC keeps in memory.
  static __m256i plus_dot(__m256i sum, __m256i x, __m256i w) {
    if constexpr (Vex)
      __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(x), "x"(w));
    else
      __asm__("%{evex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(x), "x"(w));
    return sum;
  }
  template <int Bits>
  static void dot(Acc& acc, __m256i x, Weights w) {
    acc.low = plus_dot(acc.low, x, w.low);
    acc.high = plus_dot(acc.high, x, w.high);
  }
};
}  // namespace
}  // namespace hexforge
