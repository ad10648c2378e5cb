// SPDX-License-Identifier: Apache-2.0
// How the low-power AI backend runs a graph.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNLPAIGRAPH_H
#define QNNLPAIGRAPH_H

#include "LPAI/QnnLpaiCommon.h"
#include "QnnGraph.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QNN_LPAI_GRAPH_DEFAULT_FPS 1
#define QNN_LPAI_GRAPH_DEFAULT_FTRT_RATIO 10

typedef enum {
  QNN_LPAI_GRAPH_SET_CFG_SCRATCH_MEM = 0x4846004C,
  QNN_LPAI_GRAPH_SET_CFG_PERSISTENT_MEM_DEFAULT = 0x4846004D,
  QNN_LPAI_GRAPH_SET_CFG_PERF_CFG = 0x4846004E,
  QNN_LPAI_GRAPH_SET_CFG_CORE_AFFINITY = 0x4846004F,
  QNN_LPAI_GRAPH_SET_CFG_PREPARE = 0x48460050,
  QNN_LPAI_GRAPH_SET_CFG_UNDEFINED = 0x7FFFFFFF
} QnnLpaiGraph_ConfigOption_t;

typedef enum {
  QNN_LPAI_GRAPH_GET_PROP_SCRATCH_MEM_SIZE = 0x48460051,
  QNN_LPAI_GRAPH_GET_PROP_PERSISTENT_MEM_SIZE = 0x48460052,
  QNN_LPAI_GRAPH_GET_PROP_UNDEFINED = 0x7FFFFFFF
} QnnLpaiGraph_PropertyOption_t;

typedef enum {
  QNN_LPAI_MEM_TYPE_DDR = 0x48460053,
  QNN_LPAI_MEM_TYPE_UNDEFINED = 0x7FFFFFFF
} QnnLpaiGraph_MemType_t;

typedef enum {
  QNN_LPAI_GRAPH_CLIENT_PERF_TYPE_UNDEFINED = 0,
  QNN_LPAI_GRAPH_CLIENT_PERF_TYPE_REAL_TIME = 1,
  QNN_LPAI_GRAPH_CLIENT_PERF_TYPE_NON_REAL_TIME = 2
} QnnLpaiGraph_ClientPerfType_t;

typedef enum {
  QNN_LPAI_GRAPH_CORE_AFFINITY_UNDEFINED = 0,
  QNN_LPAI_GRAPH_CORE_AFFINITY_SOFT = 1,
  QNN_LPAI_GRAPH_CORE_AFFINITY_HARD = 2
} QnnLpaiGraph_CoreAffinityType_t;

typedef struct {
  QnnLpaiGraph_MemType_t memType;
  uint32_t size;
  void* addr;
} QnnLpaiGraph_Mem_t;

typedef struct {
  uint32_t fps;
  uint32_t ftrtRatio;
  QnnLpaiGraph_ClientPerfType_t clientType;
} QnnLpaiGraph_PerfCfg_t;
#define QNN_LPAI_GRAPH_PERF_CFG_INIT {QNN_LPAI_GRAPH_DEFAULT_FPS, QNN_LPAI_GRAPH_DEFAULT_FTRT_RATIO, \
  QNN_LPAI_GRAPH_CLIENT_PERF_TYPE_REAL_TIME}

typedef struct {
  QnnLpaiGraph_CoreAffinityType_t affinity;
  uint32_t coreSelection;
} QnnLpaiGraph_CoreAffinity_t;
#define QNN_LPAI_GRAPH_CORE_AFFINITY_INIT {QNN_LPAI_GRAPH_CORE_AFFINITY_SOFT, 0}

typedef struct {
  QnnLpaiGraph_ConfigOption_t option;
  void* config;
} QnnLpaiGraph_CustomConfig_t;
#define QNN_LPAI_GRAPH_CUSTOM_CONFIG_INIT {QNN_LPAI_GRAPH_SET_CFG_UNDEFINED, NULL}

typedef struct {
  QnnLpaiGraph_PropertyOption_t option;
  void* property;
} QnnLpaiGraph_CustomProperty_t;

#ifdef __cplusplus
}
#endif

#endif
