// SPDX-License-Identifier: Apache-2.0
// What every vector type of conv_tile.h has unless it has something better: how sums become results. Plain loops over
// 16 channels, one source for every instruction set.
#pragma once
#include <algorithm>
#include <cstring>

#include "kernels/conv.h"
#include "kernels/half.h"
#include "kernels/shared/rounding.h"
#include "kernels/shared/vector.h"

namespace hexforge {
namespace {

struct PlainTile {
  static constexpr bool kWholeBlocks = false;
  static constexpr std::int64_t kPartSteps = 160;  // of one vector, which stay in a level-1 cache
  static constexpr bool kStoresRegisters = false, kReadsMemory = false, kHoldsColumns = false, kWidens = false;

  // row[j] = lane(j) for the first n of 16 lanes. Of a size that is known the copy is no call.
  template <class T, class Lane>
  [[gnu::always_inline]] static void store_lanes(T* row, std::int64_t n, const Lane& lane) {
    T results[kLane];
    for (int l = 0; l < kLane; ++l) results[l] = lane(l);
    if (n >= kLane) {
      std::memcpy(row, results, sizeof results);
    } else {
      std::memcpy(row, results, static_cast<std::size_t>(n) * sizeof(T));
    }
  }
  // 16 values, or n and whatever: rows of others' channels end where they end.
  template <class T>
  [[gnu::always_inline]] static void load_lanes(const T* row, std::int64_t n, T (&values)[kLane]) {
    if (n >= kLane) {
      std::memcpy(values, row, sizeof values);
    } else {
      std::memset(values, 0, sizeof values);
      std::memcpy(values, row, static_cast<std::size_t>(n) * sizeof(T));
    }
  }

  // The sum of `taps` runs of n bytes: of even and odd ones apart, in 16 bits as long as those suffice.
  static std::int32_t sum_u8(const char* const* runs, std::int64_t taps, std::int64_t n) {
    using Words = Vector<std::uint16_t, kRegister>;
    constexpr int kMostTurns = 128;  // of at most 2 * 255 each
    Words sums = {};
    std::int64_t total = 0;
    int turns = 0;
    const auto empty = [&] {
      for (int l = 0; l < kRegister / 2; ++l) total += sums[l];
      sums = Words{};
      turns = 0;
    };
    const auto add = [&](Words v) {
      sums += (v & 255) + (v >> 8);
      if (++turns == kMostTurns) empty();
    };
    for (std::int64_t t = 0; t < taps; ++t) {
      const char* run = runs[t];
      std::int64_t i = 0;
      for (; i + kRegister <= n; i += kRegister) add(load<Words>(run + i));
      if (i < n) {
        char rest[kRegister] = {};
        std::memcpy(rest, run + i, static_cast<std::size_t>(n - i));
        add(load<Words>(rest));
      }
    }
    empty();
    return static_cast<std::int32_t>(total);
  }

  static void look_up(std::uint8_t* row, int rows, std::int64_t stride, std::int64_t lanes, const std::uint8_t* table) {
    for (int i = 0; i < rows; ++i, row += stride) {
      for (std::int64_t j = 0; j < lanes; ++j) row[j] = table[row[j]];
    }
  }

  static void store_u8(const std::int32_t* sums, const ConvArgs& a, std::int64_t channel, std::int32_t correction,
                       std::uint8_t* row, std::int64_t lanes) {
    const float low = static_cast<float>(a.low - a.zero_point), high = static_cast<float>(a.high - a.zero_point);
    const std::int32_t zero = a.zero_point;
    for (std::int64_t j = 0; j < lanes; j += kLane) {
      const std::int32_t *from = sums + j, *bias = a.bias32 + channel + j;
      const float* multiplier = a.multiplier32 + channel + j;
      store_lanes(row + j, lanes - j, [=](int l) {
        // Unsigned: the terms may wrap, the sum fits.
        const std::uint32_t sum = static_cast<std::uint32_t>(from[l]) + static_cast<std::uint32_t>(bias[l]) +
                                  static_cast<std::uint32_t>(correction);
        const float steps = static_cast<float>(static_cast<std::int32_t>(sum)) * multiplier[l];
        return round_and_clamp<float, std::uint8_t>(steps, low, high, zero);
      });
    }
  }

