// SPDX-License-Identifier: Apache-2.0
// Convolution, fully-connected and matrix product with stationary weights: one indirect GEMM.
#pragma once
#include <cstddef>
#include <cstdint>

namespace hexforge {

constexpr int kLane = 16;          // output channels of one vector
constexpr int kBlock = 4 * kLane;  // output channels of one packed weight block

// Geometry and constants of one group-free convolution over NHWC, up to three spatial axes (unused ones are 1).
// 8-bit: activations are uint8, weights int8; 16-bit: activations are int16 (offset folded), weights int16 pairs;
// 32-bit: float activations and weights. A k-step reads four bytes of x in every case.
struct ConvArgs {
  const void* x = nullptr;           // [n][d][h][w][x_stride elements per pixel]
  void* y = nullptr;                 // [n][od][oh][ow][y_stride]
  const void* weights = nullptr;     // packed, see pack_weights
  const void* next_block = nullptr;  // what is read after a block's weights, where that does not lie behind them
  const void* weights8 = nullptr;    // 16-bit: the weights packed as bytes where they fit, or null
  const std::int32_t* weight_sums = nullptr;  // with weights8: per output channel
  const std::int64_t* bias = nullptr;         // per output channel: bias plus every zero-point term that is constant
  const double* multiplier = nullptr;         // input scale * weight scale / output scale
  const float* multiplier32 = nullptr;
  const std::int32_t* bias32 = nullptr;
  const void* pad_row = nullptr;  // one pixel of the input's zero point
  // 8-bit: a tensor added to the result, which has been rounded to its own encoding first; then clamped to the sum's.
  const std::uint8_t* residual = nullptr;
  std::int64_t residual_stride = 0;
  float own_scale = 0, residual_scale = 0;  // over the sum's scale
  std::int32_t residual_zero = 0, sum_zero = 0, sum_low = 0, sum_high = 255;
  const std::uint8_t* table = nullptr;    // 256 entries applied to an 8-bit output, or null
  const std::int16_t* table16 = nullptr;  // 65536 entries and one more, of a 16-bit output
  const float* table_f32 = nullptr;       // of the 65536 float16 patterns
  const std::int16_t* residual_s16 = nullptr;
  double own_scale_f64 = 0, residual_scale_f64 = 0;
  std::int64_t batch = 1;
  std::int64_t in[3] = {1, 1, 1};
  std::int64_t out[3] = {1, 1, 1};
  std::int64_t kernel[3] = {1, 1, 1};
  std::int64_t stride[3] = {1, 1, 1};
  std::int64_t pad[3] = {0, 0, 0};
  std::int64_t dilation[3] = {1, 1, 1};
  std::int64_t channels = 0;  // input channels, without padding
  std::int64_t x_stride = 0;  // elements from one pixel to the next
  std::int64_t y_stride = 0;
  std::int64_t out_channels = 0;
  std::int64_t taps = 0;    // runs of contiguous input values a pixel reads
  std::int64_t run = 0;     // values of a run
  std::int64_t steps = 0;   // k-steps of a run: four (8-bit) or two (16-bit) values each, the last zero-weighted
  std::int64_t planes = 1;  // 16-bit: 2 where a weight is 256 times one of the first plane plus one of the second
  std::int64_t weight_stride = 0;  // depthwise: channels padded to a vector
  // 8-bit depthwise: the weights in groups of four taps too (steps/products/depthwise_packing.h), or null.
  const std::int8_t *depthwise_weights = nullptr, *depthwise_rest = nullptr;
  const std::int32_t *depthwise_taps = nullptr, *depthwise_bias = nullptr;
  const float* depthwise_multiplier = nullptr;
  std::int64_t depthwise_groups = 0;
  bool pointwise = false;          // output pixel i reads input pixel i alone
  bool row_taps = false;           // a run is a kernel row, else one kernel position
  std::int64_t flush = 0;          // 16-bit: k-steps after which int32 accumulators are emptied into float64; 0: never
  std::int32_t weight_offset = 0;  // (weight zero point - 128 for uint8): needs the sum of inputs where not zero
  const std::int32_t* corrections = nullptr;  // that, times the sum, of every output pixel; null: tiles find it out
  std::int32_t zero_point = 0, low = 0, high = 255;
  // Float: 32-bit values, products fused, rounded to float16 at the end where `half`.
  const float* bias_f32 = nullptr;
  const float* residual_f32 = nullptr;  // added to the rounded result; the bounds are then the sum's
  float low_f32 = 0, high_f32 = 0;
  bool half = false;
};

// Memory a kernel call works in, given by the caller: files built for one instruction set must not instantiate
// library templates that the linker could then share with the others.
struct Scratch {
  const char** rows;  // (kFloatPixels + kMostRows) * taps
  char* copies;       // kMostRows * taps * steps * 4
  float* sums;  // kFloatPixels rounded up to a tile, times kBlock: sums of floats between two parts of the weights
  char* panel;  // AMX: kPanelPixels * taps * (run rounded up to 64) values, aligned to 64 bytes
};
constexpr std::int64_t kPanelPixels = 192;   // at most these pixels per kernel call of bytes and 16 bits,
constexpr std::int64_t kFloatPixels = 196;   // and these of floats
constexpr std::int64_t kWeightSlack = 4096;  // bytes that may be read, and count for nothing, behind packed weights
constexpr int kMostRows = 14;                // pixels of the tallest tile

// Each thread keeps its working memory: fresh pages for every call would cost more than the smaller convolutions.
Scratch working_memory(const ConvArgs& a, bool panel);

// Output pixels [begin, end) of the convolution, all output channels of blocks [block_begin, block_end).
using ConvKernel = void (*)(const ConvArgs&, std::int64_t begin, std::int64_t end, std::int64_t block_begin,
                            std::int64_t block_end, const Scratch&);

// weight_offset times the sum of the inputs of output pixels [begin, end), to `corrections`.
using CorrectKernel = void (*)(const ConvArgs&, std::int64_t begin, std::int64_t end, const Scratch&,
                               std::int32_t* corrections);

// One multiplication per channel and tap: weights are int32 (or float) [taps][channels].
using DepthwiseKernel = void (*)(const ConvArgs&, std::int64_t begin, std::int64_t end, const Scratch&);

// A chunk of tiles as the cells of Winograd's convolution (winograd_tile.h): floats from one tile to the next, and from
// one cell to the next.
struct WinogradScratch {
  float* inputs;    // [16][tiles][input_row]
  float* products;  // [16][tiles][kBlock]
  std::int64_t input_row, input_cell, product_cell;
  Scratch product;  // of one matrix product
};
using WinogradKernel = void (*)(const ConvArgs&, std::int64_t begin, std::int64_t end, std::int64_t block_begin,
                                std::int64_t block_end, const WinogradScratch&);

// The shortest run of taps and channels that AMX's tiles multiply; shorter ones, and 16 bits without weights8, go
// through the kernels of AVX-512, which read wide weights.
constexpr std::int64_t kLeastTileRun = 32;

struct ConvKernels {
  ConvKernel u8, s16, f32;
  DepthwiseKernel depthwise_u8, depthwise_s16, depthwise_f32;
  WinogradKernel winograd;
  CorrectKernel correct_u8;
  // s16 and f32 of weights in half as many bytes, int8 and float16, for a few pixels; null: they are widened first.
  ConvKernel s16_half = nullptr, f32_half = nullptr;
  bool all_blocks = false;  // u8 and s16 gain from many blocks in one call
};

void depthwise_u8_avx512(const ConvArgs&, std::int64_t begin, std::int64_t end, const Scratch&);

extern const ConvKernels kConvPortable, kConvNeon, kConvDotprod, kConvI8mm, kConvAvx2, kConvAvxVnni, kConvAvxVnniEvex,
    kConvAvx512, kConvAmx;
const ConvKernels& conv_kernels();  // of the level in force

}  // namespace hexforge
