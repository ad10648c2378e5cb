// SPDX-License-Identifier: Apache-2.0
#include "kernels/neon/vector.h"
#include "kernels/shared/depthwise_tile.h"

namespace hexforge {
const ConvKernels kConvNeon = kernels_of<Neon>();
}  // namespace hexforge
