// SPDX-License-Identifier: Apache-2.0
// JSON of a context's sections: a reader that trusts nothing, and what it reads (native/README.md says why it is ours).
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace hexforge {

class Json {
 public:
  using List = std::vector<Json>;
  using Object = std::map<std::string, Json, std::less<>>;

  Json() = default;
  explicit Json(bool value) : value_(value) {}
  explicit Json(std::int64_t value) : value_(value) {}
  explicit Json(double value) : value_(value) {}
  explicit Json(std::string value) : value_(std::move(value)) {}
  explicit Json(List value) : value_(std::move(value)) {}
  explicit Json(Object value) : value_(std::move(value)) {}

  // `where` names the file in errors, `offset` is the text's first byte in it.
  static Json parse(std::string_view text, const std::string& where, std::int64_t offset);

  bool is_integer() const { return std::holds_alternative<std::int64_t>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_list() const { return std::holds_alternative<List>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_true() const { return std::holds_alternative<bool>(value_) && std::get<bool>(value_); }

  // Each throws ContextError where the value is something else, or too small or large.
  const std::string& text() const;
  const List& list() const;
  const List& list(std::size_t size) const;
  const Object& object() const;
  std::int64_t integer(std::int64_t least = 0) const;
  double real() const;
  std::vector<std::int64_t> integers(std::int64_t least = 0) const;
  const Json& operator[](std::string_view key) const;
  const Json* find(std::string_view key) const;  // null where the object has none

  // What lies at a key or position, to be replaced; null where nothing does.
  Json* place(const Json& key);

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, List, Object> value_;
};

constexpr std::int64_t kMostSize = (std::int64_t{1} << 62) - 1;

}  // namespace hexforge
