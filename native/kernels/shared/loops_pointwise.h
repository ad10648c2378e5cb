// SPDX-License-Identifier: Apache-2.0
// Pointwise loops: arithmetic, tables, conversions. One source for every instruction set.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/half.h"
#include "kernels/loops.h"
#include "kernels/shared/rounding.h"

namespace hexforge {
namespace {

template <class Real, class Q, class Operation>
void binary_rows(const Affine& k, const Q* __restrict a, int step_a, const Q* __restrict b, int step_b, Q* __restrict y,
                 std::int64_t n, Operation operation) {
  const Real ka = static_cast<Real>(k.a), kb = static_cast<Real>(k.b);
  const Real low = static_cast<Real>(k.low - k.zero), high = static_cast<Real>(k.high - k.zero);
  // By value: a store through Q* could otherwise be taken to change `k`.
  const std::int32_t zero_a = k.zero_a, zero_b = k.zero_b, zero = k.zero;
  const auto one = [=](Q qa, Q qb) {
    const Real ra = static_cast<Real>(qa - zero_a), rb = static_cast<Real>(qb - zero_b);
    return round_and_clamp<Real, Q>(operation(ra, rb, ka, kb), low, high, zero);
  };
  if (step_a && step_b) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = one(a[i], b[i]);
  } else if (step_a) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = one(a[i], b[0]);
  } else if (step_b) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = one(a[0], b[i]);
  } else {
    std::fill(y, y + n, one(a[0], b[0]));
  }
}

template <class Real, class Q>
void binary(Binary op, const Affine& k, const Q* a, int step_a, const Q* b, int step_b, Q* y, std::int64_t n) {
  const auto run = [&](auto operation) { binary_rows<Real>(k, a, step_a, b, step_b, y, n, operation); };
  switch (op) {
    case Binary::add: run([](Real a, Real b, Real ka, Real kb) { return a * ka + b * kb; }); break;
    case Binary::subtract: run([](Real a, Real b, Real ka, Real kb) { return a * ka - b * kb; }); break;
    case Binary::multiply: run([](Real a, Real b, Real ka, Real) { return (a * b) * ka; }); break;
    case Binary::divide:
      run([](Real a, Real b, Real ka, Real) {
        return b == 0 ? (a == 0 ? Real(-1e30) : a * Real(1e30)) : (a / b) * ka;
      });
      break;
    case Binary::maximum: run([](Real a, Real b, Real ka, Real kb) { return std::max(a * ka, b * kb); }); break;
    default: run([](Real a, Real b, Real ka, Real kb) { return std::min(a * ka, b * kb); }); break;
  }
}

template <class Operation>
void binary_rows_f32(const Bounds& bounds, const float* a, int step_a, const float* b, int step_b, float* y,
                     std::int64_t n, Operation operation) {
  const bool clamps = bounds.low != -INFINITY || bounds.high != INFINITY;
  const float low = bounds.low, high = bounds.high;
  constexpr std::int64_t kChunk = 1024;  // stays in the cache between the passes over it
  for (std::int64_t i0 = 0; i0 < n; i0 += kChunk) {
    const std::int64_t count = n - i0 < kChunk ? n - i0 : kChunk;
    const float *pa = step_a ? a + i0 : a, *pb = step_b ? b + i0 : b;
    float* out = y + i0;
    if (step_a && step_b) {
      for (std::int64_t i = 0; i < count; ++i) out[i] = operation(pa[i], pb[i]);
    } else {
      for (std::int64_t i = 0; i < count; ++i) out[i] = operation(pa[step_a ? i : 0], pb[step_b ? i : 0]);
    }
    if (clamps) {
      for (std::int64_t i = 0; i < count; ++i) {
        const float v = out[i] < low ? low : out[i];
        out[i] = v > high ? high : v;
      }
    }
    if (bounds.half == HalfRounding::vector) round_to_half(out, out, count);
    if (bounds.half == HalfRounding::matrix) round_to_matrix_half(out, out, count);
  }
}

void binary_f32(Binary op, const Bounds& bounds, const float* a, int step_a, const float* b, int step_b, float* y,
                std::int64_t n) {
  const auto run = [&](auto operation) { binary_rows_f32(bounds, a, step_a, b, step_b, y, n, operation); };
  switch (op) {
    case Binary::add: run([](float a, float b) { return a + b; }); break;
    case Binary::subtract: run([](float a, float b) { return a - b; }); break;
    case Binary::multiply: run([](float a, float b) { return a * b; }); break;
    case Binary::divide:  // 1 / 0 is 65504
      run([](float a, float b) { return b == 0 ? a * std::copysign(65504.0f, b) : a / b; });
      break;
    case Binary::maximum: run([](float a, float b) { return a != a || a > b ? a : b; }); break;
    default: run([](float a, float b) { return a != a || a < b ? a : b; }); break;
  }
}

template <class In, class Out>
void table(const In* x, const Out* entries, Out* y, std::int64_t n) {
  // 16-bit inputs are signed: their table starts at -32768.
  const Out* zero = std::is_signed_v<In> ? entries + 32768 : entries;
  for (std::int64_t i = 0; i < n; ++i) y[i] = zero[x[i]];
}

template <class Q>
void quantize(const float* x, float scale, std::int32_t zero, std::int32_t low, std::int32_t high, Q* y,
              std::int64_t n) {
  const float least = static_cast<float>(low - zero), most = static_cast<float>(high - zero);
  for (std::int64_t i = 0; i < n; ++i) {
    float steps = x[i] / scale;
    steps = steps == steps ? steps : least;
    y[i] = round_and_clamp<float, Q>(steps, least, most, zero);
  }
}

template <class Q>
void dequantize(const Q* x, float scale, std::int32_t zero, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i] - zero) * scale;
}

void table_f32(const float* x, const float* entries, float* y, std::int64_t n) {
  constexpr std::int64_t kChunk = 256;
  std::uint16_t bits[kChunk];
  for (std::int64_t i = 0; i < n; i += kChunk) {
    const std::int64_t count = n - i < kChunk ? n - i : kChunk;
    to_half_bits(x + i, bits, count);
    for (std::int64_t j = 0; j < count; ++j) y[i + j] = entries[bits[j]];
  }
}

void piecewise_f32(const float* x, const Piecewise& k, float* y, std::int64_t n) {
  constexpr std::int64_t kChunk = 1024;
  const float below = k.below, above = k.above, low = k.low, high = k.high;
  const bool plain = below == 1.0f && above == 1.0f;  // bounds are halves: the result is one
  for (std::int64_t from = 0; from < n; from += kChunk) {
    const std::int64_t count = n - from < kChunk ? n - from : kChunk;
    float* out = y + from;
    round_to_half(x + from, out, count);
    for (std::int64_t i = 0; i < count; ++i) {
      const float v = out[i] * (out[i] < 0.0f ? below : above), least = v > low ? v : low;
      out[i] = least > high ? high : least;
    }
    if (!plain) round_to_half(out, out, count);
  }
}

void round_half(const float* x, float* y, std::int64_t n) { round_to_half(x, y, n); }
void widen_half(const std::uint16_t* x, float* y, std::int64_t n) { widen_halves(x, y, n); }
void narrow_half(const float* x, std::uint16_t* y, std::int64_t n) { to_half_bits(x, y, n); }
void narrow_matrix_half(const float* x, std::uint16_t* y, std::int64_t n) { to_matrix_half_bits(x, y, n); }
void widen_bytes(const std::int8_t* x, std::int16_t* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i];
}

}  // namespace
}  // namespace hexforge
