// SPDX-License-Identifier: Apache-2.0
// The loops of observe.h, compiled once for each instruction set (CMakeLists.txt).
#include <cfloat>
#include <initializer_list>
#include <limits>

#include "kernels/observe.h"
#include "kernels/shared/vector.h"

namespace hexforge {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The rest of a row, filled up with a value.
inline Reals load_some(const float* x, std::int64_t n, float fill) {
  float padded[kLanes];
  for (int i = 0; i < kLanes; ++i) padded[i] = i < n ? x[i] : fill;
  return load<Reals>(padded);
}

struct Lanes {
  Reals low = Reals{} + kInfinity, high = Reals{} - kInfinity;
  Integers zeros{}, nonfinite{};

  void add(Reals x) {
    const Integers above = x >= -FLT_MAX, below = x <= FLT_MAX;  // false for NaN
    low = ((x < low) & above) ? x : low;
    high = ((x > high) & below) ? x : high;
    zeros -= x == 0.0f;
    nonfinite -= ~(above & below);
  }
};

Extent scan(const float* x, std::int64_t n) {
  Extent found{kInfinity, -kInfinity};
  constexpr std::int64_t kChunk = std::int64_t{1} << 30;  // lanes count in 32 bits
  for (; n > 0; x += kChunk, n -= kChunk) {
    Lanes a, b;
    const std::int64_t m = n < kChunk ? n : kChunk;
    std::int64_t i = 0;
    for (; i + 2 * kLanes <= m; i += 2 * kLanes) {
      a.add(load<Reals>(x + i));
      b.add(load<Reals>(x + i + kLanes));
    }
    for (; i + kLanes <= m; i += kLanes) a.add(load<Reals>(x + i));
    for (const Lanes* part : {&a, &b}) {
      for (int l = 0; l < kLanes; ++l) {
        if (part->low[l] < found.low) found.low = part->low[l];
        if (part->high[l] > found.high) found.high = part->high[l];
        found.zeros += part->zeros[l];
        found.nonfinite += part->nonfinite[l];
      }
    }
    for (; i < m; ++i) {
      if (!(x[i] >= -FLT_MAX && x[i] <= FLT_MAX)) {
        ++found.nonfinite;
        continue;
      }
      if (x[i] < found.low) found.low = x[i];
      if (x[i] > found.high) found.high = x[i];
      found.zeros += x[i] == 0.0f;
    }
  }
  return found;
}

void place(const float* x, std::int64_t n, float scale, float width, std::int32_t mask, std::int32_t* out) {
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const Reals v = n - i < kLanes ? load_some(x + i, n - i, 0.0f) : load<Reals>(x + i);
    Integers bin = __builtin_convertvector(v * scale, Integers);
    // The cast cuts towards zero. Compared before scaling, where nothing has been lost to underflow.
    bin += v < __builtin_convertvector(bin, Reals) * width;
    bin &= mask;
    store(out + i, bin);
  }
}

void widen(const float* x, std::int64_t n, float* low, float* high) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Reals v = load<Reals>(x + i);
    Reals l = load<Reals>(low + i), h = load<Reals>(high + i);
    l = ((v < l) & (v >= -FLT_MAX)) ? v : l;
    h = ((v > h) & (v <= FLT_MAX)) ? v : h;
    store(low + i, l);
    store(high + i, h);
  }
  for (; i < n; ++i) {
    if (x[i] < low[i] && x[i] >= -FLT_MAX) low[i] = x[i];
    if (x[i] > high[i] && x[i] <= FLT_MAX) high[i] = x[i];
  }
}

double rounding(const float* x, std::int64_t n, float scale, float low, float high) {
  constexpr int kSums = 16, kVectors = kSums / kLanes;  // as many sums everywhere: all sets add in the same order
  const float inverse = 1.0f / scale;
  double sum = 0;
  for (std::int64_t begin = 0; begin < n; begin += 64 * kSums) {  // short float sums, added up in double
    const std::int64_t end = n - begin < 64 * kSums ? n : begin + 64 * kSums;
    Reals errors[kVectors] = {};
    for (std::int64_t i = begin; i < end; i += kSums) {
      for (int v = 0; v < kVectors; ++v) {
        const std::int64_t at = i + v * kLanes;
        const Reals real = end - at < kLanes ? load_some(x + at, end - at, 0.0f) : load<Reals>(x + at);
        Reals steps = real * inverse;
        steps = steps < low ? Reals{} + low : steps;
        steps = steps > high ? Reals{} + high : steps;
        steps = (steps + 12582912.0f) - 12582912.0f;  // nearest integer of less than 2^22
        const Reals error = real - steps * scale;
        errors[v] += error * error;
      }
    }
    for (int l = 0; l < kSums; ++l) sum += errors[l / kLanes][l % kLanes];
  }
  return sum;
}

