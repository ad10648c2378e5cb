// SPDX-License-Identifier: Apache-2.0
#include "core/schema.h"

#include <algorithm>

#include "core/program.h"

namespace hexforge {

Fields operator+(Fields some, const Fields& others) {
  some.insert(some.end(), others.begin(), others.end());
  return some;
}

std::string name(FieldType type) {
  switch (type) {
    case FieldType::integer: return "an integer";
    case FieldType::integers: return "a list of integers";
    case FieldType::real: return "a real number";
    default: return "an array";
  }
}

void Attributes::require(const std::string& kind, const Schema& schema) const {
  const auto refuse = [&](const std::string& why) { throw std::invalid_argument(kind + " " + why); };
  const auto field = [&](const std::string& given, const char* what) -> const Field& {
    const auto found =
        std::find_if(schema.fields.begin(), schema.fields.end(), [&](const Field& f) { return given == f.name; });
    if (found == schema.fields.end()) refuse(std::string("takes no ") + what + " " + given);
    return *found;
  };
  for (const auto& [given, values] : integers) {
    const Field& f = field(given, "attribute");
    if (f.type != FieldType::integer && f.type != FieldType::integers) refuse("takes " + given + " as " + name(f.type));
    const std::size_t count = f.type == FieldType::integer ? 1 : static_cast<std::size_t>(f.count);
    if (count != 0 && values.size() != count) {
      refuse("takes " + given + " with " + std::to_string(count) + " values, not " + std::to_string(values.size()));
    }
  }
  for (const auto& [given, values] : reals) {
    if (const Field& f = field(given, "attribute"); f.type != FieldType::real)
      refuse("takes " + given + " as " + name(f.type));
  }
  for (const auto& [given, values] : constants) {
    if (const Field& f = field(given, "constant"); f.type != FieldType::array)
      refuse("takes " + given + " as " + name(f.type));
  }
  for (const Field& f : schema.fields) {
    if (!f.optional && !integers.contains(f.name) && !reals.contains(f.name) && !constants.contains(f.name)) {
      refuse(std::string("lacks ") + f.name + ", " + name(f.type));
    }
  }
}

}  // namespace hexforge
