// SPDX-License-Identifier: Apache-2.0
// How the GPU backend is made.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNGPUBACKEND_H
#define QNNGPUBACKEND_H

#include "GPU/QnnGpuCommon.h"
#include "QnnBackend.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  QNN_GPU_BACKEND_CONFIG_OPTION_WEIGHT_SHARING_ENABLED = 0x48460042,
  QNN_GPU_BACKEND_CONFIG_OPTION_UNDEFINED = 0x7FFFFFFF
} QnnGpuBackend_ConfigOption_t;

typedef struct {
  QnnGpuBackend_ConfigOption_t option;
  union {
    uint8_t weightSharingEnabled;
  };
} QnnGpuBackend_CustomConfig_t;
#define QNN_GPU_BACKEND_CUSTOM_CONFIG_INIT {QNN_GPU_BACKEND_CONFIG_OPTION_UNDEFINED, {0}}

#ifdef __cplusplus
}
#endif

#endif
