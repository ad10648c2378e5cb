// SPDX-License-Identifier: Apache-2.0
// What goes wrong with a context: whose fault it is, and where in the file.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>

namespace hexforge {

class ContextError : public std::runtime_error {
 public:
  enum class Kind {
    format,       // the bytes are not what they should be
    call,         // the caller gave what does not fit
    unsupported,  // nothing is wrong, and this reader cannot run it: Python can
    memory,
    file,      // it cannot be opened or read
    cancelled  // the caller ended the run
  };
  ContextError(Kind kind, const std::string& message, std::int64_t offset = -1, int code = 0)
      : std::runtime_error(message), kind(kind), offset(offset), code(code) {}

  Kind kind;
  std::int64_t offset;  // of the byte where it was noticed; -1: of none
  int code;             // QNN's, or 0
};

[[noreturn]] inline void malformed(const std::string& message, std::int64_t offset = -1, int code = 0) {
  throw ContextError(ContextError::Kind::format, message, offset, code);
}

}  // namespace hexforge
