// SPDX-License-Identifier: Apache-2.0
// What a context's bytes hold.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNSYSTEMCONTEXT_H
#define QNNSYSTEMCONTEXT_H

#include "QnnContext.h"
#include "System/QnnSystemCommon.h"

#ifdef __cplusplus
extern "C" {
#endif

// How a call of this component ends.
typedef enum {
  QNN_SYSTEM_CONTEXT_NO_ERROR = QNN_SUCCESS,
  QNN_SYSTEM_CONTEXT_MIN_ERROR = 30000,
  QNN_SYSTEM_CONTEXT_MAX_ERROR = 30999,
  QNN_SYSTEM_CONTEXT_ERROR_INVALID_HANDLE = 30000,
  QNN_SYSTEM_CONTEXT_ERROR_INVALID_ARGUMENT = 30001,
  QNN_SYSTEM_CONTEXT_ERROR_OPERATION_FAILED = 30002,
  QNN_SYSTEM_CONTEXT_ERROR_MALFORMED_BINARY = 30010,
  QNN_SYSTEM_CONTEXT_ERROR_UNSUPPORTED_FEATURE = 1000,
  QNN_SYSTEM_CONTEXT_ERROR_UNDEFINED = 0x7FFFFFFF
} QnnSystemContext_Error_t;

typedef enum {
  QNN_SYSTEM_CONTEXT_GRAPH_INFO_VERSION_1 = 1,
  QNN_SYSTEM_CONTEXT_GRAPH_INFO_VERSION_2 = 2,
  QNN_SYSTEM_CONTEXT_GRAPH_INFO_VERSION_3 = 3,
  QNN_SYSTEM_CONTEXT_GRAPH_INFO_UNDEFINED = 0x7FFFFFFF
} QnnSystemContext_GraphInfoVersion_t;

typedef enum {
  QNN_SYSTEM_CONTEXT_BINARY_INFO_VERSION_1 = 1,
  QNN_SYSTEM_CONTEXT_BINARY_INFO_VERSION_2 = 2,
  QNN_SYSTEM_CONTEXT_BINARY_INFO_VERSION_3 = 3,
  QNN_SYSTEM_CONTEXT_BINARY_INFO_UNDEFINED = 0x7FFFFFFF
} QnnSystemContext_BinaryInfoVersion_t;

typedef void* QnnSystemContext_Handle_t;

typedef struct {
  const char* graphName;
  uint32_t numGraphInputs;
  Qnn_Tensor_t* graphInputs;
  uint32_t numGraphOutputs;
  Qnn_Tensor_t* graphOutputs;
} QnnSystemContext_GraphInfoV1_t;

typedef struct {
  const char* graphName;
  uint32_t numGraphInputs;
  Qnn_Tensor_t* graphInputs;
  uint32_t numGraphOutputs;
  Qnn_Tensor_t* graphOutputs;
  uint32_t updateableTensorNum;
  Qnn_Tensor_t* updateableTensors;
} QnnSystemContext_GraphInfoV2_t;

typedef struct {
  const char* graphName;
  uint32_t numGraphInputs;
  Qnn_Tensor_t* graphInputs;
  uint32_t numGraphOutputs;
  Qnn_Tensor_t* graphOutputs;
  uint32_t updateableTensorNum;
  Qnn_Tensor_t* updateableTensors;
  uint32_t graphBlobInfoSize;
  void* graphBlobInfo;
} QnnSystemContext_GraphInfoV3_t;

typedef struct {
  QnnSystemContext_GraphInfoVersion_t version;
  union {
    QnnSystemContext_GraphInfoV1_t graphInfoV1;
    QnnSystemContext_GraphInfoV2_t graphInfoV2;
    QnnSystemContext_GraphInfoV3_t graphInfoV3;
    uint64_t words[10];  // room that newer versions take
  };
} QnnSystemContext_GraphInfo_t;

typedef struct {
  uint32_t backendId;
  const char* buildId;
  Qnn_Version_t coreApiVersion;
  Qnn_Version_t backendApiVersion;
  const char* socVersion;
  Qnn_Version_t hwInfoBlobVersion;
  Qnn_Version_t contextBlobVersion;
  uint32_t hwInfoBlobSize;
  void* hwInfoBlob;
  Qnn_ContextBinarySize_t contextBlobSize;
  uint32_t numContextTensors;
  Qnn_Tensor_t* contextTensors;
  uint32_t numGraphs;
  QnnSystemContext_GraphInfo_t* graphs;
} QnnSystemContext_BinaryInfoV1_t;

typedef struct {
  uint32_t backendId;
  const char* buildId;
  Qnn_Version_t coreApiVersion;
  Qnn_Version_t backendApiVersion;
  const char* socVersion;
  Qnn_Version_t hwInfoBlobVersion;
  Qnn_Version_t contextBlobVersion;
  uint32_t hwInfoBlobSize;
  void* hwInfoBlob;
  Qnn_ContextBinarySize_t contextBlobSize;
  uint32_t numContextTensors;
  Qnn_Tensor_t* contextTensors;
  uint32_t numGraphs;
  QnnSystemContext_GraphInfo_t* graphs;
  uint32_t socModel;
} QnnSystemContext_BinaryInfoV2_t;

typedef struct {
  uint32_t backendId;
  const char* buildId;
  Qnn_Version_t coreApiVersion;
  Qnn_Version_t backendApiVersion;
  const char* socVersion;
  Qnn_Version_t contextBlobVersion;
  Qnn_ContextBinarySize_t contextBlobSize;
  uint32_t numContextTensors;
  Qnn_Tensor_t* contextTensors;
  uint32_t numGraphs;
  QnnSystemContext_GraphInfo_t* graphs;
  uint32_t socModel;
} QnnSystemContext_BinaryInfoV3_t;

typedef struct {
  QnnSystemContext_BinaryInfoVersion_t version;
  union {
    QnnSystemContext_BinaryInfoV1_t contextBinaryInfoV1;
    QnnSystemContext_BinaryInfoV2_t contextBinaryInfoV2;
    QnnSystemContext_BinaryInfoV3_t contextBinaryInfoV3;
  };
} QnnSystemContext_BinaryInfo_t;

QNN_API Qnn_ErrorHandle_t QnnSystemContext_create(QnnSystemContext_Handle_t* sysCtxHandle);

QNN_API Qnn_ErrorHandle_t QnnSystemContext_getBinaryInfo(QnnSystemContext_Handle_t sysCtxHandle, void* binaryBuffer,
    uint64_t binaryBufferSize, const QnnSystemContext_BinaryInfo_t** binaryInfo, Qnn_ContextBinarySize_t*
    binaryInfoSize);

QNN_API Qnn_ErrorHandle_t QnnSystemContext_getMetaData(QnnSystemContext_Handle_t sysCtxHandle, const void* binaryBuffer,
    uint64_t binaryBufferSize, const QnnSystemContext_BinaryInfo_t** binaryInfo);

QNN_API Qnn_ErrorHandle_t QnnSystemContext_free(QnnSystemContext_Handle_t sysCtxHandle);

QNN_API Qnn_ErrorHandle_t QnnSystemTensor_getMemoryFootprint(const Qnn_Tensor_t tensor, uint64_t* size);

typedef Qnn_ErrorHandle_t (*QnnSystemContext_CreateFn_t)(QnnSystemContext_Handle_t* sysCtxHandle);
typedef Qnn_ErrorHandle_t (*QnnSystemContext_GetBinaryInfoFn_t)(QnnSystemContext_Handle_t sysCtxHandle, void*
    binaryBuffer, uint64_t binaryBufferSize, const QnnSystemContext_BinaryInfo_t** binaryInfo, Qnn_ContextBinarySize_t*
    binaryInfoSize);
typedef Qnn_ErrorHandle_t (*QnnSystemContext_GetMetaDataFn_t)(QnnSystemContext_Handle_t sysCtxHandle, const void*
    binaryBuffer, uint64_t binaryBufferSize, const QnnSystemContext_BinaryInfo_t** binaryInfo);
typedef Qnn_ErrorHandle_t (*QnnSystemContext_FreeFn_t)(QnnSystemContext_Handle_t sysCtxHandle);
typedef Qnn_ErrorHandle_t (*QnnSystemTensor_GetMemoryFootprintFn_t)(const Qnn_Tensor_t tensor, uint64_t* size);

#ifdef __cplusplus
}
#endif

#endif
