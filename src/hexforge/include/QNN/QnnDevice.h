// SPDX-License-Identifier: Apache-2.0
// A device: which chip a backend runs on.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNDEVICE_H
#define QNNDEVICE_H

#include "QnnCommon.h"
#include "QnnTypes.h"

#ifdef __cplusplus
extern "C" {
#endif

// How a call of this component ends.
typedef enum {
  QNN_DEVICE_NO_ERROR = QNN_SUCCESS,
  QNN_DEVICE_MIN_ERROR = 14000,
  QNN_DEVICE_MAX_ERROR = 14999,
  QNN_DEVICE_ERROR_INVALID_HANDLE = 14000,
  QNN_DEVICE_ERROR_INVALID_CONFIG = 14001,
  QNN_DEVICE_ERROR_HARDWARE_UNAVAILABLE = 14002,
  QNN_DEVICE_ERROR_ASSOCIATED_TO_CONTEXT = 14003,
  QNN_DEVICE_ERROR_UNSUPPORTED_FEATURE = 1000,
  QNN_DEVICE_ERROR_MEM_ALLOC = 1002,
  QNN_DEVICE_ERROR_INVALID_ARGUMENT = 1004,
  QNN_DEVICE_ERROR_UNDEFINED = 0x7FFFFFFF
} QnnDevice_Error_t;

typedef enum {
  QNN_DEVICE_CORE_INFO_VERSION_1 = 1,
  QNN_DEVICE_CORE_INFO_VERSION_UNDEFINED = 0x7FFFFFFF
} QnnDevice_CoreInfoVersion_t;

typedef enum {
  QNN_DEVICE_HARDWARE_DEVICE_INFO_VERSION_1 = 1,
  QNN_DEVICE_HARDWARE_DEVICE_INFO_VERSION_UNDEFINED = 0x7FFFFFFF
} QnnDevice_HardwareDeviceInfoVersion_t;

typedef enum {
  QNN_DEVICE_PLATFORM_INFO_VERSION_1 = 1,
  QNN_DEVICE_PLATFORM_INFO_VERSION_UNDEFINED = 0x7FFFFFFF
} QnnDevice_PlatformInfoVersion_t;

typedef enum {
  QNN_DEVICE_CONFIG_OPTION_CUSTOM = 0,
  QNN_DEVICE_CONFIG_OPTION_PLATFORM_INFO = 1,
  QNN_DEVICE_CONFIG_OPTION_UNDEFINED = 0x7FFFFFFF
} QnnDevice_ConfigOption_t;

typedef void* QnnDevice_CoreInfoExtension_t;

typedef struct _QnnDevice_DeviceInfoExtension_t* QnnDevice_DeviceInfoExtension_t;

typedef struct _QnnDevice_Infrastructure_t* QnnDevice_Infrastructure_t;

typedef void* QnnDevice_CustomConfig_t;

typedef struct {
  uint32_t coreId;
  uint32_t coreType;
  QnnDevice_CoreInfoExtension_t coreInfoExtension;
} QnnDevice_CoreInfoV1_t;
#define QNN_DEVICE_CORE_INFO_V1_INIT {0, 0, NULL}

typedef struct {
  QnnDevice_CoreInfoVersion_t version;
  union {
    QnnDevice_CoreInfoV1_t v1;
  };
} QnnDevice_CoreInfo_t;
#define QNN_DEVICE_CORE_INFO_INIT {QNN_DEVICE_CORE_INFO_VERSION_1, {QNN_DEVICE_CORE_INFO_V1_INIT}}

typedef struct {
  uint32_t deviceId;
  uint32_t deviceType;
  uint32_t numCores;
  QnnDevice_CoreInfo_t* cores;
  QnnDevice_DeviceInfoExtension_t deviceInfoExtension;
} QnnDevice_HardwareDeviceInfoV1_t;
#define QNN_DEVICE_HARDWARE_DEVICE_INFO_V1_INIT {0, 0, 0, NULL, NULL}

typedef struct {
  QnnDevice_HardwareDeviceInfoVersion_t version;
  union {
    QnnDevice_HardwareDeviceInfoV1_t v1;
  };
} QnnDevice_HardwareDeviceInfo_t;
#define QNN_DEVICE_HARDWARE_DEVICE_INFO_INIT {QNN_DEVICE_HARDWARE_DEVICE_INFO_VERSION_1, \
  {QNN_DEVICE_HARDWARE_DEVICE_INFO_V1_INIT}}

