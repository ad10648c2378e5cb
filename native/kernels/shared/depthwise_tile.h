// SPDX-License-Identifier: Apache-2.0
// Depthwise convolution, every channel by itself, written once over a vector type V (see conv_tile.h). Some output
// pixels side by side are one tile: what they read of an input row is a line of columns, which a set with many
// registers loads once for all of them. Taps are added in the order of the kernel, so floats have the same bits in
// every set. Weights are int32 (float for float) [taps][channels padded to a block], 16-bit ones plane after plane.
#pragma once
#include "kernels/shared/conv_tile.h"
#include "kernels/shared/winograd_tile.h"

namespace hexforge {
namespace {

template <class V, int Bits>
inline void store_depthwise(const ConvArgs& a, typename V::Acc acc, std::int64_t pixel, std::int64_t channel,
                            int lanes) {
  alignas(64) std::int32_t sums[kLane];
  V::spill(sums, acc);
  if constexpr (Bits == 8) {
    std::uint8_t* row = static_cast<std::uint8_t*>(a.y) + pixel * a.y_stride + channel;
    V::store_u8(sums, a, channel, 0, row, lanes);
    finish_rows<V>(a, row, pixel, 1, channel, lanes);
  } else if constexpr (Bits == 32) {
    V::store_f32(reinterpret_cast<const float*>(sums), a, channel,
                 static_cast<float*>(a.y) + pixel * a.y_stride + channel, lanes, nullptr);
  } else {
    alignas(64) double wide[kLane];
    widen(sums, wide, kLane, false);
    std::int16_t* row = static_cast<std::int16_t*>(a.y) + pixel * a.y_stride + channel;
    V::store_s16(wide, a, channel, row, lanes);
    finish_row16<V>(a, row, pixel, channel, lanes);
  }
}

// Where a tile of P pixels finds its inputs: for every kernel row, the columns [(P - 1) * stride + kernel width] of the
// input, or (KW = 0) of every tap those of the P pixels.
template <int Bits, int P, int KW>
void find_columns(const ConvArgs& a, std::int64_t pixel, const char** to) {
  const std::int64_t n = pixel / (a.out[0] * a.out[1] * a.out[2]), od = pixel / (a.out[1] * a.out[2]) % a.out[0],
                     oh = pixel / a.out[2] % a.out[1], ow = pixel % a.out[2];
  const std::int64_t bytes = a.x_stride * (Bits / 8), left = ow * a.stride[2] - a.pad[2];
  const char* pad = static_cast<const char*>(a.pad_row);
  for (std::int64_t kd = 0; kd < a.kernel[0]; ++kd) {
    const std::int64_t d = od * a.stride[0] - a.pad[0] + kd * a.dilation[0];
    for (std::int64_t kh = 0; kh < a.kernel[1]; ++kh) {
      const std::int64_t h = oh * a.stride[1] - a.pad[1] + kh * a.dilation[1];
      const bool outside = d < 0 || d >= a.in[0] || h < 0 || h >= a.in[1];
      const char* row = static_cast<const char*>(a.x) + ((n * a.in[0] + d) * a.in[1] + h) * a.in[2] * bytes;
      const auto column = [&](std::int64_t w) { return outside || w < 0 || w >= a.in[2] ? pad : row + w * bytes; };
      if constexpr (KW > 0) {
        const std::int64_t span = (P - 1) * a.stride[2] + KW;
        for (std::int64_t c = 0; c < span; ++c) *to++ = column(left + c);
      } else {
        for (std::int64_t kw = 0; kw < a.kernel[2]; ++kw) {
          for (std::int64_t p = 0; p < P; ++p) *to++ = column(left + p * a.stride[2] + kw * a.dilation[2]);
        }
      }
    }
  }
}

// `count` of P pixels from `pixel` on. KW and S are kernel width and stride where they are known, else 0.
template <class V, int Bits, int P, int KW, int S>
[[gnu::noinline]] void depthwise_pixels(const ConvArgs& a, std::int64_t pixel, int count, const char** columns) {
  find_columns<Bits, P, KW>(a, pixel, columns);
  const std::int64_t lines = a.kernel[0] * a.kernel[1], stride = a.weight_stride * 4;
  for (std::int64_t channel = 0; channel < a.out_channels; channel += kLane) {
    const int lanes = static_cast<int>(std::min<std::int64_t>(kLane, a.out_channels - channel));
    const std::int64_t offset = channel * (Bits / 8);
    const char* weights = static_cast<const char*>(a.weights) + channel * 4;
    typename V::Acc acc[P][1];
    const auto add_up = [&](const char* weights) __attribute__((always_inline)) {
      const char* const* line = columns;
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) acc[p][0] = V::zero();
      for (std::int64_t r = 0; r < lines; ++r) {
        if constexpr (KW > 0) {
          V::template add_line<Bits, P, KW, S>(acc, line, offset, weights, stride, lanes);
          line += (P - 1) * S + KW;
          weights += KW * stride;
        } else {
          for (std::int64_t kw = 0; kw < a.kernel[2]; ++kw, line += P, weights += stride) {
#pragma GCC unroll 8
            for (int p = 0; p < P; ++p) V::template multiply_add<Bits>(acc[p][0], line[p] + offset, weights, lanes);
          }
        }
      }
    };
    if (Bits == 16 && a.planes == 2) {
      add_up(weights);
      alignas(64) double wide[P][kLane];
      alignas(64) std::int32_t sums[kLane];
      for (int p = 0; p < P; ++p) {
        V::spill(sums, acc[p][0]);
        widen(sums, wide[p], kLane, false, 256);
      }
      add_up(weights + a.taps * stride);
      for (int p = 0; p < count; ++p) {
        V::spill(sums, acc[p][0]);
        widen(sums, wide[p], kLane, true);
        std::int16_t* row = static_cast<std::int16_t*>(a.y) + (pixel + p) * a.y_stride + channel;
        V::store_s16(wide[p], a, channel, row, lanes);
        finish_row16<V>(a, row, pixel + p, channel, lanes);
      }
      continue;
    }
    add_up(weights);
    if constexpr (Bits == 16 && V::kStoresRegisters) {
      V::store_tile_s16(acc, a, channel, pixel, count, lanes);
    } else if constexpr (Bits == 32 && V::kStoresRegisters) {
      V::store_tile_f32(acc, a, channel, pixel, count, lanes);
    } else {
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
        if (p < count) store_depthwise<V, Bits>(a, acc[p][0], pixel + p, channel, lanes);
      }
    }
  }
}

