// SPDX-License-Identifier: Apache-2.0
// 16 int32 lanes as plain C++: the definition the vector versions are compared with.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/conv.h"
#include "kernels/half.h"

namespace hexforge {
namespace {

// Wraps as the vector instructions do: with a file's weights that no lowering wrote a sum may leave 32 bits.
inline void add_to(std::int32_t& sum, std::int32_t term) {
  sum = static_cast<std::int32_t>(static_cast<std::uint32_t>(sum) + static_cast<std::uint32_t>(term));
}

struct Portable {
  struct Acc {
    std::int32_t lane[kLane];
  };
  using Weights = const char*;
  static constexpr bool kWholeBlocks = false;
  static constexpr std::int64_t kPartSteps = 160;  // of one vector, which stay in a level-1 cache
  static constexpr int kRows1 = 4;                 // pixels of a tile
  static constexpr bool kStoresRegisters = false, kReadsMemory = false, kHoldsColumns = false, kWidens = false;
  static void look_up(std::uint8_t* row, int rows, std::int64_t stride, std::int64_t lanes, const std::uint8_t* table) {
    for (int i = 0; i < rows; ++i, row += stride)
      for (std::int64_t j = 0; j < lanes; ++j) row[j] = table[row[j]];
  }

  template <class... Any>
  static void store_tile(Any&&...) {}  // never called: kStoresRegisters is false
  template <class... Any>
  static void store_tile_s16(Any&&...) {}
  template <class... Any>
  static void store_tile_f32(Any&&...) {}
  static Acc zero() { return {}; }
  static Acc resume(const float* sums) {
    Acc acc;
    std::memcpy(acc.lane, sums, sizeof acc.lane);
    return acc;
  }
  static Weights load(const char* p) { return p; }
  static const char* broadcast(const char* p) { return p; }
  static std::int32_t sum_u8(const char* const* runs, std::int64_t taps, std::int64_t n) {
    std::int32_t sum = 0;
    for (std::int64_t t = 0; t < taps; ++t)
      for (std::int64_t i = 0; i < n; ++i) sum += static_cast<std::uint8_t>(runs[t][i]);
    return sum;
  }
  template <int Bits>
  static void dot(Acc& acc, const char* x, Weights w) {
    if constexpr (Bits == 8) {
      for (int lane = 0; lane < kLane; ++lane)
        for (int k = 0; k < 4; ++k)
          add_to(acc.lane[lane], static_cast<std::uint8_t>(x[k]) * static_cast<std::int8_t>(w[lane * 4 + k]));
    } else if constexpr (Bits == 32) {
      float xs, ws[kLane], sums[kLane];
      std::memcpy(&xs, x, 4);
      std::memcpy(ws, w, sizeof ws);
      std::memcpy(sums, acc.lane, sizeof sums);
      for (int lane = 0; lane < kLane; ++lane) sums[lane] = __builtin_fmaf(xs, ws[lane], sums[lane]);
      std::memcpy(acc.lane, sums, sizeof sums);
    } else {
      std::int16_t xs[2], ws[2 * kLane];
      std::memcpy(xs, x, sizeof xs);
      std::memcpy(ws, w, sizeof ws);
      for (int lane = 0; lane < kLane; ++lane) {
        add_to(acc.lane[lane], xs[0] * ws[2 * lane]);
        add_to(acc.lane[lane], xs[1] * ws[2 * lane + 1]);
      }
    }
  }
  template <int Bits>
  static void multiply_add(Acc& acc, const char* x, const char* w, int lanes) {
    for (int lane = 0; lane < lanes; ++lane) {
      if constexpr (Bits == 32) {
        float xs, ws, sum;
        std::memcpy(&xs, x + 4 * lane, 4);
        std::memcpy(&ws, w + 4 * lane, 4);
        std::memcpy(&sum, &acc.lane[lane], 4);
        sum = __builtin_fmaf(xs, ws, sum);
        std::memcpy(&acc.lane[lane], &sum, 4);
      } else {
        std::int16_t value;
        std::int32_t weight;
        std::memcpy(&weight, w + 4 * lane, 4);
        if constexpr (Bits == 8) {
          value = static_cast<std::uint8_t>(x[lane]);
        } else {
          std::memcpy(&value, x + 2 * lane, 2);
        }
        add_to(acc.lane[lane], value * static_cast<std::int16_t>(weight));
      }
    }
  }
  static void spill(std::int32_t* p, const Acc& acc) { std::memcpy(p, acc.lane, sizeof acc.lane); }

