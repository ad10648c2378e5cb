// SPDX-License-Identifier: Apache-2.0
// Steps "normalize_*", "normalize_groups_f32", "affine_*" (one multiply-add per channel) and "lrn_*" over rows of
// channels.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/parallel.h"
#include "core/round_and_clamp.h"
#include "kernels/loops.h"
#include "steps/fields.h"
#include "steps/rows.h"
#include "steps/steps.h"

namespace hexforge {
namespace {

template <class Q>
struct NormLoops {
  void (*Loops::*moments)(const Q*, std::int64_t, std::int64_t*, std::int64_t*);
  void (*Loops::*channel_moments)(const Q*, std::int64_t, std::int64_t*, std::int64_t*);
  void (*Loops::*normalize)(const Q*, std::int64_t, const double*, const double*, int, const double*, const double*,
                            const Affine&, Q*);
};

// The tensor is [outer][spatial][groups][channels]; statistics are taken per (outer, group).
// Attributes: outer, spatial, groups, channels, kind (0: subtract the mean, divide by the deviation; 1: divide by the
// root mean square; 2: divide by the root of the sum of squares, at least epsilon), zero_a, zero_point, low, high.
// Reals: scale_x, epsilon. Constants gamma, beta: float64 per channel of all groups, already over the output scale.
template <class Q>
Factory normalize_step(NormLoops<Q> own) {
  return [own](const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) -> Run {
    const std::int64_t outer = at.integer("outer"), spatial = at.integer("spatial"), groups = at.integer("groups"),
                       channels = at.integer("channels"), kind = at.integer("kind");
    const std::int64_t width = times({groups, channels});
    if (ins.size() != 1 || outs.size() != 1 || outer < 0 || spatial < 1 || groups < 1 || channels < 1 || kind < 0 ||
        kind > 2) {
      throw std::invalid_argument("normalize: bad operands");
    }
    require_bytes(ins[0], times({outer, spatial, width, sizeof(Q)}), "normalize input");
    require_bytes(outs[0], times({outer, spatial, width, sizeof(Q)}), "normalize output");
    times({spatial, width});
    const Affine k = output_of(at);
    const double scale = at.real("scale_x"), epsilon = at.real("epsilon");
    const double* gamma = at.constant<double>("gamma", width);
    const double* beta = at.constant<double>("beta", width);
    return [=](const Operands& o) {
      const Loops& l = loops();
      parallel_for(
          o.threads(), outer, std::max<std::int64_t>(1, 8192 / (spatial * width)),
          [&](std::int64_t begin, std::int64_t end) {
            std::vector<std::int64_t> sum(static_cast<std::size_t>(width)), squares(sum.size());
            std::vector<double> mean(sum.size()), factor(sum.size());
            for (std::int64_t r = begin; r < end; ++r) {
              const Q* x = o.in<Q>() + r * spatial * width;
              Q* y = o.out<Q>() + r * spatial * width;
              std::fill(sum.begin(), sum.end(), 0);
              std::fill(squares.begin(), squares.end(), 0);
              if (groups == 1) {
                (l.*own.moments)(x, spatial * width, sum.data(), squares.data());
              } else {
                for (std::int64_t s = 0; s < spatial; ++s)
                  (l.*own.channel_moments)(x + s * width, width, sum.data(), squares.data());
              }
              const std::int64_t step = groups == 1 ? width : channels;
              for (std::int64_t g = 0; g < groups; ++g) {
                std::int64_t s = 0, q = 0;
                for (std::int64_t c = g * step; c < (groups == 1 ? 1 : (g + 1) * step); ++c) {
                  s += sum[static_cast<std::size_t>(c)];
                  q += squares[static_cast<std::size_t>(c)];
                }
                const double n = static_cast<double>(spatial * channels), zero = k.zero_a;
                double center = zero, spread;
                if (kind == 0) {
                  center = static_cast<double>(s) / n;
                  // n * sum of squares minus the squared sum is an exact integer difference in 128 bits.
                  const __int128 exact = static_cast<__int128>(q) * (spatial * channels) - static_cast<__int128>(s) * s;
                  spread = static_cast<double>(exact) / (n * n);
                } else {
                  const __int128 exact = static_cast<__int128>(q) - 2 * static_cast<__int128>(s) * k.zero_a +
                                         static_cast<__int128>(spatial * channels) * k.zero_a * k.zero_a;
                  spread = static_cast<double>(exact) / (kind == 1 ? n : 1.0);
                }
                const double power = spread * scale * scale;
                const double divisor = kind == 2 ? std::max(std::sqrt(power), epsilon) : std::sqrt(power + epsilon);
                const double f = divisor > 0 ? scale / divisor : 0.0;  // nothing to scale: the result is beta
                for (std::int64_t c = g * channels; c < (g + 1) * channels; ++c) {
                  mean[static_cast<std::size_t>(c)] = center;
                  factor[static_cast<std::size_t>(c)] = f;
                }
              }
              for (std::int64_t s = 0; s < spatial; ++s) {
                (l.*own.normalize)(x + s * width, width, mean.data(), factor.data(), groups == 1 ? 0 : 1, gamma, beta,
                                   k, y + s * width);
              }
            }
          });
    };
  };
}

// Rows of n values; kind as in normalize_step. Constants gamma, beta: float32 per value of a row.
Run normalize_f32_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const std::int64_t rows = at.integer("rows"), n = at.integer("n"), kind = at.integer("kind");
  if (ins.size() != 1 || outs.size() != 1 || rows < 0 || n < 1 || kind < 0 || kind > 2)
    throw std::invalid_argument("normalize: bad operands");
  require_bytes(ins[0], times({rows, n, 4}), "normalize input");
  require_bytes(outs[0], times({rows, n, 4}), "normalize output");
  const RowNorm norm{kind, at.real("epsilon"), at.constant<float>("gamma", n), at.constant<float>("beta", n)};
  return [=](const Operands& o) {
    parallel_for(o.threads(), rows, std::max<std::int64_t>(1, 8192 / n), [&](std::int64_t begin, std::int64_t end) {
      loops().normalize_rows_f32(o.in<float>() + begin * n, end - begin, n, norm, o.out<float>() + begin * n);
    });
  };
}

// Rows are taken several at a time, with the constants repeated, where one is shorter than a few vectors.
template <class Real>
std::vector<Real> repeated(const Real* values, std::int64_t n, std::int64_t times) {
  std::vector<Real> all;
  for (std::int64_t i = 0; i < times; ++i) all.insert(all.end(), values, values + n);
  return all;
}

// y = round_and_clamp((q - zero_a) * gamma[c] + beta[c]). Constants gamma, beta: float64 per channel, over the output
// scale.
template <class Q>
Factory affine_step(void (*Loops::*loop)(const Q*, std::int64_t, const double*, const double*, int, const double*,
                                         const double*, const Affine&, Q*)) {
  return [loop](const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) -> Run {
    const Rows v = rows_of(at, ins, outs, sizeof(Q), "affine");
    const std::int64_t times = std::max<std::int64_t>(1, 512 / v.n);
    const auto gamma = repeated(at.constant<double>("gamma", v.n), v.n, times);
    const auto beta = repeated(at.constant<double>("beta", v.n), v.n, times);
    const double zero = static_cast<double>(at.small("zero_a")), one = 1.0;
    Affine k;
    k.zero = at.small("zero_point");
    k.low = at.small("low");
    k.high = at.small("high");
    return [=](const Operands& o) {
      const std::int64_t groups = (v.rows + times - 1) / times;
      parallel_for(o.threads(), groups, std::max<std::int64_t>(1, 16384 / (times * v.n)),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t g = begin; g < end; ++g) {
                       const std::int64_t first = g * times, count = std::min(times, v.rows - first) * v.n;
                       (loops().*loop)(o.in<Q>() + first * v.n, count, &zero, &one, 0, gamma.data(), beta.data(), k,
                                       o.out<Q>() + first * v.n);
                     }
                   });
    };
  };
}

