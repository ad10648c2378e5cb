// SPDX-License-Identifier: Apache-2.0
#include "core/level.h"

#include <atomic>
#include <stdexcept>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace hexforge {
#if defined(__x86_64__)
namespace {

// AMX with 8-bit integers, and the kernel's leave to use its registers: Linux gives it to processes that ask.
bool has_amx() {
#if defined(__linux__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const bool tiles = (d >> 24 & 1) && (d >> 25 & 1);
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return tiles && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

// Conversions of float16. Clang 14 does not know them by name.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}

}  // namespace
#endif

bool has_avx_vnni() {
#if defined(__x86_64__)
  static const bool found = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
  }();
  return found;
#else
  return false;
#endif
}

bool widens_beside_products() {
#if defined(__x86_64__)
  static const bool found = [] {
    __builtin_cpu_init();
    return __builtin_cpu_is("amd") != 0;
  }();
  return found;
#else
  return false;
#endif
}

Level best_level() {
#if defined(__x86_64__)
  static const Level best = [] {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni") &&
        __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("fma")) {
      return has_amx() ? Level::amx : Level::avx512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) {
      return has_avx_vnni() ? Level::avx_vnni : Level::avx2;
    }
    return Level::portable;
  }();
  return best;
#elif defined(__aarch64__)
  return Level::neon;
#else
  return Level::portable;
#endif
}

bool has_level(Level level) {
#if defined(__aarch64__)
  return level <= Level::neon;
#else
  return level <= best_level() && level != Level::neon;
#endif
}

namespace {
std::atomic<Level>& level() {
  static std::atomic<Level> value{best_level()};
  return value;
}
}  // namespace

Level current_level() { return level().load(std::memory_order_relaxed); }

void set_level(Level wanted) {
  if (!has_level(wanted)) throw std::invalid_argument("this CPU does not have " + name(wanted));
  level().store(wanted, std::memory_order_relaxed);
}

std::string name(Level value) {
  switch (value) {
    case Level::amx: return "amx";
    case Level::avx512: return "avx512";
    case Level::avx_vnni: return "avx_vnni";
    case Level::avx2: return "avx2";
    case Level::neon: return "neon";
    default: return "portable";
  }
}

}  // namespace hexforge
