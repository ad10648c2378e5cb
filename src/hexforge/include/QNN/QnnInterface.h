// SPDX-License-Identifier: Apache-2.0
// The table of functions that a backend library gives.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNINTERFACE_H
#define QNNINTERFACE_H

#include "QnnBackend.h"
#include "QnnContext.h"
#include "QnnDevice.h"
#include "QnnError.h"
#include "QnnGraph.h"
#include "QnnLog.h"
#include "QnnMem.h"
#include "QnnOpDef.h"
#include "QnnOpPackage.h"
#include "QnnProfile.h"
#include "QnnProperty.h"
#include "QnnSignal.h"
#include "QnnTensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QNN_INTERFACE_VER_NAME v2
#define QNN_INTERFACE_VER_TYPE QnnInterface_Implementation_t

typedef struct {
  QnnProperty_HasCapabilityFn_t propertyHasCapability;
  QnnBackend_CreateFn_t backendCreate;
  QnnBackend_SetConfigFn_t backendSetConfig;
  QnnBackend_GetApiVersionFn_t backendGetApiVersion;
  QnnBackend_GetBuildIdFn_t backendGetBuildId;
  QnnBackend_RegisterOpPackageFn_t backendRegisterOpPackage;
  QnnBackend_GetSupportedOperationsFn_t backendGetSupportedOperations;
  QnnBackend_ValidateOpConfigFn_t backendValidateOpConfig;
  QnnBackend_FreeFn_t backendFree;
  QnnContext_CreateFn_t contextCreate;
  QnnContext_SetConfigFn_t contextSetConfig;
  QnnContext_GetBinarySizeFn_t contextGetBinarySize;
  QnnContext_GetBinaryFn_t contextGetBinary;
  QnnContext_CreateFromBinaryFn_t contextCreateFromBinary;
  QnnContext_FreeFn_t contextFree;
  QnnGraph_CreateFn_t graphCreate;
  QnnGraph_CreateSubgraphFn_t graphCreateSubgraph;
  QnnGraph_SetConfigFn_t graphSetConfig;
  QnnGraph_AddNodeFn_t graphAddNode;
  QnnGraph_FinalizeFn_t graphFinalize;
  QnnGraph_RetrieveFn_t graphRetrieve;
  QnnGraph_ExecuteFn_t graphExecute;
  QnnGraph_ExecuteAsyncFn_t graphExecuteAsync;
  QnnTensor_CreateContextTensorFn_t tensorCreateContextTensor;
  QnnTensor_CreateGraphTensorFn_t tensorCreateGraphTensor;
  QnnLog_CreateFn_t logCreate;
  QnnLog_SetLogLevelFn_t logSetLogLevel;
  QnnLog_FreeFn_t logFree;
  QnnProfile_CreateFn_t profileCreate;
  QnnProfile_SetConfigFn_t profileSetConfig;
  QnnProfile_GetEventsFn_t profileGetEvents;
  QnnProfile_GetSubEventsFn_t profileGetSubEvents;
  QnnProfile_GetEventDataFn_t profileGetEventData;
  QnnProfile_GetExtendedEventDataFn_t profileGetExtendedEventData;
  QnnProfile_FreeFn_t profileFree;
  QnnMem_RegisterFn_t memRegister;
  QnnMem_DeRegisterFn_t memDeRegister;
  QnnDevice_GetPlatformInfoFn_t deviceGetPlatformInfo;
  QnnDevice_FreePlatformInfoFn_t deviceFreePlatformInfo;
  QnnDevice_GetInfrastructureFn_t deviceGetInfrastructure;
  QnnDevice_CreateFn_t deviceCreate;
  QnnDevice_SetConfigFn_t deviceSetConfig;
  QnnDevice_GetInfoFn_t deviceGetInfo;
  QnnDevice_FreeFn_t deviceFree;
  QnnSignal_CreateFn_t signalCreate;
  QnnSignal_SetConfigFn_t signalSetConfig;
  QnnSignal_TriggerFn_t signalTrigger;
  QnnSignal_FreeFn_t signalFree;
  QnnError_GetMessageFn_t errorGetMessage;
  QnnError_GetVerboseMessageFn_t errorGetVerboseMessage;
  QnnError_FreeVerboseMessageFn_t errorFreeVerboseMessage;
  QnnGraph_PrepareExecutionEnvironmentFn_t graphPrepareExecutionEnvironment;
  QnnGraph_ReleaseExecutionEnvironmentFn_t graphReleaseExecutionEnvironment;
  QnnGraph_GetPropertyFn_t graphGetProperty;
  QnnContext_ValidateBinaryFn_t contextValidateBinary;
  QnnContext_CreateFromBinaryWithSignalFn_t contextCreateFromBinaryWithSignal;
  QnnContext_CreateFromBinaryListAsyncFn_t contextCreateFromBinaryListAsync;
  QnnTensor_UpdateGraphTensorsFn_t tensorUpdateGraphTensors;
  QnnTensor_UpdateContextTensorsFn_t tensorUpdateContextTensors;
  QnnContext_GetBinarySectionSizeFn_t contextGetBinarySectionSize;
  QnnContext_GetBinarySectionFn_t contextGetBinarySection;
  QnnContext_ApplyBinarySectionFn_t contextApplyBinarySection;
  QnnBackend_GetPropertyFn_t backendGetProperty;
  QnnContext_GetPropertyFn_t contextGetProperty;
  QnnContext_GetIncrementalBinaryFn_t contextGetIncrementalBinary;
  QnnContext_ReleaseIncrementalBinaryFn_t contextReleaseIncrementalBinary;
  QnnContext_FinalizeFn_t contextFinalize;
  QnnGlobalConfig_SetFn_t globalConfigSet;
  QnnContext_CreateFromBinaryWithCallbackFn_t contextCreateFromBinaryWithCallback;
} QnnInterface_Implementation_t;
#define QNN_INTERFACE_VER_TYPE_INIT {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
  0, 0, 0}

// Newer versions of the table append functions: one table serves every version up to that in apiVersion.
typedef struct {
  uint32_t backendId;
  const char* providerName;
  Qnn_ApiVersion_t apiVersion;
  union {
    QnnInterface_Implementation_t v2;
  };
} QnnInterface_t;

typedef Qnn_ErrorHandle_t (*QnnInterface_GetProvidersFn_t)(const QnnInterface_t*** providerList, uint32_t*
    numProviders);

QNN_API Qnn_ErrorHandle_t QnnInterface_getProviders(const QnnInterface_t*** providerList, uint32_t* numProviders);

#ifdef __cplusplus
}
#endif

#endif
