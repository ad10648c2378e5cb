// SPDX-License-Identifier: Apache-2.0
// Steps "packed_f32", "packed_s16", "packed_u8" and "packed_scaled_…": rows times constant weights of few bits, which
// stay packed in memory. Few rows multiply codes as they lie; for many, the codes of 64 outputs are made numbers once.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

#include "core/parallel.h"
#include "core/program.h"
#include "core/round_and_clamp.h"
#include "kernels/conv.h"
#include "kernels/loops.h"
#include "steps/fields.h"
#include "steps/products/packing.h"
#include "steps/steps.h"

namespace hexforge {
namespace {

constexpr std::int64_t kFewRows = 4;             // that are multiplied one after the other
constexpr std::int64_t kRowsAtOnce = 192;        // of many: their totals stay in the cache
constexpr double kLeastCodes = 65536;            // that are worth a thread
constexpr std::int64_t kMostScaledBlock = 1024;  // 2^17 * 15 * 2^10 is below 2^31
static_assert(kPackedOutputs == kBlock);

// Attributes: rows, inputs, outputs, bits, block (a divisor of inputs, and whole words of codes), zero. Constants:
// weights [outputs / 64][inputs * bits / 32][outputs of the block, at most 64, rounded up to 16] words of codes, the
// first input in the lowest bits; scales (float, or float16 with `half_scales`), zeros and factors (uint8) for each
// block of inputs: [outputs / 64][inputs / block][outputs of the block].
struct Packed {
  std::int64_t rows, inputs, outputs, lanes;  // lanes: outputs rounded up to 16
  PackedWeights weights{};

  Packed(const Attributes& at, const char* kind, std::span<const Tensor> ins, std::span<const Tensor> outs,
         std::int64_t element_bytes)
      : rows(at.integer("rows")), inputs(at.integer("inputs")), outputs(at.integer("outputs")) {
    const std::int64_t bits = at.integer("bits"), block = at.integer("block"), zero = at.integer("zero", 0);
    require_operands(ins, 1, outs, 1, kind);
    require(rows >= 1 && inputs >= 1 && outputs >= 1 && rows <= INT32_MAX && inputs <= INT32_MAX &&
                outputs <= INT32_MAX && (bits == 2 || bits == 4 || bits == 8) && block >= 1 && inputs % block == 0 &&
                block % (32 / bits) == 0 && zero >= 0 && zero < 1 << bits,
            "packed: bad sizes");
    require_bytes(ins[0], times({rows, inputs, element_bytes}), kind);
    require_bytes(outs[0], times({rows, outputs, element_bytes}), kind);
    lanes = (outputs + kLane - 1) / kLane * kLane;
    weights.depth = inputs;
    weights.block = block;
    weights.bits = static_cast<std::int32_t>(bits);
    weights.zero = static_cast<std::int32_t>(zero);
    weights.codes = at.constant<std::uint32_t>("weights", times({inputs * bits / 32, lanes}));
    if (at.has("zeros")) weights.zeros = at.constant<std::uint8_t>("zeros", per_block());
    if (at.has("factors")) weights.factors = at.constant<std::uint8_t>("factors", per_block());
  }

  std::int64_t per_block() const { return times({inputs / weights.block, lanes}); }
  std::int64_t blocks() const { return (outputs + kBlock - 1) / kBlock; }
  int members(int threads) const {
    return worthwhile(threads, static_cast<double>(outputs) * static_cast<double>(inputs), kLeastCodes);
  }

