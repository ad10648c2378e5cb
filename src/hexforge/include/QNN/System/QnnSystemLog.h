// SPDX-License-Identifier: Apache-2.0
// Messages of the system library.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNSYSTEMLOG_H
#define QNNSYSTEMLOG_H

#include "QnnLog.h"
#include "System/QnnSystemCommon.h"

#ifdef __cplusplus
extern "C" {
#endif

QNN_API Qnn_ErrorHandle_t QnnSystemLog_create(QnnLog_Callback_t callback, QnnLog_Level_t maxLogLevel, Qnn_LogHandle_t*
    logger);

QNN_API Qnn_ErrorHandle_t QnnSystemLog_setLogLevel(Qnn_LogHandle_t logger, QnnLog_Level_t maxLogLevel);

QNN_API Qnn_ErrorHandle_t QnnSystemLog_free(Qnn_LogHandle_t logger);

typedef Qnn_ErrorHandle_t (*QnnSystemLog_CreateFn_t)(QnnLog_Callback_t callback, QnnLog_Level_t maxLogLevel,
    Qnn_LogHandle_t* logger);
typedef Qnn_ErrorHandle_t (*QnnSystemLog_SetLogLevelFn_t)(Qnn_LogHandle_t logger, QnnLog_Level_t maxLogLevel);
typedef Qnn_ErrorHandle_t (*QnnSystemLog_FreeFn_t)(Qnn_LogHandle_t logger);

#ifdef __cplusplus
}
#endif

#endif
