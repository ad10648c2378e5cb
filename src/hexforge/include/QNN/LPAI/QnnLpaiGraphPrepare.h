// SPDX-License-Identifier: Apache-2.0
// How the low-power AI backend prepares a graph.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNLPAIGRAPHPREPARE_H
#define QNNLPAIGRAPHPREPARE_H

#include "LPAI/QnnLpaiGraph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  uint8_t enablePerLayer;
  char* enableCoreSelection;
} QnnLpaiGraph_CustomConfigPrepare_t;
#define QNN_LPAI_GRAPH_CUSTOM_CONFIG_PREPARE_INIT {0, NULL}

#ifdef __cplusplus
}
#endif

#endif
