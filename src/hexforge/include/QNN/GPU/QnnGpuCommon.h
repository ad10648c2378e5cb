// SPDX-License-Identifier: Apache-2.0
// The GPU backend.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNGPUCOMMON_H
#define QNNGPUCOMMON_H

#include "QnnCommon.h"
#include "QnnTypes.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QNN_GPU_API_VERSION_MAJOR 3
#define QNN_GPU_API_VERSION_MINOR 7
#define QNN_GPU_API_VERSION_PATCH 0

typedef enum {
  QNN_GPU_PRECISION_FP32 = 0,
  QNN_GPU_PRECISION_FP16 = 1,
  QNN_GPU_PRECISION_HYBRID = 2,
  QNN_GPU_PRECISION_USER_PROVIDED = 3,
  QNN_GPU_PRECISION_UNDEFINED = 0x7FFFFFFF
} QnnGpu_Precision_t;

#ifdef __cplusplus
}
#endif

#endif
