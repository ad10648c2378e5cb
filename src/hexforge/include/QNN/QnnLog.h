// SPDX-License-Identifier: Apache-2.0
// Where messages go.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNLOG_H
#define QNNLOG_H

#include <stdarg.h>
#include "QnnCommon.h"

#ifdef __cplusplus
extern "C" {
#endif

// How a call of this component ends.
typedef enum {
  QNN_LOG_NO_ERROR = QNN_SUCCESS,
  QNN_LOG_MIN_ERROR = 11000,
  QNN_LOG_MAX_ERROR = 11999,
  QNN_LOG_ERROR_INITIALIZATION = 11002,
  QNN_LOG_ERROR_INVALID_ARGUMENT = 11003,
  QNN_LOG_ERROR_INVALID_HANDLE = 11004,
  QNN_LOG_ERROR_MEM_ALLOC = 1002,
  QNN_LOG_ERROR_UNDEFINED = 0x7FFFFFFF
} QnnLog_Error_t;

typedef enum {
  QNN_LOG_LEVEL_ERROR = 1,
  QNN_LOG_LEVEL_WARN = 2,
  QNN_LOG_LEVEL_INFO = 3,
  QNN_LOG_LEVEL_VERBOSE = 4,
  QNN_LOG_LEVEL_DEBUG = 5,
  QNN_LOG_LEVEL_MAX = 0x7FFFFFFF
} QnnLog_Level_t;

typedef void (*QnnLog_Callback_t)(const char* format, QnnLog_Level_t level, uint64_t timestamp, va_list arguments);

// Without a callback, messages go to the standard error stream.
QNN_API Qnn_ErrorHandle_t QnnLog_create(QnnLog_Callback_t callback, QnnLog_Level_t maxLogLevel, Qnn_LogHandle_t*
    logger);

QNN_API Qnn_ErrorHandle_t QnnLog_setLogLevel(Qnn_LogHandle_t logger, QnnLog_Level_t maxLogLevel);

QNN_API Qnn_ErrorHandle_t QnnLog_free(Qnn_LogHandle_t logger);

typedef Qnn_ErrorHandle_t (*QnnLog_CreateFn_t)(QnnLog_Callback_t callback, QnnLog_Level_t maxLogLevel, Qnn_LogHandle_t*
    logger);
typedef Qnn_ErrorHandle_t (*QnnLog_SetLogLevelFn_t)(Qnn_LogHandle_t logger, QnnLog_Level_t maxLogLevel);
typedef Qnn_ErrorHandle_t (*QnnLog_FreeFn_t)(Qnn_LogHandle_t logger);

#ifdef __cplusplus
}
#endif

#endif
