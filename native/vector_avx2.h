// SPDX-License-Identifier: Apache-2.0
// 16 int32 lanes in two ymm: AVX2. Exact: the saturating byte product is used on operands that cannot saturate.
#pragma once
#include <immintrin.h>

#include "vector_portable.h"

namespace hexforge {
namespace {

struct Avx2 : Portable {
  struct Acc {
    __m256i low, high;
  };
  struct Weights {
    __m256i low, high;
  };
  static constexpr int kRows1 = 4, kRows2 = 2, kRows3 = 1, kRows4 = 1;

  static Acc zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static Weights load(const char* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
  }
  static __m256i broadcast(const char* p) {
    std::int32_t v;
    std::memcpy(&v, p, 4);
    return _mm256_set1_epi32(v);
  }
  // Four u8 x s8 products per lane: x = (x & 127) + (x & 128), each half's pair sum fits 16 bits.
  static __m256i dot_bytes(__m256i acc, __m256i x, __m256i w) {
    const __m256i ones = _mm256_set1_epi16(1), top = _mm256_set1_epi8(-128);
    const __m256i lower = _mm256_maddubs_epi16(_mm256_andnot_si256(top, x), w);
    const __m256i upper = _mm256_maddubs_epi16(_mm256_and_si256(top, x), w);
    return _mm256_add_epi32(acc, _mm256_add_epi32(_mm256_madd_epi16(lower, ones), _mm256_madd_epi16(upper, ones)));
  }
  template <int Bits>
  static void dot(Acc& acc, __m256i x, Weights w) {
    if constexpr (Bits == 8) {
      acc.low = dot_bytes(acc.low, x, w.low);
      acc.high = dot_bytes(acc.high, x, w.high);
    } else if constexpr (Bits == 32) {
      acc.low = _mm256_castps_si256(_mm256_fmadd_ps(_mm256_castsi256_ps(x), _mm256_castsi256_ps(w.low), _mm256_castsi256_ps(acc.low)));
      acc.high = _mm256_castps_si256(_mm256_fmadd_ps(_mm256_castsi256_ps(x), _mm256_castsi256_ps(w.high), _mm256_castsi256_ps(acc.high)));
    } else {
      acc.low = _mm256_add_epi32(acc.low, _mm256_madd_epi16(x, w.low));
      acc.high = _mm256_add_epi32(acc.high, _mm256_madd_epi16(x, w.high));
    }
  }
  template <int Bits>
  static void multiply_add(Acc& acc, const char* x, const char* w, int lanes) {
    if constexpr (Bits == 32) {
      alignas(32) float xs[kLane] = {};
      std::memcpy(xs, x, static_cast<std::size_t>(lanes) * 4);
      dot32(acc, _mm256_load_ps(xs), _mm256_load_ps(xs + 8), reinterpret_cast<const float*>(w));
    } else {
      alignas(32) std::int16_t xs[kLane] = {};
      if constexpr (Bits == 8) {
        for (int lane = 0; lane < lanes; ++lane) xs[lane] = static_cast<std::uint8_t>(x[lane]);
      } else {
        std::memcpy(xs, x, static_cast<std::size_t>(lanes) * 2);
      }
      const auto product = [&](int half) {
        const __m256i wide_x = _mm256_cvtepi16_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(xs + half)));
        const __m256i wide_w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 4 * half));
        return _mm256_madd_epi16(wide_x, wide_w);
      };
      acc.low = _mm256_add_epi32(acc.low, product(0));
      acc.high = _mm256_add_epi32(acc.high, product(8));
    }
  }
  static void dot32(Acc& acc, __m256 x0, __m256 x1, const float* w) {
    acc.low = _mm256_castps_si256(_mm256_fmadd_ps(x0, _mm256_loadu_ps(w), _mm256_castsi256_ps(acc.low)));
    acc.high = _mm256_castps_si256(_mm256_fmadd_ps(x1, _mm256_loadu_ps(w + 8), _mm256_castsi256_ps(acc.high)));
  }
  static void spill(std::int32_t* p, const Acc& acc) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), acc.low);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), acc.high);
  }
};
}  // namespace
}  // namespace hexforge
