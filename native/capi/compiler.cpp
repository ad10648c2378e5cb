// SPDX-License-Identifier: Apache-2.0
#include "capi/compiler.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "capi/failure.h"

namespace hexforge::capi {
namespace {

constexpr char kMagic[4] = {'H', 'X', 'Q', '1'};
constexpr std::uint32_t kMostParts = 1u << 22;

}  // namespace

Compiler& Compiler::of_process() {
  static Compiler* compiler = new Compiler;  // its process ends when the socket closes with this one
  return *compiler;
}

bool Compiler::running() {
  std::lock_guard lock(mutex_);
  return process_.is_running();
}

void Compiler::start() {
  if (process_.is_running()) return;
  process_.start();
  try {
    exchange(R"({"call": "hello"})", {});
  } catch (const Failure&) { process_.did_not_answer(); }
}

Answer Compiler::exchange(const std::string& request, std::span<const Blob> arrays) {
  std::string head(kMagic, sizeof kMagic);
  const auto put = [&](auto value) { head.append(reinterpret_cast<const char*>(&value), sizeof value); };
  put(static_cast<std::uint32_t>(arrays.size() + 1));
  put(static_cast<std::uint64_t>(request.size()));
  head += request;
  for (const Blob& array : arrays) {
    put(static_cast<std::uint64_t>(array.size()));
    if (array.size() < 65536) {
      head.append(reinterpret_cast<const char*>(array.data()), array.size());
      continue;
    }
    process_.send(head.data(), head.size());
    head.clear();
    process_.send(array.data(), array.size());
  }
  process_.send(head.data(), head.size());
  char magic[sizeof kMagic];
  std::uint32_t count;
  process_.receive(magic, sizeof magic);
  process_.receive(&count, sizeof count);
  if (std::memcmp(magic, kMagic, sizeof magic) != 0 || count < 2 || count > kMostParts)
    throw Failure(QNN_COMMON_ERROR_SYSTEM_COMMUNICATION, "the compiler process is of another version of hexforge");
  Answer answer;
  std::string status;
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint64_t size;
    process_.receive(&size, sizeof size);
    std::vector<std::byte> part(size);
    process_.receive(part.data(), size);
    const char* text = reinterpret_cast<const char*>(part.data());
    if (i == 0) {
      status.assign(text, size);
    } else if (i == 1) {
      std::string line;
      for (std::uint64_t at = 0; at <= size; ++at)
        if (at == size || text[at] == '\n') {
          if (!line.empty()) answer.warnings.push_back(line);
          line.clear();
        } else {
          line += text[at];
        }
    } else {
      answer.parts.push_back(std::move(part));
    }
  }
  const std::size_t end = status.find('\n');
  const unsigned long code = std::strtoul(status.c_str(), nullptr, 10);
  if (code) throw Failure(code, end == std::string::npos ? status : status.substr(end + 1));
  return answer;
}

Answer Compiler::ask(const std::string& request, std::span<const Blob> arrays) {
  std::lock_guard lock(mutex_);
  start();
  try {
    return exchange(request, arrays);
  } catch (const Failure& failure) {
    if (failure.code == QNN_COMMON_ERROR_SYSTEM_COMMUNICATION) process_.stop();  // the next call starts another
    throw;
  }
}

void Compiler::tell(const std::string& request) {
  std::lock_guard lock(mutex_);
  if (!process_.is_running()) return;
  try {
    exchange(request, {});
  } catch (const Failure& failure) {
    if (failure.code == QNN_COMMON_ERROR_SYSTEM_COMMUNICATION) process_.stop();
  }
}

void Json::comma() {
  if (!first_) text_ += ", ";
  first_ = false;
}
Json& Json::begin(char bracket) {
  comma();
  text_ += bracket;
  first_ = true;
  return *this;
}
Json& Json::end(char bracket) {
  text_ += bracket;
  first_ = false;
  return *this;
}
Json& Json::key(std::string_view name) {
  text(name);
  text_ += ": ";
  first_ = true;
  return *this;
}
Json& Json::text(std::string_view value) {
  comma();
  text_ += '"';
  for (const char each : value) {
    const auto byte = static_cast<unsigned char>(each);
    if (each == '"' || each == '\\') {
      text_ += '\\';
      text_ += each;
    } else if (byte < 0x20) {
      constexpr char digits[] = "0123456789abcdef";
      text_ += "\\u00";
      text_ += digits[byte >> 4];
      text_ += digits[byte & 15];
    } else {
      text_ += each;
    }
  }
  text_ += '"';
  return *this;
}
Json& Json::number(std::int64_t value) {
  comma();
  text_ += std::to_string(value);
  return *this;
}
Json& Json::real(double value) {
  if (!std::isfinite(value))
    return begin('{').key("float").text(std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf").end('}');
  comma();
  char digits[40];
  std::snprintf(digits, sizeof digits, "%.17g", value);
  text_ += digits;
  if (!std::strpbrk(digits, ".en")) text_ += ".0";
  return *this;
}
Json& Json::boolean(bool value) {
  comma();
  text_ += value ? "true" : "false";
  return *this;
}
Json& Json::null() {
  comma();
  text_ += "null";
  return *this;
}

Json& Json::written(std::string_view json) {
  comma();
  text_ += json;
  return *this;
}

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t more = lead < 0x80 ? 0 : lead >> 5 == 6 ? 1 : lead >> 4 == 14 ? 2 : lead >> 3 == 30 ? 3 : 9;
    if (more == 9 || i + more >= text.size() + (more == 0)) return false;
    std::uint32_t point = more == 0 ? lead : lead & (0x3Fu >> more);
    for (std::size_t k = 1; k <= more; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if (next >> 6 != 2) return false;
      point = point << 6 | (next & 0x3F);
    }
    constexpr std::uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    if (point < least[more] || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) return false;
    i += more + 1;
  }
  return true;
}

}  // namespace hexforge::capi
