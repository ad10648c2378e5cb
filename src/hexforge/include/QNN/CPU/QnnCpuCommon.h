// SPDX-License-Identifier: Apache-2.0
// The CPU backend.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNCPUCOMMON_H
#define QNNCPUCOMMON_H

#include "QnnCommon.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QNN_CPU_API_VERSION_MAJOR 1
#define QNN_CPU_API_VERSION_MINOR 2
#define QNN_CPU_API_VERSION_PATCH 0

#ifdef __cplusplus
}
#endif

#endif
