// SPDX-License-Identifier: Apache-2.0
// Steps over rows of channels: "log_softmax_*", "affine_*" (one multiply-add per channel), "normalize_groups_f32", "lrn_*".
#include <algorithm>
#include <cmath>

#include "loops.h"
#include "parallel.h"
#include "settle.h"
#include "steps.h"

namespace hexforge {
namespace {

struct Rows {
  std::int64_t rows, n;
};

Rows rows_of(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs, std::int64_t bytes,
             const char* what) {
  const Rows r{at.integer("rows"), at.integer("n")};
  require_operands(ins, 1, outs, 1, what);
  require(r.rows >= 0 && r.n >= 1, "rows: bad shape");
  require_bytes(ins[0], times({r.rows, r.n, bytes}), what);
  require_bytes(outs[0], times({r.rows, r.n, bytes}), what);
  return r;
}

// Attributes: rows, n, zero_point, low, high. Reals: step (input scale * beta), scale (1 / output scale). Constant: table,
// exp(-distance * step) in units of 2^-31. y = (-distance * step - log(sum)) * scale; the sum is exact.
template <class Q>
Run log_softmax_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const Rows v = rows_of(at, ins, outs, sizeof(Q), "log softmax");
  const Target target(at);
  const double step = at.real("step"), scale = at.real("scale");
  const std::uint32_t* table = at.constant<std::uint32_t>("table", std::int64_t{1} << (8 * sizeof(Q)));
  return [=](const Operands& o) {
    parallel_for(o.threads(), v.rows, std::max<std::int64_t>(1, 8192 / v.n), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const Q* x = o.in<Q>() + r * v.n;
        Q* y = o.out<Q>() + r * v.n;
        const std::int32_t most = *std::max_element(x, x + v.n);
        std::uint64_t sum = 0;
        for (std::int64_t i = 0; i < v.n; ++i) sum += table[most - x[i]];
        const double logarithm = std::log(static_cast<double>(sum) * 0x1p-31);
        for (std::int64_t i = 0; i < v.n; ++i) {
          y[i] = target.settle<Q>((static_cast<double>(x[i] - most) * step - logarithm) * scale);
        }
      }
    });
  };
}

// Attributes: rows, n. Real: beta. Constant: table, exp(beta * h) for every float16 h.
Run log_softmax_f32_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const Rows v = rows_of(at, ins, outs, 4, "log softmax");
  const double beta = at.real("beta");
  const float* table = at.constant<float>("table", 65536);
  return [=](const Operands& o) {
    parallel_for(o.threads(), v.rows, std::max<std::int64_t>(1, 8192 / v.n), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const float* x = o.in<float>() + r * v.n;
        float* y = o.out<float>() + r * v.n;
        float most = x[0];
        for (std::int64_t i = 1; i < v.n; ++i) most = x[i] > most ? x[i] : most;
        const Loops& l = loops(current_level());
        for (std::int64_t i = 0; i < v.n; ++i) y[i] = x[i] - most;
        l.table_f32(y, table, y, v.n);
        double sum = 0;
        for (std::int64_t i = 0; i < v.n; ++i) sum += y[i];
        const double logarithm = std::log(sum);
        for (std::int64_t i = 0; i < v.n; ++i) y[i] = static_cast<float>(beta * (static_cast<double>(x[i]) - most) - logarithm);
        l.round_half(y, y, v.n);
      }
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

// y = settle((q - zero_a) * gamma[c] + beta[c]). Constants gamma, beta: float64 per channel, over the output scale.
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
                       (loops(current_level()).*loop)(o.in<Q>() + first * v.n, count, &zero, &one, 0, gamma.data(),
                                                      beta.data(), k, o.out<Q>() + first * v.n);
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
                     loops(current_level()).normalize_f32(o.in<float>() + first * v.n, count, 0.0, 1.0, gamma.data(),
                                                          beta.data(), o.out<float>() + first * v.n);
                   }
                 });
  };
}

