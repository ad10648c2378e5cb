// SPDX-License-Identifier: Apache-2.0
// The loops of loops.h. Included by one file per instruction set, inside its own namespace.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/half.h"
#include "kernels/loops.h"

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
    if (bounds.half) round_to_half(out, out, count);
  }
}

void binary_f32(Binary op, const Bounds& bounds, const float* a, int step_a, const float* b, int step_b, float* y,
                std::int64_t n) {
  const auto run = [&](auto operation) { binary_rows_f32(bounds, a, step_a, b, step_b, y, n, operation); };
  switch (op) {
    case Binary::add: run([](float a, float b) { return a + b; }); break;
    case Binary::subtract: run([](float a, float b) { return a - b; }); break;
    case Binary::multiply: run([](float a, float b) { return a * b; }); break;
    case Binary::divide: run([](float a, float b) { return a / b; }); break;
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

// The greatest of every channel of a piece, or the first NaN; how many channels are left is what shorter pieces are
// for.
template <class T, int Bytes>
std::int64_t max_pieces(const T* const* rows, std::int64_t count, std::int64_t c, std::int64_t channels, T* y) {
  typedef T Piece __attribute__((vector_size(Bytes)));
  constexpr std::int64_t kPiece = Bytes / sizeof(T);
  for (; c + kPiece <= channels; c += kPiece) {
    Piece best, row;
    std::memcpy(&best, rows[0] + c, Bytes);
    for (std::int64_t r = 1; r < count; ++r) {
      std::memcpy(&row, rows[r] + c, Bytes);
      if constexpr (std::is_floating_point_v<T>) {
        best = (row > best) | (row != row) ? row : best;
      } else {
        best = row > best ? row : best;
      }
    }
    std::memcpy(y + c, &best, Bytes);
  }
  return c;
}

template <class T>
void max_rows(const T* const* rows, std::int64_t count, std::int64_t channels, T* y) {
  std::int64_t c = max_pieces<T, 64>(rows, count, 0, channels, y);
  c = max_pieces<T, 16>(rows, count, c, channels, y);
  for (; c < channels; ++c) {
    T best = rows[0][c];
    for (std::int64_t r = 1; r < count; ++r) best = rows[r][c] > best || rows[r][c] != rows[r][c] ? rows[r][c] : best;
    y[c] = best;
  }
}

template <class Real, class Q>
void mean_rows(const Q* const* rows, std::int64_t count, std::int64_t channels, const Affine& k, Q* y) {
  constexpr std::int64_t kChunk = 256;
  const Real factor = static_cast<Real>(k.a);
  const Real low = static_cast<Real>(k.low - k.zero), high = static_cast<Real>(k.high - k.zero);
  const std::int32_t offset = static_cast<std::int32_t>(count) * k.zero_a, zero = k.zero;
  for (std::int64_t c0 = 0; c0 < channels; c0 += kChunk) {
    const std::int64_t n = channels - c0 < kChunk ? channels - c0 : kChunk;
    std::int32_t sums[kChunk];
    for (std::int64_t c = 0; c < n; ++c) sums[c] = -offset;
    for (std::int64_t r = 0; r < count; ++r) {
      const Q* row = rows[r] + c0;
      for (std::int64_t c = 0; c < n; ++c) sums[c] += row[c];
    }
    for (std::int64_t c = 0; c < n; ++c) {
      y[c0 + c] = round_and_clamp<Real, Q>(static_cast<Real>(sums[c]) * factor, low, high, zero);
    }
  }
}

template <class Q>
void softmax(const Q* x, std::int64_t n, const std::uint32_t* table, double scale, std::int32_t zero, std::int32_t low,
             std::int32_t high, Q* y) {
  Q most = x[0];
  for (std::int64_t i = 1; i < n; ++i) most = x[i] > most ? x[i] : most;
  std::uint64_t sum = 0;
  const double least = low - zero, greatest = high - zero;
  for (std::int64_t i = 0; i < n; ++i) sum += table[most - x[i]];
  const double factor = scale / static_cast<double>(sum);
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = round_and_clamp<double, Q>(static_cast<double>(table[most - x[i]]) * factor, least, greatest, zero);
  }
}

template <class Q>
void moments(const Q* x, std::int64_t n, std::int64_t* sum, std::int64_t* squares) {
  std::int64_t s = 0, q = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t v = x[i];
    s += v;
    q += v * v;
  }
  *sum += s;
  *squares += q;
}

