// SPDX-License-Identifier: Apache-2.0
// 16 int32 lanes in four registers of NEON, which every 64-bit ARM has. Bytes are widened: their products are exact in
// 16 bits times 16 bits.
#pragma once
#include <arm_neon.h>

#include <cstring>

#include "kernels/shared/plain_tile.h"

namespace hexforge {
namespace {

struct Neon : PlainTile {
  struct Acc {
    int32x4_t part[4];
  };
  using Weights = Acc;
  static constexpr int kRows1 = 4;  // sixteen sums, four of weights, one of x, the others for products
  static constexpr bool kWidens = true;

  static Acc zero() { return {}; }
  static Weights load(const char* p) {
    Weights w;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) w.part[i] = vreinterpretq_s32_s8(vld1q_s8(reinterpret_cast<const int8_t*>(p) + 16 * i));
    return w;
  }
  static Acc resume(const float* sums) { return load(reinterpret_cast<const char*>(sums)); }
  // 16 float16 numbers as float32, or 32 bytes as 16 bits.
  template <int Bits>
  static Weights load_half(const char* p) {
    Weights w;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const int8x8_t narrow = vld1_s8(reinterpret_cast<const int8_t*>(p) + 8 * i);
      if constexpr (Bits == 32) {
        w.part[i] = vreinterpretq_s32_f32(vcvt_f32_f16(vreinterpret_f16_s8(narrow)));
      } else {
        w.part[i] = vreinterpretq_s32_s16(vmovl_s8(narrow));
      }
    }
    return w;
  }
  static int32x4_t broadcast(const char* p) {
    std::int32_t v;
    std::memcpy(&v, p, 4);
    return vdupq_n_s32(v);
  }
  template <int Bits>
  static void dot(Acc& acc, int32x4_t x, const Weights& w) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      if constexpr (Bits == 32) {
        acc.part[i] = vreinterpretq_s32_f32(
            vfmaq_f32(vreinterpretq_f32_s32(acc.part[i]), vreinterpretq_f32_s32(x), vreinterpretq_f32_s32(w.part[i])));
      } else if constexpr (Bits == 16) {
        acc.part[i] =
            vaddq_s32(acc.part[i], products_of_pairs(vreinterpretq_s16_s32(x), vreinterpretq_s16_s32(w.part[i])));
      } else {
        const int16x8_t wide = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(vreinterpretq_u8_s32(x))));
        const int8x16_t bytes = vreinterpretq_s8_s32(w.part[i]);
        const int32x4_t low = products_of_pairs(wide, vmovl_s8(vget_low_s8(bytes)));
        const int32x4_t high = products_of_pairs(wide, vmovl_high_s8(bytes));
        acc.part[i] = vaddq_s32(acc.part[i], vpaddq_s32(low, high));
      }
    }
  }
  // One tap of a depthwise convolution: weights of 16 bits in lanes of 32.
  template <int Bits>
  static void multiply_add(Acc& acc, const char* x, const char* w, int lanes) {
    char some[4 * kLane] = {};
    if (lanes < kLane) x = static_cast<const char*>(std::memcpy(some, x, static_cast<std::size_t>(lanes) * Bits / 8));
    const Weights weights = load(w);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      if constexpr (Bits == 32) {
        const float32x4_t value = vreinterpretq_f32_s8(vld1q_s8(reinterpret_cast<const int8_t*>(x) + 16 * i));
        acc.part[i] = vreinterpretq_s32_f32(
            vfmaq_f32(vreinterpretq_f32_s32(acc.part[i]), value, vreinterpretq_f32_s32(weights.part[i])));
      } else {
        const int8x8_t narrow = vld1_s8(reinterpret_cast<const int8_t*>(x) + (Bits == 8 ? i / 2 : i) * 8);
        int16x4_t value = vreinterpret_s16_s8(narrow);
        if constexpr (Bits == 8) {
          const int16x8_t wide = vreinterpretq_s16_u16(vmovl_u8(vreinterpret_u8_s8(narrow)));
          value = i % 2 ? vget_high_s16(wide) : vget_low_s16(wide);
        }
        acc.part[i] = vmlal_s16(acc.part[i], value, vmovn_s32(weights.part[i]));
      }
    }
  }
  static void spill(std::int32_t* p, const Acc& acc) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) vst1q_s32(p + 4 * i, acc.part[i]);
  }

 private:
  // x0 * w0 + x1 * w1, x2 * w2 + x3 * w3, ...
  static int32x4_t products_of_pairs(int16x8_t x, int16x8_t w) {
    return vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(w)), vmull_high_s16(x, w));
  }
};

}  // namespace
}  // namespace hexforge
