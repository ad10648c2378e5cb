// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli), the checksum of every section of a context file.
#pragma once
#include <cstddef>
#include <cstdint>

namespace hexforge {

// The checksum of `bytes` bytes that follow data with the checksum `before` (0: nothing).
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t before);
// The same by several threads, each with a part of the data, of so many bytes at least.
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t before, int threads, std::size_t least_part);

}  // namespace hexforge
