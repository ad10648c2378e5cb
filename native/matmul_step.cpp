// SPDX-License-Identifier: Apache-2.0
// Steps "matmul_u8", "matmul_s16", "matmul_f32": both operands computed at run time.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "conv.h"
#include "half.h"
#include "parallel.h"
#include "program.h"
#include "steps.h"

namespace hexforge {
namespace {

// y[batch][m][n] = a[batch][m][k] * b[batch][k][n]; batch strides may be 0, b may be given as [n][k].
struct Product {
  std::int64_t batch, m, n, k, stride_a, stride_b, row_a, row_b, column_b;
};

// Attributes: batch, m, n, k, stride_a, stride_b (elements between matrices), row_a, row_b, column_b (elements).
Product product(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs, std::int64_t bytes) {
  Product p{at.integer("batch"), at.integer("m"), at.integer("n"), at.integer("k"), at.integer("stride_a"),
            at.integer("stride_b"), at.integer("row_a"), at.integer("row_b"), at.integer("column_b")};
  if (ins.size() != 2 || outs.size() != 1 || std::min({p.batch, p.m, p.n, p.k}) < 1 ||
      std::min({p.stride_a, p.stride_b, p.row_a, p.row_b, p.column_b}) < 0) {
    throw std::invalid_argument("matmul: bad operands");
  }
  // Bounds that keep the sums below far from overflow; `times` does so for the products.
  for (std::int64_t size : {p.batch, p.m, p.n, p.k, p.stride_a, p.stride_b, p.row_a, p.row_b, p.column_b}) times({size});
  require_bytes(ins[0], times({times({p.batch - 1, p.stride_a}) + times({p.m - 1, p.row_a}) + p.k, bytes}), "matmul input");
  const std::int64_t last_b = times({p.batch - 1, p.stride_b}) + times({p.k - 1, p.row_b}) + times({p.n - 1, p.column_b});
  require_bytes(ins[1], times({last_b + 1, bytes}), "matmul input");
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
  const std::int64_t values = 32 / bits;
  a.steps = (p.k + values - 1) / values;
  return a;
}

// The rows of a, copied where a row's last k-step would read past it into memory that is not there.
template <class T>
const T* padded_rows(const T* a, const Product& p, std::int64_t values, std::vector<T>& copy, std::int64_t& stride) {
  const std::int64_t width = (p.k + values - 1) / values * values;
  stride = p.row_a;
  if (width == p.k) return a;
  stride = width;
  copy.assign(static_cast<std::size_t>(p.m * width), T{});
  for (std::int64_t i = 0; i < p.m; ++i) std::copy(a + i * p.row_a, a + i * p.row_a + p.k, copy.begin() + i * width);
  return copy.data();
}

template <class Kernel>
void run_conv(ConvArgs a, const Product& p, int threads, bool amx, Kernel kernel) {
  const std::int64_t blocks = (p.n + kBlock - 1) / kBlock;
  constexpr std::int64_t kChunk = 168;
  const std::int64_t chunks = (p.m + kChunk - 1) / kChunk;
  parallel_for(threads, blocks * chunks, 1, [&](std::int64_t begin, std::int64_t end) {
    const Scratch scratch = working_memory(a, amx);
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t first = task % chunks * kChunk;
      kernel(a, first, std::min(p.m, first + kChunk), task / chunks, task / chunks + 1, scratch);
    }
  });
}

// Integers: zero_a, zero_b, zero_point, low, high. Real: scale (a's scale times b's over the output's).
Run matmul_u8(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const Product p = product(at, ins, outs, 1);
  ConvArgs base = as_conv(p, 8);
  const std::int64_t zero_a = at.small("zero_a"), zero_b = at.small("zero_b") - 128;
  const float scale = static_cast<float>(at.real("scale"));
  base.weight_offset = static_cast<std::int32_t>(-zero_b);
  base.zero_point = at.small("zero_point");
  base.low = at.small("low");
  base.high = at.small("high");
  if (p.k > 33025) throw std::invalid_argument("matmul_u8: k is above 33025, sums could leave 32 bits");  // 255 * 255 * k < 2^31
  return [=](const Operands& o) {
    const std::int64_t padded = (p.n + kBlock - 1) / kBlock * kBlock;
    std::vector<std::int8_t> packed(static_cast<std::size_t>(base.steps * 4 * padded + kWeightSlack));
    std::vector<std::int32_t> bias(static_cast<std::size_t>(padded));
    std::vector<float> multiplier(static_cast<std::size_t>(padded), scale);
    std::vector<std::uint8_t> copy;
    for (std::int64_t batch = 0; batch < p.batch; ++batch) {
      const std::uint8_t* b = o.in<std::uint8_t>(1) + batch * p.stride_b;
      std::fill(packed.begin(), packed.end(), 0);
      parallel_for(o.threads(), p.n, 64, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t column = begin; column < end; ++column) {
          std::int64_t sum = 0;
          std::int8_t* out = packed.data() + column / kBlock * base.steps * kBlock * 4;
          const std::int64_t vectors = std::min<std::int64_t>(4, (p.n - column / kBlock * kBlock + kLane - 1) / kLane);
          for (std::int64_t k = 0; k < p.k; ++k) {
            const std::int64_t w = static_cast<std::int64_t>(b[k * p.row_b + column * p.column_b]) - 128;
            sum += w;
            out[(k / 4 * vectors * kLane + column % kBlock) * 4 + k % 4] = static_cast<std::int8_t>(w);
          }
          bias[static_cast<std::size_t>(column)] = static_cast<std::int32_t>(p.k * zero_a * zero_b - zero_a * sum);
        }
      });
      ConvArgs a = base;
      a.x = padded_rows(o.in<std::uint8_t>(0) + batch * p.stride_a, p, 4, copy, a.x_stride);
      a.y = o.out<std::uint8_t>() + batch * p.m * p.n;
      a.weights = packed.data();
      a.bias32 = bias.data();
      a.multiplier32 = multiplier.data();
      run_conv(a, p, o.threads(), conv_kernels(current_level()).all_blocks, conv_kernels(current_level()).u8);
    }
  };
}

