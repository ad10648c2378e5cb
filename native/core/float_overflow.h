// SPDX-License-Identifier: Apache-2.0
// The sticky flag of a thread that a number passed what its type holds. Conversions to float16 set it by themselves.
#pragma once
#if defined(__x86_64__)
#include <immintrin.h>
#else
#include <cfenv>
#endif

namespace hexforge {

#if defined(__x86_64__)
inline bool overflow_seen() { return (_mm_getcsr() & _MM_EXCEPT_OVERFLOW) != 0; }
inline void clear_overflow() { _mm_setcsr(_mm_getcsr() & ~static_cast<unsigned>(_MM_EXCEPT_OVERFLOW)); }
// Setting the register takes far longer than looking.
inline void raise_overflow() {
  if (!overflow_seen()) _mm_setcsr(_mm_getcsr() | static_cast<unsigned>(_MM_EXCEPT_OVERFLOW));
}
#else
inline bool overflow_seen() { return std::fetestexcept(FE_OVERFLOW) != 0; }
inline void clear_overflow() { std::feclearexcept(FE_OVERFLOW); }
inline void raise_overflow() { std::feraiseexcept(FE_OVERFLOW); }
#endif

}  // namespace hexforge
