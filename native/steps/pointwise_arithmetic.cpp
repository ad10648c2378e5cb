// SPDX-License-Identifier: Apache-2.0
// Steps "binary_*", "table_*", "quantize_*", "dequantize_*", "round_half".
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "core/caches.h"
#include "core/float_overflow.h"
#include "core/parallel.h"
#include "core/program.h"
#include "kernels/half.h"
#include "kernels/loops.h"
#include "steps/fields.h"
#include "steps/steps.h"

namespace hexforge {

namespace {

constexpr std::int64_t kGrain = 16384;  // elements worth a thread

std::int64_t count(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs,
                   std::int64_t in_bytes, std::int64_t out_bytes) {
  const std::int64_t n = at.integer("count");
  if (n < 0 || ins.size() != 1 || outs.size() != 1) throw std::invalid_argument("elementwise: bad operands");
  require_bytes(ins[0], times({n, in_bytes}), "elementwise input");
  require_bytes(outs[0], times({n, out_bytes}), "elementwise output");
  return n;
}

template <class In, class Out>
Factory table_step(void (*Loops::*loop)(const In*, const Out*, Out*, std::int64_t)) {
  return [loop](const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) -> Run {
    const std::int64_t n = count(at, ins, outs, sizeof(In), sizeof(Out));
    const Out* table = at.constant<Out>("table", std::int64_t{1} << (8 * sizeof(In)));
    return [=](const Operands& o) {
      parallel_for(o.threads(), n, kGrain, [&](std::int64_t begin, std::int64_t end) {
        if (sizeof(In) > 1) fetch_table(table, 65536 * sizeof(Out), end - begin);
        (loops().*loop)(o.in<In>() + begin, table, o.out<Out>() + begin, end - begin);
      });
    };
  };
}

template <class Q>
Factory quantize_step(void (*Loops::*loop)(const float*, float, std::int32_t, std::int32_t, std::int32_t, Q*,
                                           std::int64_t)) {
  return [loop](const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) -> Run {
    const std::int64_t n = count(at, ins, outs, 4, sizeof(Q));
    const float scale = static_cast<float>(at.real("scale"));
    const auto zero = at.small("zero_point");
    const auto low = at.small("low"), high = at.small("high");
    return [=](const Operands& o) {
      parallel_for(o.threads(), n, kGrain, [&](std::int64_t begin, std::int64_t end) {
        (loops().*loop)(o.in<float>() + begin, scale, zero, low, high, o.out<Q>() + begin, end - begin);
      });
    };
  };
}

template <class Q>
Factory dequantize_step(void (*Loops::*loop)(const Q*, float, std::int32_t, float*, std::int64_t)) {
  return [loop](const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) -> Run {
    const std::int64_t n = count(at, ins, outs, sizeof(Q), 4);
    const float scale = static_cast<float>(at.real("scale"));
    const auto zero = at.small("zero_point");
    return [=](const Operands& o) {
      parallel_for(o.threads(), n, kGrain, [&](std::int64_t begin, std::int64_t end) {
        (loops().*loop)(o.in<Q>() + begin, scale, zero, o.out<float>() + begin, end - begin);
      });
    };
  };
}

// A broadcast loop nest: `dims` from outermost to innermost, with element strides of a and b (innermost 0 or 1).
struct Nest {
  std::vector<std::int64_t> dims, a, b;
  std::int64_t rows = 1, inner = 1;
};

Nest nest(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs, std::int64_t bytes) {
  Nest n;
  n.dims = at.list("dims");
  n.a = at.list("strides_a", n.dims.size());
  n.b = at.list("strides_b", n.dims.size());
  if (n.dims.empty() || n.dims.size() > 32 || ins.size() != 2 || outs.size() != 1)
    throw std::invalid_argument("binary: bad operands");
  std::int64_t last_a = 0, last_b = 0, size = 1;
  for (std::size_t i = 0; i < n.dims.size(); ++i) {
    if (n.dims[i] < 1 || n.a[i] < 0 || n.b[i] < 0) throw std::invalid_argument("binary: bad shape");
    last_a += times({n.dims[i] - 1, n.a[i]});
    last_b += times({n.dims[i] - 1, n.b[i]});
    size = times({size, n.dims[i]});
  }
  if (n.a.back() > 1 || n.b.back() > 1) throw std::invalid_argument("binary: innermost strides are 0 or 1");
  require_bytes(ins[0], times({last_a + 1, bytes}), "binary input");
  require_bytes(ins[1], times({last_b + 1, bytes}), "binary input");
  require_bytes(outs[0], times({size, bytes}), "binary output");
  n.inner = n.dims.back();
  n.rows = size / n.inner;
  return n;
}

Binary operation(const Attributes& at) {
  const std::int64_t op = at.integer("operation");
  if (op < 0 || op > static_cast<std::int64_t>(Binary::minimum)) throw std::invalid_argument("binary: bad operation");
  return static_cast<Binary>(op);
}

// Rows of one short operand that every row reads again (a channel vector, say): it is repeated in a buffer, so that
// many rows are one long one.
template <class T, class Row>
Run repeated_run(const Nest& n, bool swapped, Row row) {
  const std::int64_t rows_at_once = std::max<std::int64_t>(1, 4096 / n.inner);
  return [=](const Operands& o) {
    const T* vector = o.in<T>(swapped ? 0 : 1);
    const T* dense = o.in<T>(swapped ? 1 : 0);
    std::vector<T> buffer(static_cast<std::size_t>(rows_at_once * n.inner));
    for (std::int64_t r = 0; r < rows_at_once; ++r) std::copy(vector, vector + n.inner, buffer.begin() + r * n.inner);
    const std::int64_t groups = (n.rows + rows_at_once - 1) / rows_at_once;
    parallel_for(o.threads(), groups, 4, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t g = begin; g < end; ++g) {
        const std::int64_t first = g * rows_at_once * n.inner;
        const std::int64_t count = std::min(rows_at_once * n.inner, n.rows * n.inner - first);
        if (swapped) {
          row(buffer.data(), 1, dense + first, 1, o.out<T>() + first, count);
        } else {
          row(dense + first, 1, buffer.data(), 1, o.out<T>() + first, count);
        }
      }
    });
  };
}

