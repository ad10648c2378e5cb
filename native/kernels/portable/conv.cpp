// SPDX-License-Identifier: Apache-2.0
#include "kernels/depthwise_tile.h"
#include "kernels/portable/vector.h"

namespace hexforge {
const ConvKernels kConvPortable = kernels_of<Portable>();
}  // namespace hexforge