Run matmul_f32(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const Product p = product(at, ins, outs, 4);
  ConvArgs base = as_conv(p, 32);
  base.half = at.integer("half", 0) != 0;
  base.low_f32 = -INFINITY;
  base.high_f32 = INFINITY;
  return [=](const Operands& o) {
    const std::int64_t blocks = (p.n + kBlock - 1) / kBlock, padded = blocks * kBlock;
    std::vector<float> packed(static_cast<std::size_t>(p.k * padded)), bias(static_cast<std::size_t>(padded));
    for (std::int64_t batch = 0; batch < p.batch; ++batch) {
      const float* b = o.in<float>(1) + batch * p.stride_b;
      parallel_for(o.threads(), p.k, 16, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t k = begin; k < end; ++k) {
          for (std::int64_t column = 0; column < p.n; ++column) {
            const std::int64_t block = column / kBlock;
            const std::int64_t vectors = std::min<std::int64_t>(4, (p.n - block * kBlock + kLane - 1) / kLane);
            packed[static_cast<std::size_t>(block * p.k * kBlock + k * vectors * kLane + column % kBlock)] =
                b[k * p.row_b + column * p.column_b];
          }
        }
      });
      ConvArgs a = base;
      a.x = o.in<float>(0) + batch * p.stride_a;
      a.y = o.out<float>() + batch * p.m * p.n;
      a.weights = packed.data();
      a.bias_f32 = bias.data();
      run_conv(a, p, o.threads(), false, conv_kernels(current_level()).f32);
    }
  };
}

// 16 x 16 bits: products of 30 bits and more, summed exactly in float64 (below 2^53 for any k that fits memory).
Run matmul_s16(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const Product p = product(at, ins, outs, 2);
  const double zero_a = static_cast<double>(at.small("zero_a")), zero_b = static_cast<double>(at.small("zero_b"));
  const double scale = at.real("scale"), zero = static_cast<double>(at.small("zero_point"));
  const double low = static_cast<double>(at.small("low")), high = static_cast<double>(at.small("high"));
  if (p.k > 1 << 21) throw std::invalid_argument("matmul_s16: k is above 2^21");
  return [=](const Operands& o) {
    std::vector<double> wide(static_cast<std::size_t>(p.k * p.n));
    for (std::int64_t batch = 0; batch < p.batch; ++batch) {
      const std::int16_t* b = o.in<std::int16_t>(1) + batch * p.stride_b;
      for (std::int64_t k = 0; k < p.k; ++k) {
        for (std::int64_t j = 0; j < p.n; ++j) {
          wide[static_cast<std::size_t>(k * p.n + j)] = b[k * p.row_b + j * p.column_b] - zero_b;
        }
      }
      parallel_for(o.threads(), p.m, 1, [&](std::int64_t begin, std::int64_t end) {
        std::vector<double> sums(static_cast<std::size_t>(p.n));
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int16_t* a = o.in<std::int16_t>(0) + batch * p.stride_a + i * p.row_a;
          std::fill(sums.begin(), sums.end(), 0.0);
          for (std::int64_t k = 0; k < p.k; ++k) {
            const double x = a[k] - zero_a;
            const double* row = wide.data() + k * p.n;
            for (std::int64_t j = 0; j < p.n; ++j) sums[static_cast<std::size_t>(j)] += x * row[j];
          }
          std::int16_t* y = o.out<std::int16_t>() + (batch * p.m + i) * p.n;
          for (std::int64_t j = 0; j < p.n; ++j) {
            const double steps = std::clamp(sums[static_cast<std::size_t>(j)] * scale, low - zero, high - zero);
            y[j] = static_cast<std::int16_t>(std::nearbyint(steps) + zero);
          }
        }
      });
    }
  };
}

}  // namespace

void register_matmul_steps() {
  register_step("matmul_u8", matmul_u8);
  register_step("matmul_s16", matmul_s16);
  register_step("matmul_f32", matmul_f32);
}

}  // namespace hexforge
