// SPDX-License-Identifier: Apache-2.0
// The compiler process (`python -m hexforge.capi`): started when a graph is built or an op is checked, never when the
// library is loaded or a compiled context is run. One for each process; messages are those of capi/messages.py.
#pragma once
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "capi/system_calls/system_calls.h"

namespace hexforge::capi {

using Blob = std::span<const std::byte>;

struct Answer {
  std::vector<std::string> warnings;
  std::vector<std::vector<std::byte>> parts;  // what was asked for
};

class Compiler {
 public:
  static Compiler& of_process();
  // Sends a request with its arrays; throws Failure with the code and the sentence that come back.
  Answer ask(const std::string& request, std::span<const Blob> arrays = {});
  // Sends it where the process runs; does not start one.
  void tell(const std::string& request);
  bool running();

 private:
  void start();
  Answer exchange(const std::string& request, std::span<const Blob> arrays);

  std::mutex mutex_;
  ChildProcess process_;
};

// JSON as it is written: a value behind the other, commas are set.
class Json {
 public:
  Json& begin(char bracket);
  Json& end(char bracket);
  Json& key(std::string_view name);
  Json& text(std::string_view value);
  Json& number(std::int64_t value);
  Json& real(double value);  // a number, or {"float": "nan"}
  Json& boolean(bool value);
  Json& null();
  Json& written(std::string_view json);  // a value that is written already
  const std::string& done() const { return text_; }

 private:
  void comma();
  std::string text_;
  bool first_ = true;
};

// True for bytes that are UTF-8 throughout.
bool is_utf8(std::string_view text);

}  // namespace hexforge::capi
