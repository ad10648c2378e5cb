// SPDX-License-Identifier: Apache-2.0
// Python bindings of observe.h.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <tuple>

#include "kernels/observe.h"

namespace nb = nanobind;

namespace hexforge {
namespace {

using Values = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using Wide = nb::ndarray<const double, nb::c_contig, nb::device::cpu>;
using Cube = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Counts = nb::ndarray<std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Reals = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Sums = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Errors = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

constexpr double kPoint = 0x1p-10;  // of a bin: the width of a bin whose values are all alike

// Bins index memory, so what describes them is checked.
Histogram histogram_of(Counts counts, int exponent, double low, double high) {
  const auto bins = static_cast<std::int64_t>(counts.shape(0));
  Histogram histogram{counts.data(), bins, exponent, static_cast<float>(low), static_cast<float>(high)};
  if (bins < 2 || bins > (1 << 20) || (bins & (bins - 1))) throw std::invalid_argument("observe: bins are 2^k");
  if (low <= high &&
      (!std::isfinite(low) || !std::isfinite(high) || exponent != exponent_of(histogram.low, histogram.high, bins))) {
    throw std::invalid_argument("observe: the histogram's exponent does not follow from its extremes");
  }
  if (exponent < kLowestExponent) throw std::invalid_argument("observe: the histogram's exponent is too low");
  return histogram;
}

std::tuple<double, double, std::int64_t, std::int64_t> plain(const Extent& e) {
  return {e.low, e.high, e.zeros, e.nonfinite};
}

using Difference6 = std::tuple<double, double, double, double, std::int64_t, std::int64_t>;
Difference6 plain(const Difference& d) { return {d.signal, d.noise, d.power, d.largest, d.count, d.lost}; }

}  // namespace

void bind_observe(nb::module_& module) {
  module.def(
      "extent",
      [](Values x) {
        nb::gil_scoped_release release;
        return plain(observe(x.data(), static_cast<std::int64_t>(x.size()), nullptr));
      },
      nb::arg("x"), "Lowest and highest finite value, how many are zero, how many are not finite.");
  module.def(
      "observe",
      [](Values x, Counts counts, int exponent, double low, double high) {
        Histogram histogram = histogram_of(counts, exponent, low, high);
        nb::gil_scoped_release release;
        const Extent found = observe(x.data(), static_cast<std::int64_t>(x.size()), &histogram);
        return std::tuple_cat(plain(found), std::make_tuple(histogram.exponent));
      },
      nb::arg("x"), nb::arg("counts"), nb::arg("exponent"), nb::arg("low"), nb::arg("high"),
      "Count x into a histogram of bins of 2^exponent, whose values lie between low and high; extent and new "
      "exponent.");
  module.def(
      "coarsen",
      [](Counts counts, int exponent, double low, double high, int wanted) {
        Histogram histogram = histogram_of(counts, exponent, low, high);
        coarsen(histogram, wanted);
      },
      nb::arg("counts"), nb::arg("exponent"), nb::arg("low"), nb::arg("high"), nb::arg("wanted"),
      "Make the bins of a histogram 2^wanted wide.");
  module.def(
      "histogram_exponent",
      [](double low, double high, std::int64_t bins) {
        if (!std::isfinite(low) || !std::isfinite(high) || low > high || bins < 2) {
          throw std::invalid_argument("histogram_exponent: low and high must be finite and in order");
        }
        return exponent_of(static_cast<float>(low), static_cast<float>(high), bins);
      },
      nb::arg("low"), nb::arg("high"), nb::arg("bins"), "The exponent of the bins of values between low and high.");
  module.def(
      "channel_extents",
      [](Cube x, Floats low, Floats high) {
        const auto outer = static_cast<std::int64_t>(x.shape(0)), channels = static_cast<std::int64_t>(x.shape(1)),
                   inner = static_cast<std::int64_t>(x.shape(2));
        if (low.shape(0) != x.shape(1) || high.shape(0) != x.shape(1)) {
          throw std::invalid_argument("channel_extents: one low and high per channel");
        }
        nb::gil_scoped_release release;
        for (std::int64_t o = 0; o < outer; ++o) {
          const float* row = x.data() + o * channels * inner;
          if (inner == 1) {
            observing().widen(row, channels, low.data(), high.data());
            continue;
          }
          for (std::int64_t c = 0; c < channels; ++c) {
            const Extent found = observing().scan(row + c * inner, inner);
            if (found.low < low.data()[c]) low.data()[c] = found.low;
            if (found.high > high.data()[c]) high.data()[c] = found.high;
          }
        }
      },
      nb::arg("x"), nb::arg("low"), nb::arg("high"),
      "Widen low and high of each channel of x [outer, channel, inner].");
  module.def(
      "divergences",
      [](Reals counts, Reals sums, Reals filled, Reals logs, Counts first, Counts last, std::int64_t levels, Sums out) {
        const auto bins = static_cast<std::int64_t>(counts.shape(0));
        for (const Reals& running : {sums, filled, logs}) {
          if (running.shape(0) != counts.shape(0) + 1) throw std::invalid_argument("divergences: running sums of bins");
        }
        if (first.shape(0) != out.shape(0) || last.shape(0) != out.shape(0) || levels < 1) {
          throw std::invalid_argument("divergences: one first, last and out per candidate");
        }
        for (std::size_t k = 0; k < out.shape(0); ++k) {
          const std::int64_t from = first.data()[k], to = last.data()[k];
          if (from < 0 || from >= to || to > bins) throw std::invalid_argument("divergences: bins out of range");
          out.data()[k] = divergence(counts.data(), sums.data(), filled.data(), logs.data(), bins, from, to, levels);
        }
      },
      nb::arg("counts"), nb::arg("sums"), nb::arg("filled"), nb::arg("logs"), nb::arg("first"), nb::arg("last"),
      nb::arg("levels"), nb::arg("out"), "out[k]: information lost when bins first[k]..last[k] become levels.");
  module.def(
      "clipping_errors",
      [](Reals counts, double first, double width, double least, double most, Reals scales, Reals low, Reals high,
         Sums out) {
        const std::size_t candidates = scales.shape(0);
        const auto bins = static_cast<std::int64_t>(counts.shape(0));
        if (low.shape(0) != candidates || high.shape(0) != candidates || out.shape(0) != candidates) {
          throw std::invalid_argument("clipping_errors: one low, high and out per scale");
        }
        nb::gil_scoped_release release;
        if (!bins) throw std::invalid_argument("clipping_errors: no bins");
        // The outer bins reach only as far as there are values, which a fine scale would notice.
        const double second = std::min(first + width, most),
                     last = std::max(first + static_cast<double>(bins - 1) * width, least);
        for (std::size_t k = 0; k < candidates; ++k) {
          const auto errors = [&](const double* part, std::int64_t n, double from, double step) {
            return observing().clipping(part, n, from, step, scales.data()[k], low.data()[k], high.data()[k]);
          };
          double& sum = out.data()[k];
          sum = errors(counts.data(), 1, least, std::max(second - least, kPoint * width));
          if (bins > 1) sum += errors(counts.data() + bins - 1, 1, last, std::max(most - last, kPoint * width));
          if (bins > 2) sum += errors(counts.data() + 1, bins - 2, first + width, width);
        }
      },
      nb::arg("counts"), nb::arg("first"), nb::arg("width"), nb::arg("least"), nb::arg("most"), nb::arg("scales"),
      nb::arg("low"), nb::arg("high"), nb::arg("out"),
      "out[k]: squared error of a histogram's values, least to most, when rounded to scales[k] and cut to low..high.");
  module.def(
      "rounding_errors",
      [](Rows x, Rows scales, Rows low, Rows high, Errors out) {
        const std::size_t rows = x.shape(0), candidates = scales.shape(1);
        const auto fits = [&](const auto& a) { return a.shape(0) == rows && a.shape(1) == candidates; };
        if (!fits(scales) || !fits(low) || !fits(high) || !fits(out)) {
          throw std::invalid_argument("rounding_errors: scales, low, high and out are [rows of x, candidates]");
        }
        nb::gil_scoped_release release;
        const auto n = static_cast<std::int64_t>(x.shape(1));
        for (std::size_t r = 0; r < rows; ++r) {
          for (std::size_t k = 0; k < candidates; ++k) {
            const std::size_t at = r * candidates + k;
            out.data()[at] = observing().rounding(x.data() + static_cast<std::int64_t>(r) * n, n, scales.data()[at],
                                                  low.data()[at], high.data()[at]);
          }
        }
      },
      nb::arg("x"), nb::arg("scales"), nb::arg("low"), nb::arg("high"), nb::arg("out"),
      "out[r, k]: squared error of row r when rounded to low..high steps of scales[r, k].");
  const auto same = [](std::size_t a, std::size_t b) {
    if (a != b) throw std::invalid_argument("difference: as many elements of both");
    return static_cast<std::int64_t>(a);
  };
  module.def(
      "difference",
      [same](Values reference, Values found) {
        const std::int64_t n = same(reference.size(), found.size());
        nb::gil_scoped_release release;
        return plain(observing().apart(reference.data(), found.data(), n));
      },
      nb::arg("reference"), nb::arg("found"),
      "Sums of squares of the reference, of the error, of what was found; the largest error; elements where both are "
      "finite numbers, and elements where only the reference is.");
  module.def(
      "difference",
      [same](Wide reference, Wide found) {
        const std::int64_t n = same(reference.size(), found.size());
        nb::gil_scoped_release release;
        return plain(observing().apart_wide(reference.data(), found.data(), n));
      },
      nb::arg("reference"), nb::arg("found"), "The same of float64.");
  module.def(
      "rounding_difference",
      [](Values x, double scale, double low, double high) {
        if (!(scale > 0) || !(low >= -0x1p21) || !(high <= 0x1p21)) {
          throw std::invalid_argument("rounding_difference: a positive scale, low and high of at most 21 bits");
        }
        nb::gil_scoped_release release;
        return plain(observing().apart_rounded(x.data(), static_cast<std::int64_t>(x.size()), static_cast<float>(scale),
                                               static_cast<float>(low), static_cast<float>(high)));
      },
      nb::arg("x"), nb::arg("scale"), nb::arg("low"), nb::arg("high"),
      "The difference of x and what rounding it to low..high steps of a scale leaves of it.");
  module.def(
      "channel_products",
      [](Cube reference, Cube found, Errors sums) {
        const auto outer = static_cast<std::int64_t>(reference.shape(0)),
                   channels = static_cast<std::int64_t>(reference.shape(1)),
                   inner = static_cast<std::int64_t>(reference.shape(2));
        for (std::size_t d = 0; d < 3; ++d) {
          if (reference.shape(d) != found.shape(d))
            throw std::invalid_argument("channel_products: arrays of one shape");
        }
        if (sums.shape(0) != 3 || sums.shape(1) != reference.shape(1)) {
          throw std::invalid_argument("channel_products: sums are [3, channels]");
        }
        nb::gil_scoped_release release;
        double* out = sums.data();
        for (std::int64_t o = 0; o < outer; ++o) {
          const std::int64_t row = o * channels * inner;
          if (inner == 1) {
            observing().products(reference.data() + row, found.data() + row, channels, out);
            continue;
          }
          for (std::int64_t c = 0; c < channels; ++c) {
            const Difference d =
                observing().apart(reference.data() + row + c * inner, found.data() + row + c * inner, inner);
            out[c] += d.signal;
            out[channels + c] += (d.signal + d.power - d.noise) / 2;
            out[2 * channels + c] += d.power;
          }
        }
      },
      nb::arg("reference"), nb::arg("found"), nb::arg("sums"),
      "Add to sums [3, channels] those of reference², reference * found and found² of each channel [outer, channel, "
      "inner].");
}

}  // namespace hexforge
