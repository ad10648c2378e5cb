// SPDX-License-Identifier: Apache-2.0
// How the HTP backend prepares a graph.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNHTPGRAPH_H
#define QNNHTPGRAPH_H

#include "QnnGraph.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QNN_HTP_GRAPH_CONFIG_OPTION_MAX 0

typedef enum {
  QNN_HTP_GRAPH_OPTIMIZATION_TYPE_SCHEDULE_THRESHOLD = 1,
  QNN_HTP_GRAPH_OPTIMIZATION_TYPE_FINALIZE_RETRIES = 2,
  QNN_HTP_GRAPH_OPTIMIZATION_TYPE_FINALIZE_OPTIMIZATION_FLAG = 3,
  QNN_HTP_GRAPH_OPTIMIZATION_TYPE_ENABLE_DLBC = 4,
  QNN_HTP_GRAPH_OPTIMIZATION_TYPE_ENABLE_SLC_ALLOCATOR = 7,
  QNN_HTP_GRAPH_OPTIMIZATION_TYPE_ENABLE_DLBC_WEIGHTS = 0x4846002A,
  QNN_HTP_GRAPH_OPTIMIZATION_TYPE_UNKNOWN = 0x7FFFFFFF
} QnnHtpGraph_OptimizationType_t;

typedef enum {
  QNN_HTP_GRAPH_CONFIG_OPTION_OPTIMIZATION = 1,
  QNN_HTP_GRAPH_CONFIG_OPTION_PRECISION = 2,
  QNN_HTP_GRAPH_CONFIG_OPTION_VTCM_SIZE_IN_MB = 3,
  QNN_HTP_GRAPH_CONFIG_OPTION_FOLD_RELU_ACTIVATION_INTO_CONV_OFF = 4,
  QNN_HTP_GRAPH_CONFIG_OPTION_SHORT_DEPTH_CONV_ON_HMX_OFF = 5,
  QNN_HTP_GRAPH_CONFIG_OPTION_NUM_HVX_THREADS = 6,
  QNN_HTP_GRAPH_CONFIG_OPTION_VTCM_SIZE = 0x48460026,
  QNN_HTP_GRAPH_CONFIG_OPTION_WEIGHTS_PACKING = 0x48460027,
  QNN_HTP_GRAPH_CONFIG_OPTION_FINALIZE_CONFIG = 0x48460028,
  QNN_HTP_GRAPH_CONFIG_OPTION_NUM_CORES = 0x48460029,
  QNN_HTP_GRAPH_CONFIG_OPTION_UNKNOWN = 0x7FFFFFFF
} QnnHtpGraph_ConfigOption_t;

typedef struct {
  QnnHtpGraph_OptimizationType_t type;
  float floatValue;
} QnnHtpGraph_OptimizationOption_t;

// A setting of preparation by its name.
typedef struct {
  const char* key;
  Qnn_Scalar_t value;
} QnnHtpGraph_FinalizeConfig_t;

typedef struct {
  QnnHtpGraph_ConfigOption_t option;
  union {
    QnnHtpGraph_OptimizationOption_t optimizationOption;
    Qnn_Precision_t precision;
    uint32_t vtcmSizeInMB;
    bool foldReluActivationIntoConvOff;
    bool shortDepthConvOnHmxOff;
    uint64_t numHvxThreads;
    uint64_t vtcmSizeInBytes;  // a multiple of 64 KB
    uint64_t vtcmSize;  // vtcmSizeInBytes
    bool weightsPacking;
    QnnHtpGraph_FinalizeConfig_t finalizeConfig;
    uint32_t numCores;
  };
} QnnHtpGraph_CustomConfig_t;
#define QNN_HTP_GRAPH_CUSTOM_CONFIG_INIT {QNN_HTP_GRAPH_CONFIG_OPTION_UNKNOWN, \
  {{QNN_HTP_GRAPH_OPTIMIZATION_TYPE_UNKNOWN, 0.0f}}}

#ifdef __cplusplus
}
#endif

#endif
