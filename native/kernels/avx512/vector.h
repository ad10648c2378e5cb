// SPDX-License-Identifier: Apache-2.0
// 16 int32 lanes in one zmm: AVX-512 F/BW/VL/DQ, VNNI, VBMI.
#pragma once
#include <immintrin.h>

#include <cstring>

#include "kernels/shared/plain_tile.h"

namespace hexforge {
namespace {

struct Avx512 : PlainTile {
  using Acc = __m512i;
  using Weights = __m512i;
  static constexpr bool kWholeBlocks = true;
  static constexpr std::int64_t kPartSteps = 512;  // of four vectors: half a level-2 cache is two such parts
  static constexpr int kRows1 = 14, kRows2 = 12, kRows3 = 8, kRows4 = 7;  // pixels of a tile, by vectors of channels

  static Acc zero() { return _mm512_setzero_si512(); }
  static Acc resume(const float* sums) { return _mm512_load_si512(sums); }
  static Weights load(const char* p) { return _mm512_loadu_si512(p); }
  // 16 float16 numbers as float32, or 32 bytes as 16 bits.
  static constexpr bool kWidens = true;
  template <int Bits>
  static Weights load_half(const char* p) {
    const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    if constexpr (Bits == 32)
      return _mm512_castps_si512(_mm512_cvtph_ps(narrow));
    else
      return _mm512_cvtepi8_epi16(narrow);
  }
  static __m512i broadcast(const char* p) {
    std::int32_t v;
    std::memcpy(&v, p, 4);
    return _mm512_set1_epi32(v);
  }
  template <int Bits>
  static void dot(Acc& acc, __m512i x, Weights w) {
    // Inline assembly: GCC 12 spills the accumulators with the intrinsics.
    if constexpr (Bits == 8) {
      __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(x), "v"(w));
    } else if constexpr (Bits == 16) {
      __asm__("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(x), "v"(w));
    } else {
      __asm__("vfmadd231ps %2, %1, %0" : "+v"(acc) : "v"(x), "v"(w));
    }
  }
  // As `dot`, the weights read where they lie: a tile of 7 x 4 vectors leaves registers for three of weights and one of
  // x.
  static constexpr bool kReadsMemory = true;
  template <int Bits>
  static void dot_memory(Acc& acc, __m512i x, const char* weights) {
    const __m512i_u& w = *reinterpret_cast<const __m512i_u*>(weights);
    if constexpr (Bits == 8) {
      __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(x), "m"(w));
    } else if constexpr (Bits == 16) {
      __asm__("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(x), "m"(w));
    } else {
      __asm__("vfmadd231ps %2, %1, %0" : "+v"(acc) : "v"(x), "m"(w));
    }
  }
  // acc += x * w, lane by lane, for one tap of a depthwise convolution; w holds 16-bit weights in 32-bit lanes.
  template <int Bits>
  static void multiply_add(Acc& acc, const char* x, const char* w, int lanes) {
    const __mmask16 mask = static_cast<__mmask16>((1u << lanes) - 1);
    if constexpr (Bits == 32) {
      acc = _mm512_castps_si512(
          _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, x), _mm512_loadu_ps(w), _mm512_castsi512_ps(acc)));
    } else {
      __m512i wide_x;
      if constexpr (Bits == 8) {
        wide_x = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, x));
      } else {
        wide_x = _mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(mask, x));
      }
      // Only the lower halves count: the weights' upper halves are zero.
      const __m512i wide_w = _mm512_loadu_si512(w);
      __asm__("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(wide_x), "v"(wide_w));
    }
  }
  // One kernel row of a depthwise tile (depthwise_tile.h): its columns are loaded once for the P pixels. 16-bit columns
  // go in pairs of neighbours, so that one dot product has two taps.
  static constexpr bool kHoldsColumns = true;
  template <int Bits, int P, int KW, int S>
  [[gnu::always_inline]] static inline void add_line(Acc (&acc)[P][1], const char* const* line, std::int64_t offset,
                                                     const char* weights, std::int64_t stride, int lanes) {
    constexpr int kSpan = (P - 1) * S + KW;
    const __mmask16 mask = static_cast<__mmask16>((1u << lanes) - 1);
    if constexpr (Bits == 32) {
      __m512 x[kSpan];
#pragma GCC unroll 20
      for (int c = 0; c < kSpan; ++c) x[c] = _mm512_maskz_loadu_ps(mask, line[c] + offset);
#pragma GCC unroll 5
      for (int k = 0; k < KW; ++k) {
        const __m512 w = _mm512_loadu_ps(weights + k * stride);
#pragma GCC unroll 8
        for (int p = 0; p < P; ++p)
          acc[p][0] = _mm512_castps_si512(_mm512_fmadd_ps(x[p * S + k], w, _mm512_castsi512_ps(acc[p][0])));
      }
    } else {
      const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
      const __m512i places =
          _mm512_or_si512(lane, _mm512_slli_epi32(_mm512_add_epi32(lane, _mm512_set1_epi32(32)), 16));
      __m512i x[kSpan + 1];
#pragma GCC unroll 20
      for (int c = 0; c < kSpan; ++c) x[c] = _mm512_castsi256_si512(_mm256_maskz_loadu_epi16(mask, line[c] + offset));
      x[kSpan] = x[kSpan - 1];
#pragma GCC unroll 3
      for (int k = 0; k < KW; k += 2) {
        const __m512i first = _mm512_loadu_si512(weights + k * stride);
        const __m512i second =
            k + 1 < KW ? _mm512_slli_epi32(_mm512_loadu_si512(weights + (k + 1) * stride), 16) : zero();
        const __m512i w = _mm512_mask_blend_epi16(0xaaaaaaaa, first, second);
#pragma GCC unroll 8
        for (int p = 0; p < P; ++p) {
          const __m512i pair = _mm512_permutex2var_epi16(x[p * S + k], places, x[p * S + k + 1]);
          __asm__("vpdpwssd %2, %1, %0" : "+v"(acc[p][0]) : "v"(pair), "v"(w));
        }
      }
    }
  }
  static constexpr bool kStoresRegisters = true;
  // Sums of 16 channels to bytes, straight from the register.
  struct Requantize {
    __m512i bias, zero;
    __m512 multiplier, low, high;
    Requantize(const ConvArgs& a, std::int64_t channel)
        : bias(a.bias32 ? _mm512_loadu_si512(a.bias32 + channel) : _mm512_setzero_si512()),
          zero(_mm512_set1_epi32(a.zero_point)),
          multiplier(a.multiplier32 ? _mm512_loadu_ps(a.multiplier32 + channel) : _mm512_setzero_ps()),
          low(_mm512_set1_ps(static_cast<float>(a.low - a.zero_point))),
          high(_mm512_set1_ps(static_cast<float>(a.high - a.zero_point))) {}
    __m128i bytes(Acc acc) const {
      __m512 f = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(acc, bias)), multiplier);
      f = _mm512_min_ps(_mm512_max_ps(f, low), high);
      return _mm512_cvtepi32_epi8(_mm512_add_epi32(_mm512_cvtps_epi32(f), zero));
    }
    void operator()(Acc acc, std::uint8_t* out) const { _mm_storeu_si128(reinterpret_cast<__m128i*>(out), bytes(acc)); }
  };

  static Acc start(const ConvArgs& a, std::int64_t channel) { return _mm512_loadu_si512(a.bias32 + channel); }

  // 64 bytes through a table of 256: two permutes of 128 entries and a blend on the top bit.
  [[gnu::always_inline]] static __m512i look_up(__m512i q, const std::uint8_t* table) {
    const __m512i t0 = _mm512_loadu_si512(table), t1 = _mm512_loadu_si512(table + 64),
                  t2 = _mm512_loadu_si512(table + 128), t3 = _mm512_loadu_si512(table + 192);
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(q), _mm512_permutex2var_epi8(t0, q, t1),
                                  _mm512_permutex2var_epi8(t2, q, t3));
  }

  // Four vectors of sums that were rounded, less the zero point, to 64 bytes in order. The lower bound is taken when
  // they are bytes: whatever was too small to be an integer has become the smallest one, and saturates.
  [[gnu::always_inline]] static __m512i pack(__m512i v0, __m512i v1, __m512i v2, __m512i v3, __m512i zero,
                                             __m512i low) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i a = _mm512_adds_epi16(_mm512_packs_epi32(v0, v1), zero);
    const __m512i b = _mm512_adds_epi16(_mm512_packs_epi32(v2, v3), zero);
    return _mm512_max_epu8(_mm512_permutexvar_epi32(order, _mm512_packus_epi16(a, b)), low);
  }

  // A tile's sums, bias included, to bytes: requantized, a residual added, looked up, stored straight from the
  // registers, 64 bytes at a time whatever the number of channels is. `count` pixels of `lanes` channels are there.
  template <int MR, int NR>
  [[gnu::always_inline]] static inline void store_tile(const Acc (&acc)[MR][NR], const ConvArgs& a,
                                                       std::int64_t channel, std::int64_t pixel,
                                                       const std::int32_t* sums, int count, std::int64_t lanes) {
    constexpr int kVectors = MR * NR;
    const bool residual = a.residual != nullptr;
    const __m512 high = _mm512_set1_ps(static_cast<float>(a.high - a.zero_point));
    const __m512 own_low = _mm512_set1_ps(static_cast<float>(a.low - a.zero_point));
    const __m512 own_scale = _mm512_set1_ps(a.own_scale), other_scale = _mm512_set1_ps(a.residual_scale);
    const __m512 sum_high = _mm512_set1_ps(static_cast<float>(a.sum_high - a.sum_zero));
    const __m512i other_zero = _mm512_set1_epi32(a.residual_zero);
    const __m512i zero = _mm512_set1_epi16(static_cast<short>(residual ? a.sum_zero : a.zero_point));
    const __m512i low = _mm512_set1_epi8(static_cast<char>(residual ? a.sum_low : a.low));
    const __mmask16 last = static_cast<__mmask16>((1u << (lanes - (NR - 1) * kLane)) - 1);
    const bool dense = a.y_stride == NR * kLane && count == MR && last == 0xffff;
    std::uint8_t* row = static_cast<std::uint8_t*>(a.y) + pixel * a.y_stride + channel;
    const std::uint8_t* other = residual ? a.residual + pixel * a.residual_stride + channel : nullptr;
    const auto rounded_steps = [&](int v) __attribute__((always_inline)) {
      const int i = v / NR, j = v % NR;
      __m512i sum = acc[i][j];
      if (sums) sum = _mm512_add_epi32(sum, _mm512_set1_epi32(sums[i]));
      __m512 f = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_loadu_ps(a.multiplier32 + channel + j * kLane));
      f = _mm512_min_ps(f, high);
      if (residual) {
        f = _mm512_roundscale_ps(_mm512_max_ps(f, own_low), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const std::uint8_t* at = other + (i < count ? i : 0) * a.residual_stride + j * kLane;
        const __m512i r =
            _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(j == NR - 1 ? last : static_cast<__mmask16>(0xffff), at));
        f = _mm512_add_ps(_mm512_mul_ps(f, own_scale),
                          _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(r, other_zero)), other_scale));
        f = _mm512_min_ps(f, sum_high);
      }
      return _mm512_cvtps_epi32(f);
    };
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; v += 4) {
      constexpr int kLast = kVectors - 1;
      __m512i q =
          pack(rounded_steps(v), rounded_steps(v + 1 < kLast ? v + 1 : kLast),
               rounded_steps(v + 2 < kLast ? v + 2 : kLast), rounded_steps(v + 3 < kLast ? v + 3 : kLast), zero, low);
      if (a.table) q = look_up(q, a.table);
      if (NR == 4 && count == MR && last == 0xffff) {
        _mm512_storeu_si512(row + v / NR * a.y_stride, q);
      } else if (dense && v + 3 < kVectors) {
        _mm512_storeu_si512(row + v * kLane, q);
      } else {
        const auto store = [&](int w, __m128i bytes) __attribute__((always_inline)) {
          const int i = w / NR, j = w % NR;
          if (w >= kVectors || i >= count) return;
          _mm_mask_storeu_epi8(row + i * a.y_stride + j * kLane, j == NR - 1 ? last : static_cast<__mmask16>(0xffff),
                               bytes);
        };
        store(v, _mm512_castsi512_si128(q));
        store(v + 1, _mm512_extracti32x4_epi32(q, 1));
        store(v + 2, _mm512_extracti32x4_epi32(q, 2));
        store(v + 3, _mm512_extracti32x4_epi32(q, 3));
      }
    }
  }

  static void spill(std::int32_t* p, Acc acc) { _mm512_store_si512(p, acc); }

  // 256-entry table applied to `rows` rows of at most 64 bytes: two permutes of 128 entries and a blend on the top bit.
  static void look_up(std::uint8_t* row, int rows, std::int64_t stride, std::int64_t lanes, const std::uint8_t* table) {
    const __m512i t0 = _mm512_loadu_si512(table), t1 = _mm512_loadu_si512(table + 64),
                  t2 = _mm512_loadu_si512(table + 128), t3 = _mm512_loadu_si512(table + 192);
    const __mmask64 mask = lanes >= kBlock ? ~0ull : (1ull << lanes) - 1;
    for (int i = 0; i < rows; ++i, row += stride) {
      const __m512i q = _mm512_maskz_loadu_epi8(mask, row);
      _mm512_mask_storeu_epi8(row, mask,
                              _mm512_mask_blend_epi8(_mm512_movepi8_mask(q), _mm512_permutex2var_epi8(t0, q, t1),
                                                     _mm512_permutex2var_epi8(t2, q, t3)));
    }
  }

  // A sum to what is stored: bias, rounding to float16, a residual, bounds, which are halves and within the matrix
  // unit's range. Operand order keeps NaN: min and max return their second operand when either is NaN.
  struct Finish {
    __m512 low, high;
    const float* table;
    bool half;
    explicit Finish(const ConvArgs& a)
        : low(_mm512_set1_ps(a.low_f32)), high(_mm512_set1_ps(a.high_f32)), table(a.table_f32), half(a.half) {}
    [[gnu::always_inline]] __m512 rounded(__m512 f) const {
      return half ? _mm512_cvtph_ps(_mm512_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT)) : f;
    }
    [[gnu::always_inline]] __m512 within_limit(__m512 f) const {
      const __m512 limit = _mm512_set1_ps(kMatrixLimit);
      return half ? _mm512_min_ps(limit, _mm512_max_ps(_mm512_sub_ps(_mm512_setzero_ps(), limit), f)) : f;
    }
    [[gnu::always_inline]] __m512 operator()(__m512 sum, __m512 bias, const float* other, __mmask16 mask) const {
      __m512 f = _mm512_add_ps(sum, bias);
      if (other) f = _mm512_add_ps(within_limit(rounded(f)), _mm512_maskz_loadu_ps(mask, other));
      if (table) {
        f = _mm512_min_ps(high, _mm512_max_ps(low, f));
        const __m512i pattern = _mm512_cvtepu16_epi32(_mm512_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT));
        return _mm512_i32gather_ps(pattern, table, 4);
      }
      return _mm512_min_ps(high, _mm512_max_ps(low, rounded(f)));
    }
  };

  template <int MR, int NR>
  [[gnu::always_inline]] static inline void store_tile_f32(const Acc (&acc)[MR][NR], const ConvArgs& a,
                                                           std::int64_t channel, std::int64_t pixel, int count,
                                                           std::int64_t lanes) {
    const Finish finish(a);
    const __mmask16 last = static_cast<__mmask16>((1u << (lanes - (NR - 1) * kLane)) - 1);
    float* row = static_cast<float*>(a.y) + pixel * a.y_stride + channel;
    const float* other = a.residual_f32 ? a.residual_f32 + pixel * a.residual_stride + channel : nullptr;
#pragma GCC unroll 4
    for (int j = 0; j < NR; ++j) {
      const __m512 bias = _mm512_loadu_ps(a.bias_f32 + channel + j * kLane);
      const __mmask16 mask = j == NR - 1 ? last : static_cast<__mmask16>(0xffff);
#pragma GCC unroll 16
      for (int i = 0; i < MR; ++i) {
        if (i >= count) break;
        const float* from = other ? other + i * a.residual_stride + j * kLane : nullptr;
        _mm512_mask_storeu_ps(row + i * a.y_stride + j * kLane, mask,
                              finish(_mm512_castsi512_ps(acc[i][j]), bias, from, mask));
      }
    }
  }

  // Two halves of 16 real numbers to what is stored of 16 bits: a residual where there is one, bounds, a table. All of
  // it by value: after every store the compiler would read `a` again.
  struct Finish16 {
    __m512d low, high, own, side, most;  // of the result itself, of both sides of a sum, of what is stored
    __m512i residual_zero, least, zero;
    const std::int16_t* table;
    explicit Finish16(const ConvArgs& a)
        : low(_mm512_set1_pd(a.low - a.zero_point)),
          high(_mm512_set1_pd(a.high - a.zero_point)),
          own(_mm512_set1_pd(a.own_scale_f64)),
          side(_mm512_set1_pd(a.residual_scale_f64)),
          most(a.residual_s16 ? _mm512_set1_pd(a.sum_high - a.sum_zero) : high),
          residual_zero(_mm512_set1_epi32(a.residual_zero)),
          least(_mm512_set1_epi32(a.residual_s16 ? a.sum_low - a.sum_zero : a.low - a.zero_point)),
          zero(_mm512_set1_epi32(a.residual_s16 ? a.sum_zero : a.zero_point)),
          table(a.table16 ? a.table16 + 32768 : nullptr) {}
    // `f` are steps, less the zero point and not yet rounded. Whatever is too small to be an integer becomes the
    // smallest one, so the lower bound can be taken of integers.
    [[gnu::always_inline]] __m512i rounded_steps(__m512d f0, __m512d f1) const {
      const __m256i q0 = _mm512_cvtpd_epi32(_mm512_min_pd(f0, most)), q1 = _mm512_cvtpd_epi32(_mm512_min_pd(f1, most));
      return _mm512_add_epi32(_mm512_max_epi32(_mm512_inserti64x4(_mm512_castsi256_si512(q0), q1, 1), least), zero);
    }
    [[gnu::always_inline]] __m512d rounded(__m512d f) const {
      return _mm512_roundscale_pd(_mm512_min_pd(_mm512_max_pd(f, low), high),
                                  _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }
    // The sum with a residual of two halves that were rounded.
    [[gnu::always_inline]] __m512i sum(__m512d f0, __m512d f1, const std::int16_t* other, __mmask16 mask) const {
      const __m512i r = _mm512_sub_epi32(_mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(mask, other)), residual_zero);
      const __m512d r0 = _mm512_cvtepi32_pd(_mm512_castsi512_si256(r)),
                    r1 = _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(r, 1));
      return rounded_steps(_mm512_add_pd(_mm512_mul_pd(f0, own), _mm512_mul_pd(r0, side)),
                           _mm512_add_pd(_mm512_mul_pd(f1, own), _mm512_mul_pd(r1, side)));
    }
    // What is stored of 16 integers, looked up where there is a table.
    [[gnu::always_inline]] __m256i stored(__m512i q) const {
      // 32 bits are read at every entry, of which the upper 16 are the next one's.
      if (table) q = _mm512_i32gather_epi32(q, table, 2);
      return _mm512_cvtepi32_epi16(q);
    }
  };

  // Sums that were never emptied, to 16 bits. They come by way of memory: a body this large is not unrolled, and
  // accumulators that are found by an index would be kept in memory all along.
  template <int MR, int NR>
  [[gnu::always_inline]] static inline void store_tile_s16(const Acc (&acc)[MR][NR], const ConvArgs& a,
                                                           std::int64_t channel, std::int64_t pixel, int count,
                                                           std::int64_t lanes) {
    alignas(64) std::int32_t sums[MR][NR * kLane];
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < NR; ++j) spill(&sums[i][j * kLane], acc[i][j]);
    store_rows_s16(&sums[0][0], NR, a, channel, pixel, count, lanes);
  }

  [[gnu::noinline]] static void store_rows_s16(const std::int32_t* sums, int vectors, const ConvArgs& a,
                                               std::int64_t channel, std::int64_t pixel, int count,
                                               std::int64_t lanes) {
    const Finish16 finish(a);
    std::int16_t* row = static_cast<std::int16_t*>(a.y) + pixel * a.y_stride + channel;
    const std::int16_t* other = a.residual_s16 ? a.residual_s16 + pixel * a.residual_stride + channel : nullptr;
    const std::int64_t advance = vectors * kLane, stride = a.y_stride, side = a.residual_stride;
    for (int j = 0; j < vectors; ++j) {
      const std::int64_t at = channel + j * kLane;
      const __m512d bias0 = _mm512_cvtepi64_pd(_mm512_loadu_si512(a.bias + at)),
                    bias1 = _mm512_cvtepi64_pd(_mm512_loadu_si512(a.bias + at + 8));
      const __m512d multiplier0 = _mm512_loadu_pd(a.multiplier + at),
                    multiplier1 = _mm512_loadu_pd(a.multiplier + at + 8);
      const std::int64_t left = lanes - j * kLane;
      const __mmask16 mask = static_cast<__mmask16>(left >= kLane ? 0xffff : (1u << left) - 1);
      const auto steps = [](const std::int32_t* sum, __m512d bias, __m512d multiplier) __attribute__((always_inline)) {
        return _mm512_mul_pd(
            _mm512_add_pd(_mm512_cvtepi32_pd(_mm256_load_si256(reinterpret_cast<const __m256i*>(sum))), bias),
            multiplier);
      };
      const auto rows = [&](const auto& rounded_steps) __attribute__((always_inline)) {
        const std::int32_t* sum = sums + j * kLane;
        std::int16_t* to = row + j * kLane;
        for (int i = 0; i < count; ++i, sum += advance, to += stride) {
          const __m512i q = rounded_steps(steps(sum, bias0, multiplier0), steps(sum + 8, bias1, multiplier1), i);
          _mm256_mask_storeu_epi16(to, mask, finish.stored(q));
        }
      };
      if (other) {
        rows([&](__m512d f0, __m512d f1, int i) __attribute__((always_inline)) {
          return finish.sum(finish.rounded(f0), finish.rounded(f1), other + i * side + j * kLane, mask);
        });
      } else {
        rows([&](__m512d f0, __m512d f1, int) __attribute__((always_inline)) { return finish.rounded_steps(f0, f1); });
      }
    }
  }
};
}  // namespace
}  // namespace hexforge
