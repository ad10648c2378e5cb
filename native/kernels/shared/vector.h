// SPDX-License-Identifier: Apache-2.0
// The compiler's vectors behind a type of ours: as many lanes as the instruction set that is compiled for has.
#pragma once
#include <cstdint>
#include <cstring>

namespace hexforge {
namespace {

// `Bytes` bytes of T. Wider than a register it is some of them. Comparisons give masks, `mask ? a : b` selects lanes.
template <class T, int Bytes>
using Vector __attribute__((vector_size(Bytes))) = T;

#if defined(__AVX512F__)
constexpr int kRegister = 64;
#elif defined(__AVX2__)
constexpr int kRegister = 32;
#else
constexpr int kRegister = 16;
#endif
constexpr int kLanes = kRegister / 4;
using Reals = Vector<float, kRegister>;
using Integers = Vector<std::int32_t, kRegister>;

template <class V>
inline V load(const void* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
// By reference: how vectors wider than a register are returned depends on the instruction set.
template <class V>
inline void load(V& v, const void* from) {
  std::memcpy(&v, from, sizeof v);
}

template <class V>
inline void store(void* to, const V& v) {
  std::memcpy(to, &v, sizeof v);
}

}  // namespace
}  // namespace hexforge
