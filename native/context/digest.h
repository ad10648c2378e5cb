// SPDX-License-Identifier: Apache-2.0
// BLAKE2b with 128 bits (RFC 7693): which base an adapter belongs to.
#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace hexforge {

// The digest of two pieces one after the other, in hexadecimal.
std::string blake2b_128(std::span<const std::byte> first, std::span<const std::byte> second);

}  // namespace hexforge
