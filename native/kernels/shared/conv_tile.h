// SPDX-License-Identifier: Apache-2.0
// The indirect GEMM, written once over a vector type V of 16 int32 lanes. Included by one file per instruction set.
//
// V gives: type Acc, zero(), dot<8>(acc, four bytes of x, 64 weight bytes) and dot<16>(acc, two s16 of x, 32 weights),
// and the stores. Every set computes the same integers, and the same float operations in the same order.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/conv.h"
#include "kernels/half.h"

namespace hexforge {
namespace {

// Where output pixels find their inputs. A tap is a run of contiguous input values: a whole kernel row where its
// pixels lie side by side, else one kernel position. Runs that leave the image sideways are copied to `scratch`.
template <int Bits>
class Locator {
 public:
  Locator(const ConvArgs& a, std::int64_t pixel, char* scratch) : a_(a), scratch_(scratch) {
    n_ = pixel / (a.out[0] * a.out[1] * a.out[2]);
    od_ = pixel / (a.out[1] * a.out[2]) % a.out[0];
    oh_ = pixel / a.out[2] % a.out[1];
    ow_ = pixel % a.out[2];
  }

  // Pointers of the next pixel's taps; `slot` is its place in the tile (and in the scratch).
  void next(const char** row, int slot) {
    constexpr std::int64_t kElement = Bits / 8;
    const std::int64_t pixel_bytes = a_.x_stride * kElement;
    const std::int64_t d0 = od_ * a_.stride[0] - a_.pad[0], h0 = oh_ * a_.stride[1] - a_.pad[1],
                       w0 = ow_ * a_.stride[2] - a_.pad[2];
    const bool whole_rows = a_.row_taps;
    const bool inside = w0 >= 0 && w0 + (a_.kernel[2] - 1) * a_.dilation[2] < a_.in[2];
    const char* base = static_cast<const char*>(a_.x);
    char* copy = scratch_ + slot * a_.taps * a_.steps * 4;
    for (std::int64_t kd = 0; kd < a_.kernel[0]; ++kd) {
      const std::int64_t d = d0 + kd * a_.dilation[0];
      for (std::int64_t kh = 0; kh < a_.kernel[1]; ++kh) {
        const std::int64_t h = h0 + kh * a_.dilation[1];
        const bool outside = d < 0 || d >= a_.in[0] || h < 0 || h >= a_.in[1];
        const char* line = base + (((n_ * a_.in[0] + d) * a_.in[1] + h) * a_.in[2] + w0) * pixel_bytes;
        if (whole_rows) {
          if (outside) {
            *row++ = static_cast<const char*>(a_.pad_row);
          } else if (inside) {
            *row++ = line;
          } else {
            for (std::int64_t kw = 0; kw < a_.kernel[2]; ++kw) {
              const bool out = w0 + kw < 0 || w0 + kw >= a_.in[2];
              std::memcpy(copy + kw * pixel_bytes, out ? static_cast<const char*>(a_.pad_row) : line + kw * pixel_bytes,
                          static_cast<std::size_t>(pixel_bytes));
            }
            *row++ = copy;
            copy += a_.steps * 4;
          }
        } else {
          for (std::int64_t kw = 0; kw < a_.kernel[2]; ++kw) {
            const std::int64_t w = w0 + kw * a_.dilation[2];
            *row++ = outside || w < 0 || w >= a_.in[2] ? static_cast<const char*>(a_.pad_row)
                                                       : line + kw * a_.dilation[2] * pixel_bytes;
          }
        }
      }
    }
    skip(1);
  }

  // Pixels from here on, in this output row, whose taps are all inside sideways: their taps move by a constant step.
  std::int64_t steady() const {
    const std::int64_t left = ow_ * a_.stride[2] - a_.pad[2], reach = (a_.kernel[2] - 1) * a_.dilation[2];
    if (left < 0 || left + reach >= a_.in[2]) return 0;
    return std::min((a_.in[2] - 1 - reach - left) / a_.stride[2] + 1, a_.out[2] - ow_);
  }

