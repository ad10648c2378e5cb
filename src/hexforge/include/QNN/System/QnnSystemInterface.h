// SPDX-License-Identifier: Apache-2.0
// The table of functions that the system library gives.
// Written for hexforge from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNSYSTEMINTERFACE_H
#define QNNSYSTEMINTERFACE_H

#include "System/QnnSystemContext.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef Qnn_ErrorHandle_t (*QnnSystemContext_CreateFn_t)(QnnSystemContext_Handle_t* sysCtxHandle);
typedef Qnn_ErrorHandle_t (*QnnSystemContext_GetBinaryInfoFn_t)(QnnSystemContext_Handle_t sysCtxHandle, void* binaryBuffer,
                                                                uint64_t binaryBufferSize,
                                                                const QnnSystemContext_BinaryInfo_t** binaryInfo,
                                                                Qnn_ContextBinarySize_t* binaryInfoSize);
typedef Qnn_ErrorHandle_t (*QnnSystemContext_GetMetaDataFn_t)(QnnSystemContext_Handle_t sysCtxHandle,
                                                              const void* binaryBuffer, uint64_t binaryBufferSize,
                                                              const QnnSystemContext_BinaryInfo_t** binaryInfo);
typedef Qnn_ErrorHandle_t (*QnnSystemContext_FreeFn_t)(QnnSystemContext_Handle_t sysCtxHandle);

typedef struct {
  QnnSystemContext_CreateFn_t systemContextCreate;
  QnnSystemContext_GetBinaryInfoFn_t systemContextGetBinaryInfo;
  QnnSystemContext_GetMetaDataFn_t systemContextGetMetaData;
  QnnSystemContext_FreeFn_t systemContextFree;
} QnnSystemInterface_Implementation_t;

typedef struct {
  uint32_t backendId;
  const char* providerName;
  Qnn_Version_t systemApiVersion;
  union {
    QnnSystemInterface_Implementation_t v1;
  };
} QnnSystemInterface_t;
#define QNN_SYSTEM_INTERFACE_VER_NAME v1
#define QNN_SYSTEM_INTERFACE_VER_TYPE QnnSystemInterface_Implementation_t

QNN_API Qnn_ErrorHandle_t QnnSystemInterface_getProviders(const QnnSystemInterface_t*** providerList, uint32_t* numProviders);

#ifdef __cplusplus
}
#endif

#endif
