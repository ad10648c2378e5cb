// SPDX-License-Identifier: Apache-2.0
#include "capi/check/arguments.h"

#include <array>

#include "capi/tensors.h"

namespace hexforge::capi::check {

std::string quoted(const char* text) {
  if (!text) return "NULL";
  std::string made = "\"";
  for (std::size_t i = 0; i < 200; ++i) {
    char each = 0;
    if (!read_client(text + i, &each, 1)) return made + "\" …";
    if (!each) return made + "\"";
    made += each;
  }
  return made + "…\"";
}

std::string tensor_text(const Qnn_Tensor_t* tensor) {
  Qnn_Tensor_t own{};
  if (!tensor) return "NULL";
  if (!read_client(tensor, &own, sizeof own)) return "a tensor that cannot be read";
  if (own.version != QNN_TENSOR_VERSION_1 && own.version != QNN_TENSOR_VERSION_2)
    return "a tensor of version " + std::to_string(own.version);
  const char* type = data_type_name(own.v1.dataType);
  std::string made = quoted(own.v1.name) + " " + (type ? type : std::to_string(own.v1.dataType).c_str()) + "[";
  for (std::uint32_t i = 0; own.v1.dimensions && i < own.v1.rank && i < 32; ++i) {
    std::uint32_t size = 0;
    if (!read_client(own.v1.dimensions + i, &size, sizeof size)) break;
    made += (i ? ", " : "") + std::to_string(size);
  }
  made += ']';
  if (own.v1.memType == QNN_TENSORMEMTYPE_MEMHANDLE) return made + " in " + name_of(own.v1.memHandle);
  if (own.v1.memType == QNN_TENSORMEMTYPE_RAW && own.v1.clientBuf.data)
    made += " at " + name_of(own.v1.clientBuf.data) + ", " + std::to_string(own.v1.clientBuf.dataSize) + " bytes";
  return made;
}

std::string tensors_text(const Qnn_Tensor_t* tensors, std::uint32_t count) {
  if (!tensors) return "NULL, " + std::to_string(count);
  std::string made = "{";
  for (std::uint32_t i = 0; i < count && i < 16; ++i) made += (i ? "; " : "") + tensor_text(tensors + i);
  return made + (count > 16 ? "; …}, " : "}, ") + std::to_string(count);
}

std::string op_text(const Qnn_OpConfig_t& op) {
  if (op.version != QNN_OPCONFIG_VERSION_1) return "an op of version " + std::to_string(op.version);
  const Qnn_OpConfigV1_t& own = op.v1;
  const auto names = [](const Qnn_Tensor_t* tensors, std::uint32_t count) {
    std::string made = "(";
    for (std::uint32_t i = 0; tensors && i < count && i < 16; ++i) {
      Qnn_Tensor_t tensor{};
      if (!read_client(tensors + i, &tensor, sizeof tensor)) break;
      made += (i ? ", " : "") + quoted(tensor.v1.name);
    }
    return made + ")";
  };
  return quoted(own.name) + " " + quoted(own.typeName) + names(own.inputTensors, own.numOfInputs) + " -> " +
         names(own.outputTensors, own.numOfOutputs);
}

std::string configurations_text(const void* const* list) {
  // Every configuration of QNN's has its option first, and its value, or what it points to, eight bytes behind.
  struct Configuration {
    std::uint32_t option;
    std::uint64_t value;
  };
  if (!list) return "NULL";
  std::string made = "{";
  for (int i = 0; i < 32; ++i) {
    const void* each = nullptr;
    if (!read_client(list + i, &each, sizeof each)) return made + "…}";
    if (!each) break;
    Configuration own{};
    std::array<std::uint32_t, 4> words{};
    made += i ? "; " : "";
    if (!read_client(each, &own, sizeof own)) {
      made += "a configuration that cannot be read";
    } else if (own.option == 0 && read_client(reinterpret_cast<const void*>(own.value), words.data(), sizeof words)) {
      made += "custom " + std::to_string(words[0]) + " (words";
      for (std::size_t word = 1; word < words.size(); ++word) made.append(" ").append(std::to_string(words[word]));
      made += ')';
    } else {
      made += "option " + std::to_string(own.option) + " = " + std::to_string(own.value);
    }
  }
  return made + "}";
}

}  // namespace hexforge::capi::check
