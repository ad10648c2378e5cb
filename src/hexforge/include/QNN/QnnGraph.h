// SPDX-License-Identifier: Apache-2.0
// A graph: ops that are added in order, prepared, and run.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNGRAPH_H
#define QNNGRAPH_H

#include "QnnCommon.h"
#include "QnnTypes.h"

#ifdef __cplusplus
extern "C" {
#endif

// How a call of this component ends.
typedef enum {
  QNN_GRAPH_NO_ERROR = QNN_SUCCESS,
  QNN_GRAPH_MIN_ERROR = 6000,
  QNN_GRAPH_MAX_ERROR = 6999,
  QNN_GRAPH_ERROR_INVALID_ARGUMENT = 6000,
  QNN_GRAPH_ERROR_INVALID_HANDLE = 6001,
  QNN_GRAPH_ERROR_GRAPH_DOES_NOT_EXIST = 6002,
  QNN_GRAPH_ERROR_INVALID_NAME = 6003,
  QNN_GRAPH_ERROR_INVALID_TENSOR = 6004,
  QNN_GRAPH_ERROR_INVALID_OP_CONFIG = 6005,
  QNN_GRAPH_ERROR_SET_PROFILE = 6006,
  QNN_GRAPH_ERROR_UNCONNECTED_NODE = 6007,
  QNN_GRAPH_ERROR_CREATE_FAILED = 6020,
  QNN_GRAPH_ERROR_OPTIMIZATION_FAILED = 6021,
  QNN_GRAPH_ERROR_FINALIZE_FAILED = 6022,
  QNN_GRAPH_ERROR_GRAPH_NOT_FINALIZED = 6023,
  QNN_GRAPH_ERROR_GRAPH_FINALIZED = 6024,
  QNN_GRAPH_ERROR_EXECUTION_ASYNC_FIFO_FULL = 6025,
  QNN_GRAPH_ERROR_SIGNAL_IN_USE = 6030,
  QNN_GRAPH_ERROR_ABORTED = 6031,
  QNN_GRAPH_ERROR_PROFILE_IN_USE = 6032,
  QNN_GRAPH_ERROR_TIMED_OUT = 6033,
  QNN_GRAPH_ERROR_SUBGRAPH = 6034,
  QNN_GRAPH_ERROR_DISABLED = 6035,
  QNN_GRAPH_ERROR_DYNAMIC_TENSOR_SHAPE = 6036,
  QNN_GRAPH_ERROR_TENSOR_SPARSITY = 6037,
  QNN_GRAPH_ERROR_EARLY_TERMINATION = 6038,
  QNN_GRAPH_ERROR_INVALID_CONTEXT = 6039,
  QNN_GRAPH_ERROR_UNSUPPORTED_FEATURE = 1000,
  QNN_GRAPH_ERROR_MEM_ALLOC = 1002,
  QNN_GRAPH_ERROR_GENERAL = 1100,
  QNN_GRAPH_ERROR_UNDEFINED = 0x7FFFFFFF
} QnnGraph_Error_t;

typedef enum {
  QNN_GRAPH_CONFIG_OPTION_CUSTOM = 0,
  QNN_GRAPH_CONFIG_OPTION_ERROR_REPORTING = 1,
  QNN_GRAPH_CONFIG_OPTION_PRIORITY = 2,
  QNN_GRAPH_CONFIG_OPTION_PROFILE_HANDLE = 3,
  QNN_GRAPH_CONFIG_OPTION_UNDEFINED = 0x7FFFFFFF
} QnnGraph_ConfigOption_t;

typedef enum {
  QNN_GRAPH_PROPERTY_OPTION_CUSTOM = 0,
  QNN_GRAPH_PROPERTY_OPTION_UNDEFINED = 0x7FFFFFFF
} QnnGraph_PropertyOption_t;

typedef void* QnnGraph_CustomConfig_t;

typedef struct {
  QnnGraph_ConfigOption_t option;
  union {
    QnnGraph_CustomConfig_t customConfig;
    Qnn_ErrorReportingConfig_t errorConfig;
    Qnn_Priority_t priority;
    Qnn_ProfileHandle_t profileHandle;
  };
} QnnGraph_Config_t;
#define QNN_GRAPH_CONFIG_INIT {QNN_GRAPH_CONFIG_OPTION_UNDEFINED, {NULL}}

typedef struct QnnGraph_ExecuteEnvironment QnnGraph_ExecuteEnvironment_t;

typedef void* QnnGraph_CustomProperty_t;

typedef struct {
  QnnGraph_PropertyOption_t option;
  QnnGraph_CustomProperty_t customProperty;
} QnnGraph_Property_t;

QNN_API Qnn_ErrorHandle_t QnnGraph_create(Qnn_ContextHandle_t context, const char* graphName, const QnnGraph_Config_t**
    config, Qnn_GraphHandle_t* graph);

QNN_API Qnn_ErrorHandle_t QnnGraph_createSubgraph(Qnn_GraphHandle_t graph, const char* graphName, Qnn_GraphHandle_t*
    subgraph);

QNN_API Qnn_ErrorHandle_t QnnGraph_setConfig(Qnn_GraphHandle_t graph, const QnnGraph_Config_t** config);

QNN_API Qnn_ErrorHandle_t QnnGraph_addNode(Qnn_GraphHandle_t graph, Qnn_OpConfig_t opConfig);

QNN_API Qnn_ErrorHandle_t QnnGraph_finalize(Qnn_GraphHandle_t graph, Qnn_ProfileHandle_t profile, Qnn_SignalHandle_t
    signal);

QNN_API Qnn_ErrorHandle_t QnnGraph_retrieve(Qnn_ContextHandle_t context, const char* graphName, Qnn_GraphHandle_t*
    graph);

QNN_API Qnn_ErrorHandle_t QnnGraph_execute(Qnn_GraphHandle_t graph, const Qnn_Tensor_t* inputs, uint32_t numInputs,
    Qnn_Tensor_t* outputs, uint32_t numOutputs, Qnn_ProfileHandle_t profile, Qnn_SignalHandle_t signal);

QNN_API Qnn_ErrorHandle_t QnnGraph_executeAsync(Qnn_GraphHandle_t graph, const Qnn_Tensor_t* inputs, uint32_t numInputs,
    Qnn_Tensor_t* outputs, uint32_t numOutputs, Qnn_ProfileHandle_t profile, Qnn_SignalHandle_t signal, Qnn_NotifyFn_t
    notifyFn, void* notifyParam);

QNN_API Qnn_ErrorHandle_t QnnGraph_prepareExecutionEnvironment(Qnn_GraphHandle_t graph, QnnGraph_ExecuteEnvironment_t**
    envs, uint32_t envSize);

QNN_API Qnn_ErrorHandle_t QnnGraph_releaseExecutionEnvironment(Qnn_GraphHandle_t graph, const
    QnnGraph_ExecuteEnvironment_t** envs, uint32_t envSize);

QNN_API Qnn_ErrorHandle_t QnnGraph_getProperty(Qnn_GraphHandle_t graph, QnnGraph_Property_t** properties);

typedef Qnn_ErrorHandle_t (*QnnGraph_CreateFn_t)(Qnn_ContextHandle_t context, const char* graphName, const
    QnnGraph_Config_t** config, Qnn_GraphHandle_t* graph);
typedef Qnn_ErrorHandle_t (*QnnGraph_CreateSubgraphFn_t)(Qnn_GraphHandle_t graph, const char* graphName,
    Qnn_GraphHandle_t* subgraph);
typedef Qnn_ErrorHandle_t (*QnnGraph_SetConfigFn_t)(Qnn_GraphHandle_t graph, const QnnGraph_Config_t** config);
typedef Qnn_ErrorHandle_t (*QnnGraph_AddNodeFn_t)(Qnn_GraphHandle_t graph, Qnn_OpConfig_t opConfig);
typedef Qnn_ErrorHandle_t (*QnnGraph_FinalizeFn_t)(Qnn_GraphHandle_t graph, Qnn_ProfileHandle_t profile,
    Qnn_SignalHandle_t signal);
typedef Qnn_ErrorHandle_t (*QnnGraph_RetrieveFn_t)(Qnn_ContextHandle_t context, const char* graphName,
    Qnn_GraphHandle_t* graph);
typedef Qnn_ErrorHandle_t (*QnnGraph_ExecuteFn_t)(Qnn_GraphHandle_t graph, const Qnn_Tensor_t* inputs, uint32_t
    numInputs, Qnn_Tensor_t* outputs, uint32_t numOutputs, Qnn_ProfileHandle_t profile, Qnn_SignalHandle_t signal);
typedef Qnn_ErrorHandle_t (*QnnGraph_ExecuteAsyncFn_t)(Qnn_GraphHandle_t graph, const Qnn_Tensor_t* inputs, uint32_t
    numInputs, Qnn_Tensor_t* outputs, uint32_t numOutputs, Qnn_ProfileHandle_t profile, Qnn_SignalHandle_t signal,
    Qnn_NotifyFn_t notifyFn, void* notifyParam);
typedef Qnn_ErrorHandle_t (*QnnGraph_PrepareExecutionEnvironmentFn_t)(Qnn_GraphHandle_t graph,
    QnnGraph_ExecuteEnvironment_t** envs, uint32_t envSize);
typedef Qnn_ErrorHandle_t (*QnnGraph_ReleaseExecutionEnvironmentFn_t)(Qnn_GraphHandle_t graph, const
    QnnGraph_ExecuteEnvironment_t** envs, uint32_t envSize);
typedef Qnn_ErrorHandle_t (*QnnGraph_GetPropertyFn_t)(Qnn_GraphHandle_t graph, QnnGraph_Property_t** properties);

#ifdef __cplusplus
}
#endif

#endif
