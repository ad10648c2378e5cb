// SPDX-License-Identifier: Apache-2.0
// Bytes by the dot products of ARM's FEAT_DotProd, which take two signed bytes: inputs are taken 128 lower than they
// are, and 128 times the sum of the weights, found out once for all rows of a tile, is added at its end.
#include "kernels/neon/vector.h"
#include "kernels/shared/depthwise_tile.h"

namespace hexforge {
namespace {

struct DotProducts : Neon {
  static constexpr bool kLowersInputs = true;
  static constexpr int kRows1 = 5;  // twenty sums, four of all weights, four of weights, one of x

  static int32x4_t broadcast(const char* p) {
    return veorq_s32(Neon::broadcast(p), vdupq_n_s32(static_cast<std::int32_t>(0x80808080u)));
  }
  template <int Bits>
  static void dot(Acc& acc, int32x4_t x, const Weights& w) {
    static_assert(Bits == 8);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      acc.part[i] = vdotq_s32(acc.part[i], vreinterpretq_s8_s32(x), vreinterpretq_s8_s32(w.part[i]));
  }
  // 64 times the weights: 128 is no signed byte.
  static void add_weights(Acc& sums, const Weights& w) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) sums.part[i] = vdotq_s32(sums.part[i], vdupq_n_s8(64), vreinterpretq_s8_s32(w.part[i]));
  }
  static void raise(Acc& acc, const Acc& sums) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) acc.part[i] = vaddq_s32(acc.part[i], vshlq_n_s32(sums.part[i], 1));
  }
};

constexpr ConvKernels with_bytes(ConvKernels all) {
  all.u8 = run_conv<DotProducts, 8>;
  return all;
}
}  // namespace

const ConvKernels kConvDotprod = with_bytes(kernels_of<Neon>());
}  // namespace hexforge