typedef struct {
  uint32_t numHwDevices;
  QnnDevice_HardwareDeviceInfo_t* hwDevices;
} QnnDevice_PlatformInfoV1_t;
#define QNN_DEVICE_PLATFORM_INFO_V1_INIT {0, NULL}

typedef struct {
  QnnDevice_PlatformInfoVersion_t version;
  union {
    QnnDevice_PlatformInfoV1_t v1;
  };
} QnnDevice_PlatformInfo_t;
#define QNN_DEVICE_PLATFORM_INFO_INIT {QNN_DEVICE_PLATFORM_INFO_VERSION_1, {QNN_DEVICE_PLATFORM_INFO_V1_INIT}}

typedef struct {
  QnnDevice_ConfigOption_t option;
  union {
    QnnDevice_CustomConfig_t customConfig;
    QnnDevice_PlatformInfo_t* hardwareInfo;
  };
} QnnDevice_Config_t;
#define QNN_DEVICE_CONFIG_INIT {QNN_DEVICE_CONFIG_OPTION_UNDEFINED, {NULL}}

QNN_API Qnn_ErrorHandle_t QnnDevice_getPlatformInfo(Qnn_LogHandle_t logger, const QnnDevice_PlatformInfo_t**
    platformInfo);

QNN_API Qnn_ErrorHandle_t QnnDevice_freePlatformInfo(Qnn_LogHandle_t logger, const QnnDevice_PlatformInfo_t*
    platformInfo);

QNN_API Qnn_ErrorHandle_t QnnDevice_getInfrastructure(QnnDevice_Infrastructure_t* deviceInfra);

QNN_API Qnn_ErrorHandle_t QnnDevice_create(Qnn_LogHandle_t logger, const QnnDevice_Config_t** config,
    Qnn_DeviceHandle_t* device);

QNN_API Qnn_ErrorHandle_t QnnDevice_setConfig(Qnn_DeviceHandle_t device, const QnnDevice_Config_t** config);

QNN_API Qnn_ErrorHandle_t QnnDevice_getInfo(Qnn_DeviceHandle_t device, const QnnDevice_PlatformInfo_t** platformInfo);

QNN_API Qnn_ErrorHandle_t QnnDevice_free(Qnn_DeviceHandle_t device);

typedef Qnn_ErrorHandle_t (*QnnDevice_GetPlatformInfoFn_t)(Qnn_LogHandle_t logger, const QnnDevice_PlatformInfo_t**
    platformInfo);
typedef Qnn_ErrorHandle_t (*QnnDevice_FreePlatformInfoFn_t)(Qnn_LogHandle_t logger, const QnnDevice_PlatformInfo_t*
    platformInfo);
typedef Qnn_ErrorHandle_t (*QnnDevice_GetInfrastructureFn_t)(QnnDevice_Infrastructure_t* deviceInfra);
typedef Qnn_ErrorHandle_t (*QnnDevice_CreateFn_t)(Qnn_LogHandle_t logger, const QnnDevice_Config_t** config,
    Qnn_DeviceHandle_t* device);
typedef Qnn_ErrorHandle_t (*QnnDevice_SetConfigFn_t)(Qnn_DeviceHandle_t device, const QnnDevice_Config_t** config);
typedef Qnn_ErrorHandle_t (*QnnDevice_GetInfoFn_t)(Qnn_DeviceHandle_t device, const QnnDevice_PlatformInfo_t**
    platformInfo);
typedef Qnn_ErrorHandle_t (*QnnDevice_FreeFn_t)(Qnn_DeviceHandle_t device);

#ifdef __cplusplus
}
#endif

#endif
