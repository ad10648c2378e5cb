// SPDX-License-Identifier: Apache-2.0
#include "kernels/observe_body.h"

namespace hexforge {
const Observing kObservingAvx2 = {scan, place, widen, rounding, clipping, apart, apart_wide, apart_rounded, products};
}  // namespace hexforge