  // The weights of a block of outputs.
  PackedWeights of(std::int64_t index) const {
    PackedWeights own = weights;
    own.lanes = std::min<std::int64_t>(kBlock, lanes - index * kBlock);
    own.codes += index * kBlock * (inputs * weights.bits / 32);
    const std::int64_t at = index * kBlock * (inputs / weights.block);
    if (own.scales) own.scales += at;
    if (own.half_scales) own.half_scales += at;
    if (own.zeros) own.zeros += at;
    if (own.factors) own.factors += at;
    return own;
  }
};

// Working memory that each thread keeps, apart for each use of it; it begins with a line of the cache.
template <class T, int Use = 0>
T* kept(std::int64_t count) {
  constexpr std::size_t kLine = 64;
  thread_local std::vector<std::byte> memory;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
  if (memory.size() < bytes + kLine) memory.resize(bytes + kLine);
  const auto start = reinterpret_cast<std::uintptr_t>(memory.data());
  return reinterpret_cast<T*>(memory.data() + (kLine - start % kLine) % kLine);
}

// Many rows, as many at once as have their totals in the cache. All threads make them what kernels read: fill(first
// row, row behind it, rows, values) puts the blocks of a row so many blocks apart. Then each multiplies some outputs.
template <class Number, class Fill, class Multiply, class Store>
void multiply_many(const Packed& p, int members, const float* units, std::int32_t zero, const Fill& fill,
                   const Multiply& multiply, const Store& stored) {
  const PackedWeights& all = p.weights;
  for (std::int64_t row = 0; row < p.rows; row += kRowsAtOnce) {
    const std::int64_t rows = std::min(kRowsAtOnce, p.rows - row), count = rows * (all.depth / all.block);
    std::int16_t* values = kept<std::int16_t, 1>(rows * all.depth);
    std::int32_t* products = kept<std::int32_t, 2>(count);
    std::uint8_t* large = kept<std::uint8_t, 3>(count);
    parallel_for(members, rows, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) fill(row, r, rows, values + r * all.block);
    });
    parallel_for(members, count, 64, [&](std::int64_t begin, std::int64_t end) {
      loops().pair_rows(values + begin * all.block, end - begin, all.block, products + begin, large + begin);
    });
    const bool any_large = std::memchr(large, 1, static_cast<std::size_t>(count)) != nullptr;
    const PackedRows paired{values, products, large, units, rows, zero, any_large};
    parallel_for(members, p.blocks(), 1, [&](std::int64_t begin, std::int64_t end) {
      Number* totals = kept<Number>(rows * kBlock);
      std::uint32_t* panel = kept<std::uint32_t>(all.block / 2 * kBlock);
      for (std::int64_t block = begin; block < end; ++block) {
        const PackedWeights w = p.of(block);
        multiply(w, paired, panel, totals);
        for (std::int64_t r = 0; r < rows; ++r) stored(row + r, block, totals + r * w.lanes);
      }
    });
  }
}

// The float scales of blocks.
void read_scales(const Attributes& at, Packed& p) {
  if (at.integer("half_scales", 0)) {
    p.weights.half_scales = at.constant<std::uint16_t>("scales", p.per_block());
  } else {
    p.weights.scales = at.constant<float>("scales", p.per_block());
  }
}

// Rows as planes of signed bytes, less 128 (16 bits: x = 256 * high + low + 128), in the order that kernels read them,
// and what the zero point of the codes subtracts from each block's sums.
template <class T>
void spread(const T* x, const PackedWeights& w, std::int8_t* bytes, std::int32_t* starts) {
  constexpr int kPlanes = sizeof(T);
  for (std::int64_t block = 0; block < w.depth / w.block; ++block, starts += kPlanes) {
    std::int32_t sums[kPlanes] = {};
    for (std::int64_t k = 0; k < w.block; k += 8, x += 8, bytes += 8 * kPlanes) {
      for (int i = 0; i < 8; ++i) {
        const int place = i / 2 + i % 2 * 4;
        bytes[place] = static_cast<std::int8_t>(static_cast<std::int32_t>(x[i] & 255) - 128);
        sums[0] += bytes[place];
        if constexpr (kPlanes == 2) {
          bytes[8 + place] = static_cast<std::int8_t>(x[i] >> 8);
          sums[1] += bytes[8 + place];
        }
      }
    }
    for (int i = 0; i < kPlanes; ++i) starts[i] = -w.zero * sums[i];
  }
}

