// SPDX-License-Identifier: Apache-2.0
// Which instruction set the kernels use: the best this CPU has, or a lower one asked for by tests.
#pragma once
#include <string>

namespace hexforge {

// In the order of what they do at once; a processor has those of its own kind.
enum class Level { portable, neon, dotprod, i8mm, avx2, avx_vnni, avx512, amx };
constexpr Level kLevels[] = {Level::portable, Level::neon,     Level::dotprod, Level::i8mm,
                             Level::avx2,     Level::avx_vnni, Level::avx512,  Level::amx};

Level best_level();  // of this CPU
bool has_level(Level level);
bool has_avx_vnni();  // dot products of bytes in AVX's own encoding; CPUs with AVX-512 have them in its encoding
bool widens_beside_products();  // float16 to float32 and bytes to 16 bits take no time from products: so on AMD's
Level current_level();          // in force
void set_level(Level level);    // throws std::invalid_argument where this CPU does not have it
std::string name(Level level);

}  // namespace hexforge