Run affine_f32_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const Rows v = rows_of(at, ins, outs, 4, "affine");
  const std::int64_t times = std::max<std::int64_t>(1, 512 / v.n);
  const auto gamma = repeated(at.constant<float>("gamma", v.n), v.n, times);
  const auto beta = repeated(at.constant<float>("beta", v.n), v.n, times);
  return [=](const Operands& o) {
    const std::int64_t groups = (v.rows + times - 1) / times;
    parallel_for(o.threads(), groups, std::max<std::int64_t>(1, 16384 / (times * v.n)),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t g = begin; g < end; ++g) {
                     const std::int64_t first = g * times, count = std::min(times, v.rows - first) * v.n;
                     loops().normalize_f32(o.in<float>() + first * v.n, count, 0.0, 1.0, gamma.data(), beta.data(),
                                           o.out<float>() + first * v.n);
                   }
                 });
  };
}

// The tensor is [outer][spatial][groups][channels]; statistics per (outer, group) in float64: totals of each channel
// over `spatial` in order, then the channels of the group in order. Attributes: outer, spatial, groups, channels, kind
// (0: mean and deviation, 1: root mean square, 2: root of the sum of squares, 3: mean only). Real: epsilon. Constants
// gamma, beta: float32 per channel of all groups.
Run normalize_groups_f32_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const std::int64_t outer = at.integer("outer"), spatial = at.integer("spatial"), groups = at.integer("groups"),
                     channels = at.integer("channels"), kind = at.integer("kind");
  require_operands(ins, 1, outs, 1, "normalize");
  require(outer >= 0 && spatial >= 1 && groups >= 1 && channels >= 1 && kind >= 0 && kind <= 3, "normalize: bad shape");
  const std::int64_t width = times({groups, channels});
  require_bytes(ins[0], times({outer, spatial, width, 4}), "normalize input");
  require_bytes(outs[0], times({outer, spatial, width, 4}), "normalize output");
  const double epsilon = at.real("epsilon"), count = static_cast<double>(spatial * channels);
  const float* gamma = at.constant<float>("gamma", width);
  const float* beta = at.constant<float>("beta", width);
  return [=](const Operands& o) {
    const auto size = static_cast<std::size_t>(width);
    std::vector<double> total(size), mean(size), factor(size);
    const auto gather = [&](std::vector<double>& to, auto finish) {
      for (std::int64_t g = 0; g < groups; ++g) {
        double sum = 0;
        for (std::int64_t c = g * channels; c < (g + 1) * channels; ++c) sum += total[static_cast<std::size_t>(c)];
        std::fill_n(to.begin() + g * channels, channels, finish(sum));
      }
    };
    const Loops& l = loops();
    constexpr std::int64_t kTogether = 64, kWorth = 16384;  // channels of a piece, elements worth a thread
    for (std::int64_t r = 0; r < outer; ++r) {
      const float* x = o.in<float>() + r * spatial * width;
      float* y = o.out<float>() + r * spatial * width;
      const auto add_up = [&](const double* means) {
        const std::int64_t pieces = (width + kTogether - 1) / kTogether;
        parallel_for(o.threads(), pieces, std::max<std::int64_t>(1, kWorth / (kTogether * spatial)),
                     [&](std::int64_t begin, std::int64_t end) {
                       const std::int64_t c = begin * kTogether, count = std::min(end * kTogether, width) - c;
                       l.channel_totals_f32(x + c, spatial, width, count, means ? means + c : nullptr,
                                            total.data() + c);
                     });
      };
      std::fill(mean.begin(), mean.end(), 0.0);
      std::fill(factor.begin(), factor.end(), 1.0);
      if (kind == 0 || kind == 3) {
        add_up(nullptr);
        gather(mean, [&](double sum) { return sum / count; });
      }
      if (kind != 3) {
        add_up(mean.data());
        gather(factor, [&](double sum) {
          return 1.0 / (kind == 2 ? std::max(std::sqrt(sum), epsilon) : std::sqrt(sum / count + epsilon));
        });
      }
      parallel_for(o.threads(), spatial, std::max<std::int64_t>(1, kWorth / width),
                   [&](std::int64_t begin, std::int64_t end) {
                     l.normalize_pixels_f32(x + begin * width, end - begin, width, mean.data(), factor.data(), gamma,
                                            beta, y + begin * width);
                   });
    }
  };
}