template <class V, int Bits, int P, int KW, int S>
void depthwise_rows(const ConvArgs& a, std::int64_t begin, std::int64_t end, const Scratch& scratch) {
  for (std::int64_t pixel = begin; pixel < end;) {
    const int count = static_cast<int>(std::min({std::int64_t{P}, a.out[2] - pixel % a.out[2], end - pixel}));
    depthwise_pixels<V, Bits, P, KW, S>(a, pixel, count, scratch.rows);
    pixel += count;
  }
}

template <class V, int Bits>
void run_depthwise(const ConvArgs& a, std::int64_t begin, std::int64_t end, const Scratch& scratch) {
  if constexpr (V::kHoldsColumns && Bits != 8) {
    const std::int64_t wide = a.dilation[2] == 1 ? a.kernel[2] : 0, stride = a.stride[2];
    if (wide == 3 && stride == 1) return depthwise_rows<V, Bits, 8, 3, 1>(a, begin, end, scratch);
    if (wide == 3 && stride == 2) return depthwise_rows<V, Bits, 8, 3, 2>(a, begin, end, scratch);
    if (wide == 5 && stride == 1) return depthwise_rows<V, Bits, 8, 5, 1>(a, begin, end, scratch);
    if (wide == 5 && stride == 2) return depthwise_rows<V, Bits, 4, 5, 2>(a, begin, end, scratch);
  }
  depthwise_rows<V, Bits, 4, 0, 0>(a, begin, end, scratch);
}

template <class V, int Bits>
constexpr ConvKernel half_kernel() {
  if constexpr (V::kWidens)
    return run_conv<V, Bits, true>;
  else
    return nullptr;
}

template <class V>
constexpr ConvKernels kernels_of() {
  return {run_conv<V, 8>,       run_conv<V, 16>, run_conv<V, 32>, run_depthwise<V, 8>,  run_depthwise<V, 16>,
          run_depthwise<V, 32>, run_winograd<V>, correct<V>,      half_kernel<V, 16>(), half_kernel<V, 32>()};
}
}  // namespace
}  // namespace hexforge
