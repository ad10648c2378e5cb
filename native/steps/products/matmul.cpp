// SPDX-License-Identifier: Apache-2.0
// Steps "matmul_u8", "matmul_s16", "matmul_s16_u8" (the second operand is bytes), "matmul_f32": both operands computed
// at run time; "matmul_hmx_u8" and "matmul_hmx_s16": the second one's bytes lie in the HMX weight layout.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "core/parallel.h"
#include "core/program.h"
#include "kernels/conv.h"
#include "kernels/half.h"
#include "kernels/loops.h"
#include "steps/fields.h"
#include "steps/products/packing.h"
#include "steps/steps.h"

namespace hexforge {
namespace {

// y[batch][m][n] = a[batch][m][k] * b[batch][k][n]; either may be given the other way round, and be shared by batches.
struct Product {
  std::int64_t batch, m, n, k, stride_a, stride_b, row_a, column_a, row_b, column_b;
  std::vector<std::int64_t> at_a, at_b;  // where the matrices of each batch begin, if not one stride after the other

  std::int64_t a_of(std::int64_t i) const { return at_a.empty() ? i * stride_a : at_a[static_cast<std::size_t>(i)]; }
  std::int64_t b_of(std::int64_t i) const { return at_b.empty() ? i * stride_b : at_b[static_cast<std::size_t>(i)]; }
  std::int64_t blocks() const { return (n + kBlock - 1) / kBlock; }
  Matrix weights() const { return {k, n, row_b, column_b}; }
};

// Attributes: batch, m, n, k, stride_a, stride_b (elements between matrices) or at_a, at_b (where each begins), row_a,
// column_a, row_b, column_b (elements).
Product product(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs, std::int64_t bytes,
                std::int64_t bytes_b = 0) {
  Product p{at.integer("batch"),
            at.integer("m"),
            at.integer("n"),
            at.integer("k"),
            at.integer("stride_a"),
            at.integer("stride_b"),
            at.integer("row_a"),
            at.integer("column_a", 1),
            at.integer("row_b"),
            at.integer("column_b"),
            {},
            {}};
  if (ins.size() != 2 || outs.size() != 1 || std::min({p.batch, p.m, p.n, p.k}) < 1 ||
      std::min({p.stride_a, p.stride_b, p.row_a, p.column_a, p.row_b, p.column_b}) < 0) {
    throw std::invalid_argument("matmul: bad operands");
  }
  // Bounds that keep the sums below far from overflow; `times` does so for the products.
  for (std::int64_t size : {p.batch, p.m, p.n, p.k, p.stride_a, p.stride_b, p.row_a, p.column_a, p.row_b, p.column_b})
    times({size});
  const auto last = [&](const char* name, std::int64_t stride, std::vector<std::int64_t>& starts) {
    if (!at.integers.contains(name)) return times({p.batch - 1, stride});
    starts = at.list(name, static_cast<std::size_t>(p.batch));
    const auto [low, high] = std::minmax_element(starts.begin(), starts.end());
    if (*low < 0) throw std::invalid_argument("matmul: bad operands");
    return times({*high});
  };
  const std::int64_t last_a =
      last("at_a", p.stride_a, p.at_a) + times({p.m - 1, p.row_a}) + times({p.k - 1, p.column_a});
  const std::int64_t last_b =
      last("at_b", p.stride_b, p.at_b) + times({p.k - 1, p.row_b}) + times({p.n - 1, p.column_b});
  require_bytes(ins[0], times({last_a + 1, bytes}), "matmul input");
  require_bytes(ins[1], times({last_b + 1, bytes_b ? bytes_b : bytes}), "matmul input");
  require_bytes(outs[0], times({p.batch, p.m, p.n, bytes}), "matmul output");
  times({p.k, p.n + kBlock, 8});
  return p;
}

ConvArgs as_conv(const Product& p, int bits) {
  ConvArgs a;
  a.in[2] = a.out[2] = p.m;
  a.channels = a.run = p.k;
  a.x_stride = p.row_a;
  a.y_stride = a.out_channels = p.n;
  a.taps = 1;
  a.pointwise = true;
  const std::int64_t values = 32 / bits;
  a.steps = (p.k + values - 1) / values;
  return a;
}

// The rows of a, copied where they are columns, or where a row's last k-step would read past it.
template <class T>
const T* padded_rows(const T* a, const Product& p, std::int64_t values, std::vector<T>& copy, std::int64_t& stride) {
  const std::int64_t width = (p.k + values - 1) / values * values;
  stride = p.row_a;
  if (width == p.k && p.column_a == 1) return a;
  stride = width;
  copy.assign(static_cast<std::size_t>(p.m * width), T{});
  for (std::int64_t i = 0; i < p.m; ++i) {
    if (p.column_a == 1) {
      std::copy(a + i * p.row_a, a + i * p.row_a + p.k, copy.begin() + i * width);
      continue;
    }
    for (std::int64_t k = 0; k < p.k; ++k)
      copy[static_cast<std::size_t>(i * width + k)] = a[i * p.row_a + k * p.column_a];
  }
  return copy.data();
}

template <class Kernel>
void run_conv(const ConvArgs& a, const Product& p, int threads, bool amx, Kernel kernel) {
  constexpr std::int64_t kChunk = 168;
  const std::int64_t chunks = (p.m + kChunk - 1) / kChunk;
  parallel_for(threads, p.blocks() * chunks, 1, [&](std::int64_t begin, std::int64_t end) {
    const Scratch scratch = working_memory(a, amx);
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t first = task % chunks * kChunk;
      kernel(a, first, std::min(p.m, first + kChunk), task / chunks, task / chunks + 1, scratch);
    }
  });
}

// What one thread, or one batch after the other, packs b and copies a into.
template <class T, class Weight, class Bias>
struct Room {
  std::vector<Weight> packed;
  std::vector<Bias> bias;
  std::vector<T> rows;
  std::vector<T> wide;            // b, where it is bytes beside 16 bits
  std::int64_t packed_from = -1;  // the element of b that the weights begin at
};

// one(batch, room) for every batch: each on a thread of its own where there are enough, else all threads on each.
template <class Room, class One>
void each_batch(const Product& p, int threads, const One& one) {
  const bool apart = p.batch > 1 && p.batch >= threads && threads > 1;
  parallel_for(apart ? threads : 1, p.batch, 1, [&](std::int64_t begin, std::int64_t end) {
    Room room;
    for (std::int64_t batch = begin; batch < end; ++batch) one(batch, room, apart ? 1 : threads);
  });
}

// y += a[k] * b[k][..] row by row.
inline auto add_rows(const std::uint8_t*, const std::uint8_t*) { return loops().add_rows_u8; }
inline auto add_rows(const std::int16_t*, const std::int16_t*) { return loops().add_rows_s16; }
inline auto add_rows(const std::int16_t*, const std::uint8_t*) { return loops().add_rows_s16_u8; }

// A few rows are not worth packing b.
constexpr std::int64_t kFewFloatRows = 8;
bool has_few_rows(const Product& p) { return p.m <= 3 && p.column_b == 1; }

// finish(sum, column) for every result of a batch that has few rows.
template <class T, class B, class Sum, class Finish>
void run_few_rows(const Product& p, const T* a, const B* b, Sum zero_a, Sum zero_b, T* y, std::vector<T>& copy,
                  int threads, const Finish& finish) {
  constexpr std::int64_t kColumns = kAddedColumns;
  std::int64_t stride;
  a = padded_rows(a, p, 1, copy, stride);
  parallel_for(threads, (p.n + kColumns - 1) / kColumns, std::max<std::int64_t>(1, 256 / p.k),
               [&](std::int64_t begin, std::int64_t end) {
                 const auto add = add_rows(a, b);
                 Sum sums[kColumns];
                 for (std::int64_t part = begin; part < end; ++part) {
                   const std::int64_t first = part * kColumns, count = std::min(kColumns, p.n - first);
                   for (std::int64_t i = 0; i < p.m; ++i) {
                     std::fill(sums, sums + count, Sum{0});
                     add(a + i * stride, zero_a, b + first, zero_b, p.k, p.row_b, count, sums);
                     for (std::int64_t j = 0; j < count; ++j) y[i * p.n + first + j] = finish(sums[j], first + j);
                   }
                 }
               });
}

// A sum as an integer of the output, in the kernels' order of operations; Real is float at 8 bits, double at 16.
template <class Q, class Real>
Q round_and_clamp(Real sum, Real scale, const ConvArgs& a) {
  const Real low = static_cast<Real>(a.low - a.zero_point), high = static_cast<Real>(a.high - a.zero_point);
  return static_cast<Q>(static_cast<int>(std::nearbyint(std::min(std::max(sum * scale, low), high))) + a.zero_point);
}

// Integers: zero_a, zero_b, zero_point, low, high. Real: scale (a's scale times b's over the output's). Constant: bias,
// in steps of the product, if any.
Run matmul_u8(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const Product p = product(at, ins, outs, 1);
  ConvArgs base = as_conv(p, 8);
  const std::int64_t zero_a = at.small("zero_a"), zero_b = at.small("zero_b") - 128;
  const float scale = static_cast<float>(at.real("scale"));
  base.weight_offset = static_cast<std::int32_t>(-zero_b);
  base.zero_point = at.small("zero_point");
  base.low = at.small("low");
  base.high = at.small("high");
  if (p.k > 33025)
    throw std::invalid_argument("matmul_u8: k is above 33025, sums could leave 32 bits");  // 255 * 255 * k < 2^31
  const std::int32_t* added = at.has("bias") ? at.constant<std::int32_t>("bias", p.n) : nullptr;
  const std::vector<float> multiplier(static_cast<std::size_t>(p.blocks() * kBlock), scale);
  return [=](const Operands& o) {
    each_batch<Room<std::uint8_t, std::int8_t, std::int32_t>>(
        p, o.threads(), [&](std::int64_t batch, auto& room, int threads) {
          if (has_few_rows(p)) {
            return run_few_rows(p, o.in<std::uint8_t>(0) + p.a_of(batch), o.in<std::uint8_t>(1) + p.b_of(batch),
                                static_cast<std::int32_t>(zero_a), static_cast<std::int32_t>(zero_b + 128),
                                o.out<std::uint8_t>() + batch * p.m * p.n, room.rows, threads,
                                [&](std::int32_t sum, std::int64_t column) {
                                  return round_and_clamp<std::uint8_t>(
                                      static_cast<float>(added ? sum + added[column] : sum), scale, base);
                                });
          }
          if (room.packed_from != p.b_of(batch)) {
            room.packed_from = p.b_of(batch);
            room.packed.resize(static_cast<std::size_t>(base.steps * 4 * p.blocks() * kBlock + kWeightSlack));
            room.bias.resize(static_cast<std::size_t>(p.blocks() * kBlock));
            const std::uint8_t* b = o.in<std::uint8_t>(1) + room.packed_from;
            parallel_for(
                threads, p.blocks(), std::max<std::int64_t>(1, 64 / p.k), [&](std::int64_t begin, std::int64_t end) {
                  for (std::int64_t block = begin; block < end; ++block) {
                    std::int32_t* bias = room.bias.data() + block * kBlock;
                    std::fill(bias, bias + kBlock, 0);
                    pack_block(p.weights(), b, block, room.packed.data() + block * base.steps * kBlock * 4, bias);
                    for (std::int64_t i = 0; i < kBlock; ++i) {
                      const std::int64_t more = added && block * kBlock + i < p.n ? added[block * kBlock + i] : 0;
                      bias[i] = static_cast<std::int32_t>(p.k * zero_a * zero_b - zero_a * bias[i] + more);
                    }
                  }
                });
          }
          ConvArgs a = base;
          a.x = padded_rows(o.in<std::uint8_t>(0) + p.a_of(batch), p, 4, room.rows, a.x_stride);
          a.y = o.out<std::uint8_t>() + batch * p.m * p.n;
          a.weights = room.packed.data();
          a.bias32 = room.bias.data();
          a.multiplier32 = multiplier.data();
          run_conv(a, p, threads, conv_kernels().all_blocks, conv_kernels().u8);
        });
  };
}

// Attribute half: results are rounded as the matrix unit does. Constant: bias, if any.
Run matmul_f32(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const Product p = product(at, ins, outs, 4);
  ConvArgs base = as_conv(p, 32);
  base.half = at.integer("half", 0) != 0;
  base.high_f32 = base.half ? kMatrixLimit : INFINITY;
  base.low_f32 = -base.high_f32;
  std::vector<float> bias(static_cast<std::size_t>(p.blocks() * kBlock));
  if (at.has("bias")) std::copy_n(at.constant<float>("bias", p.n), p.n, bias.begin());
  return [=](const Operands& o) {
    each_batch<Room<float, float, float>>(p, o.threads(), [&](std::int64_t batch, auto& room, int threads) {
      const float* b = o.in<float>(1) + p.b_of(batch);
      float* y = o.out<float>() + batch * p.m * p.n;
      if (p.m <= kFewFloatRows && p.column_b == 1) {
        std::int64_t stride;
        const float* a = padded_rows(o.in<float>(0) + p.a_of(batch), p, 1, room.rows, stride);
        parallel_for(threads, p.blocks(), std::max<std::int64_t>(1, 1024 / p.k),
                     [&](std::int64_t begin, std::int64_t end) {
                       const std::int64_t first = begin * kBlock, count = std::min(p.n, end * kBlock) - first;
                       loops().few_rows_f32(a, stride, p.m, b + first, p.row_b, p.k, count, y + first, p.n);
                       for (std::int64_t i = 0; i < p.m; ++i) {
                         float* row = y + i * p.n + first;
                         if (base.half) {
                           loops().add_bias_f32(row, bias.data() + first, row, count);
                         } else {
                           for (std::int64_t j = 0; j < count; ++j) row[j] += bias[static_cast<std::size_t>(first + j)];
                         }
                       }
                     });
        return;
      }
      if (room.packed_from != p.b_of(batch)) {
        room.packed_from = p.b_of(batch);
        room.packed.resize(static_cast<std::size_t>(p.k * p.blocks() * kBlock));
        parallel_for(threads, p.blocks(), std::max<std::int64_t>(1, 64 / p.k),
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t block = begin; block < end; ++block)
                         pack_block(p.weights(), b, block, room.packed.data() + block * p.k * kBlock);
                     });
      }
      ConvArgs a = base;
      a.x = padded_rows(o.in<float>(0) + p.a_of(batch), p, 1, room.rows, a.x_stride);
      a.y = y;
      a.weights = room.packed.data();
      a.bias_f32 = bias.data();
      run_conv(a, p, threads, false, conv_kernels().f32);
    });
  };
}

