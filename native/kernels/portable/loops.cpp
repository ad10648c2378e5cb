// SPDX-License-Identifier: Apache-2.0
#include "kernels/loops_body.h"

namespace hexforge {
const Loops kLoopsPortable = loops_here();
}  // namespace hexforge
