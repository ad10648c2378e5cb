// SPDX-License-Identifier: Apache-2.0
// The library that looks into contexts.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNSYSTEMCOMMON_H
#define QNNSYSTEMCOMMON_H

#include "QnnCommon.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QNN_SYSTEM_API_VERSION_MAJOR 1
#define QNN_SYSTEM_API_VERSION_MINOR 15
#define QNN_SYSTEM_API_VERSION_PATCH 0

// How a call of this component ends.
typedef enum {
  QNN_SYSTEM_COMMON_NO_ERROR = QNN_SUCCESS,
  QNN_SYSTEM_COMMON_MIN_ERROR = 30000,
  QNN_SYSTEM_COMMON_MAX_ERROR = 30999,
  QNN_SYSTEM_COMMON_ERROR_INVALID_HANDLE = 30000,
  QNN_SYSTEM_COMMON_ERROR_INVALID_ARGUMENT = 30001,
  QNN_SYSTEM_COMMON_ERROR_UNDEFINED = 0x7FFFFFFF
} QnnSystem_Error_t;

#ifdef __cplusplus
}
#endif

#endif
