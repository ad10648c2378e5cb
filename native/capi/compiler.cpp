// SPDX-License-Identifier: Apache-2.0
#include "capi/compiler.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "capi/failure.h"

extern char** environ;

namespace hexforge::capi {
namespace {

constexpr char kMagic[4] = {'H', 'X', 'Q', '1'};
constexpr std::uint32_t kMostParts = 1u << 22;
constexpr int kChildSocket = 3;

// The interpreter of the environment that this library lies in: PREFIX/lib/python3.X/site-packages/hexforge/lib.
std::string own_interpreter() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(&own_interpreter), &info) || !info.dli_fname) return "";
  std::error_code error;
  std::filesystem::path at = std::filesystem::canonical(info.dli_fname, error);
  if (error) at = info.dli_fname;
  for (at = at.parent_path(); at.has_relative_path(); at = at.parent_path())
    for (const char* name : {"bin/python3", "bin/python"})
      if (access((at / name).c_str(), X_OK) == 0 && std::filesystem::exists(at / "lib", error))
        return (at / name).string();
  return "";
}

struct Command {
  std::string python;
  bool isolated;  // PYTHONPATH and its like belong to the program that is served
};

Command interpreter() {
  if (const char* given = std::getenv("HEXFORGE_PYTHON"); given && *given) return {given, false};
  if (std::string own = own_interpreter(); !own.empty()) return {own, true};
  return {"python3", false};
}

// The environment without what was meant for the program that is served.
std::vector<std::string> child_environment(bool isolated) {
  std::vector<std::string> kept;
  for (char** each = environ; *each; ++each) {
    const std::string_view entry(*each);
    const bool dropped = entry.starts_with("LD_PRELOAD=") || entry.starts_with("PYTHONHOME=") ||
                         entry.starts_with("PYTHONSTARTUP=") || entry.starts_with("HEXFORGE_QNN_CHECK=") ||
                         entry.starts_with("HEXFORGE_QNN_CALLS=") || (isolated && entry.starts_with("PYTHONPATH="));
    if (!dropped) kept.emplace_back(entry);
  }
  return kept;
}

[[noreturn]] void no_compiler(const std::string& python, const std::string& why) {
  throw Failure(QNN_COMMON_ERROR_SYSTEM_COMMUNICATION, "the compiler process cannot be started with " + python + ": " +
                                                           why +
                                                           "; HEXFORGE_PYTHON names an interpreter that has hexforge");
}

}  // namespace

Compiler& Compiler::of_process() {
  static Compiler* compiler = new Compiler;  // its process ends when the socket closes with this one
  return *compiler;
}

bool Compiler::running() {
  std::lock_guard lock(mutex_);
  return socket_ >= 0 && owner_ == getpid();
}

void Compiler::start() {
  if (socket_ >= 0 && owner_ == getpid()) return;
  if (socket_ >= 0) {  // of the process that this one was forked from
    close(socket_);
    socket_ = child_ = -1;
  }
  const Command command = interpreter();
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) no_compiler(command.python, std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, 2, 1);
  if (ends[1] == kChildSocket) {  // dup2 of a number to itself would leave it closed on exec
    const int other = fcntl(ends[1], F_DUPFD_CLOEXEC, 10);
    close(ends[1]);
    ends[1] = other;
  }
  posix_spawn_file_actions_adddup2(&actions, ends[1], kChildSocket);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, usual;
  sigemptyset(&none);
  sigemptyset(&usual);
  for (int each : {SIGINT, SIGPIPE, SIGCHLD, SIGTERM}) sigaddset(&usual, each);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<std::string> words = {command.python};
  if (command.isolated) words.emplace_back("-I");
  for (const char* word : {"-m", "hexforge.capi", "3"}) words.emplace_back(word);
  std::vector<std::string> variables = child_environment(command.isolated);
  std::vector<char*> arguments, environment;
  for (auto& word : words) arguments.push_back(word.data());
  for (auto& variable : variables) environment.push_back(variable.data());
  arguments.push_back(nullptr);
  environment.push_back(nullptr);
  pid_t child = -1;
  const int failed =
      posix_spawnp(&child, command.python.c_str(), &actions, &attributes, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(ends[1]);
  if (failed) {
    close(ends[0]);
    no_compiler(command.python, std::strerror(failed));
  }
  socket_ = ends[0];
  child_ = child;
  owner_ = getpid();
  try {
    exchange(R"({"call": "hello"})", {});
  } catch (const Failure&) {
    stop();
    no_compiler(command.python, "it ended before it answered (is hexforge installed there?)");
  }
}

void Compiler::stop() {
  if (socket_ >= 0) close(socket_);
  if (child_ > 0) waitpid(child_, nullptr, 0);
  socket_ = child_ = -1;
}

void Compiler::send_all(const void* data, std::size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size) {
    const ssize_t sent = send(socket_, at, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) throw Failure(QNN_COMMON_ERROR_SYSTEM_COMMUNICATION, "the compiler process is gone");
    at += sent;
    size -= static_cast<std::size_t>(sent);
  }
}

void Compiler::receive_all(void* data, std::size_t size) {
  char* at = static_cast<char*>(data);
  while (size) {
    const ssize_t came = recv(socket_, at, size, 0);
    if (came < 0 && errno == EINTR) continue;
    if (came <= 0) throw Failure(QNN_COMMON_ERROR_SYSTEM_COMMUNICATION, "the compiler process is gone");
    at += came;
    size -= static_cast<std::size_t>(came);
  }
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
    send_all(head.data(), head.size());
    head.clear();
    send_all(array.data(), array.size());
  }
  send_all(head.data(), head.size());
  char magic[sizeof kMagic];
  std::uint32_t count;
  receive_all(magic, sizeof magic);
  receive_all(&count, sizeof count);
  if (std::memcmp(magic, kMagic, sizeof magic) != 0 || count < 2 || count > kMostParts)
    throw Failure(QNN_COMMON_ERROR_SYSTEM_COMMUNICATION, "the compiler process is of another version of hexforge");
  Answer answer;
  std::string status;
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint64_t size;
    receive_all(&size, sizeof size);
    std::vector<std::byte> part(size);
    receive_all(part.data(), size);
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
    if (failure.code == QNN_COMMON_ERROR_SYSTEM_COMMUNICATION) stop();  // the next call starts another
    throw;
  }
}

void Compiler::tell(const std::string& request) {
  std::lock_guard lock(mutex_);
  if (socket_ < 0 || owner_ != getpid()) return;
  try {
    exchange(request, {});
  } catch (const Failure& failure) {
    if (failure.code == QNN_COMMON_ERROR_SYSTEM_COMMUNICATION) stop();
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
