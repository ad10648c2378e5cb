// SPDX-License-Identifier: Apache-2.0
// Loops of resize and RoiAlign: rows blended, columns blended, results rounded. One source for every instruction set.
#pragma once
#include <type_traits>

#include "kernels/loops.h"

namespace hexforge {
namespace {

// acc = (row - zero) * weight, or acc += that.
template <class T, class Real>
void blend(const T* row, Real zero, Real weight, bool first, Real* acc, std::int64_t n) {
  if (first) {
    for (std::int64_t i = 0; i < n; ++i) acc[i] = (static_cast<Real>(row[i]) - zero) * weight;
  } else {
    for (std::int64_t i = 0; i < n; ++i) acc[i] += (static_cast<Real>(row[i]) - zero) * weight;
  }
}

// y[i] = the sum over taps of line[index[tap][i]] * weight[tap][i].
template <class Real>
void across(const Real* line, const std::int32_t* index, const Real* weight, std::int64_t taps, Real* y,
            std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = line[index[i]] * weight[i];
  for (std::int64_t t = 1; t < taps; ++t) {
    const std::int32_t* at = index + t * n;
    const Real* w = weight + t * n;
    for (std::int64_t i = 0; i < n; ++i) y[i] += line[at[i]] * w[i];
  }
}

// Saturated, rounded to nearest even (two additions, exact below 2^22 and 2^51), zero point added.
template <class T, class Real>
void round_row(const Real* x, Real scale, Real low, Real high, std::int32_t zero, T* y, std::int64_t n) {
  const Real magic = sizeof(Real) == 4 ? static_cast<Real>(12582912.0) : static_cast<Real>(6755399441055744.0);
  for (std::int64_t i = 0; i < n; ++i) {
    Real steps = x[i] * scale;
    steps = steps < low ? low : steps;
    steps = steps > high ? high : steps;
    y[i] = static_cast<T>(static_cast<std::int32_t>((steps + magic) - magic) + zero);
  }
}

template <class T, class Real>
constexpr ResizeLoops<T, Real> resize() {
  return {blend<T, Real>, blend<Real, Real>, across<Real>, round_row<T, Real>};
}

}  // namespace
}  // namespace hexforge