// The tensor is [outer][spatial][groups][channels]; statistics per (outer, group) in float64: totals of each channel over
// `spatial` in order, then the channels of the group in order.
// Attributes: outer, spatial, groups, channels, kind (0: mean and deviation, 1: root mean square, 2: root of the sum of
// squares, 3: mean only). Real: epsilon. Constants gamma, beta: float32 per channel of all groups.
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
    parallel_for(o.threads(), outer, 1, [&](std::int64_t begin, std::int64_t end) {
      const auto size = static_cast<std::size_t>(width);
      std::vector<double> total(size), mean(size), factor(size);
      const auto gather = [&](std::vector<double>& to, auto finish) {
        for (std::int64_t g = 0; g < groups; ++g) {
          double sum = 0;
          for (std::int64_t c = g * channels; c < (g + 1) * channels; ++c) sum += total[static_cast<std::size_t>(c)];
          std::fill_n(to.begin() + g * channels, channels, finish(sum));
        }
      };
      for (std::int64_t r = begin; r < end; ++r) {
        const float* x = o.in<float>() + r * spatial * width;
        float* y = o.out<float>() + r * spatial * width;
        std::fill(mean.begin(), mean.end(), 0.0);
        std::fill(factor.begin(), factor.end(), 1.0);
        if (kind == 0 || kind == 3) {
          std::fill(total.begin(), total.end(), 0.0);
          for (std::int64_t s = 0; s < spatial; ++s) {
            for (std::size_t c = 0; c < size; ++c) total[c] += x[static_cast<std::size_t>(s * width) + c];
          }
          gather(mean, [&](double sum) { return sum / count; });
        }
        if (kind != 3) {
          std::fill(total.begin(), total.end(), 0.0);
          for (std::int64_t s = 0; s < spatial; ++s) {
            for (std::size_t c = 0; c < size; ++c) {
              const double d = x[static_cast<std::size_t>(s * width) + c] - mean[c];
              total[c] += d * d;
            }
          }
          gather(factor, [&](double sum) {
            return 1.0 / (kind == 2 ? std::max(std::sqrt(sum), epsilon) : std::sqrt(sum / count + epsilon));
          });
        }
        for (std::int64_t s = 0; s < spatial; ++s) {
          const std::size_t base = static_cast<std::size_t>(s * width);
          for (std::size_t c = 0; c < size; ++c) {
            y[base + c] = static_cast<float>((x[base + c] - mean[c]) * factor[c] * gamma[c] + beta[c]);
          }
          loops(current_level()).round_half(y + base, y + base, width);
        }
      }
    });
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
          real[static_cast<std::size_t>(i)] = fixed ? static_cast<double>(static_cast<std::int64_t>(x[i]) - zero) * scale_x
                                                    : static_cast<double>(x[i]);
        }
        for (std::int64_t i = 0; i < v.n; ++i) {
          double sum = 0;
          for (std::int64_t k = std::max<std::int64_t>(0, i - radius); k <= std::min(v.n - 1, i + radius); ++k) {
            sum += real[static_cast<std::size_t>(k)] * real[static_cast<std::size_t>(k)];
          }
          const double value = real[static_cast<std::size_t>(i)] / std::pow(bias + alpha * sum, beta);
          if constexpr (fixed) {
            y[i] = target.settle<T>(value * scale);
          } else {
            y[i] = settle_half(value);
          }
        }
      }
    });
  };
}

}  // namespace

void register_rows_steps() {
  register_step("log_softmax_u8", log_softmax_step<std::uint8_t>);
  register_step("log_softmax_s16", log_softmax_step<std::int16_t>);
  register_step("log_softmax_f32", log_softmax_f32_step);
  register_step("affine_u8", affine_step<std::uint8_t>(&Loops::normalize_u8));
  register_step("affine_s16", affine_step<std::int16_t>(&Loops::normalize_s16));
  register_step("affine_f32", affine_f32_step);
  register_step("normalize_groups_f32", normalize_groups_f32_step);
  register_step("lrn_u8", lrn_step<std::uint8_t>);
  register_step("lrn_s16", lrn_step<std::int16_t>);
  register_step("lrn_f32", lrn_step<float>);
}

}  // namespace hexforge
