// SPDX-License-Identifier: Apache-2.0
// Large pages: the weights of a program, copied out of a mapped file into memory that the system may give large pages,
// once for all graphs that share them. With a page for every 4096 bytes, finding them takes a third of the time in
// which a token reads a language model's packed weights; the file's own pages can leave memory.
#pragma once
#include <span>

#include "context/arrays.h"

namespace hexforge {

constexpr std::int64_t kLeastShared = std::int64_t{1} << 25;  // bytes of packed weights that are worth a copy
constexpr std::int64_t kLeastArray = std::int64_t{1} << 14;

// Lets arrays of a mapped file lie in such a copy; none of them where the packed weights have few bytes. Of the other
// steps only small arrays are copied, because the system brings many pages of the file with each.
void move_to_large_pages(std::span<StoredArray* const> packed, std::span<StoredArray* const> others);

}  // namespace hexforge
