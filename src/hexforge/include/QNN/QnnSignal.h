// SPDX-License-Identifier: Apache-2.0
// What ends a call of another thread before its time.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNSIGNAL_H
#define QNNSIGNAL_H

#include "QnnCommon.h"

#ifdef __cplusplus
extern "C" {
#endif

// How a call of this component ends.
typedef enum {
  QNN_SIGNAL_NO_ERROR = QNN_SUCCESS,
  QNN_SIGNAL_MIN_ERROR = 9000,
  QNN_SIGNAL_MAX_ERROR = 9999,
  QNN_SIGNAL_ERROR_SIGNAL_IN_USE = 9000,
  QNN_SIGNAL_ERROR_SIGNAL_IDLE = 9001,
  QNN_SIGNAL_ERROR_INVALID_ARGUMENT = 9002,
  QNN_SIGNAL_ERROR_INVALID_HANDLE = 9003,
  QNN_SIGNAL_ERROR_TIMEOUT = 9004,
  QNN_SIGNAL_ERROR_INCOMPATIBLE_SIGNAL_TYPE = 9005,
  QNN_SIGNAL_ERROR_UNSUPPORTED = 1000,
  QNN_SIGNAL_ERROR_MEM_ALLOC = 1002,
  QNN_SIGNAL_ERROR_UNDEFINED = 0x7FFFFFFF
} QnnSignal_Error_t;

typedef enum {
  QNN_SIGNAL_CONFIG_OPTION_ABORT = 0x48460016,
  QNN_SIGNAL_CONFIG_OPTION_TIMEOUT = 0x48460017,
  QNN_SIGNAL_CONFIG_OPTION_UNDEFINED = 0x7FFFFFFF
} QnnSignal_ConfigOption_t;

typedef struct {
  QnnSignal_ConfigOption_t option;
  union {
    uint64_t timeoutDurationUs;  // microseconds after which a call that observes the signal ends
    void* abortConfig;  // ends a call when it is triggered: nothing to set
  };
} QnnSignal_Config_t;
#define QNN_SIGNAL_CONFIG_INIT {QNN_SIGNAL_CONFIG_OPTION_UNDEFINED, {0}}

QNN_API Qnn_ErrorHandle_t QnnSignal_create(Qnn_BackendHandle_t backend, const QnnSignal_Config_t** config,
    Qnn_SignalHandle_t* signal);

QNN_API Qnn_ErrorHandle_t QnnSignal_setConfig(Qnn_SignalHandle_t signal, const QnnSignal_Config_t** config);

QNN_API Qnn_ErrorHandle_t QnnSignal_trigger(Qnn_SignalHandle_t signal);

QNN_API Qnn_ErrorHandle_t QnnSignal_free(Qnn_SignalHandle_t signal);

typedef Qnn_ErrorHandle_t (*QnnSignal_CreateFn_t)(Qnn_BackendHandle_t backend, const QnnSignal_Config_t** config,
    Qnn_SignalHandle_t* signal);
typedef Qnn_ErrorHandle_t (*QnnSignal_SetConfigFn_t)(Qnn_SignalHandle_t signal, const QnnSignal_Config_t** config);
typedef Qnn_ErrorHandle_t (*QnnSignal_TriggerFn_t)(Qnn_SignalHandle_t signal);
typedef Qnn_ErrorHandle_t (*QnnSignal_FreeFn_t)(Qnn_SignalHandle_t signal);

#ifdef __cplusplus
}
#endif

#endif