  // row = round_and_clamp((row - zero) * own_scale + (other - zero) * residual_scale) for rows just stored.
  static void add_rows(std::uint8_t* row, int rows, std::int64_t lanes, const ConvArgs& a, const std::uint8_t* other) {
    const float low = static_cast<float>(a.sum_low - a.sum_zero), high = static_cast<float>(a.sum_high - a.sum_zero);
    const float own = a.own_scale, side = a.residual_scale;
    const std::int32_t own_zero = a.zero_point, side_zero = a.residual_zero, zero = a.sum_zero;
    for (int i = 0; i < rows; ++i, row += a.y_stride, other += a.residual_stride) {
      for (std::int64_t j = 0; j < lanes; j += kLane) {
        std::uint8_t x[kLane], y[kLane];
        load_lanes(row + j, lanes - j, x);
        load_lanes(other + j, lanes - j, y);
        store_lanes(row + j, lanes - j, [&](int l) {
          const float steps = static_cast<float>(x[l] - own_zero) * own + static_cast<float>(y[l] - side_zero) * side;
          return round_and_clamp<float, std::uint8_t>(steps, low, high, zero);
        });
      }
    }
  }

  static void store_s16(const double* sums, const ConvArgs& a, std::int64_t channel, std::int16_t* row,
                        std::int64_t lanes) {
    const double low = a.low - a.zero_point, high = a.high - a.zero_point;
    const std::int32_t zero = a.zero_point;
    for (std::int64_t j = 0; j < lanes; j += kLane) {
      const double *from = sums + j, *multiplier = a.multiplier + channel + j;
      const std::int64_t* bias = a.bias + channel + j;
      store_lanes(row + j, lanes - j, [=](int l) {
        const double steps = (from[l] + static_cast<double>(bias[l])) * multiplier[l];
        return round_and_clamp<double, std::int16_t>(steps, low, high, zero);
      });
    }
  }

  // What follows the rounding of a row just stored: a residual where there is one, then a table where there is one.
  [[gnu::noinline]] static void finish_row16(const ConvArgs& a, std::int16_t* row, const std::int16_t* other,
                                             std::int64_t lanes) {
    const double low = a.sum_low - a.sum_zero, high = a.sum_high - a.sum_zero;
    const double own = a.own_scale_f64, side = a.residual_scale_f64;
    const std::int32_t own_zero = a.zero_point, side_zero = a.residual_zero, zero = a.sum_zero;
    for (std::int64_t j = 0; other && j < lanes; j += kLane) {
      std::int16_t x[kLane], y[kLane];
      load_lanes(row + j, lanes - j, x);
      load_lanes(other + j, lanes - j, y);
      store_lanes(row + j, lanes - j, [&](int l) {
        const double steps = (x[l] - own_zero) * own + (y[l] - side_zero) * side;
        return round_and_clamp<double, std::int16_t>(steps, low, high, zero);
      });
    }
    for (std::int64_t j = 0; a.table16 && j < lanes; ++j) row[j] = a.table16[32768 + row[j]];
  }

  static void store_f32(const float* sums, const ConvArgs& a, std::int64_t channel, float* row, std::int64_t lanes,
                        const float* other) {
    const float low = a.low_f32, high = a.high_f32;
    for (std::int64_t j = 0; j < lanes; j += kLane) {
      const float* bias = a.bias_f32 + channel + j;
      float f[kLane];
      for (int l = 0; l < kLane; ++l) f[l] = sums[j + l] + bias[l];
      if (other) {
        float y[kLane];
        load_lanes(other + j, lanes - j, y);
        if (a.half) round_to_half(f, f, kLane);
        for (int l = 0; l < kLane; ++l) f[l] += y[l];
      }
      for (int l = 0; l < kLane; ++l) {  // in this order NaN stays
        const float v = f[l] < low ? low : f[l];
        f[l] = v > high ? high : v;
      }
      if (a.table_f32) {
        std::uint16_t patterns[kLane];
        to_half_bits(f, patterns, kLane);
        for (int l = 0; l < kLane; ++l) f[l] = a.table_f32[patterns[l]];
      } else if (a.half) {
        round_to_half(f, f, kLane);
      }
      store_lanes(row + j, lanes - j, [&](int l) { return f[l]; });
    }
  }
};

}  // namespace
}  // namespace hexforge
