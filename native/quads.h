// SPDX-License-Identifier: Apache-2.0
// Weights of an 8-bit depthwise convolution in groups of four taps, as depthwise_avx512.cpp reads them.
#pragma once
#include <cstdint>
#include <vector>

#include "conv.h"

namespace hexforge {

struct Quads {
  std::vector<std::int32_t> taps;  // of every group four taps, or -1 where there is none
  std::vector<std::int8_t> weights, rest;
  std::vector<std::int32_t> bias;
  std::vector<float> multiplier;
};

// Of weights [taps][weight_stride] of int32 with 16 bits each; none where they need more than twice 8 bits.
Quads quads_of(const ConvArgs& a, const std::int32_t* weights, const std::int32_t* bias, const float* multiplier);
void use_quads(ConvArgs& a, const Quads& quads);

}  // namespace hexforge
