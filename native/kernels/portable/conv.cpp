// SPDX-License-Identifier: Apache-2.0
#include "kernels/portable/vector.h"
#include "kernels/shared/depthwise_tile.h"

namespace hexforge {
const ConvKernels kConvPortable = kernels_of<Portable>();
}  // namespace hexforge
