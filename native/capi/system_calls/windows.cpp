// SPDX-License-Identifier: Apache-2.0
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <fcntl.h>
#include <io.h>
#include <share.h>
#include <sys/stat.h>
#include <windows.h>

// Behind windows.h, which it needs.
#include <psapi.h>

#include "QnnMem.h"
#include "capi/failure.h"
#include "capi/system_calls/system_calls.h"

namespace hexforge::capi {
namespace {

constexpr std::string_view kLibrary = "\\hexforge_qnn.dll";

}  // namespace

int process_number() { return static_cast<int>(GetCurrentProcessId()); }
std::int64_t thread_number() { return GetCurrentThreadId(); }

std::set<std::string> loaded_libraries() {
  std::vector<HMODULE> modules(1024);
  DWORD bytes = 0;
  std::set<std::string> paths;
  if (!EnumProcessModules(GetCurrentProcess(), modules.data(), static_cast<DWORD>(modules.size() * sizeof(HMODULE)),
                          &bytes))
    return paths;
  modules.resize(std::min<std::size_t>(modules.size(), bytes / sizeof(HMODULE)));
  for (const HMODULE module : modules) {
    char path[MAX_PATH * 4];
    const DWORD length = GetModuleFileNameA(module, path, sizeof path);
    const std::string text(path, length);
    if (text.ends_with(kLibrary)) paths.insert(text);
  }
  return paths;
}

int open_for_lines(const char* path) {
  return _open(path, _O_WRONLY | _O_CREAT | _O_APPEND | _O_BINARY | _O_NOINHERIT, _S_IREAD | _S_IWRITE);
}

void write_line(int file, const std::string& line) {
  (void)!_write(file, line.data(), static_cast<unsigned>(line.size()));
}

bool read_client(const void* from, void* to, std::size_t bytes) {
  SIZE_T came = 0;
  return bytes == 0 || (ReadProcessMemory(GetCurrentProcess(), from, to, bytes, &came) && came == bytes);
}

// A file descriptor belongs to the C runtime that opened it, and a program need not have ours.
void* map_buffer(int, std::uint64_t, std::uint64_t) {
  throw Failure(QNN_MEM_ERROR_UNSUPPORTED_MEMTYPE,
                "Windows has no file descriptors that libraries share; give an address (dmaBufInfo.data)");
}
void unmap_buffer(void*, std::size_t) {}

bool ChildProcess::is_running() const { return false; }

void ChildProcess::start() {
  throw Failure(QNN_COMMON_ERROR_NOT_SUPPORTED,
                "graphs are not built on Windows yet; load a context that was compiled elsewhere (hexforge compile)");
}
void ChildProcess::stop() {}
void ChildProcess::send(const void*, std::size_t) { start(); }
void ChildProcess::receive(void*, std::size_t) { start(); }
void ChildProcess::did_not_answer() {
  start();
  throw Failure(QNN_COMMON_ERROR_NOT_SUPPORTED, "there is no compiler process");
}

LocalSocket::~LocalSocket() = default;
void LocalSocket::connect(const std::string&) {
  throw Failure(QNN_COMMON_ERROR_NOT_SUPPORTED, "HEXFORGE_DEVICE: programs in C reach no device on Windows yet");
}
void LocalSocket::send(const void*, std::size_t) { connect(""); }
bool LocalSocket::receive(void*, std::size_t) { return false; }
void LocalSocket::shut() {}

}  // namespace hexforge::capi
