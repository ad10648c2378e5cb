// SPDX-License-Identifier: Apache-2.0
// Steps "softmax_*", "masked_softmax_*" and "log_softmax_*" over rows.
#include <algorithm>
#include <cmath>
#include <vector>

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

// What is kept of a row comes together, is a softmax of its own, and goes back to its places; the rest is 0. Mostly one
// stretch is kept, which is copied at once.
template <class Q, class Mask, class Softmax>
void masked_row(const Q* x, const Mask* mask, Mask zero, bool keep_zero, std::int64_t n, Q nothing, Q* kept,
                const Softmax& softmax, Q* y) {
  const auto counted = [=](std::int64_t from, std::int64_t count) {
    std::int32_t zeros = 0;
    for (std::int64_t i = from; i < from + count; ++i) zeros += mask[i] == zero;
    return keep_zero ? zeros : count - zeros;
  };
  const std::int64_t count = counted(0, n);
  if (!count) return std::fill(y, y + n, nothing);
  std::int64_t first = 0;
  while ((mask[first] == zero) != keep_zero) ++first;
  if (first + count <= n && counted(first, count) == count) {
    std::copy(x + first, x + first + count, kept);
    std::fill(y, y + first, nothing);
    softmax(kept, count, y + first);
    return std::fill(y + first + count, y + n, nothing);
  }
  std::int64_t next = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    kept[next] = x[i];
    next += (mask[i] == zero) == keep_zero;
  }
  softmax(kept, count, kept);
  next = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const bool keep = (mask[i] == zero) == keep_zero;
    y[i] = keep ? kept[next] : nothing;
    next += keep;
  }
}

// Inputs: x, mask. Attributes as of softmax, and mask_bytes (1 or 2), mask_zero (the mask's integer that means 0),
// keep_zero (what is kept is where the mask means 0, else elsewhere). Constant: mask_at, where the mask of each row
// begins.
template <class Q>
Factory masked_softmax_step(void (*Loops::*loop)(const Q*, std::int64_t, const std::uint32_t*, double, std::int32_t,
                                                 std::int32_t, std::int32_t, Q*)) {
  return [loop](const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) -> Run {
    const std::int64_t rows = at.integer("rows"), n = at.integer("n"), bytes = at.integer("mask_bytes");
    require_operands(ins, 2, outs, 1, "masked softmax");
    require(rows >= 0 && n >= 1 && (bytes == 1 || bytes == 2), "masked softmax: bad operands");
    require_bytes(ins[0], times({rows, n, sizeof(Q)}), "masked softmax input");
    require_bytes(outs[0], times({rows, n, sizeof(Q)}), "masked softmax output");
    const std::int64_t* mask_at = at.constant<std::int64_t>("mask_at", rows);
    for (std::int64_t r = 0; r < rows; ++r) {
      require(mask_at[r] >= 0, "masked softmax: a mask begins before its tensor");
      require_bytes(ins[1], times({times({mask_at[r]}) + n, bytes}), "masked softmax mask");
    }
    const Affine k = output_of(at);
    const auto nothing = static_cast<Q>(std::min(std::max(k.zero, k.low), k.high));
    const std::int64_t zero = at.integer("mask_zero");
    const bool keep_zero = at.integer("keep_zero") != 0;
    const double scale = at.real("scale");
    const std::uint32_t* table = at.constant<std::uint32_t>("table", std::int64_t{1} << (8 * sizeof(Q)));
    return [=](const Operands& o) {
      parallel_for(o.threads(), rows, std::max<std::int64_t>(1, 8192 / n), [&](std::int64_t begin, std::int64_t end) {
        const auto row_loop = loops().*loop;
        std::vector<Q> kept(static_cast<std::size_t>(n + kRoom / sizeof(Q)));  // loops may read a vector past the end
        const auto softmax = [&](const Q* row, std::int64_t count, Q* to) {
          row_loop(row, count, table, scale, k.zero, k.low, k.high, to);
        };
        for (std::int64_t r = begin; r < end; ++r) {
          const Q* x = o.in<Q>() + r * n;
          Q* y = o.out<Q>() + r * n;
          const auto masked = [&]<class Mask>(const Mask* mask) {
            masked_row(x, mask + mask_at[r], static_cast<Mask>(zero), keep_zero, n, nothing, kept.data(), softmax, y);
          };
          bytes == 1 ? masked(o.in<std::uint8_t>(1)) : masked(o.in<std::uint16_t>(1));
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
      loops().softmax_rows_f32(o.in<float>() + begin * n, end - begin, n, table, o.out<float>() + begin * n);
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
  const Fields masked = {real("scale"), integer("mask_bytes"), integer("mask_zero"), integer("keep_zero"),
                         array("mask_at")};
  register_step("masked_softmax_u8", Schema(2, 1, kRows + kRange + masked).exact(),
                masked_softmax_step<std::uint8_t>(&Loops::softmax_u8));
  register_step("masked_softmax_s16", Schema(2, 1, kRows + kRange + masked).exact(),
                masked_softmax_step<std::int16_t>(&Loops::softmax_s16));
  register_step("log_softmax_u8", {1, 1, kRows + kRange + Fields{real("step"), real("scale")}},
                log_softmax_step<std::uint8_t>);
  register_step("log_softmax_s16", {1, 1, kRows + kRange + Fields{real("step"), real("scale")}},
                log_softmax_step<std::int16_t>);
  register_step("log_softmax_f32", {1, 1, kRows + Fields{real("beta")}}, log_softmax_f32_step);
}

}  // namespace hexforge
