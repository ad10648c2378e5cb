// SPDX-License-Identifier: Apache-2.0
#include "depthwise_tile.h"
#include "vector_avx512.h"

namespace hexforge {
namespace {
constexpr ConvKernels with_quads(ConvKernels all) {
  all.depthwise_u8 = depthwise_u8_avx512;
  return all;
}
}  // namespace

const ConvKernels kConvAvx512 = with_quads(kernels_of<Avx512>());
}  // namespace hexforge
