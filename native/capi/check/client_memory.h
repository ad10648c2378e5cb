// SPDX-License-Identifier: Apache-2.0
// Memory of a client, looked at without a crash where it is gone.
#pragma once
#include <cstddef>
#include <cstdint>

#include "capi/system_calls/system_calls.h"

namespace hexforge::capi::check {

// A number for the bytes; false where some of them cannot be read. Beyond `most` bytes only as many pages are read,
// spread evenly.
bool digest_client(const void* from, std::uint64_t bytes, std::uint64_t most, std::uint64_t& digest);

}  // namespace hexforge::capi::check
