// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#if defined(__APPLE__)
#include <crt_externs.h>
#include <mach-o/dyld.h>
#include <mach/mach.h>
#include <mach/mach_vm.h>
#else
#include <link.h>
#include <sys/syscall.h>
#include <sys/uio.h>

extern char** environ;
#endif

#include "QnnMem.h"
#include "capi/failure.h"
#include "capi/system_calls/system_calls.h"

namespace hexforge::capi {
namespace {

constexpr int kChildSocket = 3;
#if defined(__APPLE__)
constexpr int kNoSignal = 0;  // SO_NOSIGPIPE says it of the socket
constexpr const char* kLibrary = "/libhexforge_qnn.dylib";
char** variables_of_process() { return *_NSGetEnviron(); }
#else
constexpr int kNoSignal = MSG_NOSIGNAL;
constexpr const char* kLibrary = "/libhexforge_qnn.so";
char** variables_of_process() { return environ; }
#endif

bool is_of_library(const char* path) {
  const char* slash = path ? std::strrchr(path, '/') : nullptr;
  return slash && std::strcmp(slash, kLibrary) == 0;
}

// Two ends of a connection, closed in programs that the process starts.
bool connected_sockets(int (&ends)[2]) {
#if defined(__APPLE__)
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return false;
  const int yes = 1;
  setsockopt(ends[0], SOL_SOCKET, SO_NOSIGPIPE, &yes, sizeof yes);
  for (const int end : ends) fcntl(end, F_SETFD, FD_CLOEXEC);
  return true;
#else
  return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0;
#endif
}

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
  for (char** each = variables_of_process(); *each; ++each) {
    const std::string_view entry(*each);
    const bool dropped = entry.starts_with("LD_PRELOAD=") || entry.starts_with("PYTHONHOME=") ||
                         entry.starts_with("PYTHONSTARTUP=") || entry.starts_with("HEXFORGE_QNN_CHECK=") ||
                         entry.starts_with("HEXFORGE_QNN_CALLS=") || (isolated && entry.starts_with("PYTHONPATH="));
    if (!dropped) kept.emplace_back(entry);
  }
  return kept;
}

// False where the other side is gone.
bool send_all(int socket, const void* data, std::size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size) {
    const ssize_t sent = ::send(socket, at, size, kNoSignal);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_all(int socket, void* data, std::size_t size) {
  char* at = static_cast<char*>(data);
  while (size) {
    const ssize_t came = recv(socket, at, size, 0);
    if (came < 0 && errno == EINTR) continue;
    if (came <= 0) return false;
    at += came;
    size -= static_cast<std::size_t>(came);
  }
  return true;
}

int connected_unix(const std::string& path) {
  sockaddr_un where{};
  where.sun_family = AF_UNIX;
  if (path.size() >= sizeof where.sun_path) return -1;
  std::memcpy(where.sun_path, path.c_str(), path.size() + 1);
  const int made = socket(AF_UNIX, SOCK_STREAM, 0);
  if (made >= 0 && connect(made, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0) return made;
  if (made >= 0) close(made);
  return -1;
}

int connected_loopback(const std::string& host_and_port) {
  const std::size_t colon = host_and_port.rfind(':');
  if (colon == std::string::npos) return -1;
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<std::uint16_t>(std::strtoul(host_and_port.c_str() + colon + 1, nullptr, 10)));
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);  // a device is served on the loopback alone
  const int made = socket(AF_INET, SOCK_STREAM, 0);
  const int yes = 1;
  if (made >= 0 && connect(made, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0) {
    setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return made;
  }
  if (made >= 0) close(made);
  return -1;
}

[[noreturn]] void no_compiler(const std::string& python, const std::string& why) {
  throw Failure(QNN_COMMON_ERROR_SYSTEM_COMMUNICATION, "the compiler process cannot be started with " + python + ": " +
                                                           why +
                                                           "; HEXFORGE_PYTHON names an interpreter that has hexforge");
}

}  // namespace

int process_number() { return getpid(); }

std::int64_t thread_number() {
#if defined(__APPLE__)
  std::uint64_t number = 0;
  pthread_threadid_np(nullptr, &number);
  return static_cast<std::int64_t>(number);
#else
  return syscall(SYS_gettid);
#endif
}

std::set<std::string> loaded_libraries() {
  std::set<std::string> paths;
#if defined(__APPLE__)
  for (std::uint32_t i = 0; i < _dyld_image_count(); ++i)
    if (const char* path = _dyld_get_image_name(i); is_of_library(path)) paths.insert(path);
#else
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* into) {
        if (is_of_library(info->dlpi_name)) static_cast<std::set<std::string>*>(into)->insert(info->dlpi_name);
        return 0;
      },
      &paths);
#endif
  return paths;
}

int open_for_lines(const char* path) { return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666); }

