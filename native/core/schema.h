// SPDX-License-Identifier: Apache-2.0
// What a step is given: how many tensors, and which attributes of which type. Declared once for each kind of step;
// programs, which may come from files, are checked against it before a step looks at anything.
#pragma once
#include <climits>
#include <cstdint>
#include <string>
#include <vector>

namespace hexforge {

enum class FieldType { integer, integers, real, array };

struct Field {
  const char* name;
  FieldType type;
  int count = 0;  // of integers; 0: any number
  bool optional = false;
};

using Fields = std::vector<Field>;
Fields operator+(Fields some, const Fields& others);

inline Field integer(const char* name) { return {name, FieldType::integer}; }
inline Field integers(const char* name, int count = 0) { return {name, FieldType::integers, count}; }
inline Field real(const char* name) { return {name, FieldType::real}; }
inline Field array(const char* name) { return {name, FieldType::array}; }
inline Field optional(Field field) {
  field.optional = true;
  return field;
}
std::string name(FieldType type);

// Bytes behind a tensor that kernels may read, and never use: a vector.
constexpr std::int64_t kRoom = 64;

struct Schema {
  int least_ins, most_ins, least_outs, most_outs;
  Fields fields;
  std::int64_t room = kRoom;  // bytes behind each tensor that it reads,
  int exact_from = INT_MAX;   // but behind this input and those after it none

  Schema(int ins, int outs, Fields fields) : Schema(ins, ins, outs, outs, std::move(fields)) {}
  Schema(int least_ins, int most_ins, int least_outs, int most_outs, Fields fields)
      : least_ins(least_ins),
        most_ins(most_ins),
        least_outs(least_outs),
        most_outs(most_outs),
        fields(std::move(fields)) {}

  // The same of a step that reads its tensors and nothing behind them, so that they may be the caller's own arrays.
  Schema exact() && {
    room = 0;
    return std::move(*this);
  }
  // The same of its inputs from this one on.
  Schema exact(int from) && {
    exact_from = from;
    return std::move(*this);
  }
};

}  // namespace hexforge
