// SPDX-License-Identifier: Apache-2.0
// Weights of a convolution that a step before it computes: packed in every run, then multiplied as constant ones are.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "core/program.h"
#include "kernels/conv.h"
#include "steps/products/depthwise_packing.h"

namespace hexforge {

// What a convolution multiplies with and adds, as its kernels read it, group after group.
struct Stationary {
  const char* weights = nullptr;
  const char* weights8 = nullptr;
  const std::int32_t* weight_sums = nullptr;
  const std::int64_t* bias = nullptr;
  const double* multiplier = nullptr;
  const float *bias_f32 = nullptr, *multiplier32 = nullptr;
  const std::int32_t* bias32 = nullptr;
  std::int64_t weight_bytes = 0, weight8_bytes = 0, padded = 0;  // of a group; outputs up to whole blocks

  void give(ConvArgs& a, std::int64_t group) const;
};

// Attributes: weight_start and weight_strides[5], in elements: where the weight of the first tap, input and output
// lies, and how far the next of kernel depth, height, width, input and output is; zero_a and zero_b of fixed point, the
// zero points of input and weights. Real: scale, the input's times the weights' over the output's. Constant: added, if
// any, in steps of the product for every output (int32 at 8 bits, int64 at 16, float32).
class ComputedWeights {
 public:
  // Throws where the tensor is too small, or sums could leave what kernels have for them; completes `a`.
  ComputedWeights(const Attributes& at, const Tensor& tensor, ConvArgs& a, std::int64_t groups, int bits,
                  bool depthwise);

  // What one run packs into.
  struct Room {
    std::unique_ptr<char[]> packed;
    std::vector<std::int32_t> bias32;
    std::vector<std::int64_t> bias;
    DepthwisePacking depthwise;
  };
  // `a` as the kernels of a run need it, too.
  Stationary packed(const void* weights, Room& room, ConvArgs& a, int threads) const;

 private:
  template <class T>
  void pack(const T* weights, Room& room, const ConvArgs& a, std::int64_t group, std::int64_t block) const;
  template <class T>
  void pack_channels(const T* weights, Room& room, const ConvArgs& a) const;

  std::int64_t start_, strides_[5];
  std::int64_t groups_, padded_, bytes_, zero_a_ = 0, zero_b_ = 0;  // bytes of a group
  int bits_;
  bool depthwise_;
  const std::int32_t* added32_ = nullptr;
  const std::int64_t* added_ = nullptr;
  std::vector<float> bias_f32_, multiplier32_;
  std::vector<double> multiplier_;
};

}  // namespace hexforge