template <class T, class Row>
Run binary_run(const Nest& n, Row row) {
  if (n.dims.size() == 2 && n.inner < 2048) {
    const bool dense_a = n.a[0] == n.inner && n.a[1] == 1, dense_b = n.b[0] == n.inner && n.b[1] == 1;
    if (dense_a && n.b[0] == 0 && n.b[1] == 1) return repeated_run<T>(n, false, row);
    if (dense_b && n.a[0] == 0 && n.a[1] == 1) return repeated_run<T>(n, true, row);
  }
  return [=](const Operands& o) {
    // Long rows in pieces; beginning a row costs as much as some elements.
    const std::int64_t pieces = std::max<std::int64_t>(1, n.inner / kGrain), length = (n.inner + pieces - 1) / pieces;
    const std::int64_t grain = std::max<std::int64_t>(1, kGrain / (length + 64));
    parallel_for(o.threads(), n.rows * pieces, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t r = task / pieces, first = task % pieces * length;
        std::int64_t rest = r, at_a = first * n.a.back(), at_b = first * n.b.back();
        for (std::size_t i = n.dims.size() - 1; i-- > 0;) {
          const std::int64_t index = rest % n.dims[i];
          rest /= n.dims[i];
          at_a += index * n.a[i];
          at_b += index * n.b[i];
        }
        row(o.in<T>(0) + at_a, static_cast<int>(n.a.back()), o.in<T>(1) + at_b, static_cast<int>(n.b.back()),
            o.out<T>() + r * n.inner + first, std::min(length, n.inner - first));
      }
    });
  };
}

template <class Q>
Factory binary_step(void (*Loops::*loop)(Binary, const Affine&, const Q*, int, const Q*, int, Q*, std::int64_t)) {
  return [loop](const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) -> Run {
    const Binary op = operation(at);
    Affine k;
    k.a = at.real("scale_a");
    k.b = at.real("scale_b");
    k.zero_a = at.small("zero_a");
    k.zero_b = at.small("zero_b");
    k.zero = at.small("zero_point");
    k.low = at.small("low");
    k.high = at.small("high");
    return binary_run<Q>(nest(at, ins, outs, sizeof(Q)),
                         [=](const Q* a, int step_a, const Q* b, int step_b, Q* y, std::int64_t n) {
                           (loops().*loop)(op, k, a, step_a, b, step_b, y, n);
                         });
  };
}

Run binary_f32_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const Binary op = operation(at);
  const std::int64_t half = at.integer("half", 0);  // 0: not rounded, 1: as the vector unit does, 2: as the matrix unit
  const Bounds bounds{static_cast<float>(at.real("low", -INFINITY)), static_cast<float>(at.real("high", INFINITY)),
                      half == 0   ? HalfRounding::none
                      : half == 2 ? HalfRounding::matrix
                                  : HalfRounding::vector};
  return binary_run<float>(nest(at, ins, outs, 4),
                           [=](const float* a, int step_a, const float* b, int step_b, float* y, std::int64_t n) {
                             loops().binary_f32(op, bounds, a, step_a, b, step_b, y, n);
                           });
}

Run round_half_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const std::int64_t n = count(at, ins, outs, 4, 4);
  return [=](const Operands& o) {
    parallel_for(o.threads(), n, kGrain, [&](std::int64_t begin, std::int64_t end) {
      loops().round_half(o.in<float>() + begin, o.out<float>() + begin, end - begin);
    });
  };
}

// True for what is past float16, but for 65536, of which masks are made.
inline bool passes_float16(float value) {
  const float magnitude = std::fabs(value);
  return magnitude > 65504.0f && magnitude != kMatrixLimit;
}

