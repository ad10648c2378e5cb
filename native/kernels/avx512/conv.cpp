// SPDX-License-Identifier: Apache-2.0
#include "kernels/avx512/vector.h"
#include "kernels/shared/depthwise_tile.h"

namespace hexforge {
namespace {
constexpr ConvKernels with_depthwise_packing(ConvKernels all) {
  all.depthwise_u8 = depthwise_u8_avx512;
  return all;
}
}  // namespace

const ConvKernels kConvAvx512 = with_depthwise_packing(kernels_of<Avx512>());
}  // namespace hexforge