// The same of x less `zero`, where planes of signed bytes hold that; false where they do not, which is seldom.
template <class T>
bool spread_centered(const T* x, std::int32_t zero, const PackedWeights& w, std::int8_t* bytes, std::int32_t* starts) {
  constexpr int kPlanes = sizeof(T);
  constexpr std::int32_t kLeast = kPlanes == 2 ? -32896 : -128, kMost = kPlanes == 2 ? 32639 : 127;
  const auto [low, high] = std::minmax_element(x, x + w.depth);
  if (*low - zero < kLeast || *high - zero > kMost) return false;
  for (std::int64_t block = 0; block < w.depth / w.block; ++block, starts += kPlanes) {
    std::int32_t sums[kPlanes] = {};
    for (std::int64_t k = 0; k < w.block; k += 8, x += 8, bytes += 8 * kPlanes) {
      for (int i = 0; i < 8; ++i) {
        const int place = i / 2 + i % 2 * 4;
        const std::int32_t centered = x[i] - zero, rest = ((centered + 128) & 255) - 128;
        bytes[place] = static_cast<std::int8_t>(rest);
        sums[0] += rest;
        if constexpr (kPlanes == 2) {
          bytes[8 + place] = static_cast<std::int8_t>((centered - rest) >> 8);
          sums[1] += bytes[8 + place];
        }
      }
    }
    for (int i = 0; i < kPlanes; ++i) starts[i] = -w.zero * sums[i];
  }
  return true;
}

// Floats times 4-bit codes in blocks: as integers, which are so many units of their block.
template <class Store>
void multiply_units(const Packed& p, const float* x, const Operands& o, const Store& stored) {
  const Loops& loop = loops();
  const std::int64_t blocks = p.inputs / p.weights.block;
  const int members = p.members(o.threads());
  if (p.rows > kFewRows) {
    float* units = kept<float, 4>(std::min(kRowsAtOnce, p.rows) * blocks);
    const auto fill = [&](std::int64_t row, std::int64_t r, std::int64_t rows, std::int16_t* to) {
      loop.to_units(x + (row + r) * p.inputs, blocks, p.weights.block, rows, to, units + r);
    };
    multiply_many<float>(p, members, units, 0, fill, loop.packed_rows_units, stored);
    return;
  }
  PackedWeights without_zero = p.weights;
  if (p.weights.zeros) without_zero.zero = 1;  // starts are then times the zero of each output
  std::int16_t* values = kept<std::int16_t, 1>(p.inputs);
  std::int8_t* bytes = kept<std::int8_t, 2>(p.rows * p.inputs * 2);
  std::int32_t* starts = kept<std::int32_t, 3>(p.rows * blocks * 2);
  float* units = kept<float, 4>(p.rows * blocks);
  for (std::int64_t r = 0; r < p.rows; ++r) {
    loop.to_units(x + r * p.inputs, blocks, p.weights.block, 1, values, units + r * blocks);
    spread_centered(values, 0, without_zero, bytes + r * p.inputs * 2, starts + r * blocks * 2);
  }
  parallel_for(members, p.blocks(), 1, [&](std::int64_t begin, std::int64_t end) {
    float totals[kBlock];
    for (std::int64_t block = begin; block < end; ++block) {
      for (std::int64_t r = 0; r < p.rows; ++r) {
        loop.packed_row_units(p.of(block), bytes + r * p.inputs * 2, starts + r * blocks * 2, units + r * blocks,
                              totals);
        stored(r, block, totals);
      }
    }
  });
}

