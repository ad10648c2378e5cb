// SPDX-License-Identifier: Apache-2.0
#include "context/tensor_type.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>

#include "context/error.h"

namespace hexforge {
namespace {

struct NamedType {
  const char* name;
  int bits;
};
constexpr std::array<NamedType, 14> kTypes{{{"int4", 4},
                                            {"int8", 8},
                                            {"int16", 16},
                                            {"int32", 32},
                                            {"int64", 64},
                                            {"uint4", 4},
                                            {"uint8", 8},
                                            {"uint16", 16},
                                            {"uint32", 32},
                                            {"uint64", 64},
                                            {"float16", 16},
                                            {"bfloat16", 16},
                                            {"float32", 32},
                                            {"bool", 8}}};
constexpr std::size_t kHighestRank = 32;
constexpr std::int64_t kLargest = std::int64_t{1} << 59;  // elements

class TypeReader {
 public:
  explicit TypeReader(std::string_view text) : text_(text) {}

  TensorInfo whole() {
    TensorInfo info;
    const std::string_view spelt = word();
    const auto* found = std::find_if(kTypes.begin(), kTypes.end(), [&](const NamedType& t) { return spelt == t.name; });
    if (found == kTypes.end()) malformed("no data type is named '" + std::string(spelt) + "'");
    info.dtype = static_cast<DType>(found - kTypes.begin());
    info.dims = list(&TypeReader::integer);
    std::int64_t size = 1;
    for (std::int64_t dim : info.dims) {
      if (dim < 0 || (dim > 0 && size > kLargest / dim)) fail();
      size *= std::max<std::int64_t>(dim, 1);
    }
    if (info.dims.size() > kHighestRank) fail();
    info.bytes = (info.elements() * found->bits + 7) / 8;
    if (accept('{')) info.encoding = encoding();
    skip();
    if (at_ != text_.size()) fail();
    return info;
  }

 private:
  [[noreturn]] void fail() const { malformed("'" + std::string(text_.substr(0, 80)) + "' is no type of a tensor"); }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool accept(char wanted) {
    skip();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted)) fail();
  }
  std::string_view word() {
    skip();
    const std::size_t first = at_;
    const auto part = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    };
    while (at_ < text_.size() && part(text_[at_])) ++at_;
    if (at_ == first) fail();
    return text_.substr(first, at_ - first);
  }
  std::string_view number() {
    skip();
    const std::size_t first = at_;
    while (at_ < text_.size() && std::string_view("+-.0123456789einfa").find(text_[at_]) != std::string_view::npos)
      ++at_;
    return text_.substr(first, at_ - first);
  }
  std::int64_t integer() {
    const std::string_view token = number();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
    if (token.empty() || error != std::errc() || end != token.data() + token.size()) fail();
    return value;
  }
  double real() {
    const std::string_view token = number();
    double value = 0;
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
    if (token.empty() || error != std::errc() || end != token.data() + token.size()) fail();
    return value;
  }
  template <class Value>
  std::vector<Value> list(Value (TypeReader::*read)()) {
    std::vector<Value> items;
    expect('[');
    while (!accept(']')) {
      if (!items.empty()) expect(',');
      items.push_back((this->*read)());
    }
    return items;
  }

  Encoding encoding() {
    Encoding made;
    std::map<std::string, bool, std::less<>> given;
    while (!accept('}')) {
      if (!given.empty()) expect(',');
      const std::string key(word());
      if (!given.try_emplace(key, true).second) fail();
      expect('=');
      if (key == "scale") {
        made.scales = {real()};
      } else if (key == "offset") {
        made.offsets = {integer()};
      } else if (key == "axis") {
        made.axis = integer();
      } else if (key == "block_axis") {
        made.block_axis = integer();
      } else if (key == "bitwidth") {
        made.bitwidth = integer();
      } else if (key == "block_scale_bitwidth") {
        made.block_scale_bitwidth = integer();
      } else if (key == "scales") {
        made.scales = list(&TypeReader::real);
      } else if (key == "offsets") {
        made.offsets = list(&TypeReader::integer);
      } else if (key == "block_scales") {
        made.block_scales = list(&TypeReader::integer);
      } else if (key == "block_shape") {
        made.block_shape = list(&TypeReader::integer);
      } else {
        fail();
      }
    }
    const auto only = [&](std::initializer_list<const char*> needed, std::initializer_list<const char*> optional) {
      std::size_t known = needed.size();
      for (const char* key : needed) {
        if (!given.contains(key)) fail();
      }
      for (const char* key : optional) known += given.contains(key) ? 1 : 0;
      if (known != given.size()) fail();
    };
    // told apart by a field of their own, as ir/text_reader.py does
    if (given.contains("scale")) {
      only({"scale"}, {"offset", "bitwidth"});
      made.kind = Encoding::Kind::scale_offset;
      if (made.offsets.empty()) made.offsets = {0};
    } else if (given.contains("block_shape")) {
      only({"block_shape", "scales", "offsets"}, {"bitwidth"});
      made.kind = Encoding::Kind::block;
    } else if (given.contains("block_scales")) {
      only({"axis", "block_axis", "scales", "offsets", "block_scales"}, {"bitwidth", "block_scale_bitwidth"});
      made.kind = Encoding::Kind::blockwise_expansion;
      if (!given.contains("bitwidth")) made.bitwidth = 4;
      if (!given.contains("block_scale_bitwidth")) made.block_scale_bitwidth = 4;
    } else {
      only({"axis", "scales", "offsets"}, {"bitwidth"});
      made.kind = Encoding::Kind::axis_scale_offset;
    }
    return made;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::int64_t TensorInfo::elements() const {
  std::int64_t count = 1;
  for (std::int64_t dim : dims) count *= dim;
  return count;
}

TensorInfo parse_tensor_type(std::string_view text) { return TypeReader(text).whole(); }

int element_bits(DType dtype) { return kTypes[static_cast<std::size_t>(dtype)].bits; }

const char* name(DType dtype) { return kTypes[static_cast<std::size_t>(dtype)].name; }

}  // namespace hexforge
