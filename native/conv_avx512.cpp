#include "conv_tile.h"
#include "vector_avx512.h"

namespace hexforge {
const ConvKernels kConvAvx512 = kernels_of<Avx512>();
}  // namespace hexforge
