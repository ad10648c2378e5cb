// SPDX-License-Identifier: Apache-2.0
#include "kernels/avx2/vector.h"
#include "kernels/shared/depthwise_tile.h"

namespace hexforge {
namespace {
template <class Bytes>
constexpr ConvKernels kernels_with() {
  return {run_conv<Bytes, 8>,       run_conv<Avx2, 16>,      run_conv<Avx2, 32>, run_depthwise<Avx2, 8>,
          run_depthwise<Avx2, 16>,  run_depthwise<Avx2, 32>, run_winograd<Avx2>, correct<Avx2>,
          run_conv<Avx2, 16, true>, run_conv<Avx2, 32, true>};
}
}  // namespace

const ConvKernels kConvAvx2 = kernels_with<Avx2Bytes>();
const ConvKernels kConvAvxVnni = kernels_with<Avx2Vnni<true>>();
const ConvKernels kConvAvxVnniEvex = kernels_with<Avx2Vnni<false>>();
}  // namespace hexforge
