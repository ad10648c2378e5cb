// SPDX-License-Identifier: Apache-2.0
#include "steps/products/depthwise_packing.h"

#include <algorithm>

namespace hexforge {

DepthwisePacking pack_depthwise(const ConvArgs& a, const std::int32_t* weights, const std::int32_t* bias,
                                const float* multiplier) {
  DepthwisePacking q;
  const bool columns = a.kernel[0] == 1 && a.kernel[1] <= 4;
  if (columns) {
    for (std::int64_t kw = 0; kw < a.kernel[2]; ++kw) {
      for (std::int64_t kh = 0; kh < 4; ++kh) {
        q.taps.push_back(kh < a.kernel[1] ? static_cast<std::int32_t>(kh * a.kernel[2] + kw) : -1);
      }
    }
  } else {
    for (std::int64_t t = 0; t < (a.taps + 3) / 4 * 4; ++t)
      q.taps.push_back(t < a.taps ? static_cast<std::int32_t>(t) : -1);
  }
  const std::int64_t groups = static_cast<std::int64_t>(q.taps.size()) / 4, channels = a.weight_stride;
  q.weights.resize(static_cast<std::size_t>(channels * groups * 4));
  q.rest.resize(q.weights.size());
  q.bias.resize(static_cast<std::size_t>(channels));
  q.multiplier.resize(static_cast<std::size_t>(channels));
  bool wide = false;
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    // Interleaving leaves channel 16 l + 4 v + c of a block in lane 4 l + c of vector v.
    const std::int64_t block = channel / kBlock, in = channel % kBlock, vector = in % 16 / 4,
                       lane = in / 16 * 4 + in % 4;
    q.bias[static_cast<std::size_t>(block * kBlock + vector * kLane + lane)] = bias[channel];
    q.multiplier[static_cast<std::size_t>(block * kBlock + vector * kLane + lane)] = multiplier[channel];
    for (std::int64_t i = 0; i < groups * 4; ++i) {
      const std::int32_t tap = q.taps[static_cast<std::size_t>(i)];
      if (tap < 0) continue;
      const std::int32_t w = static_cast<std::int16_t>(weights[tap * a.weight_stride + channel]);
      const std::int32_t near = std::clamp(w, -128, 127), left = w - near;
      if (left < -128 || left > 127) return {};
      wide = wide || left != 0;
      const auto at = static_cast<std::size_t>(((block * groups + i / 4) * 4 + vector) * 64 + lane * 4 + i % 4);
      q.weights[at] = static_cast<std::int8_t>(near);
      q.rest[at] = static_cast<std::int8_t>(left);
    }
  }
  if (!wide) q.rest.clear();
  return q;
}

void use_depthwise_packing(ConvArgs& a, const DepthwisePacking& q) {
  if (q.weights.empty()) return;
  a.depthwise_groups = static_cast<std::int64_t>(q.taps.size()) / 4;
  a.depthwise_taps = q.taps.data();
  a.depthwise_weights = q.weights.data();
  a.depthwise_rest = q.rest.empty() ? nullptr : q.rest.data();
  a.depthwise_bias = q.bias.data();
  a.depthwise_multiplier = q.multiplier.data();
}

}  // namespace hexforge
