// SPDX-License-Identifier: Apache-2.0
// 16 int32 lanes in two ymm: AVX2, and for bytes its dot products where the CPU has them (AVX-VNNI), else exact ones of
// 16 bits: the product of bytes saturates.
#pragma once
#include <immintrin.h>

#include "kernels/portable/vector.h"

namespace hexforge {
namespace {

struct Avx2 : Portable {
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

  static std::int32_t sum_u8(const char* const* runs, std::int64_t taps, std::int64_t n) {
    __m256i sum = _mm256_setzero_si256();
    std::int32_t rest = 0;
    for (std::int64_t t = 0; t < taps; ++t) {
      const char* p = runs[t];
      std::int64_t i = 0;
      for (; i + 32 <= n; i += 32) sum = _mm256_add_epi64(sum, _mm256_sad_epu8(vector(p + i), _mm256_setzero_si256()));
      for (; i < n; ++i) rest += static_cast<std::uint8_t>(p[i]);
    }
    alignas(32) std::int64_t parts[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(parts), sum);
    return static_cast<std::int32_t>(parts[0] + parts[1] + parts[2] + parts[3]) + rest;
  }
  static void store_u8(const std::int32_t* sums, const ConvArgs& a, std::int64_t channel, std::int32_t correction,
                       std::uint8_t* row, std::int64_t lanes) {
    const __m256 low = _mm256_set1_ps(static_cast<float>(a.low - a.zero_point)),
                 high = _mm256_set1_ps(static_cast<float>(a.high - a.zero_point));
    for (std::int64_t j = 0; j < lanes; j += 8) {
      const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(vector(sums + j), vector(a.bias32 + channel + j)),
                                           _mm256_set1_epi32(correction));
      const __m256 f = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_loadu_ps(a.multiplier32 + channel + j));
      store_bytes(_mm256_min_ps(_mm256_max_ps(f, low), high), a.zero_point, row + j, lanes - j);
    }
  }
  // Eight numbers, or what is left of a row, rounded to bytes.
  static void store_bytes(__m256 f, std::int32_t zero, std::uint8_t* row, std::int64_t left) {
    const __m256i q = _mm256_add_epi32(_mm256_cvtps_epi32(f), _mm256_set1_epi32(zero));
    const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
    store_some(_mm_cvtsi128_si64(_mm_packus_epi16(words, words)), row, left);
  }
  static void store_some(std::int64_t values, void* row, std::int64_t bytes) {
    if (bytes >= 8)
      std::memcpy(row, &values, 8);  // of a size that is known: no call
    else
      std::memcpy(row, &values, static_cast<std::size_t>(bytes));
  }
  static __m256 bytes_as_floats(const std::uint8_t* p, std::int64_t left, std::int32_t zero) {
    std::int64_t values = 0;
    if (left >= 8)
      std::memcpy(&values, p, 8);
    else
      std::memcpy(&values, p, static_cast<std::size_t>(left));
    return _mm256_cvtepi32_ps(
        _mm256_sub_epi32(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(values)), _mm256_set1_epi32(zero)));
  }
  static void add_rows(std::uint8_t* row, int rows, std::int64_t lanes, const ConvArgs& a, const std::uint8_t* other) {
    const __m256 low = _mm256_set1_ps(static_cast<float>(a.sum_low - a.sum_zero)),
                 high = _mm256_set1_ps(static_cast<float>(a.sum_high - a.sum_zero));
    const __m256 own_scale = _mm256_set1_ps(a.own_scale), other_scale = _mm256_set1_ps(a.residual_scale);
    for (int i = 0; i < rows; ++i, row += a.y_stride, other += a.residual_stride) {
      for (std::int64_t j = 0; j < lanes; j += 8) {
        const __m256 f =
            _mm256_add_ps(_mm256_mul_ps(bytes_as_floats(row + j, lanes - j, a.zero_point), own_scale),
                          _mm256_mul_ps(bytes_as_floats(other + j, lanes - j, a.residual_zero), other_scale));
        store_bytes(_mm256_min_ps(_mm256_max_ps(f, low), high), a.sum_zero, row + j, lanes - j);
      }
    }
  }
  static void store_s16(const double* sums, const ConvArgs& a, std::int64_t channel, std::int16_t* row,
                        std::int64_t lanes) {
    const __m256d low = _mm256_set1_pd(a.low - a.zero_point), high = _mm256_set1_pd(a.high - a.zero_point);
    for (std::int64_t j = 0; j < lanes; j += 4) {
      const std::int64_t* bias = a.bias + channel + j;
      const __m256d shift = _mm256_setr_pd(static_cast<double>(bias[0]), static_cast<double>(bias[1]),
                                           static_cast<double>(bias[2]), static_cast<double>(bias[3]));
      const __m256d f =
          _mm256_mul_pd(_mm256_add_pd(_mm256_loadu_pd(sums + j), shift), _mm256_loadu_pd(a.multiplier + channel + j));
      const __m128i q =
          _mm_add_epi32(_mm256_cvtpd_epi32(_mm256_min_pd(_mm256_max_pd(f, low), high)), _mm_set1_epi32(a.zero_point));
      store_some(_mm_cvtsi128_si64(_mm_packs_epi32(q, q)), row + j, (lanes - j) * 2);
    }
  }
  static void store_f32(const float* sums, const ConvArgs& a, std::int64_t channel, float* row, std::int64_t lanes,
                        const float* other) {
    const __m256 low = _mm256_set1_ps(a.low_f32), high = _mm256_set1_ps(a.high_f32);
    const __m256i order = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const auto rounded = [&](__m256 f) {
      return a.half ? _mm256_cvtph_ps(_mm256_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT)) : f;
    };
    for (std::int64_t j = 0; j < lanes; j += 8) {
      const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<std::int32_t>(lanes - j)), order);
      __m256 f = _mm256_add_ps(_mm256_loadu_ps(sums + j), _mm256_loadu_ps(a.bias_f32 + channel + j));
      if (other) f = _mm256_add_ps(rounded(f), _mm256_maskload_ps(other + j, mask));
      f = _mm256_min_ps(high, _mm256_max_ps(low, f));  // NaN stays: both return their second operand then
      if (a.table_f32) {
        f = _mm256_i32gather_ps(a.table_f32, _mm256_cvtepu16_epi32(_mm256_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT)), 4);
      } else {
        f = rounded(f);
      }
      _mm256_maskstore_ps(row + j, mask, f);
    }
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
