// SPDX-License-Identifier: Apache-2.0
#include "kernels/peak.h"

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <stdexcept>

#include "core/level.h"

namespace hexforge {
namespace {

// Runs `turns` turns of a loop and returns how many multiply-accumulates that was.
using Burst = double (*)(std::int64_t turns);

#if defined(__x86_64__)

// Twelve independent accumulators hide the latency of the instruction on every CPU that has it.
#define HEXFORGE_TWELVE(op, r) \
  op(r, 0) op(r, 1) op(r, 2) op(r, 3) op(r, 4) op(r, 5) op(r, 6) op(r, 7) op(r, 8) op(r, 9) op(r, 10) op(r, 11)
#define HEXFORGE_CLOBBERS                                                                                             \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", \
      "xmm14", "cc"
#define HEXFORGE_CLEAR(r, i) "vpxor %%xmm" #i ", %%xmm" #i ", %%xmm" #i "\n"
#define HEXFORGE_BUSD(r, i) "vpdpbusd %%" r "12, %%" r "13, %%" r #i "\n"
#define HEXFORGE_VEX_BUSD(r, i) "%{vex%} vpdpbusd %%" r "12, %%" r "13, %%" r #i "\n"
#define HEXFORGE_WSSD(r, i) "vpdpwssd %%" r "12, %%" r "13, %%" r #i "\n"
#define HEXFORGE_FMA(r, i) "vfmadd231ps %%" r "12, %%" r "13, %%" r #i "\n"
#define HEXFORGE_ADDD(r, i) "vpmaddwd %%" r "12, %%" r "13, %%" r "14\nvpaddd %%" r "14, %%" r #i ", %%" r #i "\n"
// The data is 0.4 in every float and some value in every integer: zeros would draw less power than real work does.
#define HEXFORGE_LOOP(op, r)                                                                                         \
  const float value = 0.4f;                                                                                          \
  asm volatile("vbroadcastss %1, %%" r                                                                               \
               "12\n"                                                                                                \
               "vbroadcastss %1, %%" r "13\n" HEXFORGE_TWELVE(HEXFORGE_CLEAR, r) ".p2align 5\n1:\n" HEXFORGE_TWELVE( \
                   op, r) "dec %0\njnz 1b\nvzeroupper\n"                                                             \
               : "+r"(turns)                                                                                         \
               : "m"(value)                                                                                          \
               : HEXFORGE_CLOBBERS)

__attribute__((target("avx512f,avx512vnni"))) double u8_avx512(std::int64_t turns) {
  const double macs = 12.0 * 64 * static_cast<double>(turns);
  HEXFORGE_LOOP(HEXFORGE_BUSD, "zmm");
  return macs;
}
__attribute__((target("avx512f,avx512vnni"))) double s16_avx512(std::int64_t turns) {
  const double macs = 12.0 * 32 * static_cast<double>(turns);
  HEXFORGE_LOOP(HEXFORGE_WSSD, "zmm");
  return macs;
}
__attribute__((target("avx512f"))) double f32_avx512(std::int64_t turns) {
  const double macs = 12.0 * 16 * static_cast<double>(turns);
  HEXFORGE_LOOP(HEXFORGE_FMA, "zmm");
  return macs;
}
// Four tiles of sums over two of pixels and two of weights, as a kernel would have them.
double u8_tiles(std::int64_t turns) {
  turns /= 16;  // one turn is as much work as many of the others
  struct alignas(64) {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  alignas(64) std::uint8_t data[1024];
  std::fill(std::begin(data), std::end(data), std::uint8_t{77});
  const double macs = 4.0 * 16 * 16 * 64 * static_cast<double>(turns);
  asm volatile(
      "ldtilecfg %1\ntilezero %%tmm0\ntilezero %%tmm1\ntilezero %%tmm2\ntilezero %%tmm3\n"
      "tileloadd (%2,%3,1), %%tmm4\ntileloadd (%2,%3,1), %%tmm5\ntileloadd (%2,%3,1), %%tmm6\n"
      "tileloadd (%2,%3,1), %%tmm7\n1:\n"
      "tdpbusd %%tmm6, %%tmm4, %%tmm0\ntdpbusd %%tmm7, %%tmm4, %%tmm1\n"
      "tdpbusd %%tmm6, %%tmm5, %%tmm2\ntdpbusd %%tmm7, %%tmm5, %%tmm3\n"
      "dec %0\njnz 1b\ntilerelease\n"
      : "+r"(turns)
      : "m"(config), "r"(data), "r"(std::int64_t{64})
      : "memory", "cc");
  return macs;
}
__attribute__((target("avx2"))) double u8_avx_vnni(std::int64_t turns) {
  const double macs = 12.0 * 32 * static_cast<double>(turns);
  if (has_avx_vnni()) {
    HEXFORGE_LOOP(HEXFORGE_VEX_BUSD, "ymm");
  } else {
    HEXFORGE_LOOP(HEXFORGE_BUSD, "ymm");
  }
  return macs;
}
// Bytes are widened first: the byte multiply of AVX2 saturates.
__attribute__((target("avx2"))) double s16_avx2(std::int64_t turns) {
  const double macs = 12.0 * 16 * static_cast<double>(turns);
  HEXFORGE_LOOP(HEXFORGE_ADDD, "ymm");
  return macs;
}
__attribute__((target("avx2,fma"))) double f32_avx2(std::int64_t turns) {
  const double macs = 12.0 * 8 * static_cast<double>(turns);
  HEXFORGE_LOOP(HEXFORGE_FMA, "ymm");
  return macs;
}

#endif

// Portable code: what the compiler makes of sums the size of a few registers.
template <class T>
double portable(std::int64_t turns) {
  constexpr int kLanes = 32;
  T sums[kLanes] = {};
  volatile T source = T(3);
  const T x = source, y = source;
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    for (T& sum : sums) sum = sum + x * y;
    asm volatile("" : : "r"(sums) : "memory");  // else the loop is a single multiplication
  }
  return static_cast<double>(kLanes) * static_cast<double>(turns);
}

Burst burst_for(const std::string& kind) {
  const bool real = kind == "f32";
  if (!real && kind != "u8" && kind != "s16" && kind != "u8_tiles")
    throw std::invalid_argument("no multiply-accumulate is named " + kind);
  if (kind == "u8_tiles" && name(current_level()) != "amx") {
    throw std::invalid_argument("u8_tiles: this CPU has no AMX, or it is not in use");
  }
#if defined(__x86_64__)
  if (kind == "u8_tiles") return u8_tiles;
  if (current_level() >= Level::avx512) return real ? f32_avx512 : kind == "u8" ? u8_avx512 : s16_avx512;
  if (current_level() == Level::avx_vnni && kind == "u8") return u8_avx_vnni;
  if (current_level() >= Level::avx2) return real ? f32_avx2 : s16_avx2;
#endif
  return real ? portable<float> : portable<std::uint32_t>;
}

double seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

double peak_macs(const std::string& kind) {
  const Burst burst = burst_for(kind);
  double best = 0;
  for (int i = 0; i < 8; ++i) {  // about 1 ms each: the best is the one that nothing disturbed
    const double start = seconds();
    const double macs = burst(200000);
    best = std::max(best, macs / (seconds() - start));
  }
  return best;
}

}  // namespace hexforge
