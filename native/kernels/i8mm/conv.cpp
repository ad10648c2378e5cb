// SPDX-License-Identifier: Apache-2.0
// Bytes by the dot products of ARM's FEAT_I8MM, which take unsigned and signed ones as they are.
#include "kernels/neon/vector.h"
#include "kernels/shared/depthwise_tile.h"

namespace hexforge {
namespace {

struct MixedDotProducts : Neon {
  static constexpr int kRows1 = 6;  // twenty-four sums, four of weights, one of x

  template <int Bits>
  static void dot(Acc& acc, int32x4_t x, const Weights& w) {
    static_assert(Bits == 8);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      acc.part[i] = vusdotq_s32(acc.part[i], vreinterpretq_u8_s32(x), vreinterpretq_s8_s32(w.part[i]));
  }
};

constexpr ConvKernels with_bytes(ConvKernels all) {
  all.u8 = run_conv<MixedDotProducts, 8>;
  return all;
}
}  // namespace

const ConvKernels kConvI8mm = with_bytes(kernels_of<Neon>());
}  // namespace hexforge
