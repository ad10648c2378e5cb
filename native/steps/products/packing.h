// SPDX-License-Identifier: Apache-2.0
// Weights that are known at run time only, laid out as the kernels of conv.h read them: blocks of 64 outputs, of each
// run by run k-steps of four bytes for every output.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/program.h"
#include "kernels/conv.h"

namespace hexforge {
namespace {

// A matrix of `run` values for each of `outputs`, at value * row + output * column.
struct Matrix {
  std::int64_t run, outputs, row, column;
};

inline std::int64_t lanes_of(const Matrix& m, std::int64_t block) {
  return std::min<std::int64_t>(kBlock, (m.outputs - block * kBlock + kLane - 1) / kLane * kLane);
}

// A block of it, to where its k-steps lie. What the last k-step has beyond the run, and the last vector beyond the
// outputs, is 0.
inline void pack_block(const Matrix& m, const float* from, std::int64_t block, float* out) {
  const std::int64_t lanes = lanes_of(m, block), count = std::min<std::int64_t>(kBlock, m.outputs - block * kBlock);
  from += block * kBlock * m.column;
  if (count < lanes) std::fill(out, out + m.run * lanes, 0.0f);
  if (m.column == 1) {
    for (std::int64_t k = 0; k < m.run; ++k)
      std::memcpy(out + k * lanes, from + k * m.row, static_cast<std::size_t>(count) * 4);
    return;
  }
  constexpr std::int64_t kLine = 16;  // a line of the matrix is read whole
  for (std::int64_t first = 0; first < m.run; first += kLine) {
    const std::int64_t last = std::min(m.run, first + kLine);
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t k = first; k < last; ++k) out[k * lanes + i] = from[k * m.row + i * m.column];
    }
  }
}

// Bytes less 128; their sum is added for each output of the block.
inline void pack_block(const Matrix& m, const std::uint8_t* from, std::int64_t block, std::int8_t* out,
                       std::int32_t* sums) {
  const std::int64_t lanes = lanes_of(m, block), count = std::min<std::int64_t>(kBlock, m.outputs - block * kBlock);
  const std::int64_t steps = (m.run + 3) / 4;
  from += block * kBlock * m.column;
  if (count < lanes || m.run % 4) std::fill(out, out + steps * lanes * 4, std::int8_t{0});
  const std::int64_t whole = m.run / 4;
  for (std::int64_t step = 0; step < whole; ++step, out += lanes * 4) {
    const std::uint8_t* x = from + step * 4 * m.row;
    if (m.row == 1) {
      for (std::int64_t i = 0; i < count; ++i) {
        std::uint32_t four;
        std::memcpy(&four, x + i * m.column, 4);
        const std::uint32_t pairs = (four & 0x00ff00ffu) + (four >> 8 & 0x00ff00ffu);
        sums[i] += static_cast<std::int32_t>((pairs & 0xffff) + (pairs >> 16)) - 512;
        four ^= 0x80808080u;
        std::memcpy(out + i * 4, &four, 4);
      }
      continue;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint32_t a = x[i * m.column], b = x[i * m.column + m.row], c = x[i * m.column + 2 * m.row],
                          d = x[i * m.column + 3 * m.row];
      const std::uint32_t four = (a | b << 8 | c << 16 | d << 24) ^ 0x80808080u;
      std::memcpy(out + i * 4, &four, 4);
      sums[i] += static_cast<std::int32_t>(a + b + c + d) - 512;
    }
  }
  for (std::int64_t k = whole * 4; k < m.run; ++k) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int32_t w = from[k * m.row + i * m.column] - 128;
      out[i * 4 + k % 4] = static_cast<std::int8_t>(w);
      sums[i] += w;
    }
  }
}

// 16 bits less `zero` as 256 times a number of 9 bits plus one of 8; their sum is added for each output.
inline void pack_block(const Matrix& m, const std::int16_t* from, std::int32_t zero, std::int64_t block,
                       std::int16_t* high, std::int16_t* low, std::int64_t* sums) {
  const std::int64_t lanes = lanes_of(m, block), count = std::min<std::int64_t>(kBlock, m.outputs - block * kBlock);
  const std::int64_t steps = (m.run + 1) / 2;
  from += block * kBlock * m.column;
  if (count < lanes || m.run % 2) {
    std::fill(high, high + steps * lanes * 2, std::int16_t{0});
    std::fill(low, low + steps * lanes * 2, std::int16_t{0});
  }
  constexpr std::int64_t kSome = 1 << 13;  // k-steps whose weights add up within 32 bits
  for (std::int64_t first = 0; first < steps; first += kSome) {
    std::int32_t some[kBlock] = {};
    for (std::int64_t step = first; step < std::min(steps, first + kSome); ++step) {
      const std::int16_t* x = from + step * 2 * m.row;
      const bool whole = step * 2 + 1 < m.run;
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int32_t w0 = x[i * m.column] - zero, w1 = whole ? x[i * m.column + m.row] - zero : 0;
        const std::int32_t rest0 = ((w0 + 128) & 255) - 128, rest1 = ((w1 + 128) & 255) - 128;
        const std::int32_t both[2] = {((w0 - rest0) >> 8 & 0xffff) | ((w1 - rest1) >> 8) * 65536,
                                      (rest0 & 0xffff) | rest1 * 65536};
        std::memcpy(high + (step * lanes + i) * 2, &both[0], 4);
        std::memcpy(low + (step * lanes + i) * 2, &both[1], 4);
        some[i] += w0 + w1;
      }
    }
    for (std::int64_t i = 0; i < count; ++i) sums[i] += some[i];
  }
}

// What is added to sums of 16 bits: integers that float64 has.
inline const std::int64_t* exact_bias(const Attributes& at, const std::string& name, std::int64_t count) {
  const std::int64_t* bias = at.constant<std::int64_t>(name, count);
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  if (std::any_of(bias, bias + count, [](std::int64_t v) { return v < -kMost || v > kMost; }))
    throw std::invalid_argument(name + " is too large");
  return bias;
}

// k-steps of such weights between two emptyings of 32-bit sums: each adds at most 2 * 32768 * 256.
constexpr std::int64_t kRunTimeFlush = 120;

}  // namespace
}  // namespace hexforge
