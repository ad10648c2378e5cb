// SPDX-License-Identifier: Apache-2.0
// How the GPU backend prepares a graph.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNGPUGRAPH_H
#define QNNGPUGRAPH_H

#include "GPU/QnnGpuCommon.h"
#include "QnnGraph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  QnnGpu_Precision_t precision;
  uint8_t disableMemoryOptimizations;
  uint8_t disableNodeOptimizations;
  uint8_t disableQueueRecording;
} QnnGpuGraph_CustomConfig_t;
#define QNN_GPU_GRAPH_CUSTOM_CONFIG_INIT {QNN_GPU_PRECISION_USER_PROVIDED, 0, 0, 0}

#ifdef __cplusplus
}
#endif

#endif
