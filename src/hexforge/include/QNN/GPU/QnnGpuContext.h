// SPDX-License-Identifier: Apache-2.0
// How the GPU backend keeps a context.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNGPUCONTEXT_H
#define QNNGPUCONTEXT_H

#include "GPU/QnnGpuCommon.h"
#include "QnnContext.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  QNN_GPU_CONTEXT_CONFIG_OPTION_PERF_HINT = 0x48460043,
  QNN_GPU_CONTEXT_CONFIG_OPTION_UNDEFINED = 0x7FFFFFFF
} QnnGpuContext_ConfigOption_t;

typedef enum {
  QNN_GPU_CONTEXT_PERF_HINT_HIGH = 0,
  QNN_GPU_CONTEXT_PERF_HINT_NORMAL = 1,
  QNN_GPU_CONTEXT_PERF_HINT_LOW = 2
} QnnGpuContext_PerfHint_t;

typedef struct {
  QnnGpuContext_ConfigOption_t option;
  union {
    QnnGpuContext_PerfHint_t perfHint;
  };
} QnnGpuContext_CustomConfig_t;
#define QNN_GPU_CONTEXT_CUSTOM_CONFIG_INIT {QNN_GPU_CONTEXT_CONFIG_OPTION_UNDEFINED, {QNN_GPU_CONTEXT_PERF_HINT_LOW}}

#ifdef __cplusplus
}
#endif

#endif