// x / (bias + alpha * sum of squares within radius along the row)^beta in float64.
// Attributes: rows, n, radius. Reals: alpha, beta, bias; fixed point: scale_x, scale (1 / output scale), zero_a.
template <class T>
Run lrn_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  constexpr bool fixed = !std::is_same_v<T, float>;
  const Rows v = rows_of(at, ins, outs, sizeof(T), "lrn");
  const std::int64_t radius = at.integer("radius");
  require(radius >= 0 && radius <= INT32_MAX, "lrn: bad radius");
  const double alpha = at.real("alpha"), beta = at.real("beta"), bias = at.real("bias");
  const double scale_x = fixed ? at.real("scale_x") : 1.0, scale = fixed ? at.real("scale") : 1.0;
  const std::int64_t zero = fixed ? at.small("zero_a") : 0;
  Target target;
  if constexpr (fixed) target = Target(at);
  return [=](const Operands& o) {
    parallel_for(o.threads(), v.rows, std::max<std::int64_t>(1, 2048 / v.n), [&](std::int64_t begin, std::int64_t end) {
      std::vector<double> real(static_cast<std::size_t>(v.n));
      for (std::int64_t r = begin; r < end; ++r) {
        const T* x = o.in<T>() + r * v.n;
        T* y = o.out<T>() + r * v.n;
        for (std::int64_t i = 0; i < v.n; ++i) {
          real[static_cast<std::size_t>(i)] =
              fixed ? static_cast<double>(static_cast<std::int64_t>(x[i]) - zero) * scale_x : static_cast<double>(x[i]);
        }
        for (std::int64_t i = 0; i < v.n; ++i) {
          double sum = 0;
          for (std::int64_t k = std::max<std::int64_t>(0, i - radius); k <= std::min(v.n - 1, i + radius); ++k) {
            sum += real[static_cast<std::size_t>(k)] * real[static_cast<std::size_t>(k)];
          }
          const double value = real[static_cast<std::size_t>(i)] / std::pow(bias + alpha * sum, beta);
          if constexpr (fixed) {
            y[i] = target.round_and_clamp<T>(value * scale);
          } else {
            y[i] = narrow_to_half(value);
          }
        }
      }
    });
  };
}

