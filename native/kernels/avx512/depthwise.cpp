// SPDX-License-Identifier: Apache-2.0
// 8-bit depthwise convolution on AVX-512: four taps of a channel are one vpdpbusd, so the bytes of four taps are
// interleaved first. Where a kernel column has at most four taps it is one such group, and output pixels side by side
// share it. Vectors of 64, 32 and 16 channels: of the last ones no more is computed than there are.
#include <immintrin.h>

#include "kernels/avx512/vector.h"
#include "kernels/shared/depthwise_tile.h"

namespace hexforge {
namespace {

constexpr int kMostGroups = 64;

struct Zmm {
  using Vector = __m512i;
  using Real = __m512;
  static Vector load(const void* p) { return _mm512_loadu_si512(p); }
  static Vector zero() { return _mm512_setzero_si512(); }
  static Vector low8(Vector a, Vector b) { return _mm512_unpacklo_epi8(a, b); }
  static Vector high8(Vector a, Vector b) { return _mm512_unpackhi_epi8(a, b); }
  static Vector low16(Vector a, Vector b) { return _mm512_unpacklo_epi16(a, b); }
  static Vector high16(Vector a, Vector b) { return _mm512_unpackhi_epi16(a, b); }
  static void dot(Vector& acc, Vector x, Vector w) { __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(x), "v"(w)); }
  static Real real(const float* p) { return _mm512_loadu_ps(p); }
  static Real same(float v) { return _mm512_set1_ps(v); }
  static Vector same16(int v) { return _mm512_set1_epi16(static_cast<short>(v)); }
  static Vector same8(int v) { return _mm512_set1_epi8(static_cast<char>(v)); }
  static Vector steps(Vector acc, Real multiplier, Real high) {
    return _mm512_cvtps_epi32(_mm512_min_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(acc), multiplier), high));
  }
  static Vector bytes(Vector v0, Vector v1, Vector v2, Vector v3, Vector z, Vector low) {
    const Vector a = _mm512_adds_epi16(_mm512_packs_epi32(v0, v1), z),
                 b = _mm512_adds_epi16(_mm512_packs_epi32(v2, v3), z);
    return _mm512_max_epu8(_mm512_packus_epi16(a, b), low);
  }
  static Vector look_up(Vector q, const std::uint8_t* table) { return Avx512::look_up(q, table); }
  static void store(std::uint8_t* p, __mmask64 mask, Vector q) { _mm512_mask_storeu_epi8(p, mask, q); }
};

struct Ymm {
  using Vector = __m256i;
  using Real = __m256;
  static Vector load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static Vector zero() { return _mm256_setzero_si256(); }
  static Vector low8(Vector a, Vector b) { return _mm256_unpacklo_epi8(a, b); }
  static Vector high8(Vector a, Vector b) { return _mm256_unpackhi_epi8(a, b); }
  static Vector low16(Vector a, Vector b) { return _mm256_unpacklo_epi16(a, b); }
  static Vector high16(Vector a, Vector b) { return _mm256_unpackhi_epi16(a, b); }
  static void dot(Vector& acc, Vector x, Vector w) { __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(x), "v"(w)); }
  static Real real(const float* p) { return _mm256_loadu_ps(p); }
  static Real same(float v) { return _mm256_set1_ps(v); }
  static Vector same16(int v) { return _mm256_set1_epi16(static_cast<short>(v)); }
  static Vector same8(int v) { return _mm256_set1_epi8(static_cast<char>(v)); }
  static Vector steps(Vector acc, Real multiplier, Real high) {
    return _mm256_cvtps_epi32(_mm256_min_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(acc), multiplier), high));
  }
  static Vector bytes(Vector v0, Vector v1, Vector v2, Vector v3, Vector z, Vector low) {
    const Vector a = _mm256_adds_epi16(_mm256_packs_epi32(v0, v1), z),
                 b = _mm256_adds_epi16(_mm256_packs_epi32(v2, v3), z);
    return _mm256_max_epu8(_mm256_packus_epi16(a, b), low);
  }
  static Vector look_up(Vector q, const std::uint8_t* table) {
    return _mm512_castsi512_si256(Avx512::look_up(_mm512_castsi256_si512(q), table));
  }
  static void store(std::uint8_t* p, __mmask64 mask, Vector q) {
    _mm256_mask_storeu_epi8(p, static_cast<__mmask32>(mask), q);
  }
};