template <class Q>
void channel_moments(const Q* x, std::int64_t n, std::int64_t* sum, std::int64_t* squares) {
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t v = x[i];
    sum[i] += v;
    squares[i] += v * v;
  }
}

template <class Q>
void normalize(const Q* x, std::int64_t n, const double* mean, const double* factor, int step, const double* gamma,
               const double* beta, const Affine& k, Q* y) {
  const double low = k.low - k.zero, high = k.high - k.zero;
  const std::int32_t zero = k.zero;
  if (step) {
    for (std::int64_t i = 0; i < n; ++i) {
      y[i] = round_and_clamp<double, Q>((x[i] - mean[i]) * factor[i] * gamma[i] + beta[i], low, high, zero);
    }
  } else {
    const double m = mean[0], f = factor[0];
    for (std::int64_t i = 0; i < n; ++i) {
      y[i] = round_and_clamp<double, Q>((x[i] - m) * f * gamma[i] + beta[i], low, high, zero);
    }
  }
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

void mean_f32(const float* const* rows, std::int64_t count, std::int64_t channels, float divisor, float* y) {
  for (std::int64_t c = 0; c < channels; ++c) y[c] = 0.0f;
  for (std::int64_t r = 0; r < count; ++r) {
    const float* row = rows[r];
    for (std::int64_t c = 0; c < channels; ++c) y[c] += row[c];
  }
  for (std::int64_t c = 0; c < channels; ++c) y[c] /= divisor;
  round_to_half(y, y, channels);
}

void softmax_f32(const float* x, std::int64_t n, const float* exponentials, float* y) {
  float most = x[0];
  for (std::int64_t i = 1; i < n; ++i) most = x[i] > most ? x[i] : most;
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] - most;
  table_f32(y, exponentials, y, n);
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += y[i];
  for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(y[i] / sum);
  round_to_half(y, y, n);
}

void normalize_f32(const float* x, std::int64_t n, double mean, double factor, const float* gamma, const float* beta,
                   float* y) {
  for (std::int64_t i = 0; i < n; ++i) { y[i] = static_cast<float>((x[i] - mean) * factor * gamma[i] + beta[i]); }
  round_to_half(y, y, n);
}

void round_half(const float* x, float* y, std::int64_t n) { round_to_half(x, y, n); }
void widen_half(const std::uint16_t* x, float* y, std::int64_t n) { widen_halves(x, y, n); }
void narrow_half(const float* x, std::uint16_t* y, std::int64_t n) { to_half_bits(x, y, n); }
void widen_bytes(const std::int8_t* x, std::int16_t* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i];
}

constexpr Loops loops_here(decltype(Loops::table_u8) table_u8 = table<std::uint8_t, std::uint8_t>) {
  return {binary<float, std::uint8_t>,
          binary<double, std::int16_t>,
          binary_f32,
          table_u8,
          table<std::uint8_t, std::int16_t>,
          table<std::int16_t, std::int16_t>,
          table<std::int16_t, std::uint8_t>,
          quantize<std::uint8_t>,
          quantize<std::int16_t>,
          dequantize<std::uint8_t>,
          dequantize<std::int16_t>,
          max_rows<std::uint8_t>,
          max_rows<std::int16_t>,
          max_rows<float>,
          mean_rows<float, std::uint8_t>,
          mean_rows<double, std::int16_t>,
          softmax<std::uint8_t>,
          softmax<std::int16_t>,
          moments<std::uint8_t>,
          moments<std::int16_t>,
          channel_moments<std::uint8_t>,
          channel_moments<std::int16_t>,
          normalize<std::uint8_t>,
          normalize<std::int16_t>,
          table_f32,
          mean_f32,
          softmax_f32,
          normalize_f32,
          round_half,
          widen_half,
          narrow_half,
          widen_bytes};
}

}  // namespace
}  // namespace hexforge
