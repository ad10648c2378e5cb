// SPDX-License-Identifier: Apache-2.0
// A context: graphs that are prepared, kept and loaded together.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNCONTEXT_H
#define QNNCONTEXT_H

#include "QnnCommon.h"
#include "QnnMem.h"
#include "QnnTypes.h"

#ifdef __cplusplus
extern "C" {
#endif

// How a call of this component ends.
typedef enum {
  QNN_CONTEXT_NO_ERROR = QNN_SUCCESS,
  QNN_CONTEXT_MIN_ERROR = 5000,
  QNN_CONTEXT_MAX_ERROR = 5999,
  QNN_CONTEXT_ERROR_INVALID_ARGUMENT = 5000,
  QNN_CONTEXT_ERROR_CTX_DOES_NOT_EXIST = 5001,
  QNN_CONTEXT_ERROR_INVALID_HANDLE = 5002,
  QNN_CONTEXT_ERROR_NOT_FINALIZED = 5003,
  QNN_CONTEXT_ERROR_BINARY_VERSION = 5004,
  QNN_CONTEXT_ERROR_CREATE_FROM_BINARY = 5005,
  QNN_CONTEXT_ERROR_GET_BINARY_SIZE_FAILED = 5006,
  QNN_CONTEXT_ERROR_GET_BINARY_FAILED = 5007,
  QNN_CONTEXT_ERROR_BINARY_CONFIGURATION = 5008,
  QNN_CONTEXT_ERROR_SET_PROFILE = 5009,
  QNN_CONTEXT_ERROR_INVALID_CONFIG = 5010,
  QNN_CONTEXT_ERROR_BINARY_SUBOPTIMAL = 5011,
  QNN_CONTEXT_ERROR_ABORTED = 5012,
  QNN_CONTEXT_ERROR_TIMED_OUT = 5013,
  QNN_CONTEXT_ERROR_INCREMENT_INVALID_BUFFER = 5014,
  QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE = 1000,
  QNN_CONTEXT_ERROR_MEM_ALLOC = 1002,
  QNN_CONTEXT_ERROR_UNDEFINED = 0x7FFFFFFF
} QnnContext_Error_t;

typedef uint64_t Qnn_ContextBinarySize_t;

typedef enum {
  QNN_CONTEXT_CONFIG_OPTION_CUSTOM = 0,
  QNN_CONTEXT_CONFIG_OPTION_PRIORITY = 1,
  QNN_CONTEXT_CONFIG_OPTION_ERROR_REPORTING = 2,
  QNN_CONTEXT_CONFIG_OPTION_OEM_STRING = 3,
  QNN_CONTEXT_CONFIG_ASYNC_EXECUTION_QUEUE_DEPTH = 4,
  QNN_CONTEXT_CONFIG_ENABLE_GRAPHS = 5,
  QNN_CONTEXT_CONFIG_MEMORY_LIMIT_HINT = 6,
  QNN_CONTEXT_CONFIG_PERSISTENT_BINARY = 7,
  QNN_CONTEXT_CONFIG_BINARY_COMPATIBILITY = 8,
  QNN_CONTEXT_CONFIG_OPTION_DEFER_GRAPH_INIT = 0x48460018,
  QNN_CONTEXT_CONFIG_GRAPH_RETENTION_ORDER = 0x48460019,
  QNN_CONTEXT_CONFIG_OPTION_GRAPH_RETENTION_ORDER = 0x48460019,
  QNN_CONTEXT_CONFIG_OPTION_BINARY_COMPATIBILITY = 8,
  QNN_CONTEXT_CONFIG_UNDEFINED = 0x7FFFFFFF
} QnnContext_ConfigOption_t;

typedef enum {
  QNN_CONTEXT_BINARY_COMPATIBILITY_PERMISSIVE = 0,
  QNN_CONTEXT_BINARY_COMPATIBILITY_STRICT = 1,
  QNN_CONTEXT_BINARY_COMPATIBILITY_TYPE_UNDEFINED = 0x7FFFFFFF
} QnnContext_BinaryCompatibilityType_t;

typedef enum {
  QNN_CONTEXT_ASYNC_EXECUTION_QUEUE_DEPTH_TYPE_NUMERIC = 0,
  QNN_CONTEXT_ASYNC_EXECUTION_QUEUE_DEPTH_TYPE_UNDEFINED = 0x7FFFFFFF
} QnnContext_AsyncExecutionQueueDepthType_t;

typedef enum {
  QNN_CONTEXT_NOTIFY_TYPE_CONTEXT_INIT = 1,
  QNN_CONTEXT_NOTIFY_TYPE_GRAPH_INIT = 2,
  QNN_CONTEXT_NOTIFY_TYPE_UNDEFINED = 0x7FFFFFFF
} QnnContext_createFromBinaryAsyncNotifyType_t;

typedef enum {
  QNN_CONTEXT_PARAMS_VERSION_1 = 1,
  QNN_CONTEXT_PARAMS_VERSION_UNDEFINED = 0x7FFFFFFF
} QnnContext_ParamsVersion_t;

typedef enum {
  QNN_CONTEXT_SECTION_UPDATABLE = 1,
  QNN_CONTEXT_SECTION_UNDEFINED = 0x7FFFFFFF
} QnnContext_SectionType_t;

typedef enum {
  QNN_CONTEXTMEMTYPE_RAW = 0,
  QNN_CONTEXTMEMTYPE_MEMHANDLE = 1,
  QNN_CONTEXTMEMTYPE_UNDEFINED = 0x7FFFFFFF
} QnnContext_MemType_t;

typedef enum {
  QNN_CONTEXT_BUFFER_VERSION_1 = 1,
  QNN_CONTEXT_BUFFER_VERSION_UNDEFINED = 0x7FFFFFFF
} QnnContext_BufferVersion_t;

typedef enum {
  QNN_CONTEXT_CALLBACK_DMA_BUFFER_VERSION_1 = 1,
  QNN_CONTEXT_CALLBACK_DMA_BUFFER_VERSION_UNDEFINED = 0x7FFFFFFF
} Qnn_ContextBinaryDmaBufferCallbackVersion_t;

typedef enum {
  QNN_CONTEXT_CALLBACK_RAW_BUFFER_VERSION_1 = 1,
  QNN_CONTEXT_CALLBACK_RAW_BUFFER_VERSION_UNDEFINED = 0x7FFFFFFF
} Qnn_ContextBinaryRawBufferCallbackVersion_t;

typedef enum {
  QNN_CONTEXT_CALLBACK_RAW_BUFFER = 0x4846001A,
  QNN_CONTEXT_CALLBACK_DMA_BUFFER = 0x4846001B,
  QNN_CONTEXT_CALLBACK_UNDEFINED = 0x7FFFFFFF
} Qnn_ContextBinaryCallbackType_t;

typedef void* QnnContext_CustomConfig_t;

typedef struct {
  QnnContext_AsyncExecutionQueueDepthType_t type;
  union {
    uint32_t depth;
  };
} QnnContext_AsyncExecutionQueueDepth_t;

typedef struct {
  QnnContext_ConfigOption_t option;
  union {
    QnnContext_CustomConfig_t customConfig;
    Qnn_Priority_t priority;
    Qnn_ErrorReportingConfig_t errorConfig;
    const char* oemString;
    QnnContext_AsyncExecutionQueueDepth_t asyncExeQueueDepth;
    const char* const* enableGraphs;
    uint64_t memoryLimitHint;  // megabytes
    uint8_t isPersistentBinary;
    QnnContext_BinaryCompatibilityType_t binaryCompatibilityType;
    uint64_t memoryLimitHintConfig;  // memoryLimitHint by the name of the guide's example
    const char* const* graphRetentionOrder;  // names, NULL behind the last
    uint8_t isGraphInitDeferred;
  };
} QnnContext_Config_t;
#define QNN_CONTEXT_CONFIG_INIT {QNN_CONTEXT_CONFIG_UNDEFINED, {NULL}}

typedef void (*QnnContext_CreateFromBinaryAsyncNotifyFn_t)(Qnn_ContextHandle_t context, Qnn_GraphHandle_t graph, const
    char* graphName, QnnContext_createFromBinaryAsyncNotifyType_t notifyType, void* notifyParam, Qnn_ErrorHandle_t
    status);

typedef struct {
  const QnnContext_Config_t** config;
  const void* binaryBuffer;
  const Qnn_ContextBinarySize_t binaryBufferSize;
  Qnn_ProfileHandle_t profile;
  QnnContext_CreateFromBinaryAsyncNotifyFn_t notifyFunc;
  void* notifyParam;
} QnnContext_ParamsV1_t;

typedef struct {
  QnnContext_ParamsVersion_t version;
  union {
    QnnContext_ParamsV1_t v1;
  };
} QnnContext_Params_t;

typedef struct {
  void* dataBuffer;
  uint64_t dataBufferSize;
} QnnContext_BinaryBuffer_t;

typedef struct {
  QnnContext_MemType_t memType;
  union {
    QnnContext_BinaryBuffer_t binaryBuf;
    Qnn_MemHandle_t memHandle;
  };
} QnnContext_BufferV1_t;

typedef struct {
  QnnContext_BufferVersion_t version;
  union {
    QnnContext_BufferV1_t v1;
  };
} QnnContext_Buffer_t;

typedef struct QnnContext_Property QnnContext_Property_t;

// createFromBinaryWithCallback: buffers of the program that sections of a context are loaded into.
typedef struct {
  uint64_t offset;  // in the context binary
  uint64_t size;
  uint8_t isBackendMappingNeeded;
} Qnn_ContextBinaryDataRequest_t;

// Where the program has put the data of a request.
typedef struct {
  Qnn_MemDmaBufInfo_t dmaBuffer;
  uint64_t dataStartOffset;
  uint64_t alignedSize;
} Qnn_ContextBinaryDmaDataResponse_t;

// What is given back.
typedef struct {
  Qnn_MemDmaBufInfo_t dmaBuffer;
  uint64_t memSize;
} Qnn_ContextBinaryDmaDataMem_t;

typedef Qnn_ErrorHandle_t (*Qnn_ContextBinaryDmaDataProviderFn_t)(Qnn_ContextBinaryDataRequest_t request,
    Qnn_ContextBinaryDmaDataResponse_t* response, void* notifyParam);

typedef Qnn_ErrorHandle_t (*Qnn_ContextBinaryDmaDataReleaseFn_t)(Qnn_ContextBinaryDmaDataMem_t mem, void* notifyParam);

typedef struct {
  Qnn_ContextBinaryDmaDataProviderFn_t dataProvide;
  Qnn_ContextBinaryDmaDataReleaseFn_t dataRelease;
  void* notifyParam;
} Qnn_ContextBinaryDmaBufferCallbackV1_t;

typedef struct {
  Qnn_ContextBinaryDmaBufferCallbackVersion_t version;
  union {
    Qnn_ContextBinaryDmaBufferCallbackV1_t v1;
  };
} Qnn_ContextBinaryDmaBufferCallback_t;

// Where the program has put the data of a request.
typedef struct {
  Qnn_ClientBuffer_t rawBuffer;
  uint64_t dataStartOffset;
  uint64_t alignedSize;
} Qnn_ContextBinaryRawDataResponse_t;

// What is given back.
typedef struct {
  Qnn_ClientBuffer_t rawBuffer;
  uint64_t memSize;
} Qnn_ContextBinaryRawDataMem_t;

typedef Qnn_ErrorHandle_t (*Qnn_ContextBinaryRawDataProviderFn_t)(Qnn_ContextBinaryDataRequest_t request,
    Qnn_ContextBinaryRawDataResponse_t* response, void* notifyParam);

typedef Qnn_ErrorHandle_t (*Qnn_ContextBinaryRawDataReleaseFn_t)(Qnn_ContextBinaryRawDataMem_t mem, void* notifyParam);

typedef struct {
  Qnn_ContextBinaryRawDataProviderFn_t dataProvide;
  Qnn_ContextBinaryRawDataReleaseFn_t dataRelease;
  void* notifyParam;
} Qnn_ContextBinaryRawBufferCallbackV1_t;

typedef struct {
  Qnn_ContextBinaryRawBufferCallbackVersion_t version;
  union {
    Qnn_ContextBinaryRawBufferCallbackV1_t v1;
  };
} Qnn_ContextBinaryRawBufferCallback_t;

typedef struct {
  Qnn_ContextBinaryCallbackType_t type;
  union {
    Qnn_ContextBinaryRawBufferCallback_t rawBufferCallback;
    Qnn_ContextBinaryDmaBufferCallback_t dmaBufferCallback;
  };
} Qnn_ContextBinaryCallback_t;

QNN_API Qnn_ErrorHandle_t QnnContext_create(Qnn_BackendHandle_t backend, Qnn_DeviceHandle_t device, const
    QnnContext_Config_t** config, Qnn_ContextHandle_t* context);

QNN_API Qnn_ErrorHandle_t QnnContext_setConfig(Qnn_ContextHandle_t context, const QnnContext_Config_t** config);

QNN_API Qnn_ErrorHandle_t QnnContext_getBinarySize(Qnn_ContextHandle_t context, Qnn_ContextBinarySize_t*
    binaryBufferSize);

QNN_API Qnn_ErrorHandle_t QnnContext_getBinary(Qnn_ContextHandle_t context, void* binaryBuffer, Qnn_ContextBinarySize_t
    binaryBufferSize, Qnn_ContextBinarySize_t* writtenBufferSize);

QNN_API Qnn_ErrorHandle_t QnnContext_createFromBinary(Qnn_BackendHandle_t backend, Qnn_DeviceHandle_t device, const
    QnnContext_Config_t** config, const void* binaryBuffer, Qnn_ContextBinarySize_t binaryBufferSize,
    Qnn_ContextHandle_t* context, Qnn_ProfileHandle_t profile);

QNN_API Qnn_ErrorHandle_t QnnContext_free(Qnn_ContextHandle_t context, Qnn_ProfileHandle_t profile);

QNN_API Qnn_ErrorHandle_t QnnContext_validateBinary(Qnn_BackendHandle_t backend, Qnn_DeviceHandle_t device, const
    QnnContext_Config_t** config, const void* binaryBuffer, Qnn_ContextBinarySize_t binaryBufferSize);

QNN_API Qnn_ErrorHandle_t QnnContext_createFromBinaryWithSignal(Qnn_BackendHandle_t backend, Qnn_DeviceHandle_t device,
    const QnnContext_Config_t** config, const void* binaryBuffer, Qnn_ContextBinarySize_t binaryBufferSize,
    Qnn_ContextHandle_t* context, Qnn_ProfileHandle_t profile, Qnn_SignalHandle_t signal);

QNN_API Qnn_ErrorHandle_t QnnContext_createFromBinaryListAsync(Qnn_BackendHandle_t backend, Qnn_DeviceHandle_t device,
    const QnnContext_Params_t** contextParams, const QnnContext_Config_t** listConfig, Qnn_SignalHandle_t signal);

QNN_API Qnn_ErrorHandle_t QnnContext_getBinarySectionSize(Qnn_ContextHandle_t context, Qnn_GraphHandle_t graph,
    QnnContext_SectionType_t section, Qnn_ContextBinarySize_t* binaryBufferSize);

QNN_API Qnn_ErrorHandle_t QnnContext_getBinarySection(Qnn_ContextHandle_t context, Qnn_GraphHandle_t graph,
    QnnContext_SectionType_t section, const QnnContext_Buffer_t* binaryBuffer, Qnn_ContextBinarySize_t*
    writtenBufferSize, Qnn_ProfileHandle_t profile, Qnn_SignalHandle_t signal);

QNN_API Qnn_ErrorHandle_t QnnContext_applyBinarySection(Qnn_ContextHandle_t context, Qnn_GraphHandle_t graph,
    QnnContext_SectionType_t section, const QnnContext_Buffer_t* binaryBuffer, Qnn_ProfileHandle_t profile,
    Qnn_SignalHandle_t signal);

QNN_API Qnn_ErrorHandle_t QnnContext_getProperty(Qnn_ContextHandle_t context, QnnContext_Property_t** properties);

QNN_API Qnn_ErrorHandle_t QnnContext_getIncrementalBinary(Qnn_ContextHandle_t context, QnnContext_Buffer_t*
    binaryBuffer, uint64_t* startOffset, uint64_t* writtenBufferSize);

QNN_API Qnn_ErrorHandle_t QnnContext_releaseIncrementalBinary(Qnn_ContextHandle_t context, const QnnContext_Buffer_t*
    binaryBuffer, uint64_t startOffset);

QNN_API Qnn_ErrorHandle_t QnnContext_finalize(Qnn_ContextHandle_t context, Qnn_ProfileHandle_t profile,
    Qnn_SignalHandle_t signal);

QNN_API Qnn_ErrorHandle_t QnnContext_createFromBinaryWithCallback(Qnn_BackendHandle_t backend, Qnn_DeviceHandle_t
    device, const QnnContext_Config_t** config, const Qnn_ContextBinaryCallback_t* callback, const void* binaryBuffer,
    Qnn_ContextBinarySize_t binaryBufferSize, Qnn_ContextHandle_t* context, Qnn_ProfileHandle_t profile,
    Qnn_SignalHandle_t signal);

typedef Qnn_ErrorHandle_t (*QnnContext_CreateFn_t)(Qnn_BackendHandle_t backend, Qnn_DeviceHandle_t device, const
    QnnContext_Config_t** config, Qnn_ContextHandle_t* context);
typedef Qnn_ErrorHandle_t (*QnnContext_SetConfigFn_t)(Qnn_ContextHandle_t context, const QnnContext_Config_t** config);
typedef Qnn_ErrorHandle_t (*QnnContext_GetBinarySizeFn_t)(Qnn_ContextHandle_t context, Qnn_ContextBinarySize_t*
    binaryBufferSize);
typedef Qnn_ErrorHandle_t (*QnnContext_GetBinaryFn_t)(Qnn_ContextHandle_t context, void* binaryBuffer,
    Qnn_ContextBinarySize_t binaryBufferSize, Qnn_ContextBinarySize_t* writtenBufferSize);
typedef Qnn_ErrorHandle_t (*QnnContext_CreateFromBinaryFn_t)(Qnn_BackendHandle_t backend, Qnn_DeviceHandle_t device,
    const QnnContext_Config_t** config, const void* binaryBuffer, Qnn_ContextBinarySize_t binaryBufferSize,
    Qnn_ContextHandle_t* context, Qnn_ProfileHandle_t profile);
typedef Qnn_ErrorHandle_t (*QnnContext_FreeFn_t)(Qnn_ContextHandle_t context, Qnn_ProfileHandle_t profile);
typedef Qnn_ErrorHandle_t (*QnnContext_ValidateBinaryFn_t)(Qnn_BackendHandle_t backend, Qnn_DeviceHandle_t device, const
    QnnContext_Config_t** config, const void* binaryBuffer, Qnn_ContextBinarySize_t binaryBufferSize);
typedef Qnn_ErrorHandle_t (*QnnContext_CreateFromBinaryWithSignalFn_t)(Qnn_BackendHandle_t backend, Qnn_DeviceHandle_t
    device, const QnnContext_Config_t** config, const void* binaryBuffer, Qnn_ContextBinarySize_t binaryBufferSize,
    Qnn_ContextHandle_t* context, Qnn_ProfileHandle_t profile, Qnn_SignalHandle_t signal);
typedef Qnn_ErrorHandle_t (*QnnContext_CreateFromBinaryListAsyncFn_t)(Qnn_BackendHandle_t backend, Qnn_DeviceHandle_t
    device, const QnnContext_Params_t** contextParams, const QnnContext_Config_t** listConfig, Qnn_SignalHandle_t
    signal);
typedef Qnn_ErrorHandle_t (*QnnContext_GetBinarySectionSizeFn_t)(Qnn_ContextHandle_t context, Qnn_GraphHandle_t graph,
    QnnContext_SectionType_t section, Qnn_ContextBinarySize_t* binaryBufferSize);
typedef Qnn_ErrorHandle_t (*QnnContext_GetBinarySectionFn_t)(Qnn_ContextHandle_t context, Qnn_GraphHandle_t graph,
    QnnContext_SectionType_t section, const QnnContext_Buffer_t* binaryBuffer, Qnn_ContextBinarySize_t*
    writtenBufferSize, Qnn_ProfileHandle_t profile, Qnn_SignalHandle_t signal);
typedef Qnn_ErrorHandle_t (*QnnContext_ApplyBinarySectionFn_t)(Qnn_ContextHandle_t context, Qnn_GraphHandle_t graph,
    QnnContext_SectionType_t section, const QnnContext_Buffer_t* binaryBuffer, Qnn_ProfileHandle_t profile,
    Qnn_SignalHandle_t signal);
typedef Qnn_ErrorHandle_t (*QnnContext_GetPropertyFn_t)(Qnn_ContextHandle_t context, QnnContext_Property_t**
    properties);
typedef Qnn_ErrorHandle_t (*QnnContext_GetIncrementalBinaryFn_t)(Qnn_ContextHandle_t context, QnnContext_Buffer_t*
    binaryBuffer, uint64_t* startOffset, uint64_t* writtenBufferSize);
typedef Qnn_ErrorHandle_t (*QnnContext_ReleaseIncrementalBinaryFn_t)(Qnn_ContextHandle_t context, const
    QnnContext_Buffer_t* binaryBuffer, uint64_t startOffset);
typedef Qnn_ErrorHandle_t (*QnnContext_FinalizeFn_t)(Qnn_ContextHandle_t context, Qnn_ProfileHandle_t profile,
    Qnn_SignalHandle_t signal);
typedef Qnn_ErrorHandle_t (*QnnContext_CreateFromBinaryWithCallbackFn_t)(Qnn_BackendHandle_t backend, Qnn_DeviceHandle_t
    device, const QnnContext_Config_t** config, const Qnn_ContextBinaryCallback_t* callback, const void* binaryBuffer,
    Qnn_ContextBinarySize_t binaryBufferSize, Qnn_ContextHandle_t* context, Qnn_ProfileHandle_t profile,
    Qnn_SignalHandle_t signal);

#ifdef __cplusplus
}
#endif

#endif