void write_line(int file, const std::string& line) {
  for (std::size_t at = 0; at < line.size();) {
    const ssize_t count = write(file, line.data() + at, line.size() - at);
    if (count <= 0) return;
    at += static_cast<std::size_t>(count);
  }
}

bool read_client(const void* from, void* to, std::size_t bytes) {
  if (!bytes) return true;
#if defined(__APPLE__)
  mach_vm_size_t came = 0;
  const auto source = reinterpret_cast<mach_vm_address_t>(from);
  const auto target = reinterpret_cast<mach_vm_address_t>(to);
  return mach_vm_read_overwrite(mach_task_self(), source, bytes, target, &came) == KERN_SUCCESS && came == bytes;
#else
  iovec here{to, bytes}, there{const_cast<void*>(from), bytes};
  const ssize_t came = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
  if (came >= 0) return static_cast<std::size_t>(came) == bytes;
  if (errno == EFAULT) return false;
  // A sandbox without that call: whether the pages are mapped is what can be asked.
  constexpr std::uint64_t kPage = 4096;
  const auto begin = reinterpret_cast<std::uint64_t>(from) / kPage * kPage;
  const auto end = reinterpret_cast<std::uint64_t>(from) + bytes;
  if (msync(reinterpret_cast<void*>(begin), end - begin, MS_ASYNC) != 0) return false;
  std::memcpy(to, from, bytes);
  return true;
#endif
}

void* map_buffer(int file, std::uint64_t offset, std::uint64_t bytes) {
  struct stat facts;
  if (file < 0 || fstat(file, &facts) != 0)
    throw Failure(QNN_MEM_ERROR_MAPPING, "file descriptor " + std::to_string(file) + " is not open");
  const auto size = static_cast<std::uint64_t>(facts.st_size);
  if (offset > size || bytes > size - offset)
    throw Failure(QNN_MEM_ERROR_INVALID_SHAPE, "the buffer has " + std::to_string(size) + " bytes, " +
                                                   std::to_string(bytes) + " are needed from byte " +
                                                   std::to_string(offset) + " on");
  void* mapped = mmap(nullptr, offset + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) throw Failure(QNN_MEM_ERROR_MAPPING, "the buffer cannot be mapped");
  return mapped;
}

void unmap_buffer(void* mapped, std::size_t bytes) { munmap(mapped, bytes); }

bool ChildProcess::is_running() const { return socket_ >= 0 && owner_ == getpid(); }

void ChildProcess::start() {
  if (is_running()) return;
  if (socket_ >= 0) {  // of the process that this one was forked from
    close(socket_);
    socket_ = child_ = -1;
  }
  const Command command = interpreter();
  program_ = command.python;
  int ends[2];
  if (!connected_sockets(ends)) no_compiler(command.python, std::strerror(errno));
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
  for (const char* word : {"-m", "hexforge.addons.capi", "3"}) words.emplace_back(word);
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
}

void ChildProcess::stop() {
  if (socket_ >= 0) close(socket_);
  if (child_ > 0) waitpid(child_, nullptr, 0);
  socket_ = child_ = -1;
}

void ChildProcess::send(const void* data, std::size_t size) {
  if (!send_all(socket_, data, size))
    throw Failure(QNN_COMMON_ERROR_SYSTEM_COMMUNICATION, "the compiler process is gone");
}

void ChildProcess::receive(void* data, std::size_t size) {
  if (!receive_all(socket_, data, size))
    throw Failure(QNN_COMMON_ERROR_SYSTEM_COMMUNICATION, "the compiler process is gone");
}

void ChildProcess::did_not_answer() {
  stop();
  no_compiler(program_, "it ended before it answered (is hexforge installed there?)");
}

LocalSocket::~LocalSocket() {
  if (socket_ >= 0) close(socket_);
}

void LocalSocket::connect(const std::string& address) {
  if (address.starts_with("unix:")) socket_ = connected_unix(address.substr(5));
  if (address.starts_with("tcp:")) socket_ = connected_loopback(address.substr(4));
  if (socket_ < 0)
    throw Failure(QNN_COMMON_ERROR_SYSTEM_COMMUNICATION,
                  "HEXFORGE_DEVICE: no device is served at " + address + "; `hexforge device serve` serves one");
  fcntl(socket_, F_SETFD, FD_CLOEXEC);
#if defined(__APPLE__)
  const int yes = 1;
  setsockopt(socket_, SOL_SOCKET, SO_NOSIGPIPE, &yes, sizeof yes);
#endif
}

void LocalSocket::send(const void* data, std::size_t size) {
  if (!send_all(socket_, data, size)) throw Failure(QNN_COMMON_ERROR_SYSTEM_COMMUNICATION, "the connection ended");
}

bool LocalSocket::receive(void* data, std::size_t size) { return receive_all(socket_, data, size); }

void LocalSocket::shut() {
  if (socket_ >= 0) shutdown(socket_, SHUT_RDWR);
}

}  // namespace hexforge::capi
