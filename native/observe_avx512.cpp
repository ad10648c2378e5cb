#include "observe_body.h"

namespace hexforge {
const Observing kObservingAvx512 = {scan, place, widen, rounding, clipping};
}  // namespace hexforge
