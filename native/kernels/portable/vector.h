// SPDX-License-Identifier: Apache-2.0
// 16 int32 lanes as plain C++: the definition the vector versions are compared with.
#pragma once
#include <cstring>

#include "kernels/fused.h"
#include "kernels/shared/plain_tile.h"

namespace hexforge {
namespace {

// Wraps as the vector instructions do: with a file's weights that no lowering wrote a sum may leave 32 bits.
inline void add_to(std::int32_t& sum, std::int32_t term) {
  sum = static_cast<std::int32_t>(static_cast<std::uint32_t>(sum) + static_cast<std::uint32_t>(term));
}

struct Portable : PlainTile {
  struct Acc {
    std::int32_t lane[kLane];
  };
  using Weights = const char*;
  static constexpr int kRows1 = 4;  // pixels of a tile

  static Acc zero() { return {}; }
  static Acc resume(const float* sums) {
    Acc acc;
    std::memcpy(acc.lane, sums, sizeof acc.lane);
    return acc;
  }
  static Weights load(const char* p) { return p; }
  static const char* broadcast(const char* p) { return p; }
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
      for (int lane = 0; lane < kLane; ++lane) sums[lane] = fused_multiply_add(xs, ws[lane], sums[lane]);
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
        sum = fused_multiply_add(xs, ws, sum);
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
};
}  // namespace
}  // namespace hexforge
