// SPDX-License-Identifier: Apache-2.0
#include "depthwise_tile.h"
#include "vector_avx2.h"

namespace hexforge {
const ConvKernels kConvAvx2 = kernels_of<Avx2>();
}  // namespace hexforge
