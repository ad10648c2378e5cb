// SPDX-License-Identifier: Apache-2.0
// Float convolutions whose weights are the cells of Winograd's F(2x2, 3x3) (winograd_tile.h).
#pragma once
#include <atomic>
#include <memory>

#include "core/program.h"
#include "kernels/conv.h"

namespace hexforge {

constexpr std::int64_t kWinogradTaps = 16;  // of the weights: their cells

// Throws where the geometry is not one that has such tiles.
void require_winograd(const ConvArgs& a, std::int64_t groups);

// The cells of [3][3][channels][outputs] weights in float16: 64 bytes for each 18 of a file, made by the first run that
// needs them and kept as long as a step does. Steps whose weights lie at one place share them.
class WinogradCells {
 public:
  static std::shared_ptr<WinogradCells> of(const std::uint16_t* halves, std::int64_t channels, std::int64_t outputs);
  ~WinogradCells();
  WinogradCells(const WinogradCells&) = delete;
  WinogradCells& operator=(const WinogradCells&) = delete;
  const float* get(int threads);

 private:
  WinogradCells(const std::uint16_t* halves, std::int64_t channels, std::int64_t outputs)
      : halves_(halves), channels_(channels), outputs_(outputs) {}
  const std::uint16_t* halves_;
  std::int64_t channels_, outputs_;
  std::atomic<float*> made_{nullptr};
};

// The step of a convolution whose tensors and constants were checked; offsets are channels of input and output. Weights
// are those of `args`, or `cells`.
Run winograd_run(const ConvArgs& args, std::shared_ptr<WinogradCells> cells, std::int64_t x_offset,
                 std::int64_t y_offset, bool residual);

}  // namespace hexforge
