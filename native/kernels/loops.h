// SPDX-License-Identifier: Apache-2.0
// Loops over elements, rows and channels: one source (shared/loops.cpp), compiled once for each instruction set.
#pragma once
#include <cstdint>

#include "kernels/sets.h"

namespace hexforge {

// Real value of q is (q - zero) * scale; results are clamp(rint(r / out_scale) ...) as docs/numerics.md defines.
struct Affine {
  double a = 0, b = 0;  // multipliers of the centered operands, already divided by the output's scale
  std::int32_t zero_a = 0, zero_b = 0, zero = 0, low = 0, high = 0;
};

// How a float result is rounded: not at all, or as one of the units does (kernels/half.h).
enum class HalfRounding { none, vector, matrix };

// How a float result is stored: clamped, NaN kept, and rounded.
struct Bounds {
  float low, high;
  HalfRounding half;
};

enum class Binary { add, subtract, multiply, divide, maximum, minimum };

constexpr int kCellOutputs = 64;

constexpr std::int64_t kAddedColumns = 256;  // columns that a few rows are multiplied by at once

// The HMX weight layout: blocks of 32 rows and columns, in a block eight groups of rows, in a group the columns, and of
// a column its four rows.
constexpr int kHmxBlock = 32, kHmxGroups = 8, kHmxTogether = 4, kHmxRows = 4;

// The weights of a block of outputs (at most kPackedOutputs), as codes of few bits: w = (code - zero) * scale for each
// `block` of k. Integers have 4 bits and, in place of scales, factors, or neither.
constexpr int kPackedOutputs = 64;
struct PackedWeights {
  const std::uint32_t* codes;        // [depth * bits / 32][lanes], the first k in the lowest bits
  const float* scales;               // [depth / block][lanes],
  const std::uint16_t* half_scales;  // or these, of IEEE 754's float16
  const std::uint8_t* zeros;         // [depth / block][lanes]; null: `zero` is all of them
  const std::uint8_t* factors;       // [depth / block][lanes]; null: 1
  std::int64_t depth, block;
  std::int64_t lanes;  // outputs, rounded up to 16
  std::int32_t bits, zero;
};

constexpr std::int32_t kMostUnits = 32639;  // 127 * 256 + 127: two signed bytes hold it

struct PackedScaling {
  double in, out;  // scales of the input and of the output
  std::int32_t rest;
  double ratio, ratio_rest;  // in / out in two parts, where both are of float32's numbers; else zeros
};

// Many rows of inputs in blocks, [depth / block][rows][block], of every eight in the order 0, 4, 1, 5, 2, 6, 3, 7.
struct PackedRows {
  const std::int16_t* values;
  const std::int32_t* products;  // [depth / block][rows]: sums of 0 1 + 2 3 + 4 5 + 6 7, modulo 2^32
  const std::uint8_t* large;     // [depth / block][rows]: whether a code added to a value may not fit into 16 bits
  const float* units;            // [depth / block][rows]: what 1 is of a value; null: `PackedScaling` says it
  std::int64_t rows;
  std::int32_t zero;
  bool any_large;
};

// Rows and columns of an image blended, in the type that sums are taken in.
template <class T, class Real>
struct ResizeLoops {
  // sums = (x - zero) * weight, or sums += that.
  void (*blend)(const T*, Real zero, Real weight, bool first, Real* sums, std::int64_t n);
  void (*blend_line)(const Real*, Real zero, Real weight, bool first, Real* sums, std::int64_t n);
  // y[i] = sum over taps of line[index[tap][i]] * weight[tap][i].
  void (*across)(const Real* line, const std::int32_t* index, const Real* weight, std::int64_t taps, Real* y,
                 std::int64_t n);
  // y[i] = round_and_clamp(x[i] * scale); low and high are less the zero point.
  void (*round_row)(const Real*, Real scale, Real low, Real high, std::int32_t zero, T*, std::int64_t n);
};

// Recurrent layers have their units in slices of so many, the gates of a slice side by side.
constexpr int kSlice = 16;
struct LstmCells {
  const float *sigmoid, *tanh;  // tables over the patterns of halves
  int gates;                    // 3: the input gate is 1 - forget
  float cell_clip;              // 0: none
};

// What a row of floats is normalized by: kind 0: mean and deviation, 1: root mean square, 2: root of the sum of
// squares.
struct RowNorm {
  std::int64_t kind;
  double epsilon;
  const float *gamma, *beta;
};

// A function of halves that is a line on either side of 0, clamped: x times one slope or the other. The bounds are
// halves.
struct Piecewise {
  float below, above, low, high;
};

struct Loops {
  // y[i] = op(a[i * step_a], b[i * step_b]), steps 0 or 1
  void (*binary_u8)(Binary, const Affine&, const std::uint8_t*, int, const std::uint8_t*, int, std::uint8_t*,
                    std::int64_t);
  void (*binary_s16)(Binary, const Affine&, const std::int16_t*, int, const std::int16_t*, int, std::int16_t*,
                     std::int64_t);
  void (*binary_f32)(Binary, const Bounds&, const float*, int, const float*, int, float*, std::int64_t);
  void (*table_u8)(const std::uint8_t*, const std::uint8_t* table, std::uint8_t*, std::int64_t);
  void (*table_u8_s16)(const std::uint8_t*, const std::int16_t* table, std::int16_t*, std::int64_t);
  void (*table_s16)(const std::int16_t*, const std::int16_t* table, std::int16_t*, std::int64_t);
  void (*table_s16_u8)(const std::int16_t*, const std::uint8_t* table, std::uint8_t*, std::int64_t);
  void (*quantize_u8)(const float*, float scale, std::int32_t zero, std::int32_t low, std::int32_t high, std::uint8_t*,
                      std::int64_t);
  void (*quantize_s16)(const float*, float scale, std::int32_t zero, std::int32_t low, std::int32_t high, std::int16_t*,
                       std::int64_t);
  void (*dequantize_u8)(const std::uint8_t*, float scale, std::int32_t zero, float*, std::int64_t);
  void (*dequantize_s16)(const std::int16_t*, float scale, std::int32_t zero, float*, std::int64_t);
  // Over the channels of several pixels: y[c] = max over rows; y[c] = quantized mean (sum - rows * zero_a) * a.
  void (*max_u8)(const std::uint8_t* const*, std::int64_t rows, std::int64_t channels, std::uint8_t*);
  void (*max_s16)(const std::int16_t* const*, std::int64_t rows, std::int64_t channels, std::int16_t*);
  void (*max_f32)(const float* const*, std::int64_t rows, std::int64_t channels, float*);
  void (*mean_u8)(const std::uint8_t* const*, std::int64_t rows, std::int64_t channels, const Affine&, std::uint8_t*);
  void (*mean_s16)(const std::int16_t* const*, std::int64_t rows, std::int64_t channels, const Affine&, std::int16_t*);
  // One row: y = e / sum(e) with e = table[max - q], then times `scale` (1 / output scale).
  void (*softmax_u8)(const std::uint8_t*, std::int64_t n, const std::uint32_t* table, double scale, std::int32_t zero,
                     std::int32_t low, std::int32_t high, std::uint8_t*);
  void (*softmax_s16)(const std::int16_t*, std::int64_t n, const std::uint32_t* table, double scale, std::int32_t zero,
                      std::int32_t low, std::int32_t high, std::int16_t*);
  // Exact sums of q and q * q over n values, each added to what is there.
  void (*moments_u8)(const std::uint8_t*, std::int64_t n, std::int64_t* sum, std::int64_t* squares);
  void (*moments_s16)(const std::int16_t*, std::int64_t n, std::int64_t* sum, std::int64_t* squares);
  // The same channel by channel: sum[c] += q, squares[c] += q * q.
  void (*channel_moments_u8)(const std::uint8_t*, std::int64_t n, std::int64_t* sum, std::int64_t* squares);
  void (*channel_moments_s16)(const std::int16_t*, std::int64_t n, std::int64_t* sum, std::int64_t* squares);
  // y[i] = round_and_clamp((q - mean[i]) * factor[i] * gamma[i] + beta[i]); mean and factor advance by `step` (0 or 1).
  void (*normalize_u8)(const std::uint8_t*, std::int64_t n, const double* mean, const double* factor, int step,
                       const double* gamma, const double* beta, const Affine&, std::uint8_t*);
  void (*normalize_s16)(const std::int16_t*, std::int64_t n, const double* mean, const double* factor, int step,
                        const double* gamma, const double* beta, const Affine&, std::int16_t*);
  // Float: a function of float16 values is a table over their 65536 patterns; sums are taken in order.
  void (*table_f32)(const float*, const float* table, float*, std::int64_t);
  void (*mean_f32)(const float* const*, std::int64_t rows, std::int64_t channels, float divisor, float*);
  void (*piecewise_f32)(const float*, const Piecewise&, float*, std::int64_t);  // of x as the vector unit rounds it
  // Some rows of n: exponentials of the distances to the row's maximum, over their sum in order.
  void (*softmax_rows_f32)(const float*, std::int64_t rows, std::int64_t n, const float* exponentials, float*);
  void (*normalize_rows_f32)(const float*, std::int64_t rows, std::int64_t n, const RowNorm&, float*);
  // Totals of channels over pixels in order, of x or, where there are means, of the squared distances to them.
  void (*channel_totals_f32)(const float*, std::int64_t pixels, std::int64_t stride, std::int64_t channels,
                             const double* means, double* totals);
  void (*normalize_pixels_f32)(const float*, std::int64_t pixels, std::int64_t channels, const double* means,
                               const double* factors, const float* gamma, const float* beta, float*);
  // y[r][c] = x[c][r] for elements of four bytes; with `half` floats, rounded as the vector unit does.
  void (*transpose_f32)(const float* x, std::int64_t stride_x, float* y, std::int64_t stride_y, std::int64_t rows,
                        std::int64_t columns, bool half);
  void (*normalize_f32)(const float*, std::int64_t n, double mean, double factor, const float* gamma, const float* beta,
                        float*);
  void (*round_half)(const float*, float*, std::int64_t);  // as the vector unit does
  void (*widen_half)(const std::uint16_t*, float*, std::int64_t);
  void (*narrow_half)(const float*, std::uint16_t*, std::int64_t);
  void (*narrow_matrix_half)(const float*, std::uint16_t*, std::int64_t);
  void (*widen_bytes)(const std::int8_t*, std::int16_t*, std::int64_t);
  // y[j] += sum over k of (a[k] - zero_a) * (b[k * stride + j] - zero_b), one k after the other.
  void (*add_rows_u8)(const std::uint8_t* a, std::int32_t zero_a, const std::uint8_t* b, std::int32_t zero_b,
                      std::int64_t k, std::int64_t stride, std::int64_t n, std::int32_t* y);
  void (*add_rows_s16)(const std::int16_t* a, double zero_a, const std::int16_t* b, double zero_b, std::int64_t k,
                       std::int64_t stride, std::int64_t n, double* y);
  void (*add_rows_s16_u8)(const std::int16_t* a, double zero_a, const std::uint8_t* b, double zero_b, std::int64_t k,
                          std::int64_t stride, std::int64_t n, double* y);  // n is at most kAddedColumns
  // Up to kHmxRows rows of x times 32 columns of bytes less 128 in the HMX weight layout: `blocks` of 32 rows, each
  // 1024 bytes, `stride` bytes apart. x is low + 256 * high, high may be null. sums are of low for every row, of high
  // for every row, then of the columns alone, 32 each.
  void (*hmx_columns)(const std::uint8_t* low, const std::int8_t* high, std::int64_t row, int rows,
                      const std::uint8_t* w, std::int64_t blocks, std::int64_t stride, std::int32_t* sums);
  // y[row][slice * 16 + lane] += sum over k of x[row][k] * w[slice][k][lane], one k after the other; w are the patterns
  // of halves. Exact: x are halves as well, so the products are exact; else these are rounded first.
  void (*add_slices_exact)(const float* x, std::int64_t stride_x, std::int64_t rows, const std::uint16_t* w,
                           std::int64_t k, std::int64_t slices, float* y, std::int64_t stride_y);
  void (*add_slices)(const float* x, std::int64_t stride_x, std::int64_t rows, const std::uint16_t* w, std::int64_t k,
                     std::int64_t slices, float* y, std::int64_t stride_y);
  // Of one slice: cells from the sums of the gates (input,) forget, cell, output, and what the state is before it is
  // rounded; peephole: input, forget, output, or null.
  void (*lstm_cells)(const LstmCells&, const float* sums, const float* peephole, float* c, float* wide);
  // Of one slice: the gates update and reset; then the next state. The factor is the reset gate where it comes after
  // the product, else null.
  void (*gru_gates)(const float* sigmoid, const float* from_x, const float* from_h, float* update, float* reset);
  void (*gru_states)(const float* tanh, const float* from_x, const float* from_h, const float* update,
                     const float* factor, const float* before, float* h);
  // Exact dot products of two rows of x with four rows of w, all `n` long: sums[row * 4 + column] += them.
  void (*dot_2x4)(const std::int16_t* x, std::int64_t x_row, const std::int16_t* w, std::int64_t w_row, std::int64_t n,
                  std::int64_t* sums);
  // The 16 cells of Winograd's convolution of one channel's 9 taps, for so many outputs.
  void (*winograd_cells)(const float (*taps)[kCellOutputs], float (*cells)[kCellOutputs]);
  // x times packed weights. Of each block of k the sum in order, of x * (code - zero), which is exact in float32; then
  // fused: total = sum * scale + total. Of many rows x is [depth / block][rows][block], `panel` holds block * lanes
  // numbers, and totals are [rows][lanes].
  void (*packed_row_f32)(const PackedWeights&, const float* x, float* totals);
  void (*packed_rows_f32)(const PackedWeights&, const float* x, std::int64_t rows, float* panel, float* totals);
  // y[rows][n] = a[rows][k] * b[k][n], fused, one k after the other.
  void (*few_rows_f32)(const float* a, std::int64_t row_a, std::int64_t rows, const float* b, std::int64_t row_b,
                       std::int64_t k, std::int64_t n, float* y, std::int64_t row_y);
  // y[i] = x[i] + bias[i], no bias where it is null, as the matrix unit rounds.
  void (*add_bias_f32)(const float* x, const float* bias, float* y, std::int64_t n);
  // Exact sums of factor * (start + sum of x * code) for 1 or 2 planes of bytes, sums[plane][lane]. Of every eight k x
  // has, plane by plane, the four even ones and the four odd ones; starts are [block][plane].
  void (*packed_row_bytes)(const PackedWeights&, int planes, const std::int8_t* x, const std::int32_t* starts,
                           std::int32_t* sums);
  // totals[lane] += in * scale / out * (exact sum of (x - zero_a) * (code - zero)), block after block, in float64; x is
  // 128 more than its planes say, less zero_a: `rest`.
  void (*packed_row_scaled)(const PackedWeights&, int planes, const std::int8_t* x, const std::int32_t* starts,
                            const PackedScaling&, double* totals);
  // The same of many rows; `panel` holds block * lanes / 2 words, and totals are [rows][lanes].
  void (*packed_rows_scaled)(const PackedWeights&, const PackedRows&, const PackedScaling&, std::uint32_t* panel,
                             double* totals);
  // Floats that are so many units of their block, two planes: of each block the exact sum of units * (code - zero),
  // rounded to float32, times its unit; then fused: total = sum * scale + total. Starts are sums of planes, times -zero
  // where all outputs have one.
  void (*packed_row_units)(const PackedWeights&, const std::int8_t* x, const std::int32_t* starts, const float* units,
                           float* totals);
  void (*packed_rows_units)(const PackedWeights&, const PackedRows&, std::uint32_t* panel, float* totals);
  // Blocks of floats as units: the least power of two of which the largest is at most kMostUnits, each rounded to the
  // nearest, ties to even. Of two blocks the values and units are `stride` blocks apart.
  void (*to_units)(const float* x, std::int64_t blocks, std::int64_t block, std::int64_t stride, std::int16_t* values,
                   float* units);
  // Makes PackedRows of so many blocks of rows.
  void (*pair_rows)(std::int16_t* x, std::int64_t blocks, std::int64_t block, std::int32_t* products,
                    std::uint8_t* large);
  // y[i] = round_and_clamp(totals[i] + bias[i]), no bias where it is null; low and high are less the zero point.
  void (*round_totals_u8)(const double* totals, const double* bias, double low, double high, std::int32_t zero,
                          std::uint8_t* y, std::int64_t n);
  void (*round_totals_s16)(const double* totals, const double* bias, double low, double high, std::int32_t zero,
                           std::int16_t* y, std::int64_t n);
  // factor * (code - zero) of 4-bit codes in the k-steps of conv.h, as bytes and as 16 bits.
  void (*unpack_bytes)(const PackedWeights&, std::uint32_t* to);
  void (*unpack_words)(const PackedWeights&, std::uint32_t* to);
  ResizeLoops<std::uint8_t, float> resize_u8;
  ResizeLoops<std::int16_t, double> resize_s16;
  ResizeLoops<float, float> resize_f32;
  void (*blend_u8_f64)(const std::uint8_t*, double zero, double weight, bool first, double* sums, std::int64_t n);
  // softmax_u8 of rows of 16 values, one after the other; null where the set has nothing better than row after row.
  void (*softmax_u8_rows16)(const std::uint8_t*, std::int64_t rows, const std::uint32_t* table, double scale,
                            std::int32_t zero, std::int32_t low, std::int32_t high, std::uint8_t*) = nullptr;
  // y[3 * i + k] = planes[k][i] for elements of 1, 2 or 4 bytes; null where the set has nothing better than a plain
  // loop.
  void (*interleave3)(const void* const* planes, void* y, std::int64_t n, int element_bytes) = nullptr;
};

HEXFORGE_IN_EACH_SET(extern const Loops kLoops;)

inline const Loops& loops() { return HEXFORGE_OF_LEVEL(kLoops); }

}  // namespace hexforge
