// SPDX-License-Identifier: Apache-2.0
// Events of a profile, written to a file.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNSYSTEMPROFILE_H
#define QNNSYSTEMPROFILE_H

#include "QnnProfile.h"
#include "System/QnnSystemCommon.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  QNN_SYSTEM_PROFILE_METHOD_TYPE_NONE = 0x48460058,
  QNN_SYSTEM_PROFILE_METHOD_TYPE_BACKEND_FINALIZE = 0x48460059,
  QNN_SYSTEM_PROFILE_METHOD_TYPE_BACKEND_EXECUTE = 0x4846005A,
  QNN_SYSTEM_PROFILE_METHOD_TYPE_BACKEND_EXECUTE_ASYNC = 0x4846005B,
  QNN_SYSTEM_PROFILE_METHOD_TYPE_BACKEND_CREATE_FROM_BINARY = 0x4846005C,
  QNN_SYSTEM_PROFILE_METHOD_TYPE_BACKEND_DEINIT = 0x4846005D,
  QNN_SYSTEM_PROFILE_METHOD_TYPE_BACKEND_GRAPH_COMPONENT = 0x4846005E,
  QNN_SYSTEM_PROFILE_METHOD_TYPE_BACKEND_APPLY_BINARY_SECTION = 0x4846005F,
  QNN_SYSTEM_PROFILE_METHOD_TYPE_CONTEXT_FINALIZE = 0x48460060,
  QNN_SYSTEM_PROFILE_METHOD_TYPE_APP_CONTEXT_CREATE = 0x48460061,
  QNN_SYSTEM_PROFILE_METHOD_TYPE_APP_COMPOSE_GRAPHS = 0x48460062,
  QNN_SYSTEM_PROFILE_METHOD_TYPE_APP_EXECUTE_IPS = 0x48460063,
  QNN_SYSTEM_PROFILE_METHOD_TYPE_APP_BACKEND_LIB_LOAD = 0x48460064,
  QNN_SYSTEM_PROFILE_METHOD_TYPE_UNDEFINED = 0x7FFFFFFF
} QnnSystemProfile_MethodType_t;

typedef enum {
  QNN_SYSTEM_PROFILE_DATA_VERSION_1 = 1,
  QNN_SYSTEM_PROFILE_DATA_VERSION_UNDEFINED = 0x7FFFFFFF
} QnnSystemProfile_DataVersion_t;

typedef enum {
  QNN_SYSTEM_PROFILE_EVENT_DATA = 0x48460065,
  QNN_SYSTEM_PROFILE_EXTENDED_EVENT_DATA = 0x48460066,
  QNN_SYSTEM_PROFILE_EVENT_UNDEFINED = 0x7FFFFFFF
} QnnSystemProfile_ProfileEventType_t;

typedef enum {
  QNN_SYSTEM_PROFILE_SERIALIZATION_TARGET_FILE = 0x48460067,
  QNN_SYSTEM_PROFILE_SERIALIZATION_TARGET_UNDEFINED = 0x7FFFFFFF
} QnnSystemProfile_SerializationTargetType_t;

typedef enum {
  QNN_SYSTEM_PROFILE_SERIALIZATION_TARGET_CONFIG_SERIALIZATION_HEADER = 0x48460068,
  QNN_SYSTEM_PROFILE_SERIALIZATION_TARGET_CONFIG_UNDEFINED = 0x7FFFFFFF
} QnnSystemProfile_SerializationTargetConfigType_t;

typedef enum {
  QNN_SYSTEM_PROFILE_NO_ERROR = 0,
  QNN_SYSTEM_PROFILE_ERROR_UNSUPPORTED_FEATURE = 1000,
  QNN_SYSTEM_PROFILE_ERROR_INVALID_HANDLE = 30000,
  QNN_SYSTEM_PROFILE_ERROR_INVALID_ARGUMENT = 30001,
  QNN_SYSTEM_PROFILE_ERROR_MEM_ALLOC = 1002,
  QNN_SYSTEM_PROFILE_ERROR_UNDEFINED = 0x7FFFFFFF
} QnnSystemProfile_Error_t;