// All of a matrix of b as 16 bits: itself, or a copy.
inline const std::int16_t* widened(const std::int16_t* b, const Product&, std::vector<std::int16_t>&) { return b; }
inline const std::int16_t* widened(const std::uint8_t* b, const Product& p, std::vector<std::int16_t>& copy) {
  copy.assign(b, b + (p.k - 1) * p.row_b + (p.n - 1) * p.column_b + 1);
  return copy.data();
}

// 16 bits by 16 or, where b is bytes, by 8; sums are exact in float64 (below 2^53 for any k that is taken).
template <class B>
Run matmul_s16(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const Product p = product(at, ins, outs, 2, sizeof(B));
  ConvArgs base = as_conv(p, 16);
  const std::int64_t zero_a = at.small("zero_a");
  const std::int32_t zero_b = at.small("zero_b");
  if (std::abs(zero_b) > 32768 || std::abs(zero_a) > 32768) throw std::invalid_argument("matmul_s16: bad zero point");
  base.planes = 2;
  base.flush = kRunTimeFlush;
  base.zero_point = at.small("zero_point");
  base.low = at.small("low");
  base.high = at.small("high");
  if (base.low < -32768 || base.high > 32767) throw std::invalid_argument("matmul_s16: bad output range");
  if (p.k > 1 << 21) throw std::invalid_argument("matmul_s16: k is above 2^21");
  const std::int64_t* added = at.has("bias") ? exact_bias(at, "bias", p.n) : nullptr;
  const std::vector<double> multiplier(static_cast<std::size_t>(p.blocks() * kBlock), at.real("scale"));
  return [=](const Operands& o) {
    each_batch<Room<std::int16_t, std::int16_t, std::int64_t>>(
        p, o.threads(), [&](std::int64_t batch, auto& room, int threads) {
          if (has_few_rows(p)) {
            return run_few_rows(p, o.in<std::int16_t>(0) + p.a_of(batch), o.in<B>(1) + p.b_of(batch),
                                static_cast<double>(zero_a), static_cast<double>(zero_b),
                                o.out<std::int16_t>() + batch * p.m * p.n, room.rows, threads,
                                [&](double sum, std::int64_t column) {
                                  return round_and_clamp<std::int16_t>(
                                      added ? sum + static_cast<double>(added[column]) : sum, multiplier[0], base);
                                });
          }
          if (room.packed_from != p.b_of(batch)) {
            room.packed_from = p.b_of(batch);
            room.packed.resize(static_cast<std::size_t>(2 * base.steps * 2 * p.blocks() * kBlock + kWeightSlack));
            room.bias.resize(static_cast<std::size_t>(p.blocks() * kBlock));
            const std::int16_t* b = widened(o.in<B>(1) + room.packed_from, p, room.wide);
            parallel_for(
                threads, p.blocks(), std::max<std::int64_t>(1, 64 / p.k), [&](std::int64_t begin, std::int64_t end) {
                  for (std::int64_t block = begin; block < end; ++block) {
                    std::int64_t* bias = room.bias.data() + block * kBlock;
                    std::int16_t* high = room.packed.data() + block * 2 * base.steps * kBlock * 2;
                    std::fill(bias, bias + kBlock, 0);
                    pack_block(p.weights(), b, zero_b, block, high,
                               high + base.steps * lanes_of(p.weights(), block) * 2, bias);
                    for (std::int64_t i = 0; i < kBlock; ++i)
                      bias[i] = (added && block * kBlock + i < p.n ? added[block * kBlock + i] : 0) - zero_a * bias[i];
                  }
                });
          }
          ConvArgs a = base;
          a.x = padded_rows(o.in<std::int16_t>(0) + p.a_of(batch), p, 2, room.rows, a.x_stride);
          a.y = o.out<std::int16_t>() + batch * p.m * p.n;
          a.weights = room.packed.data();
          a.bias = room.bias.data();
          a.multiplier = multiplier.data();
          run_conv(a, p, threads, conv_kernels().all_blocks, conv_kernels().s16);
        });
  };
}