// Other codes, and longer blocks: each block's sum in order.
template <class Store>
void multiply_in_order(const Packed& p, const float* x, const Operands& o, const Store& stored) {
  const Loops& loop = loops();
  const bool few = p.rows <= kFewRows;
  for (std::int64_t row = 0; row < p.rows; row += kRowsAtOnce) {
    const std::int64_t rows = std::min(kRowsAtOnce, p.rows - row);
    const float* from = x + row * p.inputs;
    if (!few) {
      float* to = kept<float, 1>(rows * p.inputs);
      for (std::int64_t k = 0; k < p.inputs; k += p.weights.block) {
        for (std::int64_t r = 0; r < rows; ++r, to += p.weights.block)
          std::copy_n(from + r * p.inputs + k, p.weights.block, to);
      }
      from = to - rows * p.inputs;
    }
    parallel_for(p.members(o.threads()), p.blocks(), 1, [&](std::int64_t begin, std::int64_t end) {
      float *totals = kept<float>((rows + (few ? 0 : p.weights.block)) * kBlock), *panel = totals + rows * kBlock;
      for (std::int64_t block = begin; block < end; ++block) {
        const PackedWeights w = p.of(block);
        if (few) {
          for (std::int64_t r = 0; r < rows; ++r) loop.packed_row_f32(w, from + r * p.inputs, totals + r * w.lanes);
        } else {
          loop.packed_rows_f32(w, from, rows, panel, totals);
        }
        for (std::int64_t r = 0; r < rows; ++r) stored(row + r, block, totals + r * w.lanes);
      }
    });
  }
}

Run packed_f32(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  Packed p(at, "packed_f32", ins, outs, 4);
  read_scales(at, p);
  require(!p.weights.factors, "packed_f32: factors are for integers");
  const float* bias = at.has("bias_f32") ? at.constant<float>("bias_f32", p.outputs) : nullptr;
  const bool units = p.weights.bits == 4 && p.weights.block <= kMostScaledBlock;
  return [=](const Operands& o) {
    const float* x = o.in<float>(0);
    float* y = o.out<float>();
    const Loops& loop = loops();
    const auto stored = [&](std::int64_t row, std::int64_t block, const float* totals) {
      const std::int64_t first = block * kBlock, count = std::min<std::int64_t>(kBlock, p.outputs - first);
      loop.add_bias_f32(totals, bias ? bias + first : nullptr, y + row * p.outputs + first, count);
    };
    units ? multiply_units(p, x, o, stored) : multiply_in_order(p, x, o, stored);
  };
}

