// SPDX-License-Identifier: Apache-2.0
// Attributes that many steps have.
#pragma once
#include "core/schema.h"

namespace hexforge {

inline const Fields kRange = {integer("zero_point"), integer("low"), integer("high")};  // how fixed point is written
inline const Fields kFixed = Fields{integer("zero_a"), real("scale")} + kRange;         // how it is read, too
inline const Fields kWindow = {integer("batch"),        integers("in", 3),     integers("out", 3),
                               integers("kernel", 3),   integers("stride", 3), integers("pad", 3),
                               integers("dilation", 3), integer("channels")};

}  // namespace hexforge
