// SPDX-License-Identifier: Apache-2.0
// How fast this CPU multiplies and adds when nothing else happens: the floor that benchmarks hold the kernels against.
#pragma once
#include <string>

namespace hexforge {

// Multiply-accumulates per second of CPU time on one thread, by a loop that only touches registers and uses the
// instruction the kernels of the current level use for `kind`: "u8", "s16" or "f32"; "u8_tiles" is AMX's, where "u8" is
// the vectors' still.
double peak_macs(const std::string& kind);

}  // namespace hexforge
