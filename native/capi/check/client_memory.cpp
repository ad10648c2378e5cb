// SPDX-License-Identifier: Apache-2.0
#include "capi/check/client_memory.h"

namespace hexforge::capi::check {
namespace {

constexpr std::uint64_t kPage = 4096;

std::uint64_t mixed(std::uint64_t digest, const unsigned char* bytes, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) digest = (digest ^ bytes[i]) * 0x100000001b3ull;  // FNV-1a
  return digest;
}

}  // namespace

bool digest_client(const void* from, std::uint64_t bytes, std::uint64_t most, std::uint64_t& digest) {
  unsigned char page[kPage];
  digest = 0xcbf29ce484222325ull ^ bytes;
  const std::uint64_t pages = (bytes + kPage - 1) / kPage, taken = most / kPage ? most / kPage : 1;
  const std::uint64_t stride = pages > taken ? (pages + taken - 1) / taken : 1;
  const auto* at = static_cast<const unsigned char*>(from);
  for (std::uint64_t i = 0; i < pages; i += stride) {
    const std::uint64_t count = bytes - i * kPage < kPage ? bytes - i * kPage : kPage;
    if (!read_client(at + i * kPage, page, count)) return false;
    digest = mixed(digest, page, count);
  }
  return true;
}

}  // namespace hexforge::capi::check
