// SPDX-License-Identifier: Apache-2.0
// Handles, versions and the error codes that all components share.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNCOMMON_H
#define QNNCOMMON_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef QNN_API
#if defined(__GNUC__)
#define QNN_API __attribute__((visibility("default")))
#else
#define QNN_API
#endif
#endif

#define QNN_API_VERSION_MAJOR 2
#define QNN_API_VERSION_MINOR 40
#define QNN_API_VERSION_PATCH 0
#define QNN_SUCCESS 0
#define QNN_BACKEND_ID_NULL 0
#define QNN_BACKEND_ID_REFERENCE 1
#define QNN_BACKEND_ID_SAVER 2
#define QNN_BACKEND_ID_CPU 3
#define QNN_BACKEND_ID_GPU 4
#define QNN_BACKEND_ID_DSP 5
#define QNN_BACKEND_ID_HTP 6
#define QNN_BACKEND_ID_IR 0x48460006
#define QNN_BACKEND_ID_LPAI 0x48460007

#define QNN_GET_ERROR_CODE(errorHandle) ((errorHandle) & 0xFFFF)

// How a call of this component ends.
typedef enum {
  QNN_COMMON_MIN_ERROR = 1000,
  QNN_COMMON_MAX_ERROR = 1999,
  QNN_COMMON_ERROR_NOT_SUPPORTED = 1000,
  QNN_COMMON_ERROR_MEM_ALLOC = 1002,
  QNN_COMMON_ERROR_SYSTEM = 1003,
  QNN_COMMON_ERROR_INVALID_ARGUMENT = 1004,
  QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED = 1005,
  QNN_COMMON_ERROR_PLATFORM_NOT_SUPPORTED = 1006,
  QNN_COMMON_ERROR_SYSTEM_COMMUNICATION = 1007,
  QNN_COMMON_ERROR_INCOMPATIBLE_BINARIES = 1008,
  QNN_COMMON_ERROR_LOADING_BINARIES = 1009,
  QNN_COMMON_ERROR_RESOURCE_UNAVAILABLE = 1010,
  QNN_COMMON_ERROR_SYSTEM_COMMUNICATION_FATAL = 1011,
  QNN_COMMON_ERROR_GENERAL = 1100,
  QNN_COMMON_ERROR_UNDEFINED = 0x7FFFFFFF
} QnnCommon_Error_t;

// What a call returns: QNN_SUCCESS, or a code of its component in the low 16 bits.
typedef uint64_t Qnn_ErrorHandle_t;

typedef struct {
  uint32_t major;
  uint32_t minor;
  uint32_t patch;
} Qnn_Version_t;
#define QNN_VERSION_INIT {0, 0, 0}

// What a backend library implements: QNN's own API, and the specialisation of the backend.
typedef struct {
  Qnn_Version_t coreApiVersion;
  Qnn_Version_t backendApiVersion;
} Qnn_ApiVersion_t;
#define QNN_API_VERSION_INIT {{QNN_API_VERSION_MAJOR, QNN_API_VERSION_MINOR, QNN_API_VERSION_PATCH}, QNN_VERSION_INIT}

typedef void* Qnn_Handle_t;

typedef Qnn_Handle_t Qnn_LogHandle_t;

typedef Qnn_Handle_t Qnn_BackendHandle_t;

typedef Qnn_Handle_t Qnn_DeviceHandle_t;

typedef Qnn_Handle_t Qnn_ContextHandle_t;

typedef Qnn_Handle_t Qnn_GraphHandle_t;

typedef Qnn_Handle_t Qnn_ProfileHandle_t;

typedef Qnn_Handle_t Qnn_MemHandle_t;

typedef Qnn_Handle_t Qnn_SignalHandle_t;

typedef struct QnnGlobalConfig QnnGlobalConfig_t;

QNN_API Qnn_ErrorHandle_t QnnGlobalConfig_set(const QnnGlobalConfig_t** config);

typedef Qnn_ErrorHandle_t (*QnnGlobalConfig_SetFn_t)(const QnnGlobalConfig_t** config);

#ifdef __cplusplus
}
#endif

#endif