// Integral of the squared error up to x, from some constant on: rounded between low and high, which are multiples of
// scale, and cut off outside. Over one step of u = x / scale it grows by 1 / 12, within one by d^3 / 3.
inline double integral(double x, double scale, double inverse, double low, double high) {
  const double kept = x < low ? low : x > high ? high : x, beyond = x - kept;
  const double u = kept * inverse, steps = (u + 6755399441055744.0) - 6755399441055744.0, d = u - steps;
  return scale * scale * scale * (steps / 12 + d * d * d / 3) + beyond * beyond * beyond / 3;
}

double clipping(const double* counts, std::int64_t bins, double first, double width, double scale, double low,
                double high) {
  constexpr int kSums = 8;  // as many sums everywhere: all sets add in the same order
  double sums[kSums] = {};
  const double inverse = 1 / scale;
  for (std::int64_t begin = 0; begin < bins; begin += kSums) {
    for (int s = 0; s < kSums; ++s) {
      const std::int64_t b = begin + s;
      const double left = first + static_cast<double>(b) * width;
      const double grown =
          integral(left + width, scale, inverse, low, high) - integral(left, scale, inverse, low, high);
      sums[s] += (b < bins ? counts[b] : 0.0) * grown;
    }
  }
  double sum = 0;
  for (double s : sums) sum += s;
  return sum / width;
}

// Sums of blocks, which are added up again element by element where something in them is no number.
template <class Real, class Found>
Difference difference(const Real* x, std::int64_t n, Found found) {
  constexpr int kSums = 16, kBlock = 1024;  // as many sums everywhere: all sets add in the same order
  Difference all;
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t end = n - begin < kBlock ? n : begin + kBlock;
    double signal[kSums] = {}, noise[kSums] = {}, power[kSums] = {}, largest[kSums] = {};
    std::int64_t i = begin;
    for (; i + kSums <= end; i += kSums) {
      for (int s = 0; s < kSums; ++s) {
        const double a = x[i + s], b = found(i + s), error = a - b, size = error < 0 ? -error : error;
        signal[s] += a * a;
        power[s] += b * b;
        noise[s] += error * error;
        largest[s] = size > largest[s] ? size : largest[s];
      }
    }
    for (; i < end; ++i) {
      const double a = x[i], b = found(i), error = a - b, size = error < 0 ? -error : error;
      signal[0] += a * a;
      power[0] += b * b;
      noise[0] += error * error;
      largest[0] = size > largest[0] ? size : largest[0];
    }
    Difference block;
    block.count = end - begin;
    for (int s = 0; s < kSums; ++s) {
      block.signal += signal[s];
      block.power += power[s];
      block.noise += noise[s];
      block.largest = largest[s] > block.largest ? largest[s] : block.largest;
    }
    if (!(block.noise <= DBL_MAX)) {
      block = Difference();
      for (i = begin; i < end; ++i) {
        const double a = x[i], b = found(i), error = a - b;
        const bool known = a >= -DBL_MAX && a <= DBL_MAX;
        if (!known || !(b >= -DBL_MAX && b <= DBL_MAX)) {
          block.lost += known;
          continue;
        }
        ++block.count;
        block.signal += a * a;
        block.power += b * b;
        block.noise += error * error;
        block.largest = error > block.largest ? error : -error > block.largest ? -error : block.largest;
      }
    }
    all.signal += block.signal;
    all.power += block.power;
    all.noise += block.noise;
    all.largest = block.largest > all.largest ? block.largest : all.largest;
    all.count += block.count;
    all.lost += block.lost;
  }
  return all;
}

Difference apart(const float* reference, const float* found, std::int64_t n) {
  return difference(reference, n, [found](std::int64_t i) { return double{found[i]}; });
}

Difference apart_wide(const double* reference, const double* found, std::int64_t n) {
  return difference(reference, n, [found](std::int64_t i) { return found[i]; });
}

Difference apart_rounded(const float* x, std::int64_t n, float scale, float low, float high) {
  return difference(x, n, [=](std::int64_t i) {
    float steps = x[i] / scale;
    steps = steps < low ? low : steps;
    steps = steps > high ? high : steps;
    steps = (steps + 12582912.0f) - 12582912.0f;  // nearest integer of less than 2^22
    return double{steps * scale};
  });
}

void products(const float* a, const float* b, std::int64_t n, double* sums) {
  double *first = sums, *both = sums + n, *second = sums + 2 * n;
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = a[i], y = b[i];
    first[i] += x * x;
    both[i] += x * y;
    second[i] += y * y;
  }
}

}  // namespace

namespace HEXFORGE_SET {
const Observing kObserving{scan, place, widen, rounding, clipping, apart, apart_wide, apart_rounded, products};
}  // namespace HEXFORGE_SET
}  // namespace hexforge
