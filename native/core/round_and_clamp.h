// SPDX-License-Identifier: Apache-2.0
// What the plain (bandwidth-bound) steps share: the final rounding, and the attributes that describe it.
#pragma once
#include <cstdint>

#include "core/program.h"
#include "kernels/half.h"

namespace hexforge {
namespace {

// How a fixed-point result is written.
struct Target {
  std::int32_t zero = 0;
  double low = 0, high = 0;  // less the zero point

  explicit Target(const Attributes& at)
      : zero(at.small("zero_point")),
        low(static_cast<double>(at.small("low") - at.small("zero_point"))),
        high(static_cast<double>(at.small("high") - at.small("zero_point"))) {}
  Target() = default;

  // Saturated, then rounded to the nearest integer, ties to even; NaN is the lowest.
  template <class Q>
  Q round_and_clamp(double steps) const {
    steps = steps == steps ? steps : low;
    steps = steps < low ? low : steps;
    steps = steps > high ? high : steps;
    return static_cast<Q>(static_cast<std::int32_t>((steps + 6755399441055744.0) - 6755399441055744.0) + zero);
  }
};

// A float result: float64, to float32, to float16.
inline float narrow_to_half(double value) { return to_half(static_cast<float>(value)); }

// Throws unless there are so many tensors.
inline void require_operands(std::span<const Tensor> ins, std::size_t in_count, std::span<const Tensor> outs,
                             std::size_t out_count, const char* what) {
  if (ins.size() != in_count || outs.size() != out_count) {
    throw std::invalid_argument(std::string(what) + ": wrong number of tensors");
  }
}

inline void require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

}  // namespace
}  // namespace hexforge