  // Pointers of the next `count` pixels' taps.
  void fill(const char** rows, int count) {
    const std::int64_t advance = a_.stride[2] * a_.x_stride * (Bits / 8);
    for (int i = 0; i < count;) {
      const int run = static_cast<int>(std::min<std::int64_t>(steady(), count - i));
      const char** first = rows + i * a_.taps;
      next(first, i);
      for (int j = 1; j < run; ++j) {
        const char** row = first + j * a_.taps;
        for (std::int64_t t = 0; t < a_.taps; ++t) row[t] = first[t] == a_.pad_row ? first[t] : first[t] + j * advance;
      }
      if (run > 1) skip(run - 1);
      i += run > 1 ? run : 1;
    }
  }

  // Past `count` pixels, at most to the end of the row.
  void skip(std::int64_t count) {
    ow_ += count;
    if (ow_ == a_.out[2]) {
      ow_ = 0;
      if (++oh_ == a_.out[1]) {
        oh_ = 0;
        if (++od_ == a_.out[0]) {
          od_ = 0;
          ++n_;
        }
      }
    }
  }

 private:
  const ConvArgs& a_;
  char* scratch_;
  std::int64_t n_, od_, oh_, ow_;
};

// What follows the requantization of rows just stored, still in the cache: a residual, then a table.
template <class V>
inline void finish_rows(const ConvArgs& a, std::uint8_t* row, std::int64_t pixel, int rows, std::int64_t channel,
                        std::int64_t lanes) {
  if (a.residual) V::add_rows(row, rows, lanes, a, a.residual + pixel * a.residual_stride + channel);
  if (a.table) V::look_up(row, rows, a.y_stride, lanes, a.table);
}

// The same of a row of 16 bits that was just stored.
template <class V>
inline void finish_row16(const ConvArgs& a, std::int16_t* row, std::int64_t pixel, std::int64_t channel,
                         std::int64_t lanes) {
  if (!a.residual_s16 && !a.table16) return;
  V::finish_row16(a, row, a.residual_s16 ? a.residual_s16 + pixel * a.residual_stride + channel : nullptr, lanes);
}

// Where the next block's weights lie, line by line: while a block is multiplied with its pixels, the one after it comes
// from the memory into the caches.
struct Ahead {
  const char* line;
  std::int64_t step;
};

// What one pass over the pixels multiplies: taps [tap, tap_end), of each k-steps [step, step_end). Float blocks larger
// than a cache are multiplied in parts, and the sums wait in memory between them.
struct Part {
  std::int64_t tap, tap_end, step, step_end;
  bool first, last;
  std::int64_t length() const { return (tap_end - tap) * (step_end - step); }
};

// Add int32 sums to float64 ones, or start those, times a power of two: exact, all are integers below 2^53.
inline void widen(const std::int32_t* sums, double* wide, int n, bool add, double factor = 1) {
  for (int i = 0; i < n; ++i) wide[i] = (sums[i] + (add ? wide[i] : 0.0)) * factor;
}

// MR pixels times NR vectors of output channels. The accumulators live in registers between two spills to `sums`:
// loops over them have constant bounds and no branches, or GCC keeps them in memory.
// 8-bit sums go to bytes straight from the registers where the vectors can. With every k-step a line of what is needed
// next is fetched from `ahead`. Where Half, weights lie in half as many bytes and are widened in the registers.
template <class V, int Bits, int MR, int NR, bool Half>
[[gnu::noinline]] void run_tile(const ConvArgs& a, const char* const* rows, const Part& part, const char* weights,
                                std::int64_t advance, std::int64_t channel, std::int64_t pixel,
                                const std::int32_t* corrections, int count, float* waiting, Ahead ahead) {
  alignas(64) std::int32_t sums[MR][NR * kLane];
  alignas(64) double wide[Bits == 16 ? MR : 1][Bits == 16 ? NR * kLane : 1];
  bool flushed = false;
  constexpr bool kDirect = Bits == 8 && V::kStoresRegisters;
  constexpr bool kRaises = Bits == 8 && V::kLowersInputs;
  typename V::Acc acc[MR][NR];
  [[maybe_unused]] typename V::Acc weight_sums[kRaises ? NR : 1] = {};
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < NR; ++j) {
      if constexpr (kDirect) {
        acc[i][j] = V::start(a, channel + j * kLane);
      } else {
        acc[i][j] = V::zero();
      }
    }
  if constexpr (Bits == 32) {
    if (!part.first) {
#pragma GCC unroll 16
      for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < NR; ++j) acc[i][j] = V::resume(waiting + (i * NR + j) * kLane);
    }
  }
  std::int64_t left = a.flush;
  const std::int64_t taps = a.taps;  // a.steps is read where it is used: one more variable, and GCC 12 spills the sums
  for (std::int64_t t = Bits == 32 ? part.tap : 0, last = Bits == 32   ? part.tap_end
                                                          : Bits == 16 ? taps * a.planes
                                                                       : taps;
       t < last; ++t) {
    const char* x[MR];
    const char* const* row = rows + (Bits == 16 && t >= taps ? t - taps : t);
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) x[i] = row[i * taps];
    std::int64_t c = Bits == 32 ? part.step : 0;
    do {
      const std::int64_t until = Bits == 16 && a.flush ? std::min(a.steps, c + left)
                                 : Bits == 32          ? part.step_end
                                                       : a.steps;
      if (Bits == 16) left -= until - c;
      for (; c < until; ++c) {
        constexpr int kHeld =
            V::kReadsMemory && !Half && MR * NR > 24 && NR == 4 ? NR - 1 : NR;  // vectors of weights in registers
        typename V::Weights w[kHeld];
#pragma GCC unroll 4
        for (int j = 0; j < kHeld; ++j) {
          if constexpr (Half)
            w[j] = V::template load_half<Bits>(weights + j * kLane * 2);
          else
            w[j] = V::load(weights + j * kLane * 4);
        }
        if constexpr (kRaises) {
#pragma GCC unroll 4
          for (int j = 0; j < NR; ++j) V::add_weights(weight_sums[j], w[j]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < MR; ++i) {
          const auto xv = V::broadcast(x[i] + 4 * c);
#pragma GCC unroll 4
          for (int j = 0; j < kHeld; ++j) V::template dot<Bits>(acc[i][j], xv, w[j]);
          if constexpr (kHeld < NR) V::template dot_memory<Bits>(acc[i][NR - 1], xv, weights + kHeld * kLane * 4);
        }
        weights += V::kWholeBlocks ? NR * kLane * (Half ? 2 : 4) : advance;
        __builtin_prefetch(ahead.line, 0, 2);
        ahead.line += ahead.step;
      }
      const bool plane_ends = Bits == 16 && a.planes == 2 && t + 1 == taps && c == a.steps;
      if (plane_ends || (Bits == 16 && a.flush && left == 0)) {
#pragma GCC unroll 16
        for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
          for (int j = 0; j < NR; ++j) {
            V::spill(&sums[i][j * kLane], acc[i][j]);
            acc[i][j] = V::zero();
          }
        if constexpr (Bits == 16) widen(&sums[0][0], &wide[0][0], MR * NR * kLane, flushed, plane_ends ? 256 : 1);
        flushed = true;
        left = a.flush;
      }
    } while (c < (Bits == 32 ? part.step_end : a.steps));
  }
  if constexpr (Bits == 32) {
    if (!part.last) {
#pragma GCC unroll 16
      for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < NR; ++j)
          V::spill(reinterpret_cast<std::int32_t*>(waiting) + (i * NR + j) * kLane, acc[i][j]);
      return;
    }
  }
  const std::int64_t lanes = std::min<std::int64_t>(NR * kLane, a.out_channels - channel);
  if constexpr (kDirect) {
    V::store_tile(acc, a, channel, pixel, corrections, count, lanes);
    return;
  }
  if constexpr (Bits == 32 && V::kStoresRegisters) {
    V::store_tile_f32(acc, a, channel, pixel, count, lanes);
    return;
  }
  if constexpr (Bits == 16 && V::kStoresRegisters) {
    if (!flushed) {
      V::store_tile_s16(acc, a, channel, pixel, count, lanes);
      return;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < NR; ++j) {
      if constexpr (kRaises) V::raise(acc[i][j], weight_sums[j]);
      V::spill(&sums[i][j * kLane], acc[i][j]);
    }
  for (int i = 0; i < count; ++i) {
    if constexpr (Bits == 8) {
      std::uint8_t* row = static_cast<std::uint8_t*>(a.y) + (pixel + i) * a.y_stride + channel;
      V::store_u8(sums[i], a, channel, corrections ? corrections[i] : 0, row, lanes);
      finish_rows<V>(a, row, pixel + i, 1, channel, lanes);
    } else if constexpr (Bits == 32) {
      V::store_f32(reinterpret_cast<const float*>(sums[i]), a, channel,
                   static_cast<float*>(a.y) + (pixel + i) * a.y_stride + channel, lanes,
                   a.residual_f32 ? a.residual_f32 + (pixel + i) * a.residual_stride + channel : nullptr);
    } else {
      widen(sums[i], wide[i], NR * kLane, flushed);
      std::int16_t* row = static_cast<std::int16_t*>(a.y) + (pixel + i) * a.y_stride + channel;
      V::store_s16(wide[i], a, channel, row, lanes);
      finish_row16<V>(a, row, pixel + i, channel, lanes);
    }
  }
}
}  // namespace
}  // namespace hexforge

