// SPDX-License-Identifier: Apache-2.0
// Statistics of float tensors for calibration: extremes, zeros and an exact histogram in one pass.
#pragma once
#include <cstdint>

#include "kernels/sets.h"

namespace hexforge {

struct Extent {
  float low, high;  // of the finite values; infinity, -infinity where there is none
  std::int64_t zeros = 0, nonfinite = 0;
};

// How far an array is from its reference, over the elements where both are finite numbers.
struct Difference {
  double signal = 0, noise = 0, power = 0, largest = 0;
  std::int64_t count = 0, lost = 0;  // lost: the reference is a number, what was found is not
};

// Bin b of a histogram holds the values in [b, b + 1) * 2^exponent, in counts[b mod bins], `bins` a power of two. The
// exponent is the smallest with which all bins between the extremes have a place of their own, so it, and with it the
// counts, depend on the values only and not on the order in which they came.
struct Histogram {
  std::int64_t* counts;
  std::int64_t bins;
  int exponent;
  float low, high;  // of what is counted
};

// One source (shared/observe.cpp), compiled once for each instruction set.
struct Observing {
  Extent (*scan)(const float*, std::int64_t n);
  // out[i] = floor(x[i] / width) & mask, for finite x; scale = 1 / width, a power of two
  void (*place)(const float*, std::int64_t n, float scale, float width, std::int32_t mask, std::int32_t* out);
  // Element by element: low[i] = min(low[i], x[i]), high[i] = max(high[i], x[i]), of finite x
  void (*widen)(const float*, std::int64_t n, float* low, float* high);
  // sum of (x - scale * clamp(rint(x / scale), low, high))^2
  double (*rounding)(const float*, std::int64_t n, float scale, float low, float high);
  // The same expected of counts[b] values spread evenly over [first + b * width, first + (b + 1) * width), low and
  // high being multiples of scale
  double (*clipping)(const double* counts, std::int64_t bins, double first, double width, double scale, double low,
                     double high);
  Difference (*apart)(const float* reference, const float* found, std::int64_t n);
  Difference (*apart_wide)(const double* reference, const double* found, std::int64_t n);
  // The same of x and what rounding to clamp(rint(x / scale), low, high) * scale leaves of it, for low and high of less
  // than 2^22
  Difference (*apart_rounded)(const float* x, std::int64_t n, float scale, float low, float high);
  // Element by element: sums[i] += a * a, sums[n + i] += a * b, sums[2 * n + i] += b * b
  void (*products)(const float* a, const float* b, std::int64_t n, double* sums);
};
HEXFORGE_IN_EACH_SET(extern const Observing kObserving;)

inline const Observing& observing() { return HEXFORGE_OF_LEVEL(kObserving); }

constexpr int kLowestExponent = -126;  // its inverse is a float
int exponent_of(float low, float high, std::int64_t bins);
void coarsen(Histogram& histogram, int exponent);  // bins of 2^exponent, not finer than they are

// Kullback-Leibler divergence between counts and what is left of them when bins [first, last) become `levels` levels,
// each spread evenly over its bins that are not empty, and the bins outside are added to the outermost. The sums are
// running ones, one longer than counts: of the counts, of bins that are not empty, of counts * log(counts).
double divergence(const double* counts, const double* sums, const double* filled, const double* logs, std::int64_t bins,
                  std::int64_t first, std::int64_t last, std::int64_t levels);

Extent observe(const float* x, std::int64_t n, Histogram* histogram);

}  // namespace hexforge