const Fields kRows = {integer("rows"), integer("n")};
const Fields kScaled = {array("gamma"), array("beta")};
const Fields kGroups = Fields{integer("outer"),    integer("spatial"), integer("groups"),
                              integer("channels"), integer("kind"),    real("epsilon")} +
                       kScaled;
const Fields kLrn = kRows + Fields{integer("radius"), real("alpha"), real("beta"), real("bias")};

}  // namespace

void register_norm_steps() {
  register_step("normalize_f32", {1, 1, kRows + kScaled + Fields{integer("kind"), real("epsilon")}},
                normalize_f32_step);
  register_step("normalize_u8", {1, 1, kGroups + kRange + Fields{integer("zero_a"), real("scale_x")}},
                normalize_step<std::uint8_t>({&Loops::moments_u8, &Loops::channel_moments_u8, &Loops::normalize_u8}));
  register_step(
      "normalize_s16", {1, 1, kGroups + kRange + Fields{integer("zero_a"), real("scale_x")}},
      normalize_step<std::int16_t>({&Loops::moments_s16, &Loops::channel_moments_s16, &Loops::normalize_s16}));
  register_step("affine_u8", {1, 1, kRows + kScaled + kRange + Fields{integer("zero_a")}},
                affine_step<std::uint8_t>(&Loops::normalize_u8));
  register_step("affine_s16", {1, 1, kRows + kScaled + kRange + Fields{integer("zero_a")}},
                affine_step<std::int16_t>(&Loops::normalize_s16));
  register_step("affine_f32", {1, 1, kRows + kScaled}, affine_f32_step);
  register_step("normalize_groups_f32", {1, 1, kGroups}, normalize_groups_f32_step);
  register_step("lrn_u8", {1, 1, kLrn + kFixed + Fields{real("scale_x")}}, lrn_step<std::uint8_t>);
  register_step("lrn_s16", {1, 1, kLrn + kFixed + Fields{real("scale_x")}}, lrn_step<std::int16_t>);
  register_step("lrn_f32", {1, 1, kLrn}, lrn_step<float>);
}

}  // namespace hexforge