namespace hexforge {
namespace {

// Pixels [begin, end) times NR vectors of output channels from `channel` on, of a block's `vectors`.
template <class V, int Bits, int MR, int NR, bool Half>
void run_pixels(const ConvArgs& a, std::int64_t begin, std::int64_t end, std::int64_t channel, std::int64_t vectors,
                const Part& part, const char* weights, const char* next, const Scratch& scratch) {
  const bool kept = Bits == 32 && !a.row_taps;  // where inputs lie is found out once for all parts
  Locator<Bits> locator(a, begin, scratch.copies);
  constexpr int kTail = MR < 3 ? MR : 3;  // a short last tile is cheaper than a whole one
  std::int32_t corrections[MR] = {};
  const std::int64_t advance = vectors * kLane * (Half ? 2 : 4),
                     length = Bits == 32 ? part.length() : a.taps * a.steps * a.planes;
  std::int64_t fetched = 0;  // bytes of the next weights
  for (std::int64_t pixel = begin; pixel < end; pixel += MR) {
    const int count = static_cast<int>(std::min<std::int64_t>(MR, end - pixel));
    const char** rows = scratch.rows + (kept ? (pixel - begin) * a.taps : 0);
    if (!kept || part.first) {
      if (a.pointwise) {
        const char* x = static_cast<const char*>(a.x) + pixel * a.x_stride * (Bits / 8);
        for (int i = 0; i < count; ++i) rows[i] = x + i * a.x_stride * (Bits / 8);
      } else {
        locator.fill(rows, count);
      }
      for (std::int64_t i = count * a.taps; i < MR * a.taps; ++i) rows[i] = rows[i % a.taps];  // not stored
    }
    if (Bits == 8 && a.weight_offset && !a.corrections) {
      for (int i = 0; i < count; ++i) corrections[i] = a.weight_offset * V::sum_u8(rows + i * a.taps, a.taps, a.run);
    }
    const std::int32_t* corrected = !a.weight_offset ? nullptr : a.corrections ? a.corrections + pixel : corrections;
    const Ahead ahead = next && fetched < length * advance ? Ahead{next + fetched, 64} : Ahead{weights, 0};
    fetched += length * 64;
    float* waiting = Bits == 32 ? scratch.sums + (pixel - begin) * NR * kLane : nullptr;
    if (count > kTail) {
      run_tile<V, Bits, MR, NR, Half>(a, rows, part, weights, advance, channel, pixel, corrected, count, waiting,
                                      ahead);
    } else {
      run_tile<V, Bits, kTail, NR, Half>(a, rows, part, weights, advance, channel, pixel, corrected, count, waiting,
                                         ahead);
    }
  }
}

template <class V>
void correct(const ConvArgs& a, std::int64_t begin, std::int64_t end, const Scratch& scratch,
             std::int32_t* corrections) {
  Locator<8> locator(a, begin, scratch.copies);
  for (std::int64_t pixel = begin; pixel < end; pixel += kMostRows) {
    const int count = static_cast<int>(std::min<std::int64_t>(kMostRows, end - pixel));
    if (!a.pointwise) locator.fill(scratch.rows, count);
    for (int i = 0; i < count; ++i) {
      const char* one = static_cast<const char*>(a.x) + (pixel + i) * a.x_stride;
      *corrections++ = a.weight_offset * V::sum_u8(a.pointwise ? &one : scratch.rows + i * a.taps, a.taps, a.run);
    }
  }
}

// body(part, weights passed before it): all of a block at once, or parts of it that stay in a cache.
template <class V, int Bits, class Body>
void in_parts(const ConvArgs& a, const Body& body) {
  constexpr std::int64_t kPart = V::kPartSteps;
  if (Bits != 32 || a.taps * a.steps <= 2 * kPart)
    return body(Part{0, a.taps, 0, a.steps, true, true}, std::int64_t{0});
  const std::int64_t pieces = (a.steps + kPart - 1) / kPart, length = (a.steps + pieces - 1) / pieces;
  const std::int64_t taps = pieces > 1 ? 1 : std::max<std::int64_t>(1, kPart / a.steps);
  for (std::int64_t tap = 0; tap < a.taps; tap += taps) {
    const std::int64_t tap_end = std::min(a.taps, tap + taps);
    for (std::int64_t step = 0; step < a.steps; step += length) {
      const std::int64_t step_end = std::min(a.steps, step + length);
      body(Part{tap, tap_end, step, step_end, tap == 0 && step == 0, tap_end == a.taps && step_end == a.steps},
           tap * a.steps + step);
    }
  }
}

// Pixels [begin, end) of one block: its weights lie at `packed`, what is needed after them at `after`, or null.
template <class V, int Bits, bool Half = false>
void multiply_block(const ConvArgs& a, std::int64_t begin, std::int64_t end, std::int64_t channel, std::int64_t vectors,
                    const char* packed, const char* after, const Scratch& scratch) {
  constexpr std::int64_t kCell = Half ? 2 : 4;  // bytes of an output's k-step
  // NR of the block's vectors, from `vector` on.
  const auto run = [&]<int MR, int NR>(std::int64_t vector) {
    in_parts<V, Bits>(a, [&](const Part& part, std::int64_t passed) {
      const char* weights = packed + passed * vectors * kLane * kCell;
      const char* next = part.last ? after : weights + part.length() * vectors * kLane * kCell;
      run_pixels<V, Bits, MR, NR, Half>(a, begin, end, channel + vector * kLane, vectors, part,
                                        weights + vector * kLane * kCell, next, scratch);
    });
  };
  if constexpr (!V::kWholeBlocks) {
    for (std::int64_t vector = 0; vector < vectors; ++vector) run.template operator()<V::kRows1, 1>(vector);
  } else {
    switch (vectors) {
      case 1: run.template operator()<V::kRows1, 1>(0); break;
      case 2: run.template operator()<V::kRows2, 2>(0); break;
      case 3: run.template operator()<V::kRows3, 3>(0); break;
      default:
        run.template operator()<Half ? V::kRows4 - 1 : V::kRows4, 4>(0);
        break;  // all four of weights need a register then
    }
  }
}

template <class V, int Bits, bool Half = false>
void run_conv(const ConvArgs& a, std::int64_t begin, std::int64_t end, std::int64_t block_begin, std::int64_t block_end,
              const Scratch& scratch) {
  for (std::int64_t block = block_begin; block < block_end; ++block) {
    const std::int64_t channel = block * kBlock,
                       vectors = std::min<std::int64_t>(4, (a.out_channels - channel + kLane - 1) / kLane);
    const std::int64_t bytes = a.planes * a.taps * a.steps * kBlock * (Half ? 2 : 4);
    const char* packed = static_cast<const char*>(a.weights) + block * bytes;
    const char* after = channel + kBlock >= a.out_channels ? nullptr
                        : a.next_block                     ? static_cast<const char*>(a.next_block)
                                                           : packed + bytes;
    multiply_block<V, Bits, Half>(a, begin, end, channel, vectors, packed, after, scratch);
  }
}
}  // namespace
}  // namespace hexforge
