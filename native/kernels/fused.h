// SPDX-License-Identifier: Apache-2.0
// a * b + c rounded once: the compiler's, but for mingw-w64, whose library rounds twice where the processor has no FMA.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace hexforge {
namespace {  // each instruction set has its own

[[maybe_unused]] inline float fused_multiply_add(float a, float b, float c) {
#if defined(__MINGW32__) && !defined(__FMA__)
  const double product = static_cast<double>(a) * b, sum = product + c;  // the product is exact
  const double added = sum - product, lost = (product - (sum - added)) + (c - added);
  if (lost == 0 || !std::isfinite(sum)) return static_cast<float>(sum);
  // To odd: what was lost decides the second rounding only where the sum would be a tie.
  std::uint64_t bits = std::bit_cast<std::uint64_t>(sum);
  if (!(bits & 1)) bits += (lost > 0) == (sum > 0) ? 1 : -1;
  return static_cast<float>(std::bit_cast<double>(bits));
#else
  return __builtin_fmaf(a, b, c);
#endif
}

}  // namespace
}  // namespace hexforge
