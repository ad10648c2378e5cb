// SPDX-License-Identifier: Apache-2.0
// CRC-32C: the CPU's instruction on three streams at a time where it has one, else tables of eight bytes.
#include "core/checksum.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace hexforge {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ kPolynomial : crc >> 1;
    tables[0][i] = crc;
  }
  for (std::uint32_t i = 0; i < 256; ++i) {
    for (int k = 1; k < 8; ++k) tables[k][i] = tables[k - 1][i] >> 8 ^ tables[0][tables[k - 1][i] & 255];
  }
  return tables;
}

constexpr Tables kTables = make_tables();

std::uint32_t portable(const unsigned char* at, std::size_t bytes, std::uint32_t crc) {
  for (; bytes >= 8; at += 8, bytes -= 8) {
    const std::uint32_t low = crc ^ (at[0] | at[1] << 8 | at[2] << 16 | static_cast<std::uint32_t>(at[3]) << 24);
    crc = kTables[7][low & 255] ^ kTables[6][low >> 8 & 255] ^ kTables[5][low >> 16 & 255] ^ kTables[4][low >> 24] ^
          kTables[3][at[4]] ^ kTables[2][at[5]] ^ kTables[1][at[6]] ^ kTables[0][at[7]];
  }
  for (; bytes; ++at, --bytes) crc = crc >> 8 ^ kTables[0][(crc ^ *at) & 255];
  return crc;
}

#if defined(__x86_64__)

constexpr std::size_t kStream = 4096;  // bytes of each of the three streams

// What `kStream` zero bytes do to a checksum, as tables by byte: checksums are linear, so streams can be joined.
struct Shift {
  std::array<std::array<std::uint32_t, 256>, 4> table;
  Shift() {
    const std::array<unsigned char, kStream> zeros{};
    for (std::uint32_t byte = 0; byte < 4; ++byte) {
      for (std::uint32_t i = 0; i < 256; ++i) table[byte][i] = portable(zeros.data(), kStream, i << 8 * byte);
    }
  }
  std::uint32_t operator()(std::uint32_t crc) const {
    return table[0][crc & 255] ^ table[1][crc >> 8 & 255] ^ table[2][crc >> 16 & 255] ^ table[3][crc >> 24];
  }
};

__attribute__((target("sse4.2"))) std::uint32_t fast(const unsigned char* at, std::size_t bytes, std::uint32_t crc) {
  static const Shift shift;
  const auto load = [](const unsigned char* from) {
    std::uint64_t word;
    std::memcpy(&word, from, 8);
    return word;
  };
  std::uint64_t a = crc;
  for (; bytes >= 3 * kStream; at += 3 * kStream, bytes -= 3 * kStream) {
    std::uint64_t b = 0, c = 0;
    for (std::size_t i = 0; i < kStream; i += 8) {
      a = _mm_crc32_u64(a, load(at + i));
      b = _mm_crc32_u64(b, load(at + kStream + i));
      c = _mm_crc32_u64(c, load(at + 2 * kStream + i));
    }
    a = shift(shift(static_cast<std::uint32_t>(a)) ^ static_cast<std::uint32_t>(b)) ^ c;
  }
  for (; bytes >= 8; at += 8, bytes -= 8) a = _mm_crc32_u64(a, load(at));
  crc = static_cast<std::uint32_t>(a);
  for (; bytes; ++at, --bytes) crc = _mm_crc32_u8(crc, *at);
  return crc;
}

#endif

// Of two polynomials, modulo CRC-32C's; the lowest power is in the highest bit, as checksums have theirs.
std::uint32_t product(std::uint32_t first, std::uint32_t second) {
  std::uint32_t result = 0;
  for (int bit = 31; bit >= 0; --bit) {
    if (first >> bit & 1) result ^= second;
    second = second >> 1 ^ (second & 1 ? kPolynomial : 0);
  }
  return result;
}

// The checksum of two pieces one after the other, out of theirs.
std::uint32_t joined(std::uint32_t first, std::uint32_t second, std::size_t second_bytes) {
  std::uint32_t moved = 1U << 31, power = 1U << 30;  // the polynomials 1 and x
  for (std::size_t bits = 8 * second_bytes; bits; bits >>= 1) {
    if (bits & 1) moved = product(power, moved);
    power = product(power, power);
  }
  return product(moved, first) ^ second;
}

}  // namespace

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t before, int threads, std::size_t least_part) {
  const std::size_t most = bytes / std::max<std::size_t>(1, least_part);
  const std::size_t parts = std::min(static_cast<std::size_t>(std::max(1, threads)), most);
  if (parts < 2) return crc32c(data, bytes, before);
  const std::size_t size = (bytes + parts - 1) / parts;
  std::vector<std::uint32_t> sums(parts);
  std::vector<std::thread> crew;
  const auto part = [&](std::size_t i) {
    const std::size_t first = i * size;
    const std::size_t some = first < bytes ? std::min(size, bytes - first) : 0;
    sums[i] = crc32c(static_cast<const char*>(data) + first, some, 0);
  };
  for (std::size_t i = 1; i < parts; ++i) crew.emplace_back(part, i);
  part(0);
  for (std::thread& thread : crew) thread.join();
  for (std::size_t i = 0; i * size < bytes; ++i) before = joined(before, sums[i], std::min(size, bytes - i * size));
  return before;
}

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t before) {
  const auto* at = static_cast<const unsigned char*>(data);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~fast(at, bytes, ~before);
#endif
  return ~portable(at, bytes, ~before);
}

}  // namespace hexforge
