// SPDX-License-Identifier: Apache-2.0
// Steps "softmax_*" and "log_softmax_*" over rows.
#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "core/round_and_clamp.h"
#include "kernels/loops.h"
#include "steps/fields.h"
#include "steps/rows.h"
#include "steps/steps.h"

namespace hexforge {
namespace {

// Attributes: rows, n, zero_point, low, high; real scale (1 / output scale); constant table (uint32 per distance).
template <class Q>
Factory softmax_step(void (*Loops::*loop)(const Q*, std::int64_t, const std::uint32_t*, double, std::int32_t,
                                          std::int32_t, std::int32_t, Q*)) {
  return [loop](const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) -> Run {
    const std::int64_t rows = at.integer("rows"), n = at.integer("n");
    if (ins.size() != 1 || outs.size() != 1 || rows < 0 || n < 1) throw std::invalid_argument("softmax: bad operands");
    require_bytes(ins[0], times({rows, n, sizeof(Q)}), "softmax input");
    require_bytes(outs[0], times({rows, n, sizeof(Q)}), "softmax output");
    const Affine k = output_of(at);
    const double scale = at.real("scale");
    const std::uint32_t* table = at.constant<std::uint32_t>("table", std::int64_t{1} << (8 * sizeof(Q)));
    return [=](const Operands& o) {
      parallel_for(o.threads(), rows, std::max<std::int64_t>(1, 8192 / n), [&](std::int64_t begin, std::int64_t end) {
        const Loops& here = loops();
        if constexpr (sizeof(Q) == 1) {
          if (n == 16 && here.softmax_u8_rows16) {
            return here.softmax_u8_rows16(o.in<Q>() + begin * n, end - begin, table, scale, k.zero, k.low, k.high,
                                          o.out<Q>() + begin * n);
          }
        }
        for (std::int64_t r = begin; r < end; ++r) {
          (here.*loop)(o.in<Q>() + r * n, n, table, scale, k.zero, k.low, k.high, o.out<Q>() + r * n);
        }
      });
    };
  };
}

Run softmax_f32_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const std::int64_t rows = at.integer("rows"), n = at.integer("n");
  if (ins.size() != 1 || outs.size() != 1 || rows < 0 || n < 1) throw std::invalid_argument("softmax: bad operands");
  require_bytes(ins[0], times({rows, n, 4}), "softmax input");
  require_bytes(outs[0], times({rows, n, 4}), "softmax output");
  const float* table = at.constant<float>("table", 65536);
  return [=](const Operands& o) {
    parallel_for(o.threads(), rows, std::max<std::int64_t>(1, 8192 / n), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        loops().softmax_f32(o.in<float>() + r * n, n, table, o.out<float>() + r * n);
      }
    });
  };
}

// Attributes: rows, n, zero_point, low, high. Reals: step (input scale * beta), scale (1 / output scale). Constant:
// table, exp(-distance * step) in units of 2^-31. y = (-distance * step - log(sum)) * scale; the sum is exact.
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
          y[i] = target.round_and_clamp<Q>((static_cast<double>(x[i] - most) * step - logarithm) * scale);
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
        const Loops& l = loops();
        for (std::int64_t i = 0; i < v.n; ++i) y[i] = x[i] - most;
        l.table_f32(y, table, y, v.n);
        double sum = 0;
        for (std::int64_t i = 0; i < v.n; ++i) sum += y[i];
        const double logarithm = std::log(sum);
        for (std::int64_t i = 0; i < v.n; ++i)
          y[i] = static_cast<float>(beta * (static_cast<double>(x[i]) - most) - logarithm);
        l.round_half(y, y, v.n);
      }
    });
  };
}

const Fields kRows = {integer("rows"), integer("n"), array("table")};

}  // namespace

void register_softmax_steps() {
  register_step("softmax_f32", {1, 1, kRows}, softmax_f32_step);
  register_step("softmax_u8", {1, 1, kRows + kRange + Fields{real("scale"), optional(integer("zero_a"))}},
                softmax_step<std::uint8_t>(&Loops::softmax_u8));
  register_step("softmax_s16", {1, 1, kRows + kRange + Fields{real("scale"), optional(integer("zero_a"))}},
                softmax_step<std::int16_t>(&Loops::softmax_s16));
  register_step("log_softmax_u8", {1, 1, kRows + kRange + Fields{real("step"), real("scale")}},
                log_softmax_step<std::uint8_t>);
  register_step("log_softmax_s16", {1, 1, kRows + kRange + Fields{real("step"), real("scale")}},
                log_softmax_step<std::int16_t>);
  register_step("log_softmax_f32", {1, 1, kRows + Fields{real("beta")}}, log_softmax_f32_step);
}

}  // namespace hexforge