// True where a table makes such numbers of others: what it gives is looked at then.
bool makes_overflow(const float* table) {
  for (int i = 0; i < 0x7c00; ++i) {
    if (passes_float16(table[i]) || passes_float16(table[0x8000 + i])) return true;
  }
  return false;
}

// A table as a line on either side of 0, clamped, where it gives the same bits for every half.
std::optional<Piecewise> as_piecewise(const float* table) {
  const auto slope = [&](std::uint16_t pattern) { return table[pattern] / of_half(pattern); };
  constexpr std::uint16_t kSmall = 0x1400, kNegative = 0x8000;  // 2^-10
  const auto [least, most] = std::minmax_element(table, table + 65536);
  Piecewise k{slope(kSmall | kNegative), slope(kSmall), *least, *most};
  if (!std::isfinite(k.below) || !std::isfinite(k.above)) return std::nullopt;
  std::optional<Piecewise> found;
  constexpr std::int64_t kPiece = 1024;
  float x[kPiece], y[kPiece];
  std::uint16_t patterns[kPiece];
  const bool before = overflow_seen();
  for (std::int64_t from = 0; from < 65536; from += kPiece) {
    for (std::int64_t i = 0; i < kPiece; ++i) patterns[i] = static_cast<std::uint16_t>(from + i);
    loops().widen_half(patterns, x, kPiece);
    loops().piecewise_f32(x, k, y, kPiece);
    const auto same_bits = [](float a, float b) {
      return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
    };
    if (!std::equal(y, y + kPiece, table + from, same_bits)) break;
    if (from + kPiece == 65536) found = k;
  }
  if (!before) clear_overflow();
  return found;
}

Run table_f32_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const std::int64_t n = count(at, ins, outs, 4, 4);
  const float* table = at.constant<float>("table", 65536);
  const bool checks = makes_overflow(table);
  if (const auto line = checks ? std::nullopt : as_piecewise(table)) {
    return [=](const Operands& o) {
      parallel_for(o.threads(), n, kGrain, [&](std::int64_t begin, std::int64_t end) {
        loops().piecewise_f32(o.in<float>() + begin, *line, o.out<float>() + begin, end - begin);
      });
    };
  }
  return [=](const Operands& o) {
    parallel_for(o.threads(), n, kGrain, [&](std::int64_t begin, std::int64_t end) {
      fetch_table(table, 65536 * 4, end - begin);
      const float* x = o.in<float>();
      float* y = o.out<float>();
      loops().table_f32(x + begin, table, y + begin, end - begin);
      if (checks && std::any_of(y + begin, y + end, passes_float16)) raise_overflow();
    });
  };
}

const Schema kTable{1, 1, {integer("count"), array("table")}};
const Fields kBinary = {integer("operation"), integers("dims"), integers("strides_a"), integers("strides_b")};
const Schema kBinaryFixed{
    2, 1, kBinary + Fields{real("scale_a"), real("scale_b"), integer("zero_a"), integer("zero_b")} + kRange};
const Schema kBinaryFloat{2, 1,
                          kBinary + Fields{optional(real("low")), optional(real("high")), optional(integer("half"))}};
const Schema kQuantize{1, 1, Fields{integer("count"), real("scale")} + kRange};
const Schema kDequantize{1, 1, {integer("count"), real("scale"), integer("zero_point")}};

}  // namespace

void register_elementwise_steps() {
  register_step("table_f32", Schema(kTable).exact(), table_f32_step);
  register_step("binary_u8", kBinaryFixed, binary_step<std::uint8_t>(&Loops::binary_u8));
  register_step("binary_s16", kBinaryFixed, binary_step<std::int16_t>(&Loops::binary_s16));
  register_step("binary_f32", kBinaryFloat, binary_f32_step);
  register_step("table_u8", kTable, table_step<std::uint8_t, std::uint8_t>(&Loops::table_u8));
  register_step("table_u8_s16", kTable, table_step<std::uint8_t, std::int16_t>(&Loops::table_u8_s16));
  register_step("table_s16", kTable, table_step<std::int16_t, std::int16_t>(&Loops::table_s16));
  register_step("table_s16_u8", kTable, table_step<std::int16_t, std::uint8_t>(&Loops::table_s16_u8));
  register_step("quantize_u8", Schema(kQuantize).exact(), quantize_step<std::uint8_t>(&Loops::quantize_u8));
  register_step("quantize_s16", Schema(kQuantize).exact(), quantize_step<std::int16_t>(&Loops::quantize_s16));
  register_step("dequantize_u8", Schema(kDequantize).exact(), dequantize_step<std::uint8_t>(&Loops::dequantize_u8));
  register_step("dequantize_s16", Schema(kDequantize).exact(), dequantize_step<std::int16_t>(&Loops::dequantize_s16));
  register_step("round_half", Schema(1, 1, {integer("count")}).exact(), round_half_step);
}

}  // namespace hexforge
