// SPDX-License-Identifier: Apache-2.0
#include "capi/failure.h"

#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "context/error.h"

namespace hexforge::capi {
namespace {

struct CodeText {
  unsigned number;
  const char* name;
  const char* text;
};
constexpr CodeText kCodes[] = {
#include "error_texts.inc"
};

thread_local Qnn_ErrorHandle_t said_code = 0;
thread_local std::string said_text;

const CodeText* known(Qnn_ErrorHandle_t code) {
  for (const CodeText& each : kCodes)
    if (each.number == (code & 0xFFFF)) return &each;
  return nullptr;
}

void with_arguments(QnnLog_Callback_t callback, QnnLog_Level_t level, std::uint64_t at, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  callback(format, level, at, arguments);
  va_end(arguments);
}

// HEXFORGE_QNN_LOG=1 to 5 (error to debug): messages go to the standard error stream, too, whatever a client does
// with them.
int own_level() {
  static const int level = [] {
    const char* given = std::getenv("HEXFORGE_QNN_LOG");
    return given ? static_cast<int>(std::strtol(given, nullptr, 10)) : 0;
  }();
  return level;
}

Qnn_ErrorHandle_t ended(const char* call, const std::shared_ptr<Logger>& logger, Qnn_ErrorHandle_t code,
                        const std::string& text) {
  said_code = code;
  said_text = std::string(call) + ": " + text;
  if (logger || own_level() >= QNN_LOG_LEVEL_ERROR) {
    const char* name = code_name(code);
    const std::string line = said_text + " (" + (name ? name : "error") + ", " + std::to_string(code) + ")";
    if (own_level() >= QNN_LOG_LEVEL_ERROR) std::fprintf(stderr, "hexforge: %s\n", line.c_str());
    if (logger) logger->call_back(QNN_LOG_LEVEL_ERROR, line);
  }
  return code;
}

Qnn_ErrorHandle_t code_of(const ContextError& error) {
  if (error.code) return static_cast<Qnn_ErrorHandle_t>(error.code);
  switch (error.kind) {
    case ContextError::Kind::format: return 5005;
    case ContextError::Kind::call: return 6000;
    case ContextError::Kind::memory: return QNN_COMMON_ERROR_MEM_ALLOC;
    case ContextError::Kind::cancelled: return 6031;
    case ContextError::Kind::unsupported: return QNN_COMMON_ERROR_NOT_SUPPORTED;
    default: return QNN_COMMON_ERROR_SYSTEM;
  }
}

}  // namespace

Logger::Logger(QnnLog_Callback_t callback, QnnLog_Level_t level)
    : Object(Kind::logger), callback_(callback), level_(static_cast<int>(level)) {}

void Logger::set_level(QnnLog_Level_t level) { __atomic_store_n(&level_, static_cast<int>(level), __ATOMIC_RELAXED); }

void Logger::say(QnnLog_Level_t level, const std::string& text) const {
  if (static_cast<int>(level) <= own_level()) std::fprintf(stderr, "hexforge: %s\n", text.c_str());
  call_back(level, text);
}

void Logger::call_back(QnnLog_Level_t level, const std::string& text) const {
  if (static_cast<int>(level) > __atomic_load_n(&level_, __ATOMIC_RELAXED)) return;
  if (!callback_) {
    std::fprintf(stderr, "hexforge: %s\n", text.c_str());
    return;
  }
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const auto at = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  with_arguments(callback_, level, static_cast<std::uint64_t>(at), "%s", text.c_str());
}

Qnn_ErrorHandle_t guarded(const char* call, const std::function<std::shared_ptr<Logger>()>& logger,
                          const std::function<void()>& body) {
  try {
    body();
    return QNN_SUCCESS;
  } catch (const Failure& failure) {
    return ended(call, logger(), failure.code, failure.what());
  } catch (const ContextError& error) {
    return ended(call, logger(), code_of(error), error.what());
  } catch (const std::bad_alloc&) {
    return ended(call, logger(), QNN_COMMON_ERROR_MEM_ALLOC, "memory cannot be had");
  } catch (const std::exception& error) { return ended(call, logger(), QNN_COMMON_ERROR_GENERAL, error.what()); }
}

std::string last_message(Qnn_ErrorHandle_t code) { return said_code == code ? said_text : std::string(); }

const char* code_text(Qnn_ErrorHandle_t code) {
  if (code == QNN_SUCCESS) return "The call did what was asked.";
  const CodeText* found = known(code);
  return found ? found->text : nullptr;
}

const char* code_name(Qnn_ErrorHandle_t code) {
  if (code == QNN_SUCCESS) return "QNN_SUCCESS";
  const CodeText* found = known(code);
  return found ? found->name : nullptr;
}

}  // namespace hexforge::capi
