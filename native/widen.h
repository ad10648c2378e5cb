// SPDX-License-Identifier: Apache-2.0
// float16 numbers of a file as the float32 that kernels read.
#pragma once
#include <cstddef>
#include <cstdint>

namespace hexforge {

void widen_halves(const std::uint16_t* halves, float* wide, std::size_t count);

}  // namespace hexforge
