// SPDX-License-Identifier: Apache-2.0
#include "context/json.h"

#include <charconv>
#include <limits>

#include "context/error.h"

namespace hexforge {
namespace {

constexpr int kDeepest = 64;

class JsonReader {
 public:
  JsonReader(std::string_view text, const std::string& where, std::int64_t offset)
      : text_(text), where_(where), offset_(offset) {}

  Json whole() {
    Json value = read(0);
    skip();
    if (at_ != text_.size()) fail("something follows the end");
    return value;
  }

 private:
  [[noreturn]] void fail(const char* why) const {
    malformed(where_ + ": holds malformed JSON: " + why, offset_ + static_cast<std::int64_t>(at_));
  }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
      ++at_;
  }
  char next() {
    skip();
    if (at_ == text_.size()) fail("it ends early");
    return text_[at_];
  }
  bool accept(char wanted) {
    if (next() != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted)) fail("a character is not what belongs there");
  }
  bool word(std::string_view wanted) {
    if (text_.substr(at_, wanted.size()) != wanted) return false;
    at_ += wanted.size();
    return true;
  }

  Json read(int depth) {
    if (depth > kDeepest) fail("it is nested too deeply");
    switch (next()) {
      case '{': return object(depth);
      case '[': return list(depth);
      case '"': return Json(string());
      case 't':
        if (word("true")) return Json(true);
        break;
      case 'f':
        if (word("false")) return Json(false);
        break;
      case 'n':
        if (word("null")) return {};
        break;
      default: return number();
    }
    fail("a word is none of JSON's");
  }

  Json object(int depth) {
    Json::Object members;
    expect('{');
    while (!accept('}')) {
      if (!members.empty()) expect(',');
      if (next() != '"') fail("a key is not a text");
      std::string key = string();
      expect(':');
      if (!members.try_emplace(std::move(key), read(depth + 1)).second) fail("a key is there twice");
    }
    return Json(std::move(members));
  }

  Json list(int depth) {
    Json::List items;
    expect('[');
    while (!accept(']')) {
      if (!items.empty()) expect(',');
      items.push_back(read(depth + 1));
    }
    return Json(std::move(items));
  }

  Json number() {
    std::size_t end = at_;
    bool whole = true;
    while (end < text_.size() && std::string_view("+-.eE0123456789").find(text_[end]) != std::string_view::npos) {
      whole = whole && (text_[end] == '-' || (text_[end] >= '0' && text_[end] <= '9'));
      ++end;
    }
    const char* first = text_.data() + at_;
    const char* last = text_.data() + end;
    std::int64_t integer = 0;
    double real = 0;
    const auto result = whole ? std::from_chars(first, last, integer) : std::from_chars(first, last, real);
    if (first == last || result.ec != std::errc() || result.ptr != last) fail("a number is none, or too large");
    at_ = end;
    return whole ? Json(integer) : Json(real);
  }

  unsigned hexadecimal() {
    unsigned value = 0;
    if (at_ + 4 > text_.size()) fail("it ends early");
    const char* first = text_.data() + at_;
    if (const auto [end, error] = std::from_chars(first, first + 4, value, 16);
        error != std::errc() || end != first + 4) {
      fail("an escaped character is none");
    }
    at_ += 4;
    return value;
  }

  // A character past U+FFFF is written as two halves.
  unsigned escaped_character() {
    const unsigned first = hexadecimal();
    if (first < 0xD800 || first > 0xDFFF) return first;
    if (first > 0xDBFF || !word("\\u")) fail("half a character stands alone");
    const unsigned second = hexadecimal();
    if (second < 0xDC00 || second > 0xDFFF) fail("half a character stands alone");
    return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
  }

  static void append(std::string& text, unsigned character) {
    const auto tail = [&](unsigned bits) { text += static_cast<char>(0x80 | (bits & 0x3F)); };
    if (character < 0x80) {
      text += static_cast<char>(character);
    } else if (character < 0x800) {
      text += static_cast<char>(0xC0 | (character >> 6));
      tail(character);
    } else if (character < 0x10000) {
      text += static_cast<char>(0xE0 | (character >> 12));
      tail(character >> 6);
      tail(character);
    } else {
      text += static_cast<char>(0xF0 | (character >> 18));
      tail(character >> 12);
      tail(character >> 6);
      tail(character);
    }
  }

  std::string string() {
    std::string text;
    for (++at_;;) {
      const std::size_t first = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
             static_cast<unsigned char>(text_[at_]) >= 0x20 && static_cast<unsigned char>(text_[at_]) < 0x80)
        ++at_;
      text += text_.substr(first, at_ - first);
      if (at_ == text_.size()) fail("it ends early");
      const char character = text_[at_++];
      if (character == '"') return text;
      if (character != '\\') fail("a text holds what is no printable character of ASCII");
      if (at_ == text_.size()) fail("it ends early");
      switch (const char escape = text_[at_++]) {
        case '"':
        case '\\':
        case '/': text += escape; break;
        case 'b': text += '\b'; break;
        case 'f': text += '\f'; break;
        case 'n': text += '\n'; break;
        case 'r': text += '\r'; break;
        case 't': text += '\t'; break;
        case 'u': append(text, escaped_character()); break;
        default: fail("an escaped character is none");
      }
    }
  }

  std::string_view text_;
  const std::string& where_;
  std::int64_t offset_;
  std::size_t at_ = 0;
};

}  // namespace

Json Json::parse(std::string_view text, const std::string& where, std::int64_t offset) {
  return JsonReader(text, where, offset).whole();
}

const std::string& Json::text() const {
  if (const auto* value = std::get_if<std::string>(&value_)) return *value;
  malformed("something is no text");
}

const Json::List& Json::list() const {
  if (const auto* value = std::get_if<List>(&value_)) return *value;
  malformed("something is no list");
}

const Json::List& Json::list(std::size_t size) const {
  if (list().size() != size) malformed("a list has the wrong number of values");
  return list();
}

const Json::Object& Json::object() const {
  if (const auto* value = std::get_if<Object>(&value_)) return *value;
  malformed("something is no object");
}

std::int64_t Json::integer(std::int64_t least) const {
  const auto* value = std::get_if<std::int64_t>(&value_);
  if (!value || *value < least) malformed("something is no number that can be there");
  return *value;
}

double Json::real() const {
  if (const auto* value = std::get_if<double>(&value_)) return *value;
  return static_cast<double>(integer(std::numeric_limits<std::int64_t>::min()));
}

std::vector<std::int64_t> Json::integers(std::int64_t least) const {
  std::vector<std::int64_t> values;
  values.reserve(list().size());
  for (const Json& item : list()) values.push_back(item.integer(least));
  return values;
}

const Json* Json::find(std::string_view key) const {
  const auto found = object().find(key);
  return found == object().end() ? nullptr : &found->second;
}

const Json& Json::operator[](std::string_view key) const {
  if (const Json* value = find(key)) return *value;
  malformed("there is no " + std::string(key));
}

Json* Json::place(const Json& key) {
  if (auto* members = std::get_if<Object>(&value_); members && key.is_string()) {
    const auto found = members->find(key.text());
    return found == members->end() ? nullptr : &found->second;
  }
  auto* items = std::get_if<List>(&value_);
  if (!items || !key.is_integer()) return nullptr;
  const std::int64_t index = key.integer(std::numeric_limits<std::int64_t>::min());
  return index < 0 || index >= static_cast<std::int64_t>(items->size()) ? nullptr
                                                                        : &(*items)[static_cast<std::size_t>(index)];
}

}  // namespace hexforge