typedef void* QnnSystemProfile_SerializationTargetHandle_t;

typedef struct QnnSystemProfile_ProfileEventV1 {
  QnnSystemProfile_ProfileEventType_t type;
  union {
    QnnProfile_EventData_t eventData;
    QnnProfile_ExtendedEventData_t extendedEventData;
  };
  struct QnnSystemProfile_ProfileEventV1* profileSubEventData;
  uint32_t numSubEvents;
} QnnSystemProfile_ProfileEventV1_t;

typedef struct {
  uint64_t startTime;
  uint64_t stopTime;
  const char* graphName;
  QnnSystemProfile_MethodType_t methodType;
} QnnSystemProfile_ProfileHeader_t;

typedef struct {
  QnnSystemProfile_ProfileHeader_t header;
  QnnSystemProfile_ProfileEventV1_t* profilingEvents;
  uint32_t numProfilingEvents;
} QnnSystemProfile_ProfileDataV1_t;

typedef struct {
  QnnSystemProfile_DataVersion_t version;
  union {
    QnnSystemProfile_ProfileDataV1_t v1;
  };
} QnnSystemProfile_ProfileData_t;
#define QNN_SYSTEM_PROFILE_DATA_INIT {QNN_SYSTEM_PROFILE_DATA_VERSION_UNDEFINED, {{{0, 0, NULL, \
  QNN_SYSTEM_PROFILE_METHOD_TYPE_UNDEFINED}, NULL, 0}}}

typedef struct {
  const char* fileName;
  const char* fileDirectory;
} QnnSystemProfile_SerializationTargetFile_t;

typedef struct {
  QnnSystemProfile_SerializationTargetType_t type;
  union {
    QnnSystemProfile_SerializationTargetFile_t file;
  };
} QnnSystemProfile_SerializationTarget_t;

typedef struct {
  const char* appName;
  const char* appVersion;
  const char* backendVersion;
} QnnSystemProfile_SerializationFileHeader_t;

typedef struct {
  QnnSystemProfile_SerializationTargetConfigType_t type;
  union {
    QnnSystemProfile_SerializationFileHeader_t serializationHeader;
  };
} QnnSystemProfile_SerializationTargetConfig_t;

QNN_API Qnn_ErrorHandle_t QnnSystemProfile_createSerializationTarget(QnnSystemProfile_SerializationTarget_t target,
    QnnSystemProfile_SerializationTargetConfig_t* config, uint32_t numConfigs,
    QnnSystemProfile_SerializationTargetHandle_t* targetHandle);

QNN_API Qnn_ErrorHandle_t QnnSystemProfile_serializeEventData(QnnSystemProfile_SerializationTargetHandle_t targetHandle,
    const QnnSystemProfile_ProfileData_t** data, uint32_t numData);

QNN_API Qnn_ErrorHandle_t QnnSystemProfile_freeSerializationTarget(QnnSystemProfile_SerializationTargetHandle_t
    targetHandle);

typedef Qnn_ErrorHandle_t (*QnnSystemProfile_CreateSerializationTargetFn_t)(QnnSystemProfile_SerializationTarget_t
    target, QnnSystemProfile_SerializationTargetConfig_t* config, uint32_t numConfigs,
    QnnSystemProfile_SerializationTargetHandle_t* targetHandle);
typedef Qnn_ErrorHandle_t (*QnnSystemProfile_SerializeEventDataFn_t)(QnnSystemProfile_SerializationTargetHandle_t
    targetHandle, const QnnSystemProfile_ProfileData_t** data, uint32_t numData);
typedef Qnn_ErrorHandle_t (*QnnSystemProfile_FreeSerializationTargetFn_t)(QnnSystemProfile_SerializationTargetHandle_t
    targetHandle);

#ifdef __cplusplus
}
#endif

#endif
