// SPDX-License-Identifier: Apache-2.0
// Which instruction set the kernels use: the best this CPU has, or a lower one asked for by tests.
#pragma once
#include <string>

namespace hexforge {

enum class Level { portable = 0, avx2 = 1, avx512 = 2, amx = 3 };

Level best_level();            // of this CPU
bool has_avx_vnni();           // dot products of bytes without AVX-512: AVX2 kernels then use them
Level current_level();         // in force
void set_level(Level level);   // throws std::invalid_argument above best_level()
std::string name(Level level);

}  // namespace hexforge
