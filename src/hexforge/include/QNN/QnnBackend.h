// SPDX-License-Identifier: Apache-2.0
// A backend: what graphs are prepared for and run by.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNBACKEND_H
#define QNNBACKEND_H

#include "QnnCommon.h"
#include "QnnTypes.h"

#ifdef __cplusplus
extern "C" {
#endif

// How a call of this component ends.
typedef enum {
  QNN_BACKEND_NO_ERROR = QNN_SUCCESS,
  QNN_BACKEND_MIN_ERROR = 4000,
  QNN_BACKEND_MAX_ERROR = 4999,
  QNN_BACKEND_ERROR_CANNOT_INITIALIZE = 4000,
  QNN_BACKEND_ERROR_TERMINATE_FAILED = 4002,
  QNN_BACKEND_ERROR_NOT_SUPPORTED = 4003,
  QNN_BACKEND_ERROR_INVALID_ARGUMENT = 4004,
  QNN_BACKEND_ERROR_OP_PACKAGE_NOT_FOUND = 4005,
  QNN_BACKEND_ERROR_OP_PACKAGE_IF_PROVIDER_NOT_FOUND = 4006,
  QNN_BACKEND_ERROR_OP_PACKAGE_REGISTRATION_FAILED = 4007,
  QNN_BACKEND_ERROR_OP_PACKAGE_UNSUPPORTED_VERSION = 4008,
  QNN_BACKEND_ERROR_OP_PACKAGE_DUPLICATE = 4009,
  QNN_BACKEND_ERROR_INCONSISTENT_CONFIG = 4010,
  QNN_BACKEND_ERROR_INVALID_HANDLE = 4011,
  QNN_BACKEND_ERROR_INVALID_CONFIG = 4012,
  QNN_BACKEND_ERROR_MEM_ALLOC = 1002,
  QNN_BACKEND_ERROR_UNSUPPORTED_PLATFORM = 1006,
  QNN_BACKEND_ERROR_UNDEFINED = 0x7FFFFFFF
} QnnBackend_Error_t;

typedef enum {
  QNN_BACKEND_CONFIG_OPTION_CUSTOM = 0,
  QNN_BACKEND_CONFIG_OPTION_ERROR_REPORTING = 1,
  QNN_BACKEND_CONFIG_OPTION_PLATFORM = 2,
  QNN_BACKEND_CONFIG_OPTION_UNDEFINED = 0x7FFFFFFF
} QnnBackend_ConfigOption_t;

typedef void* QnnBackend_CustomConfig_t;

typedef struct {
  QnnBackend_ConfigOption_t option;
  union {
    QnnBackend_CustomConfig_t customConfig;
    Qnn_ErrorReportingConfig_t errorConfig;
    const char* platformOption;
  };
} QnnBackend_Config_t;
#define QNN_BACKEND_CONFIG_INIT {QNN_BACKEND_CONFIG_OPTION_UNDEFINED, {NULL}}

typedef struct {
  const char* packageName;
  const char* name;
  const char* target;
} QnnBackend_OperationName_t;

typedef struct QnnBackend_Property QnnBackend_Property_t;

QNN_API Qnn_ErrorHandle_t QnnBackend_create(Qnn_LogHandle_t logger, const QnnBackend_Config_t** config,
    Qnn_BackendHandle_t* backend);

QNN_API Qnn_ErrorHandle_t QnnBackend_setConfig(Qnn_BackendHandle_t backend, const QnnBackend_Config_t** config);

QNN_API Qnn_ErrorHandle_t QnnBackend_getApiVersion(Qnn_ApiVersion_t* version);

QNN_API Qnn_ErrorHandle_t QnnBackend_getBuildId(const char** id);

QNN_API Qnn_ErrorHandle_t QnnBackend_registerOpPackage(Qnn_BackendHandle_t backend, const char* packagePath, const char*
    interfaceProvider, const char* target);

QNN_API Qnn_ErrorHandle_t QnnBackend_getSupportedOperations(Qnn_BackendHandle_t backend, uint32_t* numOperations, const
    QnnBackend_OperationName_t** operations);

QNN_API Qnn_ErrorHandle_t QnnBackend_validateOpConfig(Qnn_BackendHandle_t backend, Qnn_OpConfig_t opConfig);

QNN_API Qnn_ErrorHandle_t QnnBackend_free(Qnn_BackendHandle_t backend);

QNN_API Qnn_ErrorHandle_t QnnBackend_getProperty(Qnn_BackendHandle_t backend, QnnBackend_Property_t** properties);

typedef Qnn_ErrorHandle_t (*QnnBackend_CreateFn_t)(Qnn_LogHandle_t logger, const QnnBackend_Config_t** config,
    Qnn_BackendHandle_t* backend);
typedef Qnn_ErrorHandle_t (*QnnBackend_SetConfigFn_t)(Qnn_BackendHandle_t backend, const QnnBackend_Config_t** config);
typedef Qnn_ErrorHandle_t (*QnnBackend_GetApiVersionFn_t)(Qnn_ApiVersion_t* version);
typedef Qnn_ErrorHandle_t (*QnnBackend_GetBuildIdFn_t)(const char** id);
typedef Qnn_ErrorHandle_t (*QnnBackend_RegisterOpPackageFn_t)(Qnn_BackendHandle_t backend, const char* packagePath,
    const char* interfaceProvider, const char* target);
typedef Qnn_ErrorHandle_t (*QnnBackend_GetSupportedOperationsFn_t)(Qnn_BackendHandle_t backend, uint32_t* numOperations,
    const QnnBackend_OperationName_t** operations);
typedef Qnn_ErrorHandle_t (*QnnBackend_ValidateOpConfigFn_t)(Qnn_BackendHandle_t backend, Qnn_OpConfig_t opConfig);
typedef Qnn_ErrorHandle_t (*QnnBackend_FreeFn_t)(Qnn_BackendHandle_t backend);
typedef Qnn_ErrorHandle_t (*QnnBackend_GetPropertyFn_t)(Qnn_BackendHandle_t backend, QnnBackend_Property_t**
    properties);

#ifdef __cplusplus
}
#endif

#endif
