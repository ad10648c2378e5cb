// SPDX-License-Identifier: Apache-2.0
// Results rounded and clamped to what is stored, by operations that every instruction set vectorises.
#pragma once
#include <cstdint>

namespace hexforge {
namespace {

// Nearest integer, ties to even, of |x| < 2^22 (float) or 2^51 (double): two additions that vectorise everywhere.
inline float nearest(float x) { return (x + 12582912.0f) - 12582912.0f; }
inline double nearest(double x) { return (x + 6755399441055744.0) - 6755399441055744.0; }

template <class Real, class Q>
inline Q round_and_clamp(Real steps, Real low, Real high, std::int32_t zero) {
  steps = steps > low ? steps : low;  // in this order no NaN gets through: an integer of it is undefined
  steps = steps > high ? high : steps;
  return static_cast<Q>(static_cast<std::int32_t>(nearest(steps)) + zero);
}

}  // namespace
}  // namespace hexforge