struct Xmm {
  using Vector = __m128i;
  using Real = __m128;
  static Vector load(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static Vector zero() { return _mm_setzero_si128(); }
  static Vector low8(Vector a, Vector b) { return _mm_unpacklo_epi8(a, b); }
  static Vector high8(Vector a, Vector b) { return _mm_unpackhi_epi8(a, b); }
  static Vector low16(Vector a, Vector b) { return _mm_unpacklo_epi16(a, b); }
  static Vector high16(Vector a, Vector b) { return _mm_unpackhi_epi16(a, b); }
  static void dot(Vector& acc, Vector x, Vector w) { __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(x), "v"(w)); }
  static Real real(const float* p) { return _mm_loadu_ps(p); }
  static Real same(float v) { return _mm_set1_ps(v); }
  static Vector same16(int v) { return _mm_set1_epi16(static_cast<short>(v)); }
  static Vector same8(int v) { return _mm_set1_epi8(static_cast<char>(v)); }
  static Vector steps(Vector acc, Real multiplier, Real high) {
    return _mm_cvtps_epi32(_mm_min_ps(_mm_mul_ps(_mm_cvtepi32_ps(acc), multiplier), high));
  }
  static Vector bytes(Vector v0, Vector v1, Vector v2, Vector v3, Vector z, Vector low) {
    const Vector a = _mm_adds_epi16(_mm_packs_epi32(v0, v1), z), b = _mm_adds_epi16(_mm_packs_epi32(v2, v3), z);
    return _mm_max_epu8(_mm_packus_epi16(a, b), low);
  }
  static Vector look_up(Vector q, const std::uint8_t* table) {
    return _mm512_castsi512_si128(Avx512::look_up(_mm512_castsi128_si512(q), table));
  }
  static void store(std::uint8_t* p, __mmask64 mask, Vector q) {
    _mm_mask_storeu_epi8(p, static_cast<__mmask16>(mask), q);
  }
};

// Four taps of some channels, channel by channel.
template <class W>
struct Quad {
  typename W::Vector v[4];
  Quad(typename W::Vector t0, typename W::Vector t1, typename W::Vector t2, typename W::Vector t3) {
    const auto low01 = W::low8(t0, t1), high01 = W::high8(t0, t1), low23 = W::low8(t2, t3), high23 = W::high8(t2, t3);
    v[0] = W::low16(low01, low23);
    v[1] = W::high16(low01, low23);
    v[2] = W::low16(high01, high23);
    v[3] = W::high16(high01, high23);
  }
};

// Constants of one block of channels; vectors of weights, biases and multipliers are in the order of a Quad.
struct Block {
  const std::int8_t* weights;  // [groups][4][64]
  const std::int8_t* rest;     // what weights beyond 8 bits have left, in the same order, or null
  const std::int32_t* bias;    // [4][16]
  const float* multiplier;
  __mmask64 mask;
};

// What is the same for every pixel, in registers: a store of bytes could otherwise be taken to change it.
template <class W>
struct Finish {
  typename W::Vector bias[4], zero, low;
  typename W::Real multiplier[4], high;
  const std::uint8_t* table;
  __mmask64 mask;

  Finish(const ConvArgs& a, const Block& b)
      : zero(W::same16(a.zero_point)),
        low(W::same8(a.low)),
        high(W::same(static_cast<float>(a.high - a.zero_point))),
        table(a.table),
        mask(b.mask) {
    for (int i = 0; i < 4; ++i) {
      bias[i] = W::load(b.bias + i * kLane);
      multiplier[i] = W::real(b.multiplier + i * kLane);
    }
  }
  [[gnu::always_inline]] void store(const typename W::Vector (&v)[4], std::uint8_t* y) const {
    auto q = W::bytes(W::steps(v[0], multiplier[0], high), W::steps(v[1], multiplier[1], high),
                      W::steps(v[2], multiplier[2], high), W::steps(v[3], multiplier[3], high), zero, low);
    if (table) q = W::look_up(q, table);
    W::store(y, mask, q);
  }
};

// `run` pixels whose taps move by `advance`; tap t of the first is at rows[t].
template <class W>
void any_kernel(const ConvArgs& a, const Block& b, const char* const* rows, std::int64_t channel, std::int64_t run,
                std::int64_t advance, std::uint8_t* y) {
  const std::int64_t groups = a.depthwise_groups;
  const char* x[4 * kMostGroups];
  std::int64_t step[4 * kMostGroups];
  for (std::int64_t i = 0; i < 4 * groups; ++i) {
    const std::int32_t tap = a.depthwise_taps[i];
    const bool moves = tap >= 0 && rows[tap] != a.pad_row;
    x[i] = (tap < 0 ? static_cast<const char*>(a.pad_row) : rows[tap]) + channel;  // a missing tap has weight 0
    step[i] = moves ? advance : 0;
  }
  const Finish<W> finish(a, b);
  const std::int64_t y_stride = a.y_stride;
  for (std::int64_t p = 0; p < run; ++p, y += y_stride) {
    typename W::Vector sums[4] = {finish.bias[0], finish.bias[1], finish.bias[2], finish.bias[3]};
    for (std::int64_t g = 0; g < groups; ++g) {
      const auto tap = [&](int i) { return W::load(x[4 * g + i] + p * step[4 * g + i]); };
      const Quad<W> c(tap(0), tap(1), tap(2), tap(3));
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) W::dot(sums[i], c.v[i], W::load(b.weights + g * 256 + i * 64));
      if (b.rest) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) W::dot(sums[i], c.v[i], W::load(b.rest + g * 256 + i * 64));
      }
    }
    finish.store(sums, y);
  }
}

