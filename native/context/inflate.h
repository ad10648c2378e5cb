// SPDX-License-Identifier: Apache-2.0
// Zlib streams (RFC 1950, RFC 1951), for tables of a context that lie compressed in it (native/README.md says why it is
// ours).
#pragma once
#include <cstddef>
#include <span>

namespace hexforge {

// Fills all of `out` with what the stream at the start of `in` holds; throws ContextError where it holds something
// else, fewer bytes or more.
void inflate(std::span<const std::byte> in, std::span<std::byte> out);

}  // namespace hexforge
