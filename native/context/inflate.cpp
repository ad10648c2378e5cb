// SPDX-License-Identifier: Apache-2.0
#include "context/inflate.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "context/error.h"

namespace hexforge {
namespace {

[[noreturn]] void damaged() { malformed("a table's steps are damaged"); }
[[noreturn]] void other_size() { malformed("a table is not what its steps make"); }

constexpr int kMostBits = 15;

// A canonical Huffman code: how many symbols there are of each length, and the symbols in order.
struct Code {
  std::array<std::uint16_t, kMostBits + 1> counts{};
  std::array<std::uint16_t, 288> symbols{};

  // A code may leave patterns out only where it has a single symbol; it may never have more than there are.
  explicit Code(std::span<const std::uint8_t> lengths, bool may_be_short = false) {
    for (std::uint8_t length : lengths) ++counts[length];
    int left = 1;
    for (int length = 1; length <= kMostBits; ++length) {
      left = 2 * left - counts[static_cast<std::size_t>(length)];
      if (left < 0) damaged();
    }
    const bool single = lengths.size() - counts[0] <= 1;
    if (left > 0 && !(may_be_short && single)) damaged();
    counts[0] = 0;
    std::array<std::uint16_t, kMostBits + 1> first{};
    for (std::size_t length = 1; length < kMostBits; ++length) {
      first[length + 1] = static_cast<std::uint16_t>(first[length] + counts[length]);
    }
    for (std::size_t symbol = 0; symbol < lengths.size(); ++symbol) {
      if (lengths[symbol] != 0) symbols[first[lengths[symbol]]++] = static_cast<std::uint16_t>(symbol);
    }
  }
};

class Stream {
 public:
  Stream(std::span<const std::byte> in, std::span<std::byte> out) : in_(in), out_(out) {}

  void read() {
    if (in_.size() < 2) damaged();
    const unsigned method = byte(), flags = byte();
    if ((method & 15) != 8 || (method >> 4) > 7 || (method << 8 | flags) % 31 != 0 || (flags & 32) != 0) damaged();
    for (bool last = false; !last;) {
      last = bits(1) != 0;
      switch (bits(2)) {
        case 0: stored(); break;
        case 1: fixed(); break;
        case 2: dynamic(); break;
        default: damaged();
      }
    }
    if (at_ != out_.size()) other_size();
    held_ = 0;
    count_ = 0;
    std::uint32_t low = 1, high = 0, wanted = 0;
    for (std::byte value : out_) {
      low = (low + static_cast<std::uint32_t>(value)) % 65521;
      high = (high + low) % 65521;
    }
    for (int i = 0; i < 4; ++i) wanted = wanted << 8 | byte();
    if (wanted != (high << 16 | low)) damaged();
  }

 private:
  unsigned byte() {
    if (next_ == in_.size()) damaged();
    return static_cast<unsigned>(in_[next_++]);
  }
  unsigned bits(int wanted) {
    while (count_ < wanted) {
      held_ |= byte() << count_;
      count_ += 8;
    }
    const unsigned value = held_ & ((1U << wanted) - 1);
    held_ >>= wanted;
    count_ -= wanted;
    return value;
  }
  void put(std::byte value) {
    if (at_ == out_.size()) other_size();
    out_[at_++] = value;
  }
  unsigned symbol(const Code& code) {
    int value = 0, first = 0, index = 0;
    for (std::size_t length = 1; length <= kMostBits; ++length) {
      value |= static_cast<int>(bits(1));
      const int count = code.counts[length];
      if (value - first < count) return code.symbols[static_cast<std::size_t>(index + value - first)];
      index += count;
      first = (first + count) << 1;
      value <<= 1;
    }
    damaged();
  }
  void stored() {
    held_ = 0;
    count_ = 0;
    const unsigned size = bits(16), inverse = bits(16);
    if (size != (~inverse & 0xFFFF)) damaged();
    for (unsigned i = 0; i < size; ++i) put(static_cast<std::byte>(byte()));
  }
  void fixed() {
    std::array<std::uint8_t, 288> lengths;
    std::fill_n(lengths.begin(), 144, 8);
    std::fill_n(lengths.begin() + 144, 112, 9);
    std::fill_n(lengths.begin() + 256, 24, 7);
    std::fill_n(lengths.begin() + 280, 8, 8);
    std::array<std::uint8_t, 32> distances;
    distances.fill(5);
    codes(Code(lengths), Code(distances));
  }
  void dynamic() {
    static constexpr std::array<std::uint8_t, 19> kOrder{16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                         11, 4,  12, 3, 13, 2, 14, 1, 15};
    const std::size_t literals = bits(5) + 257, distances = bits(5) + 1, given = bits(4) + 4;
    if (literals > 286 || distances > 30) damaged();
    std::array<std::uint8_t, 19> own{};
    for (std::size_t i = 0; i < given; ++i) own[kOrder[i]] = static_cast<std::uint8_t>(bits(3));
    const Code code(own);
    std::array<std::uint8_t, 316> lengths{};
    for (std::size_t i = 0; i < literals + distances;) {
      const unsigned length = symbol(code);
      if (length < 16) {
        lengths[i++] = static_cast<std::uint8_t>(length);
        continue;
      }
      if (length == 16 && i == 0) damaged();
      const std::uint8_t again = length == 16 ? lengths[i - 1] : 0;
      const unsigned times = length == 16 ? 3 + bits(2) : length == 17 ? 3 + bits(3) : 11 + bits(7);
      if (i + times > literals + distances) damaged();
      for (unsigned n = 0; n < times; ++n) lengths[i++] = again;
    }
    if (lengths[256] == 0) damaged();
    const std::span all(lengths);
    codes(Code(all.first(literals), true), Code(all.subspan(literals, distances), true));
  }
  void codes(const Code& literals, const Code& distances) {
    static constexpr std::array<std::uint16_t, 29> kLengths{3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                                            15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                                            67, 83, 99, 115, 131, 163, 195, 227, 258};
    static constexpr std::array<std::uint8_t, 29> kLengthBits{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                                              2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    static constexpr std::array<std::uint16_t, 30> kDistances{
        1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
        193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    static constexpr std::array<std::uint8_t, 30> kDistanceBits{0, 0, 0, 0, 1, 1, 2, 2,  3,  3,  4,  4,  5,  5,  6,
                                                                6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13};
    for (;;) {
      const unsigned literal = symbol(literals);
      if (literal < 256) {
        put(static_cast<std::byte>(literal));
        continue;
      }
      if (literal == 256) return;
      if (literal > 285) damaged();
      const std::size_t length = kLengths[literal - 257] + bits(kLengthBits[literal - 257]);
      const unsigned far = symbol(distances);
      if (far > 29) damaged();
      const std::size_t distance = kDistances[far] + bits(kDistanceBits[far]);
      if (distance > at_) damaged();
      for (std::size_t i = 0; i < length; ++i) put(out_[at_ - distance]);
    }
  }

  std::span<const std::byte> in_;
  std::span<std::byte> out_;
  std::size_t next_ = 0, at_ = 0;
  unsigned held_ = 0;
  int count_ = 0;
};

}  // namespace

void inflate(std::span<const std::byte> in, std::span<std::byte> out) { Stream(in, out).read(); }

}  // namespace hexforge