// b is bytes with zero point 128 in the HMX weight layout, in pieces of `tile` columns; a is T. Sums are exact.
template <class T>
Run matmul_hmx(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  constexpr bool kWide = sizeof(T) == 2;
  using Real = std::conditional_t<kWide, double, float>;
  const Product p = product(at, ins, outs, sizeof(T), 1);
  const std::int64_t tile = at.integer("tile"), zero_a = at.small("zero_a");
  constexpr std::int64_t kMost = kWide ? 1 << 16 : 33025;  // 255 * 128 * 2^16 < 2^31
  if (tile < kHmxBlock || tile % kHmxBlock || p.n % tile || p.k % kHmxBlock || p.k > kMost || p.column_a != 1 ||
      p.row_b != p.n || p.column_b != 1 || at.small("zero_b") != 128 || std::abs(zero_a) > 32768) {
    throw std::invalid_argument("matmul_hmx: bad operands");
  }
  ConvArgs output;
  output.zero_point = at.small("zero_point");
  output.low = at.small("low");
  output.high = at.small("high");
  const Real scale = static_cast<Real>(at.real("scale"));
  struct Planes {
    std::vector<std::uint8_t> low;
    std::vector<std::int8_t> high;
  };
  return [=](const Operands& o) {
    each_batch<Planes>(p, o.threads(), [&](std::int64_t batch, Planes& planes, int threads) {
      const T* a = o.in<T>(0) + p.a_of(batch);
      const std::uint8_t *b = o.in<std::uint8_t>(1) + p.b_of(batch), *low = nullptr;
      const std::int8_t* high = nullptr;
      std::int64_t row = p.row_a;
      if constexpr (kWide) {
        planes.low.resize(static_cast<std::size_t>(p.m * p.k));
        planes.high.resize(planes.low.size());
        for (std::int64_t i = 0; i < p.m * p.k; ++i) {
          const T x = a[i / p.k * p.row_a + i % p.k];
          planes.low[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(x & 255);
          planes.high[static_cast<std::size_t>(i)] = static_cast<std::int8_t>(x >> 8);
        }
        low = planes.low.data();
        high = planes.high.data();
        row = p.k;
      } else {
        low = a;
      }
      T* y = o.out<T>() + batch * p.m * p.n;
      const std::int64_t stride = tile / kHmxBlock * 1024;
      parallel_for(threads, p.n / kHmxBlock, std::max<std::int64_t>(1, 65536 / (p.k * kHmxBlock * p.m)),
                   [&](std::int64_t begin, std::int64_t end) {
                     const auto columns = loops().hmx_columns;
                     std::int32_t sums[(2 * kHmxRows + 1) * kHmxBlock];
                     for (std::int64_t block = begin; block < end; ++block) {
                       const std::int64_t first = block * kHmxBlock;
                       const std::uint8_t* w = b + first / tile * tile * p.k + first % tile / kHmxBlock * 1024;
                       for (std::int64_t m = 0; m < p.m; m += kHmxRows) {
                         const int rows = static_cast<int>(std::min<std::int64_t>(kHmxRows, p.m - m));
                         columns(low + m * row, high ? high + m * row : nullptr, row, rows, w, p.k / kHmxBlock, stride,
                                 sums);
                         for (int r = 0; r < rows; ++r) {
                           const std::int32_t *of_low = sums + r * kHmxBlock, *of_high = of_low + rows * kHmxBlock,
                                              *alone = sums + 2 * rows * kHmxBlock;
                           T* to = y + (m + r) * p.n + first;
                           for (int c = 0; c < kHmxBlock; ++c) {
                             std::int64_t sum = of_low[c] - zero_a * alone[c];
                             if constexpr (kWide) sum += std::int64_t{256} * of_high[c];
                             to[c] = round_and_clamp<T>(static_cast<Real>(sum), scale, output);
                           }
                         }
                       }
                     }
                   });
    });
  };
}

const Fields kProduct = {integer("batch"),
                         integer("m"),
                         integer("n"),
                         integer("k"),
                         integer("stride_a"),
                         integer("stride_b"),
                         integer("row_a"),
                         integer("row_b"),
                         optional(integer("column_a")),
                         integer("column_b"),
                         optional(integers("at_a")),
                         optional(integers("at_b")),
                         optional(array("bias"))};
const Schema kFixedProduct{2, 1, kProduct + kFixed + Fields{integer("zero_b")}};

}  // namespace

void register_matmul_steps() {
  register_step("matmul_u8", Schema(kFixedProduct).exact(1), matmul_u8);
  register_step("matmul_s16", Schema(kFixedProduct).exact(1), matmul_s16<std::int16_t>);
  register_step("matmul_s16_u8", Schema(kFixedProduct).exact(1), matmul_s16<std::uint8_t>);
  const Schema tiled(2, 1, kFixedProduct.fields + Fields{integer("tile")});
  register_step("matmul_hmx_u8", Schema(tiled).exact(), matmul_hmx<std::uint8_t>);
  register_step("matmul_hmx_s16", Schema(tiled).exact(), matmul_hmx<std::int16_t>);
  register_step("matmul_f32", Schema(2, 1, kProduct + Fields{optional(integer("half"))}).exact(1), matmul_f32);
}

}  // namespace hexforge
