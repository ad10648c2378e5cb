// SPDX-License-Identifier: Apache-2.0
// What calls took, event by event.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNPROFILE_H
#define QNNPROFILE_H

#include "QnnCommon.h"
#include "QnnTypes.h"

#ifdef __cplusplus
extern "C" {
#endif

// How a call of this component ends.
typedef enum {
  QNN_PROFILE_NO_ERROR = QNN_SUCCESS,
  QNN_PROFILE_MIN_ERROR = 12000,
  QNN_PROFILE_MAX_ERROR = 12999,
  QNN_PROFILE_ERROR_INVALID_HANDLE = 12000,
  QNN_PROFILE_ERROR_HANDLE_IN_USE = 12001,
  QNN_PROFILE_ERROR_INCOMPATIBLE_EVENT = 12002,
  QNN_PROFILE_ERROR_UNSUPPORTED = 1000,
  QNN_PROFILE_ERROR_MEM_ALLOC = 1002,
  QNN_PROFILE_ERROR_INVALID_ARGUMENT = 1004,
  QNN_PROFILE_ERROR_UNDEFINED = 0x7FFFFFFF
} QnnProfile_Error_t;

typedef uint32_t QnnProfile_Level_t;

typedef uint64_t QnnProfile_EventId_t;

typedef uint32_t QnnProfile_EventType_t;

typedef uint32_t QnnProfile_EventUnit_t;

typedef enum {
  QNN_PROFILE_DATA_VERSION_1 = 1,
  QNN_PROFILE_DATA_VERSION_UNDEFINED = 0x7FFFFFFF
} QnnProfile_DataVersion_t;

#define QNN_PROFILE_LEVEL_BASIC ((QnnProfile_Level_t)1)
#define QNN_PROFILE_LEVEL_DETAILED ((QnnProfile_Level_t)2)

#define QNN_PROFILE_EVENTTYPE_INIT ((QnnProfile_EventType_t)100)
#define QNN_PROFILE_EVENTTYPE_FINALIZE ((QnnProfile_EventType_t)300)
#define QNN_PROFILE_EVENTTYPE_EXECUTE ((QnnProfile_EventType_t)400)
#define QNN_PROFILE_EVENTTYPE_NODE ((QnnProfile_EventType_t)404)
#define QNN_PROFILE_EVENTTYPE_EXECUTE_QUEUE_WAIT ((QnnProfile_EventType_t)405)
#define QNN_PROFILE_EVENTTYPE_EXECUTE_PREPROCESS ((QnnProfile_EventType_t)406)
#define QNN_PROFILE_EVENTTYPE_EXECUTE_DEVICE ((QnnProfile_EventType_t)407)
#define QNN_PROFILE_EVENTTYPE_EXECUTE_POSTPROCESS ((QnnProfile_EventType_t)408)
#define QNN_PROFILE_EVENTTYPE_DEINIT ((QnnProfile_EventType_t)500)
#define QNN_PROFILE_EVENTTYPE_BACKEND ((QnnProfile_EventType_t)1000)

#define QNN_PROFILE_EVENTUNIT_MICROSEC ((QnnProfile_EventUnit_t)1)
#define QNN_PROFILE_EVENTUNIT_BYTES ((QnnProfile_EventUnit_t)2)
#define QNN_PROFILE_EVENTUNIT_CYCLES ((QnnProfile_EventUnit_t)3)
#define QNN_PROFILE_EVENTUNIT_COUNT ((QnnProfile_EventUnit_t)4)
#define QNN_PROFILE_EVENTUNIT_OBJECT ((QnnProfile_EventUnit_t)5)
#define QNN_PROFILE_EVENTUNIT_BACKEND ((QnnProfile_EventUnit_t)1000)

typedef enum {
  QNN_PROFILE_CONFIG_OPTION_CUSTOM = 0,
  QNN_PROFILE_CONFIG_OPTION_MAX_EVENTS = 1,
  QNN_PROFILE_CONFIG_OPTION_ENABLE_OPTRACE = 2,
  QNN_PROFILE_CONFIG_OPTION_UNDEFINED = 0x7FFFFFFF
} QnnProfile_ConfigOption_t;

typedef struct {
  QnnProfile_EventType_t type;
  QnnProfile_EventUnit_t unit;
  uint64_t value;
  const char* identifier;
} QnnProfile_EventData_t;

typedef struct {
  QnnProfile_EventType_t type;
  QnnProfile_EventUnit_t unit;
  union {
    Qnn_Scalar_t value;
    uint64_t words[3];  // room that values of other kinds take
  };
  uint64_t timestamp;  // microseconds
  const char* identifier;
} QnnProfile_ExtendedEventDataV1_t;

typedef struct {
  QnnProfile_DataVersion_t version;
  union {
    QnnProfile_ExtendedEventDataV1_t v1;
  };
} QnnProfile_ExtendedEventData_t;

typedef void* QnnProfile_CustomConfig_t;

typedef struct {
  QnnProfile_ConfigOption_t option;
  union {
    QnnProfile_CustomConfig_t customConfig;
    uint64_t numMaxEvents;
    uint8_t enableOptrace;
  };
} QnnProfile_Config_t;
#define QNN_PROFILE_CONFIG_INIT {QNN_PROFILE_CONFIG_OPTION_UNDEFINED, {NULL}}

QNN_API Qnn_ErrorHandle_t QnnProfile_create(Qnn_BackendHandle_t backend, QnnProfile_Level_t level, Qnn_ProfileHandle_t*
    profile);

QNN_API Qnn_ErrorHandle_t QnnProfile_setConfig(Qnn_ProfileHandle_t profile, const QnnProfile_Config_t** config);

QNN_API Qnn_ErrorHandle_t QnnProfile_getEvents(Qnn_ProfileHandle_t profile, const QnnProfile_EventId_t**
    profileEventIds, uint32_t* numEvents);

QNN_API Qnn_ErrorHandle_t QnnProfile_getSubEvents(QnnProfile_EventId_t eventId, const QnnProfile_EventId_t**
    subEventIds, uint32_t* numSubEvents);

QNN_API Qnn_ErrorHandle_t QnnProfile_getEventData(QnnProfile_EventId_t eventId, QnnProfile_EventData_t* eventData);

QNN_API Qnn_ErrorHandle_t QnnProfile_getExtendedEventData(QnnProfile_EventId_t eventId, QnnProfile_ExtendedEventData_t*
    eventData);

QNN_API Qnn_ErrorHandle_t QnnProfile_free(Qnn_ProfileHandle_t profile);

typedef Qnn_ErrorHandle_t (*QnnProfile_CreateFn_t)(Qnn_BackendHandle_t backend, QnnProfile_Level_t level,
    Qnn_ProfileHandle_t* profile);
typedef Qnn_ErrorHandle_t (*QnnProfile_SetConfigFn_t)(Qnn_ProfileHandle_t profile, const QnnProfile_Config_t** config);
typedef Qnn_ErrorHandle_t (*QnnProfile_GetEventsFn_t)(Qnn_ProfileHandle_t profile, const QnnProfile_EventId_t**
    profileEventIds, uint32_t* numEvents);
typedef Qnn_ErrorHandle_t (*QnnProfile_GetSubEventsFn_t)(QnnProfile_EventId_t eventId, const QnnProfile_EventId_t**
    subEventIds, uint32_t* numSubEvents);
typedef Qnn_ErrorHandle_t (*QnnProfile_GetEventDataFn_t)(QnnProfile_EventId_t eventId, QnnProfile_EventData_t*
    eventData);
typedef Qnn_ErrorHandle_t (*QnnProfile_GetExtendedEventDataFn_t)(QnnProfile_EventId_t eventId,
    QnnProfile_ExtendedEventData_t* eventData);
typedef Qnn_ErrorHandle_t (*QnnProfile_FreeFn_t)(Qnn_ProfileHandle_t profile);

#ifdef __cplusplus
}
#endif

#endif
