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
#if defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(_WIN32)
#include <windows.h>
#endif
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
#elif defined(__aarch64__)
namespace {

// What the system says this processor has; the numbers are those of each system's interface.
bool has_feature([[maybe_unused]] Level level) {
#if defined(__linux__)
  constexpr unsigned long kAsimdDotProducts = 1ul << 20, kI8mm = 1ul << 13;
  return level == Level::i8mm ? (getauxval(AT_HWCAP2) & kI8mm) != 0 : (getauxval(AT_HWCAP) & kAsimdDotProducts) != 0;
#elif defined(__APPLE__)
  int found = 0;
  std::size_t bytes = sizeof found;
  const char* name = level == Level::i8mm ? "hw.optional.arm.FEAT_I8MM" : "hw.optional.arm.FEAT_DotProd";
  return sysctlbyname(name, &found, &bytes, nullptr, 0) == 0 && found != 0;
#elif defined(_WIN32)
  constexpr DWORD kDotProducts = 43, kI8mm = 66;
  return IsProcessorFeaturePresent(level == Level::i8mm ? kI8mm : kDotProducts) != 0;
#else
  return false;
#endif
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
  static const Level best = has_feature(Level::i8mm)      ? Level::i8mm
                            : has_feature(Level::dotprod) ? Level::dotprod
                                                          : Level::neon;
  return best;
#else
  return Level::portable;
#endif
}

bool has_level(Level level) {
  const bool arm = level == Level::neon || level == Level::dotprod || level == Level::i8mm;
#if defined(__aarch64__)
  return level == Level::portable || (arm && level <= best_level());
#else
  return level <= best_level() && !arm;
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
    case Level::i8mm: return "i8mm";
    case Level::dotprod: return "dotprod";
    case Level::neon: return "neon";
    default: return "portable";
  }
}

}  // namespace hexforge
