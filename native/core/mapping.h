// SPDX-License-Identifier: Apache-2.0
// Mapped files that others may truncate: reading past the new end would end the process (SIGBUS). Here such a page
// becomes zeros and the mapping is marked, so that whoever runs over it can say so instead of giving a result.
#pragma once
#include <cstddef>

namespace hexforge {

// Watches a mapping of an open file (which is kept open); the number to ask with, or -1 where there are too many.
int guard_mapping(const void* start, std::size_t bytes, int file);
void unguard_mapping(int number);
// The mapping that an address lies in, or -1.
int mapping_of(const void* address);
// True where a page of the mapping was not there when it was read, or its file has become shorter: what is behind the
// new end, on the same page, reads as zeros.
bool mapping_lost(int number);

}  // namespace hexforge
