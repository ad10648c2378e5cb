// SPDX-License-Identifier: Apache-2.0
// How a call ends: QNN's code, and a sentence for the log and for QnnError_getVerboseMessage.
#pragma once
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "QnnCommon.h"
#include "QnnLog.h"
#include "capi/handles.h"

namespace hexforge::capi {

class Logger final : public Object {
 public:
  static constexpr Kind kind_of = Kind::logger;
  Logger(QnnLog_Callback_t callback, QnnLog_Level_t level);
  void say(QnnLog_Level_t level, const std::string& text) const;
  void call_back(QnnLog_Level_t level, const std::string& text) const;  // to the client alone
  void set_level(QnnLog_Level_t level);

 private:
  QnnLog_Callback_t callback_;
  int level_;  // read without a lock
};

class Failure : public std::runtime_error {
 public:
  Failure(Qnn_ErrorHandle_t code, const std::string& text) : std::runtime_error(text), code(code) {}
  Qnn_ErrorHandle_t code;
};

// What every function of the API runs in: a Failure becomes its code, told to the log; nothing is thrown to C.
Qnn_ErrorHandle_t guarded(const char* call, const std::function<std::shared_ptr<Logger>()>& logger,
                          const std::function<void()>& body);

// What this thread's last call with a code said; empty where none did.
std::string last_message(Qnn_ErrorHandle_t code);
// A sentence for a code, or null.
const char* code_text(Qnn_ErrorHandle_t code);
const char* code_name(Qnn_ErrorHandle_t code);

// An option whose number nobody published has one of hexforge's range (qnn_api/enumerations.csv). Where it reaches
// this, it is declared and nothing acts on it, which is said rather than left out.
inline void refuse_declared_only(std::uint32_t option, const char* where) {
  if (option >> 16 == 0x4846)
    throw Failure(QNN_COMMON_ERROR_NOT_SUPPORTED,
                  std::string(where) + ": option " + std::to_string(option) + " is declared, and not supported here");
}

template <class T>
T* required(T* pointer, Qnn_ErrorHandle_t code, const char* what) {
  if (!pointer) throw Failure(code, std::string(what) + " is NULL");
  return pointer;
}

}  // namespace hexforge::capi
