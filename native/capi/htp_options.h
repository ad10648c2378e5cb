// SPDX-License-Identifier: Apache-2.0
// Options that clients give in the HTP's own structures, of contexts and of graphs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace hexforge::capi {

// An option by the name that the backend or the device has for it: a flag, or a number of so many bytes.
struct HtpOption {
  std::uint32_t option;
  const char* key;
  std::size_t bytes;  // 0: a flag
};

// What a client's union holds: read as bytes, since a bool of a client may be any number.
template <class Config>
std::uint64_t number_of(const Config& config, std::size_t bytes) {
  std::uint64_t number = 0;
  std::memcpy(&number, reinterpret_cast<const std::byte*>(&config) + sizeof(std::uint64_t), bytes);
  return number;
}

}  // namespace hexforge::capi
