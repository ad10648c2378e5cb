// SPDX-License-Identifier: Apache-2.0
// How the low-power AI backend is made.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNLPAIBACKEND_H
#define QNNLPAIBACKEND_H

#include "LPAI/QnnLpaiCommon.h"
#include "QnnBackend.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  QNN_LPAI_BACKEND_CUSTOM_CFG_HW_INFO = 0x48460046,
  QNN_LPAI_BACKEND_CUSTOM_CFG_UNDEFINED = 0x7FFFFFFF
} QnnLpaiBackend_CustomConfigOption_t;

typedef enum {
  QNN_LPAI_BACKEND_HW_VERSION_V5 = 0x48460047,
  QNN_LPAI_BACKEND_HW_VERSION_V6 = 0x48460048,
  QNN_LPAI_BACKEND_HW_VERSION_V7 = 0x48460049,
  QNN_LPAI_BACKEND_HW_VERSION_UNKNOWN = 0x7FFFFFFF
} QnnLpaiBackend_HwVersion_t;

typedef enum {
  QNN_LPAI_BACKEND_TARGET_X86 = 0,
  QNN_LPAI_BACKEND_TARGET_ARM = 1,
  QNN_LPAI_BACKEND_TARGET_ADSP = 2,
  QNN_LPAI_BACKEND_TARGET_TENSILICA = 0x4846004A,
  QNN_LPAI_BACKEND_TARGET_UNKNOWN = 0x7FFFFFFF
} QnnLpaiBackend_Target_t;

typedef struct {
  QnnLpaiBackend_HwVersion_t hwVersion;
  QnnLpaiBackend_Target_t lpaiTarget;
} QnnLpaiBackend_CustomConfigHwInfo_t;

typedef struct {
  QnnLpaiBackend_CustomConfigOption_t option;
  void* config;
} QnnLpaiBackend_CustomConfig_t;

#ifdef __cplusplus
}
#endif

#endif
