// SPDX-License-Identifier: Apache-2.0
#include "core/mapping.h"

#if defined(_WIN32)

// Windows refuses to shorten a file that is mapped: there is nothing to watch.
namespace hexforge {
int guard_mapping(const void*, std::size_t, int) { return -1; }
void unguard_mapping(int) {}
int mapping_of(const void*) { return -1; }
bool mapping_lost(int) { return false; }
}  // namespace hexforge

#else

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <mutex>

namespace hexforge {
namespace {

// Read by the signal handler, so: no locks, no allocation.
struct Mapping {
  std::atomic<std::uintptr_t> start{0}, end{0};
  std::atomic<bool> taken{false}, lost{false};
  std::atomic<int> file{-1};
};
constexpr int kMost = 4096;
Mapping mappings[kMost];
std::uintptr_t page_bytes = 4096;
struct sigaction before;             // who has the signals of mappings that are not ours
std::atomic<bool> passed_on{false};  // one of those is being handled: it came back if it is seen again

void handle(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  if (const int number = mapping_of(info->si_addr); number >= 0) {
    void* page = reinterpret_cast<void*>(address / page_bytes * page_bytes);
    if (mmap(page, page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) {
      mappings[number].lost.store(true);
      return;
    }
  }
  if (passed_on.exchange(true)) {  // who had it gave it back to us: nobody handles it
    std::signal(SIGBUS, SIG_DFL);
    return;
  }
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  } else {
    sigaction(SIGBUS, &before, nullptr);  // the instruction runs again, and ends the process as it would have
  }
  passed_on.store(false);
}

// For every mapping, because others (Python's faulthandler) may have set their own handler since the last one.
void install() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  struct sigaction now;
  if (sigaction(SIGBUS, nullptr, &now) == 0 && now.sa_flags & SA_SIGINFO && now.sa_sigaction == handle) return;
  page_bytes = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  before = now;
  struct sigaction action = {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

int guard_mapping(const void* start, std::size_t bytes, int file) {
  install();
  for (int i = 0; i < kMost; ++i) {
    bool free = false;
    if (!mappings[i].taken.compare_exchange_strong(free, true)) continue;
    mappings[i].lost.store(false);
    mappings[i].file.store(fcntl(file, F_DUPFD_CLOEXEC, 0));
    mappings[i].end.store(reinterpret_cast<std::uintptr_t>(start) + bytes);
    mappings[i].start.store(reinterpret_cast<std::uintptr_t>(start));
    return i;
  }
  return -1;
}

void unguard_mapping(int number) {
  if (number < 0 || number >= kMost) return;
  mappings[number].start.store(0);
  mappings[number].end.store(0);
  if (const int file = mappings[number].file.exchange(-1); file >= 0) close(file);
  mappings[number].taken.store(false);
}

int mapping_of(const void* address) {
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  for (int i = 0; i < kMost; ++i) {
    if (place >= mappings[i].start.load() && place < mappings[i].end.load()) return i;
  }
  return -1;
}

bool mapping_lost(int number) {
  if (number < 0 || number >= kMost) return false;
  Mapping& mapping = mappings[number];
  struct stat now;
  if (const int file = mapping.file.load(); file >= 0 && fstat(file, &now) == 0) {
    if (static_cast<std::uintptr_t>(now.st_size) < mapping.end.load() - mapping.start.load()) mapping.lost.store(true);
  }
  return mapping.lost.load();
}

}  // namespace hexforge

#endif
