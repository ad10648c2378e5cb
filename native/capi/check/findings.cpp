// SPDX-License-Identifier: Apache-2.0
// Findings and calls: where they are told.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "capi/check/check.h"
#include "capi/system_calls/system_calls.h"

namespace hexforge::capi::check {
namespace {

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value && *value && std::strcmp(value, "0") != 0 ? value : nullptr;
}

// A file that lines are appended to, whole, by several threads and processes; the standard error stream where none is.
class Lines {
 public:
  explicit Lines(const char* path) : file_(path ? open_for_lines(path) : kStandardError) {
    if (file_ < 0) std::fprintf(stderr, "hexforge: %s cannot be written: %s\n", path, std::strerror(errno));
  }
  void put(const std::string& line) {
    if (file_ >= 0) write_line(file_, line + '\n');
  }

 private:
  int file_;
};

const char* check_value() {
  static const char* value = variable("HEXFORGE_QNN_CHECK");
  return value;
}
const char* calls_value() {
  static const char* value = variable("HEXFORGE_QNN_CALLS");
  return value;
}
bool as_json() { return check_value() && std::strcmp(check_value(), "1") != 0; }

Lines& findings() {
  static auto* lines = new Lines(as_json() ? check_value() : nullptr);
  return *lines;
}
Lines& calls() {
  static auto* lines = new Lines(calls_value());
  return *lines;
}

thread_local Call* current = nullptr;

}  // namespace

bool on() { return check_value() != nullptr; }
bool calls_on() { return calls_value() != nullptr; }
bool recording() {
  static const bool asked = variable("HEXFORGE_QNN_RECORD") != nullptr;
  return asked;
}

Call* current_call() { return current; }
void set_current_call(Call* call) { current = call; }

void report_for(const std::string& call, const std::string& arguments, const char* rule, const std::string& what,
                const std::string& advice, Qnn_ErrorHandle_t code) {
  static auto* mutex = new std::mutex;
  static auto* told = new std::set<std::string>;
  {
    std::lock_guard lock(*mutex);
    if (!told->insert(std::string(rule) + '\n' + call + '\n' + what).second) return;
  }
  if (!as_json()) {
    findings().put("hexforge check: " + std::string(rule) + ": " + what + "\n  in " + call + "(" + arguments + ")" +
                   (code ? ", which ended with " + std::to_string(code) : std::string()) + "\n  " + advice);
    return;
  }
  Json line;
  line.begin('{').key("rule").text(rule).key("call").text(call).key("arguments").text(arguments);
  line.key("message").text(what).key("advice").text(advice).key("code").number(static_cast<std::int64_t>(code));
  line.key("process").number(process_number()).key("thread").number(thread_number()).end('}');
  findings().put(line.done());
}

void report(const char* rule, const std::string& what, const std::string& advice, Qnn_ErrorHandle_t code) {
  const Call* call = current;
  report_for(call ? call->name : "the end of the process", call ? call->arguments() : std::string(), rule, what, advice,
             code);
}

void log_call(const Call& call, Qnn_ErrorHandle_t code, std::uint64_t took_us) {
  Json line;
  line.begin('{').key("call").text(call.name).key("number").number(static_cast<std::int64_t>(call.number));
  line.key("arguments").text(call.arguments()).key("code").number(static_cast<std::int64_t>(code));
  line.key("microseconds").number(static_cast<std::int64_t>(took_us));
  line.key("process").number(process_number()).key("thread").number(thread_number()).end('}');
  calls().put(line.done());
}

std::string name_of(const void* handle) {
  static constexpr const char* kNames[] = {"nothing", "logger",  "backend", "device", "context",
                                           "graph",   "profile", "memory",  "signal", "system context"};
  if (!handle) return "NULL";
  const Handles::Parts parts = Handles::parts(handle);
  if (parts.kind == Kind::none || static_cast<std::size_t>(parts.kind) >= std::size(kNames)) {
    char text[32];
    std::snprintf(text, sizeof text, "%p", handle);
    return text;
  }
  std::string made = kNames[static_cast<std::size_t>(parts.kind)];
  made.append("#").append(std::to_string(parts.place));
  if (parts.times) made.append(".").append(std::to_string(parts.times));
  return made;
}

}  // namespace hexforge::capi::check
