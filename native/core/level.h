// SPDX-License-Identifier: Apache-2.0
// Which instruction set the kernels use: the best this CPU has, or a lower one asked for by tests.
#pragma once
#include <string>

namespace hexforge {

enum class Level { portable = 0, avx2 = 1, avx_vnni = 2, avx512 = 3, amx = 4 };

Level best_level();   // of this CPU
bool has_avx_vnni();  // dot products of bytes in AVX's own encoding; CPUs with AVX-512 have them in its encoding
bool widens_beside_products();  // float16 to float32 and bytes to 16 bits take no time from products: so on AMD's
Level current_level();          // in force
void set_level(Level level);    // throws std::invalid_argument above best_level()
std::string name(Level level);

}  // namespace hexforge
