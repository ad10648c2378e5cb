// SPDX-License-Identifier: Apache-2.0
// What every vector type of conv_tile.h has unless it has something better: how sums become results. Plain loops over
// 16 channels, one source for every instruction set.
#pragma once
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/conv.h"
#include "kernels/shared/vector.h"

namespace hexforge {
namespace {

struct PlainTile {
  static constexpr bool kWholeBlocks = false;
  static constexpr std::int64_t kPartSteps = 160;  // of one vector, which stay in a level-1 cache
  static constexpr bool kStoresRegisters = false, kReadsMemory = false, kHoldsColumns = false, kWidens = false;
  static constexpr bool kLowersInputs = false;  // bytes are taken as signed ones; see dotprod/conv.cpp

  // Fewer than 16 elements, by copies of sizes that are known: no call.
  template <class T>
  [[gnu::always_inline]] static void copy_some(T* to, const T* from, std::int64_t n) {
    std::int64_t at = 0;
    const auto piece = [&](auto count) __attribute__((always_inline)) {
      if (!(n & count)) return;
      std::memcpy(to + at, from + at, sizeof(T) * count);
      at += count;
    };
    piece(std::integral_constant<int, 8>());
    piece(std::integral_constant<int, 4>());
    piece(std::integral_constant<int, 2>());
    piece(std::integral_constant<int, 1>());
  }
  // 16 lanes, values(first lane) of each vector, of which a row has n.
  template <class T, class Values>
  [[gnu::always_inline]] static void store_lanes(T* row, std::int64_t n, const Values& values) {
    constexpr int kStep = sizeof(values(0)) / 4;
    if (n >= kLane) {
#pragma GCC unroll 8
      for (int l = 0; l < kLane; l += kStep) narrow(row + l, values(l));
    } else {
      T some[kLane];
#pragma GCC unroll 8
      for (int l = 0; l < kLane; l += kStep) narrow(some + l, values(l));
      copy_some(row, some, n);
    }
  }
  // Where 16 lanes of a row may be read: there, or a copy of the n that it has.
  template <class T>
  [[gnu::always_inline]] static const T* readable(const T* row, std::int64_t n, T (&some)[kLane]) {
    if (n >= kLane) return row;
    std::memset(some, 0, sizeof some);
    copy_some(some, row, n);
    return some;
  }
  // Steps less the zero point, clamped and rounded: in this order no NaN gets through.
  template <class V, class Real>
  [[gnu::always_inline]] static auto rounded(V steps, Real low, Real high) {
    const V least = V{} + low, most = V{} + high;
    steps = steps > least ? steps : least;
    steps = steps > most ? most : steps;
    return nearest_integers(steps);
  }

  // The sum of `taps` runs of n bytes.
  static std::int32_t sum_u8(const char* const* runs, std::int64_t taps, std::int64_t n) {
    Longs sums = {};
    std::int64_t total = 0;
    for (std::int64_t t = 0; t < taps; ++t) {
      const char* run = runs[t];
      std::int64_t i = 0;
      for (; i + kRegister <= n; i += kRegister) add_bytes(sums, run + i);
      if constexpr (kReadsSome) {
        if (i < n) add_some_bytes(sums, run + i, n - i);
      } else {
        for (; i < n; ++i) total += static_cast<std::uint8_t>(run[i]);
      }
    }
    std::int64_t parts[kRegister / 8];
    store(parts, sums);
    for (std::int64_t part : parts) total += part;
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
      store_lanes(row + j, lanes - j, [=](int l) __attribute__((always_inline)) {
        // Unsigned: the terms may wrap, the sum fits.
        using Unsigned = Vector<std::uint32_t, kRegister>;
        const Unsigned sum =
            load<Unsigned>(from + l) + load<Unsigned>(bias + l) + static_cast<std::uint32_t>(correction);
        const Reals steps = __builtin_convertvector((Integers)sum, Reals) * load<Reals>(multiplier + l);
        return rounded(steps, low, high) + zero;
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
        std::uint8_t some_x[kLane], some_y[kLane];
        const std::uint8_t* x = readable(row + j, lanes - j, some_x);
        const std::uint8_t* y = readable(other + j, lanes - j, some_y);
        store_lanes(row + j, lanes - j, [=](int l) __attribute__((always_inline)) {
          const Reals steps = __builtin_convertvector(widen(x + l) - own_zero, Reals) * own +
                              __builtin_convertvector(widen(y + l) - side_zero, Reals) * side;
          return rounded(steps, low, high) + zero;
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
      store_lanes(row + j, lanes - j, [=](int l) __attribute__((always_inline)) {
        const Doubles shift = doubles(load<Longs>(bias + l));
        const Doubles steps = (load<Doubles>(from + l) + shift) * load<Doubles>(multiplier + l);
        return rounded(steps, low, high) + zero;
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
      std::int16_t some_x[kLane], some_y[kLane];
      const std::int16_t* x = readable(row + j, lanes - j, some_x);
      const std::int16_t* y = readable(other + j, lanes - j, some_y);
      store_lanes(row + j, lanes - j, [=](int l) __attribute__((always_inline)) {
        const Doubles steps = doubles(widen(x + l) - own_zero) * own + doubles(widen(y + l) - side_zero) * side;
        return rounded(steps, low, high) + zero;
      });
    }
    for (std::int64_t j = 0; a.table16 && j < lanes; ++j) row[j] = a.table16[32768 + row[j]];
  }

  static void store_f32(const float* sums, const ConvArgs& a, std::int64_t channel, float* row, std::int64_t lanes,
                        const float* other) {
    const Reals low = Reals{} + a.low_f32, high = Reals{} + a.high_f32;
    const float* table = a.table_f32;
    const bool half = a.half;
    for (std::int64_t j = 0; j < lanes; j += kLane) {
      const float *from = sums + j, *bias = a.bias_f32 + channel + j;
      float some[kLane];
      const float* side = other ? readable(other + j, lanes - j, some) : nullptr;
      store_lanes(row + j, lanes - j, [=](int l) __attribute__((always_inline)) {
        Reals f = load<Reals>(from + l) + load<Reals>(bias + l);
        const auto clamped = [](Reals v, Reals least, Reals most) __attribute__((always_inline)) {
          v = v < least ? least : v;  // in this order NaN stays
          return v > most ? most : v;
        };
        if (side) {
          const Reals limit = Reals{} + kMatrixLimit;
          f = (half ? clamped(halves(f), -limit, limit) : f) + load<Reals>(side + l);
        }
        return table ? look_up_halves(table, clamped(f, low, high)) : clamped(half ? halves(f) : f, low, high);
      });
    }
  }
};

}  // namespace
}  // namespace hexforge
