// SPDX-License-Identifier: Apache-2.0
// Steps "conv_u8", "conv_s16", "conv_f32" and "depthwise_…": geometry checked once, then the kernel of the level.
#include <algorithm>
#include <cstdlib>
#include <limits>

#include "core/caches.h"
#include "core/level.h"
#include "core/parallel.h"
#include "core/program.h"
#include "kernels/conv.h"
#include "kernels/half.h"
#include "kernels/loops.h"
#include "steps/fields.h"
#include "steps/products/computed_weights.h"
#include "steps/products/depthwise_packing.h"
#include "steps/products/winograd.h"
#include "steps/steps.h"

namespace hexforge {

const ConvKernels& conv_kernels() {
  [[maybe_unused]] const Level level = current_level();
#if defined(__x86_64__)
#if defined(__linux__)
  if (level == Level::amx) return kConvAmx;
#endif
  if (level == Level::avx512) return kConvAvx512;
  if (level == Level::avx_vnni) return has_avx_vnni() ? kConvAvxVnni : kConvAvxVnniEvex;
  if (level == Level::avx2) return kConvAvx2;
#elif defined(__aarch64__)
  if (level == Level::i8mm) return kConvI8mm;
  if (level == Level::dotprod) return kConvDotprod;
  if (level == Level::neon) return kConvNeon;
#endif
  return kConvPortable;
}

Scratch working_memory(const ConvArgs& a, bool panel) {
  thread_local std::vector<const char*> rows;
  thread_local std::vector<char> bytes;
  const auto grow = [](auto& memory, std::int64_t count) {
    if (static_cast<std::int64_t>(memory.size()) < count) memory.resize(static_cast<std::size_t>(count));
  };
  grow(rows, (kFloatPixels + kMostRows) * a.taps);
  const std::int64_t copies = (kMostRows * a.taps * a.steps * 4 + 63) / 64 * 64;
  constexpr std::int64_t kSums = (kFloatPixels + kMostRows) * kBlock * 4;
  grow(bytes, kSums + copies + (panel ? kPanelPixels * a.taps * ((a.run + 63) / 64 * 64) * 2 : 0) + 64);
  char* start = bytes.data() + (64 - reinterpret_cast<std::uintptr_t>(bytes.data()) % 64) % 64;
  return {rows.data(), start + kSums, reinterpret_cast<float*>(start), start + kSums + copies};
}

namespace {

// Attributes: batch, in[3], out[3], kernel[3], stride[3], pad[3], dilation[3], channels (per group), out_channels (per
// group), groups, x_stride, y_stride, x_offset, y_offset, row_taps, flush, planes, weight_offset, zero_point, low,
// high. Constants: weights (packed, group after group) and, per output channel padded to whole blocks per group, bias32
// and multiplier32 (8-bit), bias (int64) and multiplier (float64) (16-bit), bias_f32 (float); pad_row. With `winograd`
// the weights of a float convolution are its 4 x 4 cells. With `half_weights` they lie in half as many bytes: float16
// (of Winograd's the 3 x 3 weights), or int8 of those that are multiplied with 16 bits. With `weight_strides` the
// second input has the weights (computed_weights.h), and what follows from them is no constant.
ConvArgs geometry(const Attributes& at, int bits, bool depthwise) {
  ConvArgs a;
  a.batch = at.integer("batch");
  const auto copy = [&](const char* name, std::int64_t* to, std::int64_t least) {
    const auto& values = at.list(name, 3);
    std::copy(values.begin(), values.end(), to);
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    if (*low < least || *high > INT32_MAX) throw std::invalid_argument(std::string("conv: bad ") + name);
  };
  copy("in", a.in, 1);
  copy("out", a.out, 0);
  copy("kernel", a.kernel, 1);
  copy("stride", a.stride, 1);
  copy("pad", a.pad, -INT32_MAX);
  copy("dilation", a.dilation, 1);
  a.channels = at.integer("channels");
  a.out_channels = at.integer("out_channels");
  a.x_stride = at.integer("x_stride");
  a.y_stride = at.integer("y_stride");
  times({a.x_stride});
  times({a.y_stride});
  a.row_taps = at.integer("row_taps", 0) != 0 && !depthwise;
  const std::int64_t positions = times({a.kernel[0], a.kernel[1], a.kernel[2]});
  a.taps = a.row_taps ? a.kernel[0] * a.kernel[1] : positions;
  a.run = times({a.row_taps ? a.kernel[2] : 1, a.channels});
  a.pointwise = positions == 1 && std::equal(a.in, a.in + 3, a.out) &&
                std::all_of(a.stride, a.stride + 3, [](auto s) { return s == 1; }) &&
                std::all_of(a.pad, a.pad + 3, [](auto p) { return p == 0; });
  const std::int64_t values = 32 / bits;
  a.steps = (a.run + values - 1) / values;
  a.flush = at.integer("flush", 0);
  a.planes = at.integer("planes", 1);
  if (a.planes < 1 || a.planes > (bits == 16 ? 2 : 1)) throw std::invalid_argument("conv: bad planes");
  const std::int64_t weight_offset = at.integer("weight_offset", 0);
  // what it is multiplied with is a sum of bytes
  if (weight_offset < -255 || weight_offset > 255) throw std::invalid_argument("conv: weight_offset is too large");
  if (times({positions, a.channels, 255, std::max<std::int64_t>(1, std::abs(weight_offset))}) > INT32_MAX &&
      weight_offset != 0) {
    throw std::invalid_argument("conv: weight_offset is too large");
  }
  a.weight_offset = static_cast<std::int32_t>(weight_offset);
  if (bits == 32) {
    a.low_f32 = static_cast<float>(at.real("low"));
    a.high_f32 = static_cast<float>(at.real("high"));
    a.half = at.integer("half", 0) != 0;
    if (a.half) {
      a.low_f32 = std::clamp(a.low_f32, -kMatrixLimit, kMatrixLimit);
      a.high_f32 = std::clamp(a.high_f32, -kMatrixLimit, kMatrixLimit);
    }
  } else {
    a.zero_point = at.small("zero_point");
    a.low = at.small("low");
    a.high = at.small("high");
    const std::int64_t least = bits == 8 ? 0 : -32768, most = bits == 8 ? 255 : 32767;
    if (a.low < least || a.high > most || a.low > a.high || a.zero_point < least || a.zero_point > most) {
      throw std::invalid_argument("conv: bad output range");
    }
  }
  if (a.batch < 0 || a.channels < 1 || a.out_channels < 1 || a.flush < 0 || a.flush > INT32_MAX)
    throw std::invalid_argument("conv: bad sizes");
  // A correction by the sum of the inputs must fit 32 bits, as the lowering sees to.
  if (a.weight_offset &&
      255.0 * std::abs(a.weight_offset) * static_cast<double>(a.taps) * static_cast<double>(a.run) > INT32_MAX) {
    throw std::invalid_argument("conv: sums could leave 32 bits");
  }
  if (a.row_taps && (a.dilation[2] != 1 || a.x_stride != a.channels)) {
    throw std::invalid_argument("conv: a kernel row is not contiguous");
  }
  return a;
}

// What all blocks of output channels have in common: the corrections of pixels [first, last), found by the pixel.
const std::int32_t* corrections_for(const ConvArgs& a, std::int64_t first, std::int64_t last,
                                    const ConvKernels& kernels, const Scratch& scratch) {
  thread_local std::vector<std::int32_t> memory;
  const auto count = static_cast<std::size_t>(last - first + kMostRows);  // a tile reads its whole height of them
  if (memory.size() < count) memory.resize(count);
  kernels.correct_u8(a, first, last, scratch, memory.data());
  return memory.data() - first;
}

constexpr std::int64_t kChunk = 168;  // pixels of one kernel call: a multiple of every tile height

// Products that are worth a thread: some microseconds of them.
template <int Bits, bool Depthwise>
constexpr double kLeastMacs = Depthwise    ? 1e5
                              : Bits == 8  ? 8e5
                              : Bits == 16 ? 4e5
                                           : 2e5;

// A convolution in tasks: `units` of `unit` pixels, times `shares` of `share` blocks of output channels.
struct Split {
  std::int64_t unit, units, share, shares;
};

std::int64_t divided_up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

// By rows of pixels: a thread then reads what it wrote in the step before.
Split rows_of(const ConvArgs& a, std::int64_t pixels) {
  const std::int64_t row = std::max<std::int64_t>(1, a.out[2]);
  return {row, divided_up(pixels, row), 1, 1};
}

// By tiles of pixels, by blocks of channels, or by both, whatever keeps the busiest member shortest: what it
// multiplies, and what it reads of weights and pixels that are not in its caches. Units are small, as those that follow
// each other are computed in one go.
Split split_of(const ConvArgs& a, std::int64_t pixels, std::int64_t blocks, std::int64_t groups, int members,
               bool all_blocks, std::int64_t weight_bytes, std::int64_t in_bytes) {
  if (members == 1)
    return {all_blocks ? kChunk : std::max<std::int64_t>(1, pixels), all_blocks ? divided_up(pixels, kChunk) : 1,
            blocks, 1};
  const std::int64_t vectors = std::min<std::int64_t>(4, divided_up(a.out_channels, kLane));
  const std::int64_t tile = all_blocks ? 16 : vectors == 1 ? 14 : vectors == 2 ? 12 : vectors == 3 ? 8 : 7;
  const std::int64_t tiles = divided_up(pixels, tile);
  // One k-step of 64 channels takes a core about as long as 16 bytes from beyond its caches.
  const double product = 16.0 * static_cast<double>(tile * a.planes * a.taps * a.steps),
               weights = static_cast<double>(weight_bytes);
  Split best{tile, tiles, blocks, 1};
  double least = 0;
  for (std::int64_t shares = 1; shares <= blocks; shares += 1 + shares / 4) {
    const std::int64_t share = divided_up(blocks, shares), found = divided_up(blocks, share);
    const double busiest = static_cast<double>(divided_up(groups * found * tiles, members) * share);
    const double read = weights / static_cast<double>(found) +
                        static_cast<double>(in_bytes) * std::min(1.0, static_cast<double>(found) / members);
    const double cost = busiest * product + read;
    if (least != 0 && cost >= least) continue;
    best = {tile, tiles, share, found};
    least = cost;
  }
  return best;
}

// Kernels read whole k-steps: what lies behind a run is multiplied too, so its weights must be 0, whatever a file says.
void require_silent_tails(const char* weights, const ConvArgs& a, std::int64_t groups, std::int64_t bits,
                          std::int64_t step_bytes) {
  const std::int64_t rest = a.run % (32 / bits) * bits * step_bytes / 32;
  if (rest == 0) return;
  for (std::int64_t group = 0; group < groups; ++group) {
    for (std::int64_t channel = 0; channel < a.out_channels; channel += kBlock) {
      const std::int64_t cells = std::min<std::int64_t>(kBlock, (a.out_channels - channel + kLane - 1) / kLane * kLane);
      for (std::int64_t tap = 0; tap < a.planes * a.taps; ++tap) {
        const char* last = weights + ((tap + 1) * a.steps - 1) * cells * step_bytes;
        for (std::int64_t cell = 0; cell < cells; ++cell) {
          if (std::any_of(last + cell * step_bytes + rest, last + (cell + 1) * step_bytes,
                          [](char byte) { return byte != 0; })) {
            throw std::invalid_argument("conv: weights behind the channels are not 0");
          }
        }
      }
      weights += a.planes * a.taps * a.steps * kBlock * step_bytes;
    }
  }
}

// Pixels that are worth widening a block of weights in memory first: fewer multiply what they widen in registers. There
// widening costs little where it has a unit of its own beside the products.
std::int64_t many_pixels() {
  static const std::int64_t many = widens_beside_products() ? 1024 : 48;
  return many;
}

// Weights of some blocks that lie in half as many bytes, widened: float16 as float32, or int8 as int16. Given as the
// place that all of them would begin at, as kernels add what the blocks before have.
template <int Bits>
const void* widened(const char* narrow, std::int64_t block, std::int64_t some, std::int64_t block_bytes) {
  thread_local std::vector<char> memory;
  const std::int64_t bytes = some * block_bytes;
  if (static_cast<std::int64_t>(memory.size()) < bytes + 64) memory.resize(static_cast<std::size_t>(bytes + 64));
  char* start = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
  const char* from = narrow + block * (block_bytes / 2);
  if constexpr (Bits == 32) {
    loops().widen_half(reinterpret_cast<const std::uint16_t*>(from), reinterpret_cast<float*>(start), bytes / 4);
  } else {
    loops().widen_bytes(reinterpret_cast<const std::int8_t*>(from), reinterpret_cast<std::int16_t*>(start), bytes / 2);
  }
  return reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(start) -
                                       static_cast<std::uintptr_t>(block * block_bytes));
}

template <int Bits, bool Depthwise>
Run make_conv(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  constexpr std::int64_t kElement = Bits / 8;
  ConvArgs a = geometry(at, Bits, Depthwise);
  const std::int64_t groups = at.integer("groups", 1);
  const std::int64_t x_offset = at.integer("x_offset", 0), y_offset = at.integer("y_offset", 0);
  const std::int64_t in_pixels = times({a.batch, a.in[0], a.in[1], a.in[2]});
  const std::int64_t pixels = times({a.batch, a.out[0], a.out[1], a.out[2]});
  if (groups < 1 || x_offset < 0 || y_offset < 0 || times({groups, a.channels}) > a.x_stride - x_offset ||
      times({groups, a.out_channels}) > a.y_stride - y_offset || (Depthwise && a.channels != a.out_channels)) {
    throw std::invalid_argument("conv: groups do not fit the tensors' channels");
  }
  const bool computed = at.integers.contains("weight_strides");
  const bool residual = !computed && !Depthwise && ins.size() == 2 &&
                        (Bits == 32 ? at.integer("residual", 0) != 0 : at.reals.contains("own_scale"));
  if (ins.size() != (residual || computed ? 2 : 1) || outs.size() != 1 || (residual && groups != 1)) {
    throw std::invalid_argument(
        "conv: bad operands, it takes one input (and its weights or, without groups, a residual) and one output");
  }
  if (residual) {
    require_bytes(ins[1], times({pixels, a.out_channels, kElement}), "conv residual");
    a.residual_stride = a.out_channels;
  }
  if (residual && Bits != 32) {
    a.own_scale_f64 = at.real("own_scale");
    a.residual_scale_f64 = at.real("residual_scale");
    a.own_scale = static_cast<float>(a.own_scale_f64);
    a.residual_scale = static_cast<float>(a.residual_scale_f64);
    a.residual_zero = at.small("residual_zero");
    a.sum_zero = at.small("sum_zero");
    a.sum_low = at.small("sum_low");
    a.sum_high = at.small("sum_high");
    if (std::abs(a.residual_zero) > 65536 || std::abs(a.sum_zero) > 65536 || a.sum_low < (Bits == 8 ? 0 : -32768) ||
        a.sum_high > (Bits == 8 ? 255 : 32767) || a.sum_low > a.sum_high)
      throw std::invalid_argument("conv: bad output range");
  }
  require_bytes(ins[0], times({in_pixels, a.x_stride, kElement}), "conv input");
  require_bytes(outs[0], times({pixels, a.y_stride, kElement}), "conv output");
  writes_part(outs[0], {y_offset * kElement, groups * a.out_channels * kElement, {{pixels, a.y_stride * kElement}}});
  const std::int64_t blocks = (a.out_channels + kBlock - 1) / kBlock;
  const std::int64_t padded = blocks * kBlock;
  if (Depthwise) a.weight_stride = padded;
  std::shared_ptr<const ComputedWeights> packer;
  if (computed) packer = std::make_shared<const ComputedWeights>(at, ins[1], a, groups, Bits, Depthwise);
  const bool winograd = Bits == 32 && !Depthwise && !computed && at.integer("winograd", 0) != 0;
  if (winograd) require_winograd(a, groups);
  std::int64_t weight_bytes = 0;
  if (Depthwise) {
    weight_bytes = times({a.planes, a.taps, padded, 4});
  } else {
    weight_bytes = times({a.planes, winograd ? kWinogradTaps : a.taps, a.steps, padded, 4});
  }
  // Weights may lie in memory in half as many bytes, floats as float16 and those of 16 bits as int8: a block of them is
  // widened where it is read, and stays small beside the model.
  const bool halves = Bits != 8 && !Depthwise && !winograd && !computed && at.integer("half_weights", 0) != 0;
  std::shared_ptr<WinogradCells> cells;
  if (winograd && at.integer("half_weights", 0) != 0) {
    times({kWinogradTaps, a.channels, padded, 4});
    cells = WinogradCells::of(at.constant<std::uint16_t>("weights", times({9, a.channels, a.out_channels})), a.channels,
                              a.out_channels);
  }
  Stationary held;
  held.padded = padded;
  held.weight_bytes = halves ? weight_bytes / 2 : weight_bytes;
  if (!computed) {
    if (!cells)
      held.weights = halves && Bits == 32
                         ? reinterpret_cast<const char*>(
                               at.constant<std::uint16_t>("weights", times({groups, held.weight_bytes}) / 2))
                         : at.constant<char>("weights", times({groups, held.weight_bytes}) +
                                                            (Bits == 8 && !Depthwise ? kWeightSlack : 0));
    if (Bits != 32 && !Depthwise) require_silent_tails(held.weights, a, groups, Bits, halves ? 2 : 4);
    if (Bits == 16) held.multiplier = at.constant<double>("multiplier", groups * padded);
    if (Bits == 16) held.bias = at.constant<std::int64_t>("bias", groups * padded);
    if (Bits == 32) held.bias_f32 = at.constant<float>("bias_f32", groups * padded);
    if (Bits == 8) held.multiplier32 = at.constant<float>("multiplier32", groups * padded);
    if (Bits == 8) held.bias32 = at.constant<std::int32_t>("bias32", groups * padded);
    if (Bits == 16 && !Depthwise && a.planes == 1 && at.has("weights8")) {
      held.weight8_bytes = a.taps * ((a.run + 3) / 4) * padded * 4;
      held.weights8 = at.constant<char>("weights8", groups * held.weight8_bytes + kWeightSlack);
      held.weight_sums = at.constant<std::int32_t>("weight_sums", groups * padded);
    }
  }
  if (Bits == 8 && at.has("table")) a.table = at.constant<std::uint8_t>("table", 256);
  if (Bits == 16 && at.has("table")) a.table16 = at.constant<std::int16_t>("table", 65537);
  if (Bits == 32 && a.half && at.has("table")) a.table_f32 = at.constant<float>("table", 65536);
  a.pad_row = at.constant<char>("pad_row", (Depthwise  ? padded * kElement
                                            : winograd ? divided_up(a.steps, kLane) * kLane * 4
                                                       : a.steps * 4));
  if (winograd) {
    held.give(a, 0);
    return winograd_run(a, cells, x_offset, y_offset, residual);
  }
  std::shared_ptr<const DepthwisePacking> packing;
  if (Bits == 8 && Depthwise && !computed && groups == 1 && best_level() >= Level::avx512) {
    packing = std::make_shared<const DepthwisePacking>(
        pack_depthwise(a, at.constant<std::int32_t>("weights", a.taps * padded), held.bias32, held.multiplier32));
    use_depthwise_packing(a, *packing);
  }
  const double terms = static_cast<double>(a.planes * a.taps * a.run),
               lanes = static_cast<double>((a.out_channels + kLane - 1) / kLane * kLane);
  // Storing a result costs as much as some products, and so does a byte of weights that few pixels share.
  constexpr double kStore = 320.0 / Bits, kByte = 64.0 / Bits;
  const double cost =
      static_cast<double>(groups) *
      (Depthwise ? static_cast<double>(pixels * a.out_channels) * terms
                 : static_cast<double>(pixels) * lanes * (terms + kStore) + kByte * static_cast<double>(weight_bytes));
  const std::int64_t in_bytes = in_pixels * a.x_stride * kElement;
  return [=, args = a, kept = packing](const Operands& operands) {
    const ConvKernels& kernels = conv_kernels();
    const int members = worthwhile(operands.threads(), cost, kLeastMacs<Bits, Depthwise>);
    ConvArgs a = args;
    ComputedWeights::Room room;
    const Stationary stationary = packer ? packer->packed(operands.in<char>(1), room, a, members) : held;
    const bool all_blocks =
        Bits != 32 && !Depthwise && kernels.all_blocks && (!halves || (held.weights8 && args.run >= kLeastTileRun));
    const Split split =
        Depthwise ? rows_of(a, pixels)
                  : split_of(a, pixels, blocks, groups, members, all_blocks, held.weight_bytes, in_bytes / groups);
    // Pixels [first, last) of blocks [block, block_end) of a group.
    const auto compute = [&](std::int64_t group, std::int64_t block, std::int64_t block_end, std::int64_t first,
                             std::int64_t last, const Scratch& scratch) {
      ConvArgs own = a;
      own.x = operands.in<char>() + (x_offset + group * a.channels) * kElement;
      own.y = operands.out<char>() + (y_offset + group * a.out_channels) * kElement;
      stationary.give(own, group);
      own.residual = residual && Bits == 8 ? operands.in<std::uint8_t>(1) : nullptr;
      own.residual_s16 = residual && Bits == 16 ? operands.in<std::int16_t>(1) : nullptr;
      own.residual_f32 = residual && Bits == 32 ? operands.in<float>(1) : nullptr;
      if constexpr (Depthwise) {
        (Bits == 8    ? kernels.depthwise_u8
         : Bits == 16 ? kernels.depthwise_s16
                      : kernels.depthwise_f32)(own, first, last, scratch);
      } else {
        const ConvKernel narrow = Bits == 16 ? kernels.s16_half : kernels.f32_half;
        const bool in_registers = halves && narrow && last - first < many_pixels(),
                   widen = halves && !in_registers && !all_blocks;
        const ConvKernel kernel = in_registers ? narrow
                                  : Bits == 8  ? kernels.u8
                                  : Bits == 16 ? kernels.s16
                                               : kernels.f32;
        if (Bits == 8 && a.weight_offset && !all_blocks && block_end - block > 1)
          own.corrections = corrections_for(own, first, last, kernels, scratch);
        // What is read again and again is the smaller: the weights for every chunk of pixels, or the pixels for every
        // block.
        const std::int64_t chunks =
                               std::max<std::int64_t>(1, divided_up(last - first, Bits == 32 ? kFloatPixels : kChunk)),
                           some = block_end - block;
        const std::int64_t chunk = Bits == 32 ? divided_up(divided_up(last - first, chunks), 28) * 28 : kChunk;
        const bool by_chunks = all_blocks || chunks * some * (held.weight_bytes / blocks) <
                                                 some * (in_bytes / std::max<std::int64_t>(1, pixels)) * (last - first);
        const std::int64_t step = by_chunks ? some : 1;
        for (; block < block_end; block += step) {
          if (widen) {
            const char* all = held.weights + group * held.weight_bytes;
            own.weights = widened<Bits>(all, block, step, weight_bytes / blocks);
            if (!by_chunks) own.next_block = all + (block + 1) * (weight_bytes / blocks / 2);
          }
          for (std::int64_t at = first; at < last; at += chunk)
            kernel(own, at, std::min(last, at + chunk), block, block + step, scratch);
        }
      }
    };
    // Tasks of one share of the blocks follow each other, pixel by pixel.
    parallel_for(members, groups * split.shares * split.units, 1, [&](std::int64_t begin, std::int64_t end) {
      const Scratch scratch = working_memory(a, all_blocks);
      const std::int64_t reads = (end - begin) * split.unit * std::min(a.out_channels, split.share * kBlock);
      fetch_table(a.table16, 65536 * 2, reads);
      fetch_table(a.table_f32, 65536 * 4, reads);
      while (begin < end) {
        const std::int64_t part = begin / split.units, unit = begin % split.units;
        const std::int64_t some = std::min(end - begin, split.units - unit);
        const std::int64_t group = part / split.shares, block = part % split.shares * split.share;
        compute(group, block, std::min(blocks, block + split.share), unit * split.unit,
                std::min(pixels, (unit + some) * split.unit), scratch);
        begin += some;
      }
    });
  };
}

// Geometry, and weights of either kind: constant ones (weights, bias…, multiplier…) or computed ones (weight_…, added).
Fields convolution(const Fields& own) {
  return kWindow +
         Fields{integer("out_channels"),
                optional(integer("groups")),
                integer("x_stride"),
                integer("y_stride"),
                optional(integer("x_offset")),
                optional(integer("y_offset")),
                optional(integer("row_taps")),
                optional(integer("flush")),
                optional(integer("planes")),
                optional(integer("weight_offset")),
                array("pad_row"),
                optional(array("weights")),
                optional(integer("weight_start")),
                optional(integers("weight_strides", 5)),
                optional(array("added")),
                optional(array("table")),
                optional(real("scale")),
                optional(integer("zero_a")),
                optional(integer("zero_b"))} +
         own;
}

const Fields kResidual = {optional(real("own_scale")),        optional(real("residual_scale")),
                          optional(integer("residual_zero")), optional(integer("sum_zero")),
                          optional(integer("sum_low")),       optional(integer("sum_high"))};
const Fields kBytes = kRange + Fields{optional(array("bias32")), optional(array("multiplier32"))};
const Fields kWords = kRange + Fields{optional(array("bias")), optional(array("multiplier"))};
const Fields kFloats = {real("low"), real("high"), integer("half"), optional(array("bias_f32"))};
const Fields kFloatForms = {optional(integer("residual")), optional(integer("winograd")),
                            optional(integer("half_weights"))};
const Fields kWordForms = {optional(integer("half_weights")), optional(array("weights8")),
                           optional(array("weight_sums"))};

}  // namespace

void register_conv_steps() {
  register_step("conv_u8", {1, 3, 1, 1, convolution(kBytes + kResidual)}, make_conv<8, false>);
  register_step("conv_s16", {1, 3, 1, 1, convolution(kWords + kResidual + kWordForms)}, make_conv<16, false>);
  register_step("conv_f32", {1, 3, 1, 1, convolution(kFloats + kFloatForms)}, make_conv<32, false>);
  register_step("depthwise_f32", {1, 2, 1, 1, convolution(kFloats)}, make_conv<32, true>);
  register_step("depthwise_u8", {1, 2, 1, 1, convolution(kBytes)}, make_conv<8, true>);
  register_step("depthwise_s16", {1, 2, 1, 1, convolution(kWords)}, make_conv<16, true>);
}

}  // namespace hexforge
