// SPDX-License-Identifier: Apache-2.0
// Weights of an 8-bit depthwise convolution in groups of four taps, as kernels/avx512/depthwise.cpp reads them.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/conv.h"

namespace hexforge {

struct DepthwisePacking {
  std::vector<std::int32_t> taps;  // of every group four taps, or -1 where there is none
  std::vector<std::int8_t> weights, rest;
  std::vector<std::int32_t> bias;
  std::vector<float> multiplier;
};

// Of weights [taps][weight_stride] of int32 with 16 bits each; none where they need more than twice 8 bits.
DepthwisePacking pack_depthwise(const ConvArgs& a, const std::int32_t* weights, const std::int32_t* bias,
                                const float* multiplier);
void use_depthwise_packing(ConvArgs& a, const DepthwisePacking& packing);

}  // namespace hexforge
