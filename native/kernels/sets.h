// SPDX-License-Identifier: Apache-2.0
// The instruction sets that kernels are compiled for, each in a namespace with its name. A file of kernels/shared is
// compiled once for each of them (CMakeLists.txt gives it the name as HEXFORGE_SET); which one runs is chosen here.
#pragma once
#include "core/level.h"

#if defined(__x86_64__)
#define HEXFORGE_IN_EACH_SET(declaration) \
  namespace portable {                    \
  declaration                             \
  }                                       \
  namespace avx2 {                        \
  declaration                             \
  }                                       \
  namespace avx512 {                      \
  declaration                             \
  }
#define HEXFORGE_OF_LEVEL(table) \
  (current_level() >= Level::avx512 ? avx512::table : current_level() >= Level::avx2 ? avx2::table : portable::table)
#elif defined(__aarch64__)
#define HEXFORGE_IN_EACH_SET(declaration) \
  namespace portable {                    \
  declaration                             \
  }                                       \
  namespace neon {                        \
  declaration                             \
  }
#define HEXFORGE_OF_LEVEL(table) (current_level() >= Level::neon ? neon::table : portable::table)
#else
#define HEXFORGE_IN_EACH_SET(declaration) \
  namespace portable {                    \
  declaration                             \
  }
#define HEXFORGE_OF_LEVEL(table) (portable::table)
#endif