// As "conv_u8" and "conv_s16" of the same integers: factor * (code - zero). Attributes besides: flush (16 bits),
// zero_point, low, high. Constants besides: bias32 and multiplier32, or bias and multiplier of 16 bits, and weight_sums
// (int32): each for every output, padded to whole blocks of 64.
template <class T>
Run packed_fixed(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  constexpr bool kWide = sizeof(T) == 2;
  constexpr int kPlanes = sizeof(T);
  const Packed p(at, kWide ? "packed_s16" : "packed_u8", ins, outs, sizeof(T));
  // 240 * 128 * 2^16 is below 2^31
  require(p.weights.bits == 4 && !p.weights.zeros && p.inputs <= 1 << 16, "packed: bad codes of integers");
  ConvArgs base;
  const std::int64_t padded = p.blocks() * kBlock;
  base.zero_point = at.small("zero_point");
  base.low = at.small("low");
  base.high = at.small("high");
  const std::int32_t least = kWide ? -32768 : 0, most = kWide ? 32767 : 255;
  require(base.low >= least && base.high <= most && base.low <= base.high && base.zero_point >= least &&
              base.zero_point <= most,
          "packed: bad output range");
  const Target target(at);
  base.flush = at.integer("flush", 0);
  require(base.flush >= 0 && base.flush <= INT32_MAX, "packed: bad flush");
  base.in[2] = base.out[2] = p.rows;
  base.channels = base.run = base.x_stride = p.inputs;
  base.y_stride = base.out_channels = p.outputs;
  base.taps = 1;
  base.pointwise = true;
  base.steps = p.inputs * kPlanes / 4;
  const std::int32_t* sums = at.constant<std::int32_t>("weight_sums", padded);
  if constexpr (kWide) {
    base.bias = exact_bias(at, "bias", padded);
    base.multiplier = at.constant<double>("multiplier", padded);
  } else {
    base.bias32 = at.constant<std::int32_t>("bias32", padded);
    base.multiplier32 = at.constant<float>("multiplier32", padded);
  }
  return [=](const Operands& o) {
    const Loops& loop = loops();
    const T* x = o.in<T>(0);
    T* y = o.out<T>();
    const int members = p.members(o.threads());
    if (p.rows > kFewRows) {
      const ConvKernels& kernels = conv_kernels();
      parallel_for(members, p.blocks(), 1, [&](std::int64_t begin, std::int64_t end) {
        ConvArgs a = base;
        a.x = x;
        a.y = y;
        const Scratch scratch = working_memory(a, kernels.all_blocks);
        const std::int64_t words = a.steps * kBlock;
        std::uint32_t* panel = kept<std::uint32_t>(words + kWeightSlack / 4);
        for (std::int64_t block = begin; block < end; ++block) {
          (kWide ? loop.unpack_words : loop.unpack_bytes)(p.of(block), panel);
          a.weights = reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(panel) -
                                                    static_cast<std::uintptr_t>(block * words * 4));
          for (std::int64_t row = 0; row < p.rows; row += 168)
            (kWide ? kernels.s16 : kernels.u8)(a, row, std::min(p.rows, row + 168), block, block + 1, scratch);
        }
      });
      return;
    }
    const std::int64_t count = p.inputs / p.weights.block * kPlanes;
    std::vector<std::int8_t> bytes(static_cast<std::size_t>(p.inputs * kPlanes));
    std::vector<std::int32_t> starts(static_cast<std::size_t>(count));
    for (std::int64_t row = 0; row < p.rows; ++row) {
      spread(x + row * p.inputs, p.weights, bytes.data(), starts.data());
      parallel_for(members, p.blocks(), 1, [&](std::int64_t begin, std::int64_t end) {
        std::int32_t planes[kPlanes * kBlock];
        for (std::int64_t block = begin; block < end; ++block) {
          const PackedWeights w = p.of(block);
          loop.packed_row_bytes(w, kPlanes, bytes.data(), starts.data(), planes);
          const std::int64_t first = block * kBlock, last = std::min(p.outputs, first + kBlock);
          for (std::int64_t c = first; c < last; ++c) {
            std::int64_t sum = planes[c - first] + std::int64_t{128} * sums[c];
            if constexpr (kWide) {
              sum += std::int64_t{256} * planes[w.lanes + c - first] + base.bias[c];
              y[row * p.outputs + c] =
                  target.template round_and_clamp<T>(static_cast<double>(sum) * base.multiplier[c]);
            } else {
              sum += base.bias32[c];
              y[row * p.outputs + c] =
                  target.template round_and_clamp<T>(static_cast<float>(sum) * base.multiplier32[c]);
            }
          }
        }
      });
    }
  };
}

PackedScaling scaling(double in, double out, std::int32_t rest) {
  PackedScaling by{in, out, rest, 0, 0};
  const auto narrow = [](double x) {
    return x > 0 && std::isnormal(static_cast<float>(x)) && static_cast<float>(x) == x;
  };
  if (narrow(in) && narrow(out)) {
    by.ratio = in / out;
    by.ratio_rest = std::fma(-by.ratio, out, in) / out;
  }
  return by;
}

