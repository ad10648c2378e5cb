// SPDX-License-Identifier: Apache-2.0
// How the low-power AI backend keeps a context.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNLPAICONTEXT_H
#define QNNLPAICONTEXT_H

#include "LPAI/QnnLpaiCommon.h"
#include "QnnContext.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  QNN_LPAI_CONTEXT_SET_CFG_ENABLE_ISLAND = 0x4846004B,
  QNN_LPAI_CONTEXT_SET_CFG_UNDEFINED = 0x7FFFFFFF
} QnnLpaiContext_ConfigOption_t;

typedef struct {
  QnnLpaiContext_ConfigOption_t option;
  void* config;
} QnnLpaiContext_CustomConfig_t;

#ifdef __cplusplus
}
#endif

#endif
