// SPDX-License-Identifier: Apache-2.0
#include "depthwise_tile.h"
#include "vector_portable.h"

namespace hexforge {
const ConvKernels kConvPortable = kernels_of<Portable>();
}  // namespace hexforge