// As "conv_wide_…" of the same weights: round_and_clamp(sum over blocks of exact * (in_scale * scale / out_scale) +
// bias), in float64. Attributes besides: zero_a, in_scale, out_scale, zero_point, low, high. Constants besides: scales,
// and bias (float64, in steps of the output) for every output.
template <class T>
Run packed_scaled(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  constexpr int kPlanes = sizeof(T);
  Packed p(at, "packed_scaled", ins, outs, sizeof(T));
  read_scales(at, p);
  const std::int32_t zero_a = at.small("zero_a");
  require(p.weights.bits == 4 && !p.weights.zeros && !p.weights.factors && p.weights.block <= kMostScaledBlock &&
              std::abs(zero_a) <= 65536,
          "packed_scaled: bad codes of integers");
  const PackedScaling by = scaling(at.real("in_scale"), at.real("out_scale"), 128 - zero_a);
  const double* bias = at.has("bias") ? at.constant<double>("bias", p.outputs) : nullptr;
  const Target target(at);
  return [=](const Operands& o) {
    const Loops& loop = loops();
    const T* x = o.in<T>(0);
    T* y = o.out<T>();
    const int members = p.members(o.threads());
    const auto stored = [&](std::int64_t row, std::int64_t block, const double* totals) {
      const std::int64_t first = block * kBlock, count = std::min<std::int64_t>(kBlock, p.outputs - first);
      const double* own = bias ? bias + first : nullptr;
      T* to = y + row * p.outputs + first;
      if constexpr (kPlanes == 2)
        loop.round_totals_s16(totals, own, target.low, target.high, target.zero, to, count);
      else
        loop.round_totals_u8(totals, own, target.low, target.high, target.zero, to, count);
    };
    if (p.rows > kFewRows) {
      const auto fill = [&](std::int64_t row, std::int64_t r, std::int64_t rows, std::int16_t* to) {
        const T* from = x + (row + r) * p.inputs;
        for (std::int64_t k = 0; k < p.inputs; k += p.weights.block, to += rows * p.weights.block)
          std::copy_n(from + k, p.weights.block, to);
      };
      const auto multiply = [&](const PackedWeights& w, const PackedRows& rows, std::uint32_t* panel, double* totals) {
        loop.packed_rows_scaled(w, rows, by, panel, totals);
      };
      multiply_many<double>(p, members, nullptr, zero_a, fill, multiply, stored);
      return;
    }
    const std::int64_t row_bytes = p.inputs * kPlanes, row_starts = p.inputs / p.weights.block * kPlanes;
    std::vector<std::int8_t> bytes(static_cast<std::size_t>(p.rows * row_bytes));
    std::vector<std::int32_t> starts(static_cast<std::size_t>(p.rows * row_starts));
    PackedScaling own[kFewRows];
    for (std::int64_t r = 0; r < p.rows; ++r) {
      std::int8_t* to = bytes.data() + r * row_bytes;
      std::int32_t* from = starts.data() + r * row_starts;
      own[r] = by;
      if (spread_centered(x + r * p.inputs, zero_a, p.weights, to, from)) {
        own[r].rest = 0;
      } else {
        spread(x + r * p.inputs, p.weights, to, from);
      }
    }
    parallel_for(members, p.blocks(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) {
        const PackedWeights w = p.of(block);
        for (std::int64_t r = 0; r < p.rows; ++r) {
          double totals[kBlock] = {};
          loop.packed_row_scaled(w, kPlanes, bytes.data() + r * row_bytes, starts.data() + r * row_starts, own[r],
                                 totals);
          stored(r, block, totals);
        }
      }
    });
  };
}

const Fields kPacked = {integer("rows"),  integer("inputs"),         integer("outputs"), integer("bits"),
                        integer("block"), optional(integer("zero")), array("weights")};
const Fields kIntegers = kRange + Fields{optional(array("factors")), array("weight_sums"), optional(integer("flush"))};

}  // namespace

void register_packed_steps() {
  register_step("packed_f32",
                Schema(1, 1,
                       kPacked + Fields{optional(integer("half_scales")), array("scales"), optional(array("zeros")),
                                        optional(array("bias_f32"))})
                    .exact(),
                packed_f32);
  const Fields scaled = kPacked + kRange + Fields{integer("zero_a"), real("in_scale"),
                                                  real("out_scale"), optional(integer("half_scales")),
                                                  array("scales"),   optional(array("bias"))};
  register_step("packed_scaled_s16", Schema(1, 1, scaled).exact(), packed_scaled<std::int16_t>);
  register_step("packed_scaled_u8", Schema(1, 1, scaled).exact(), packed_scaled<std::uint8_t>);
  register_step("packed_s16", {1, 1, kPacked + kIntegers + Fields{array("bias"), array("multiplier")}},
                packed_fixed<std::int16_t>);
  register_step("packed_u8", {1, 1, kPacked + kIntegers + Fields{array("bias32"), array("multiplier32")}},
                packed_fixed<std::uint8_t>);
}

}  // namespace hexforge