  static void store_u8(const std::int32_t* sums, const ConvArgs& a, std::int64_t channel, std::int32_t correction,
                       std::uint8_t* row, std::int64_t lanes) {
    const float low = static_cast<float>(a.low - a.zero_point), high = static_cast<float>(a.high - a.zero_point);
    for (std::int64_t j = 0; j < lanes; ++j) {
      // Unsigned: the terms may wrap, the sum fits.
      const std::uint32_t sum = static_cast<std::uint32_t>(sums[j]) +
                                static_cast<std::uint32_t>(a.bias32[channel + j]) +
                                static_cast<std::uint32_t>(correction);
      const float f = static_cast<float>(static_cast<std::int32_t>(sum)) * a.multiplier32[channel + j];
      row[j] =
          static_cast<std::uint8_t>(static_cast<int>(std::nearbyint(std::min(std::max(f, low), high))) + a.zero_point);
    }
  }
  static void add_rows(std::uint8_t* row, int rows, std::int64_t lanes, const ConvArgs& a, const std::uint8_t* other) {
    const float low = static_cast<float>(a.sum_low - a.sum_zero), high = static_cast<float>(a.sum_high - a.sum_zero);
    for (int i = 0; i < rows; ++i, row += a.y_stride, other += a.residual_stride) {
      for (std::int64_t j = 0; j < lanes; ++j) {
        const float f = static_cast<float>(row[j] - a.zero_point) * a.own_scale +
                        static_cast<float>(other[j] - a.residual_zero) * a.residual_scale;
        row[j] =
            static_cast<std::uint8_t>(static_cast<int>(std::nearbyint(std::min(std::max(f, low), high))) + a.sum_zero);
      }
    }
  }
  static void store_s16(const double* sums, const ConvArgs& a, std::int64_t channel, std::int16_t* row,
                        std::int64_t lanes) {
    const double low = a.low - a.zero_point, high = a.high - a.zero_point;
    for (std::int64_t j = 0; j < lanes; ++j) {
      const double f = (sums[j] + static_cast<double>(a.bias[channel + j])) * a.multiplier[channel + j];
      row[j] =
          static_cast<std::int16_t>(static_cast<int>(std::nearbyint(std::min(std::max(f, low), high))) + a.zero_point);
    }
  }
  [[gnu::noinline]] static void finish_row16(const ConvArgs& a, std::int16_t* row, const std::int16_t* other,
                                             std::int64_t lanes) {
    const double low = a.sum_low - a.sum_zero, high = a.sum_high - a.sum_zero;
    for (std::int64_t j = 0; j < lanes; ++j) {
      if (other) {
        const double f =
            (row[j] - a.zero_point) * a.own_scale_f64 + (other[j] - a.residual_zero) * a.residual_scale_f64;
        row[j] =
            static_cast<std::int16_t>(static_cast<int>(std::nearbyint(std::min(std::max(f, low), high))) + a.sum_zero);
      }
      if (a.table16) row[j] = a.table16[32768 + row[j]];
    }
  }
  static void store_f32(const float* sums, const ConvArgs& a, std::int64_t channel, float* row, std::int64_t lanes,
                        const float* other) {
    for (std::int64_t j = 0; j < lanes; ++j) {
      float f = sums[j] + a.bias_f32[channel + j];
      if (other) f = (a.half ? to_half(f) : f) + other[j];
      f = f < a.low_f32 ? a.low_f32 : f;
      f = f > a.high_f32 ? a.high_f32 : f;
      row[j] = f;
    }
    if (a.table_f32) {
      for (std::int64_t j = 0; j < lanes; ++j) row[j] = a.table_f32[half_bits(row[j])];
    } else if (a.half) {
      round_to_half(row, row, lanes);
    }
  }
};
}  // namespace
}  // namespace hexforge
