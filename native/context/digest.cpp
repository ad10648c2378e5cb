// SPDX-License-Identifier: Apache-2.0
#include "context/digest.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace hexforge {
namespace {

constexpr std::size_t kBlock = 128, kDigest = 16;
constexpr std::array<std::uint64_t, 8> kStart{0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
                                              0xa54ff53a5f1d36f1, 0x510e527fade682d1, 0x9b05688c2b3e6c1f,
                                              0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
constexpr std::array<std::array<std::uint8_t, 16>, 10> kOrder{{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                                               {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
                                                               {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
                                                               {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
                                                               {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
                                                               {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
                                                               {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
                                                               {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
                                                               {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
                                                               {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}}};

struct State {
  std::array<std::uint64_t, 8> hash = kStart;
  std::uint64_t counted = 0;

  void compress(const std::byte* block, std::size_t bytes, bool last) {
    std::array<std::uint64_t, 16> words{}, v;
    for (std::size_t i = 0; i < kBlock; ++i) { words[i / 8] |= static_cast<std::uint64_t>(block[i]) << (8 * (i % 8)); }
    counted += bytes;
    std::copy(hash.begin(), hash.end(), v.begin());
    std::copy(kStart.begin(), kStart.end(), v.begin() + 8);
    v[12] ^= counted;
    if (last) v[14] = ~v[14];
    const auto mix = [&](std::size_t a, std::size_t b, std::size_t c, std::size_t d, std::uint64_t x, std::uint64_t y) {
      v[a] += v[b] + x;
      v[d] = std::rotr(v[d] ^ v[a], 32);
      v[c] += v[d];
      v[b] = std::rotr(v[b] ^ v[c], 24);
      v[a] += v[b] + y;
      v[d] = std::rotr(v[d] ^ v[a], 16);
      v[c] += v[d];
      v[b] = std::rotr(v[b] ^ v[c], 63);
    };
    for (std::size_t round = 0; round < 12; ++round) {
      const auto& order = kOrder[round % 10];
      for (std::size_t i = 0; i < 4; ++i) {
        mix(i, i + 4, i + 8, i + 12, words[order[2 * i]], words[order[2 * i + 1]]);
      }
      for (std::size_t i = 0; i < 4; ++i) {
        mix(i, (i + 1) % 4 + 4, (i + 2) % 4 + 8, (i + 3) % 4 + 12, words[order[8 + 2 * i]], words[order[9 + 2 * i]]);
      }
    }
    for (std::size_t i = 0; i < 8; ++i) hash[i] ^= v[i] ^ v[i + 8];
  }
};

}  // namespace

std::string blake2b_128(std::span<const std::byte> first, std::span<const std::byte> second) {
  State state;
  state.hash[0] ^= 0x01010000 ^ kDigest;
  std::array<std::byte, kBlock> block{};
  std::size_t held = 0;
  for (const std::span<const std::byte> piece : {first, second}) {
    for (std::size_t at = 0; at < piece.size();) {
      if (held == kBlock) {
        state.compress(block.data(), kBlock, false);
        held = 0;
      }
      const std::size_t taken = std::min(kBlock - held, piece.size() - at);
      std::memcpy(block.data() + held, piece.data() + at, taken);
      held += taken;
      at += taken;
    }
  }
  std::fill(block.begin() + static_cast<std::ptrdiff_t>(held), block.end(), std::byte{0});
  state.compress(block.data(), held, true);
  std::string digest;
  for (std::size_t i = 0; i < kDigest; ++i) {
    const auto value = static_cast<unsigned>(state.hash[i / 8] >> (8 * (i % 8)) & 0xFF);
    digest += "0123456789abcdef"[value >> 4];
    digest += "0123456789abcdef"[value & 15];
  }
  return digest;
}

}  // namespace hexforge
