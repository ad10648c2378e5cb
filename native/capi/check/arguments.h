// SPDX-License-Identifier: Apache-2.0
// Arguments of calls as text. What a client points to is read with care: it may not be there.
#pragma once
#include <cstdint>
#include <string>
#include <type_traits>

#include "QnnInterface.h"
#include "capi/check/check.h"
#include "capi/check/client_memory.h"

namespace hexforge::capi::check {

std::string quoted(const char* text);
std::string tensor_text(const Qnn_Tensor_t* tensor);
std::string tensors_text(const Qnn_Tensor_t* tensors, std::uint32_t count);
std::string op_text(const Qnn_OpConfig_t& op);
// Configurations that end with NULL: options by their numbers, with the words of a backend's own ones.
std::string configurations_text(const void* const* list);

template <class T>
constexpr bool kConfigurations = false;
template <class T>
constexpr bool kConfigurations<const T**> = requires(T config) { config.option; };
template <>
inline constexpr bool kConfigurations<const QnnProfile_Config_t**> = true;

template <class T>
std::string argument(const T& value) {
  if constexpr (std::is_same_v<T, const char*>) {
    return quoted(value);
  } else if constexpr (std::is_same_v<T, Qnn_OpConfig_t>) {
    return op_text(value);
  } else if constexpr (std::is_same_v<T, Qnn_Tensor_t*>) {
    return tensor_text(value);
  } else if constexpr (std::is_same_v<T, void*> || std::is_same_v<T, const void*>) {
    return name_of(value);
  } else if constexpr (std::is_same_v<T, void**>) {  // a handle that the call gives
    void* given = nullptr;
    return value && read_client(value, &given, sizeof given) ? std::string("&").append(name_of(given)) : "NULL";
  } else if constexpr (kConfigurations<T>) {
    return configurations_text(reinterpret_cast<const void* const*>(value));
  } else if constexpr (std::is_pointer_v<T>) {
    if constexpr (std::is_function_v<std::remove_pointer_t<T>>) return value ? "a function" : "NULL";
    if constexpr (!std::is_function_v<std::remove_pointer_t<T>>) return name_of(reinterpret_cast<const void*>(value));
  } else if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) {
    return std::to_string(static_cast<std::int64_t>(value));
  } else {
    return "…";
  }
}

inline std::string arguments_text() { return ""; }
template <class First, class... Rest>
  requires(std::is_same_v<First, const Qnn_Tensor_t*> || std::is_same_v<First, Qnn_Tensor_t*>)
std::string arguments_text(const First& first, const std::uint32_t& count, const Rest&... rest);
template <class First, class... Rest>
std::string arguments_text(const First& first, const Rest&... rest) {
  const std::string own = argument(first), others = arguments_text(rest...);
  return others.empty() ? own : own + ", " + others;
}
// Tensors with their number behind them.
template <class First, class... Rest>
  requires(std::is_same_v<First, const Qnn_Tensor_t*> || std::is_same_v<First, Qnn_Tensor_t*>)
std::string arguments_text(const First& first, const std::uint32_t& count, const Rest&... rest) {
  const std::string own = tensors_text(first, count), others = arguments_text(rest...);
  return others.empty() ? own : own + ", " + others;
}

}  // namespace hexforge::capi::check
