// SPDX-License-Identifier: Apache-2.0
// What systems do differently, for the libraries of QNN's C API: unix.cpp has Linux and macOS, windows.cpp Windows.
#pragma once
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace hexforge::capi {

int process_number();
std::int64_t thread_number();

// The files of this library's name that the process has loaded.
std::set<std::string> loaded_libraries();

// A file for lines that several threads and processes append; -1 where it cannot be opened.
int open_for_lines(const char* path);
void write_line(int file, const std::string& line);
constexpr int kStandardError = 2;

// Copies bytes of a client; false where some of them cannot be read.
bool read_client(const void* from, void* to, std::size_t bytes);

// Maps a client's buffer from its first byte on; throws Failure where it has fewer bytes or cannot be mapped.
void* map_buffer(int file, std::uint64_t offset, std::uint64_t bytes);
void unmap_buffer(void* mapped, std::size_t bytes);

// The process that compiles graphs, and the way to it. Windows has none yet: start() says so.
class ChildProcess {
 public:
  bool is_running() const;  // started by this process: a fork has none
  void start();             // throws Failure; a process that runs stays
  void stop();
  void send(const void* data, std::size_t size);
  void receive(void* data, std::size_t size);
  [[noreturn]] void did_not_answer();

 private:
  std::string program_;
  int socket_ = -1;
  int child_ = -1;
  int owner_ = -1;
};

// A stream socket of this computer.
class LocalSocket {
 public:
  ~LocalSocket();
  // To `unix:PATH` or `tcp:HOST:PORT` of the loopback; throws Failure.
  void connect(const std::string& address);
  void send(const void* data, std::size_t size);
  bool receive(void* data, std::size_t size);  // false where the other side ended
  void shut();                                 // who receives is told that it ended

 private:
  int socket_ = -1;
};

}  // namespace hexforge::capi
