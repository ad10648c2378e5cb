// SPDX-License-Identifier: Apache-2.0
// Steps "conv_wide_u8" and "conv_wide_s16": convolutions whose weights have 16 bits, or a scale per block of channels.
// A weight is 256 * high + low with both in -128..128, so sums of 480 products stay below 2^31; they are added up in
// int64. Each output is round_and_clamp(sum over blocks of (exact sum of the block) * scale + bias) in float64.
#include <algorithm>
#include <limits>
#include <vector>

#include "core/parallel.h"
#include "core/round_and_clamp.h"
#include "kernels/loops.h"
#include "steps/fields.h"
#include "steps/steps.h"

namespace hexforge {
namespace {

constexpr std::int64_t kTile = 16;

struct Wide {
  std::int64_t batch, in[3], out[3], kernel[3], stride[3], pad[3], dilation[3];
  std::int64_t channels, outputs, groups, blocks, rows;  // per group; rows: outputs rounded up to 4
  std::int64_t taps, block_channels, block, depth;       // depth: elements of a block, rounded up to 32
  std::int16_t zero;
  const std::int16_t *low, *high;
  const std::int64_t *sums, *units;
  const double *scales, *bias;
};

// The inputs that `count` outputs from `first` on read, block by block: [count][blocks][depth], padding at zero.
template <class Q>
void gather(const Wide& s, const Q* x, std::int64_t group, std::int64_t first, std::int64_t count, std::int16_t* to) {
  const std::int64_t whole = s.channels * s.groups, plane = s.out[0] * s.out[1] * s.out[2];
  for (std::int64_t p = first; p < first + count; ++p) {
    const std::int64_t n = p / plane,
                       at[3] = {p / (s.out[1] * s.out[2]) % s.out[0], p / s.out[2] % s.out[1], p % s.out[2]};
    for (std::int64_t b = 0; b < s.blocks; ++b) {
      std::int16_t* row = to + ((p - first) * s.blocks + b) * s.depth;
      for (std::int64_t tap = 0; tap < s.taps; ++tap, row += s.block_channels) {
        const std::int64_t k[3] = {tap / (s.kernel[1] * s.kernel[2]), tap / s.kernel[2] % s.kernel[1],
                                   tap % s.kernel[2]};
        std::int64_t place = n;
        bool inside = true;
        for (int i = 0; i < 3; ++i) {
          const std::int64_t index = at[i] * s.stride[i] - s.pad[i] + k[i] * s.dilation[i];
          inside = inside && index >= 0 && index < s.in[i];
          place = place * s.in[i] + index;
        }
        if (inside) {
          const Q* from = x + place * whole + group * s.channels + b * s.block_channels;
          std::copy_n(from, s.block_channels, row);
        } else {
          std::fill_n(row, s.block_channels, s.zero);
        }
      }
      std::fill_n(row, s.depth - s.block, std::int16_t{0});
    }
  }
}

// Attributes: batch, in, out, kernel, stride, pad, dilation, channels and out_channels (per group), groups, blocks,
// zero_a, zero_point, low, high. Constants: weights_low and, where a weight has more than 8 bits, weights_high (int16
// [groups][out_channels rounded up to 4][blocks][depth], a block being [taps][channels of the block] filled up to a
// multiple of 32); sums (int64, of a block's weights), units (int64, added to the first block), scales (float64), all
// [groups][outputs][blocks] but units and bias (float64), which are [groups][outputs].
template <class Q>
Run wide_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  Wide s;
  require_operands(ins, 1, outs, 1, "conv_wide");
  s.batch = at.integer("batch");
  copy3(at, "in", s.in);
  copy3(at, "out", s.out);
  copy3(at, "kernel", s.kernel);
  copy3(at, "stride", s.stride);
  copy3(at, "pad", s.pad);
  copy3(at, "dilation", s.dilation);
  s.channels = at.integer("channels");
  s.outputs = at.integer("out_channels");
  s.groups = at.integer("groups");
  s.blocks = at.integer("blocks");
  require(s.batch >= 0 && s.channels >= 1 && s.outputs >= 1 && s.groups >= 1 && s.blocks >= 1, "conv_wide: bad sizes");
  for (int i = 0; i < 3; ++i) {
    require(s.in[i] >= 1 && s.out[i] >= 1 && s.kernel[i] >= 1 && s.stride[i] >= 1 && s.dilation[i] >= 1,
            "conv_wide: bad geometry");
    for (std::int64_t size : {s.in[i], s.out[i], s.kernel[i], s.stride[i], s.dilation[i], s.pad[i]}) {
      require(size >= -INT32_MAX && size <= INT32_MAX, "conv_wide: bad geometry");
    }
  }
  require(s.channels % s.blocks == 0, "conv_wide: the channels do not divide into blocks");
  s.taps = times({s.kernel[0], s.kernel[1], s.kernel[2]});
  s.block_channels = s.channels / s.blocks;
  s.block = times({s.taps, s.block_channels});
  s.depth = (s.block + 31) / 32 * 32;
  require(s.outputs <= INT32_MAX, "conv_wide: bad sizes");
  s.rows = (s.outputs + 3) / 4 * 4;
  const std::int64_t pixels = times({s.batch, s.out[0], s.out[1], s.out[2]}), width = times({s.groups, s.outputs});
  const std::int64_t bytes = sizeof(Q);
  require_bytes(ins[0], times({s.batch, s.in[0], s.in[1], s.in[2], s.groups, s.channels, bytes}), "conv_wide input");
  require_bytes(outs[0], times({s.batch, s.out[0], s.out[1], s.out[2], width, bytes}), "conv_wide output");
  const std::int64_t size = times({s.groups, s.rows, s.blocks, s.depth});
  s.low = at.constant<std::int16_t>("weights_low", size);
  s.high = at.has("weights_high") ? at.constant<std::int16_t>("weights_high", size) : nullptr;
  for (const std::int16_t* part : {s.low, s.high}) {
    for (std::int64_t i = 0; part && i < size; ++i)
      require(part[i] >= -128 && part[i] <= 128, "conv_wide: a weight is not split");
  }
  s.sums = at.constant<std::int64_t>("sums", times({width, s.blocks}));
  s.units = at.constant<std::int64_t>("units", width);
  s.scales = at.constant<double>("scales", times({width, s.blocks}));
  s.bias = at.constant<double>("bias", width);
  s.zero = static_cast<std::int16_t>(at.small("zero_a"));
  const Target target(at);
  return [=](const Operands& o) {
    const auto product = loops().dot_2x4;
    const std::int64_t tiles = (pixels + kTile - 1) / kTile, row = s.blocks * s.depth;
    parallel_for(o.threads(), tiles * s.groups, 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<std::int16_t> patch(static_cast<std::size_t>(kTile * row));
      for (std::int64_t t = begin; t < end; ++t) {
        const std::int64_t group = t % s.groups, first = t / s.groups * kTile, count = std::min(kTile, pixels - first);
        gather(s, o.in<Q>(), group, first, count, patch.data());
        for (std::int64_t c0 = 0; c0 < s.outputs; c0 += 4) {
          const std::int64_t at_w = (group * s.rows + c0) * row;
          for (std::int64_t p = 0; p < count; p += 2) {
            double total[8] = {};
            for (std::int64_t b = 0; b < s.blocks; ++b) {
              std::int64_t low[8] = {}, high[8] = {};
              const std::int16_t* x = patch.data() + p * row + b * s.depth;
              product(x, row, s.low + at_w + b * s.depth, row, s.depth, low);
              if (s.high) product(x, row, s.high + at_w + b * s.depth, row, s.depth, high);
              for (std::int64_t i = 0; i < 8; ++i) {
                const std::int64_t c = group * s.outputs + std::min(c0 + i % 4, s.outputs - 1);
                const std::int64_t exact =
                    high[i] * 256 + low[i] - s.zero * s.sums[c * s.blocks + b] + (b ? 0 : s.units[c]);
                total[i] += static_cast<double>(exact) * s.scales[c * s.blocks + b];
              }
            }
            for (std::int64_t i = 0; i < 8; ++i) {
              const std::int64_t pixel = p + i / 4, channel = c0 + i % 4;
              if (pixel >= count || channel >= s.outputs) continue;
              const std::int64_t c = group * s.outputs + channel;
              o.out<Q>()[(first + pixel) * width + c] = target.round_and_clamp<Q>(total[i] + s.bias[c]);
            }
          }
        }
      }
    });
  };
}

const Schema kWide{1, 1,
                   kWindow +
                       Fields{integer("out_channels"), integer("groups"), integer("blocks"), array("weights_low"),
                              optional(array("weights_high")), array("sums"), array("units"), array("scales"),
                              array("bias"), integer("zero_a")} +
                       kRange};

}  // namespace

void register_wide_steps() {
  register_step("conv_wide_u8", kWide, wide_step<std::uint8_t>);
  register_step("conv_wide_s16", kWide, wide_step<std::int16_t>);
}

}  // namespace hexforge
