// SPDX-License-Identifier: Apache-2.0
// The histogram of observe.h: blocks that stay in the first cache are scanned, then counted.
#include "kernels/observe.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace hexforge {
namespace {

constexpr std::int64_t kBlock = 2048;
constexpr int kTables = 4;  // neighbours often fall into one bin; with tables of their own they need not wait

std::int64_t bin_of(float x, int exponent) {
  return static_cast<std::int64_t>(std::floor(std::ldexp(double{x}, -exponent)));
}

// Counts of one call, 32 bits wide so that all tables fit the first cache; `flush` adds them to the histogram.
struct Tables {
  explicit Tables(std::int64_t bins) : counts(static_cast<std::size_t>(bins * kTables)) {}
  std::vector<std::uint32_t> counts;
  std::int64_t pending = 0;

  void flush(Histogram& histogram) {
    if (!pending) return;
    for (int t = 0; t < kTables; ++t) {
      std::uint32_t* table = counts.data() + t * histogram.bins;
      for (std::int64_t b = 0; b < histogram.bins; ++b) histogram.counts[b] += table[b];
    }
    std::fill(counts.begin(), counts.end(), 0u);
    pending = 0;
  }
};

}  // namespace

int exponent_of(float low, float high, std::int64_t bins) {
  const float largest = std::max(std::fabs(low), std::fabs(high));
  // Finer than 2^-22 of the largest there is little: floats have 24 bits. It also keeps bins within 23 bits.
  int exponent = largest > 0 ? std::max(std::ilogb(largest) - 22, kLowestExponent) : kLowestExponent;
  while (bin_of(high, exponent) - bin_of(low, exponent) >= bins) ++exponent;
  return exponent;
}

void coarsen(Histogram& histogram, int exponent) {
  const int shift = exponent - histogram.exponent;
  if (shift <= 0) return;
  if (histogram.low <= histogram.high) {
    const std::int64_t mask = histogram.bins - 1;
    std::vector<std::int64_t> old(histogram.counts, histogram.counts + histogram.bins);
    std::fill_n(histogram.counts, histogram.bins, 0);
    const std::int64_t last = bin_of(histogram.high, histogram.exponent);
    for (std::int64_t b = bin_of(histogram.low, histogram.exponent); b <= last; ++b) {
      histogram.counts[(b >> std::min(shift, 62)) & mask] += old[b & mask];
    }
  }
  histogram.exponent = exponent;
}

double divergence(const double* counts, const double* sums, const double* filled, const double* logs, std::int64_t bins,
                  std::int64_t first, std::int64_t last, std::int64_t levels) {
  constexpr double kNothing = 1e-4;  // a level may hold nothing but what was added from outside
  const double total = sums[bins], below = sums[first], above = total - sums[last];
  const auto times_log = [](double n) { return n > 0 ? n * std::log(n) : 0.0; };
  // sum of p log p, with what is outside at the ends, less sum of p log q
  double found = logs[last] - logs[first];
  found += times_log(counts[first] + below) - times_log(counts[first]);
  found += times_log(counts[last - 1] + above) - times_log(counts[last - 1]);
  for (std::int64_t l = 0, begin = first; l < levels; ++l) {
    const std::int64_t end = first + (l + 1) * (last - first) / levels;
    const double inside = sums[end] - sums[begin], many = filled[end] - filled[begin];
    const double mass = inside + (l == 0 ? below : 0) + (l == levels - 1 ? above : 0);
    if (mass > 0) found -= mass * std::log(std::max(inside, kNothing) / std::max(many, 1.0));
    begin = end;
  }
  // p is of all values, q of those inside
  return found / total - std::log(total / std::max(sums[last] - sums[first], kNothing));
}

Extent observe(const float* x, std::int64_t n, Histogram* histogram) {
  const Observing& kernels = observing();
  if (!histogram) return kernels.scan(x, n);
  Extent all{INFINITY, -INFINITY};
  const std::int32_t mask = static_cast<std::int32_t>(histogram->bins - 1);
  alignas(64) std::int32_t bins[kBlock + 16];
  float finite[kBlock];
  Tables tables(n >= 2 * histogram->bins ? histogram->bins : 0);  // few values are counted in place
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const float* block = x + begin;
    std::int64_t size = std::min(kBlock, n - begin);
    const Extent here = kernels.scan(block, size);
    all.low = std::min(all.low, here.low);
    all.high = std::max(all.high, here.high);
    all.zeros += here.zeros;
    all.nonfinite += here.nonfinite;
    if (here.nonfinite) {
      size = std::copy_if(block, block + size, finite, [](float v) { return std::isfinite(v); }) - finite;
      block = finite;
    }
    if (!size) continue;
    if (here.low < histogram->low || here.high > histogram->high) {
      tables.flush(*histogram);
      const float low = std::min(here.low, histogram->low), high = std::max(here.high, histogram->high);
      coarsen(*histogram, exponent_of(low, high, histogram->bins));
      histogram->low = low;
      histogram->high = high;
    }
    const float width = std::ldexp(1.0f, histogram->exponent), scale = std::ldexp(1.0f, -histogram->exponent);
    kernels.place(block, size, scale, width, mask, bins);
    if (tables.counts.empty()) {
      for (std::int64_t i = 0; i < size; ++i) ++histogram->counts[bins[i]];
      continue;
    }
    std::uint32_t* table[kTables];
    for (int t = 0; t < kTables; ++t) table[t] = tables.counts.data() + t * histogram->bins;
    std::int64_t i = 0;
    for (; i + kTables <= size; i += kTables) {
      for (int t = 0; t < kTables; ++t) ++table[t][bins[i + t]];
    }
    for (; i < size; ++i) ++table[0][bins[i]];
    tables.pending += size;
    if (tables.pending > (std::int64_t{1} << 31)) tables.flush(*histogram);
  }
  if (!tables.counts.empty()) tables.flush(*histogram);
  return all;
}

}  // namespace hexforge