// 3 x 3 with stride 1: each column of three taps is read and interleaved once, for the three pixels that it is part of.
template <class W>
void three_by_three(const ConvArgs& a, const Block& b, const char* const* rows, std::int64_t channel, std::int64_t run,
                    std::int64_t advance, std::uint8_t* y) {
  const char* x[3];
  std::int64_t step[3];
  for (int i = 0; i < 3; ++i) {
    x[i] = rows[3 * i] + channel;
    step[i] = rows[3 * i] == a.pad_row ? 0 : advance;
  }
  const auto column = [&](std::int64_t c) {
    return Quad<W>(W::load(x[0] + c * step[0]), W::load(x[1] + c * step[1]), W::load(x[2] + c * step[2]), W::zero());
  };
  const Finish<W> finish(a, b);
  typename W::Vector w[3][4], first[4], second[4];
  const Quad<W> c0 = column(0), c1 = column(1);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 3; ++k) w[k][i] = W::load(b.weights + k * 256 + i * 64);
    first[i] = second[i] = finish.bias[i];
    W::dot(first[i], c0.v[i], w[0][i]);
    W::dot(first[i], c1.v[i], w[1][i]);
    W::dot(second[i], c1.v[i], w[0][i]);
  }
  const std::int64_t y_stride = a.y_stride;
  for (std::int64_t p = 0; p < run; ++p, y += y_stride) {
    const Quad<W> c = column(p + 2);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) W::dot(first[i], c.v[i], w[2][i]);
    finish.store(first, y);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      first[i] = second[i];
      W::dot(first[i], c.v[i], w[1][i]);
      second[i] = finish.bias[i];
      W::dot(second[i], c.v[i], w[0][i]);
    }
  }
}

template <class W>
void run_block(const ConvArgs& a, const Block& b, const char* const* rows, std::int64_t channel, std::int64_t run,
               std::int64_t advance, bool columns, std::uint8_t* y) {
  if (columns) {
    three_by_three<W>(a, b, rows, channel, run, advance, y);
  } else {
    any_kernel<W>(a, b, rows, channel, run, advance, y);
  }
}

}  // namespace

void depthwise_u8_avx512(const ConvArgs& a, std::int64_t begin, std::int64_t end, const Scratch& scratch) {
  if (!a.depthwise_weights || a.depthwise_groups > kMostGroups) {
    run_depthwise<Avx512, 8>(a, begin, end, scratch);
    return;
  }
  const char** rows = scratch.rows;
  const std::int64_t advance = a.stride[2] * a.x_stride;
  const bool three = a.kernel[0] == 1 && a.kernel[1] == 3 && a.kernel[2] == 3 && a.stride[2] == 1 && a.dilation[2] == 1;
  Locator<8> locator(a, begin, nullptr);
  std::int64_t pixel = begin;
  while (pixel < end) {
    const std::int64_t run = std::max<std::int64_t>(1, std::min(locator.steady(), end - pixel));
    locator.next(rows, 0);
    for (std::int64_t channel = 0; channel < a.out_channels; channel += kBlock) {
      const std::int64_t block = channel / kBlock, lanes = std::min<std::int64_t>(kBlock, a.out_channels - channel);
      const std::int64_t size = a.depthwise_groups * 256;
      const Block b{a.depthwise_weights + block * size, a.depthwise_rest ? a.depthwise_rest + block * size : nullptr,
                    a.depthwise_bias + channel, a.depthwise_multiplier + channel,
                    lanes == kBlock ? ~0ull : (1ull << lanes) - 1};
      std::uint8_t* y = static_cast<std::uint8_t*>(a.y) + pixel * a.y_stride + channel;
      const bool columns = three && run > 1 && !b.rest;
      if (lanes > 32) {
        run_block<Zmm>(a, b, rows, channel, run, advance, columns, y);
      } else if (lanes > 16) {
        run_block<Ymm>(a, b, rows, channel, run, advance, columns, y);
      } else {
        run_block<Xmm>(a, b, rows, channel, run, advance, columns, y);
      }
    }
    if (run > 1) locator.skip(run - 1);
    pixel += run;
  }
}

}  // namespace hexforge
