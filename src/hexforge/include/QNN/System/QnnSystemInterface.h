// SPDX-License-Identifier: Apache-2.0
// The table of functions that the system library gives.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNSYSTEMINTERFACE_H
#define QNNSYSTEMINTERFACE_H

#include "System/QnnSystemContext.h"
#include "System/QnnSystemDlc.h"
#include "System/QnnSystemLog.h"
#include "System/QnnSystemProfile.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QNN_SYSTEM_INTERFACE_VER_NAME v1
#define QNN_SYSTEM_INTERFACE_VER_TYPE QnnSystemInterface_Implementation_t

typedef struct {
  QnnSystemContext_CreateFn_t systemContextCreate;
  QnnSystemContext_GetBinaryInfoFn_t systemContextGetBinaryInfo;
  QnnSystemContext_GetMetaDataFn_t systemContextGetMetaData;
  QnnSystemContext_FreeFn_t systemContextFree;
  QnnSystemTensor_GetMemoryFootprintFn_t systemTensorGetMemoryFootprint;
  QnnSystemLog_CreateFn_t systemLogCreate;
  QnnSystemLog_SetLogLevelFn_t systemLogSetLogLevel;
  QnnSystemLog_FreeFn_t systemLogFree;
  QnnSystemDlc_CreateFromFileFn_t systemDlcCreateFromFile;
  QnnSystemDlc_CreateFromBinaryFn_t systemDlcCreateFromBinary;
  QnnSystemDlc_ComposeGraphsFn_t systemDlcComposeGraphs;
  QnnSystemDlc_GetOpMappingsFn_t systemDlcGetOpMappings;
  QnnSystemDlc_FreeFn_t systemDlcFree;
  QnnSystemProfile_CreateSerializationTargetFn_t systemProfileCreateSerializationTarget;
  QnnSystemProfile_SerializeEventDataFn_t systemProfileSerializeEventData;
  QnnSystemProfile_FreeSerializationTargetFn_t systemProfileFreeSerializationTarget;
} QnnSystemInterface_Implementation_t;
#define QNN_SYSTEM_INTERFACE_VER_TYPE_INIT {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

typedef struct {
  uint32_t backendId;
  const char* providerName;
  Qnn_Version_t systemApiVersion;
  union {
    QnnSystemInterface_Implementation_t v1;
  };
} QnnSystemInterface_t;

typedef Qnn_ErrorHandle_t (*QnnSystemInterface_GetProvidersFn_t)(const QnnSystemInterface_t*** providerList, uint32_t*
    numProviders);

QNN_API Qnn_ErrorHandle_t QnnSystemInterface_getProviders(const QnnSystemInterface_t*** providerList, uint32_t*
    numProviders);

#ifdef __cplusplus
}
#endif

#endif
