// SPDX-License-Identifier: Apache-2.0
// What an error handle means, in words.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNERROR_H
#define QNNERROR_H

#include "QnnCommon.h"

#ifdef __cplusplus
extern "C" {
#endif

// How a call of this component ends.
typedef enum {
  QNN_ERROR_INVALID_ARGUMENT = 10000,
  QNN_ERROR_INVALID_ERROR_HANDLE = 10001,
  QNN_ERROR_UNDEFINED = 0x7FFFFFFF
} QnnError_Error_t;

// A sentence for a code, which lives as long as the library.
QNN_API Qnn_ErrorHandle_t QnnError_getMessage(Qnn_ErrorHandle_t errorHandle, const char** errorMessage);

// What was wrong with the call of this thread that returned the code last; to be freed.
QNN_API Qnn_ErrorHandle_t QnnError_getVerboseMessage(Qnn_ErrorHandle_t errorHandle, const char** errorMessage);

QNN_API Qnn_ErrorHandle_t QnnError_freeVerboseMessage(const char* errorMessage);

typedef Qnn_ErrorHandle_t (*QnnError_GetMessageFn_t)(Qnn_ErrorHandle_t errorHandle, const char** errorMessage);
typedef Qnn_ErrorHandle_t (*QnnError_GetVerboseMessageFn_t)(Qnn_ErrorHandle_t errorHandle, const char** errorMessage);
typedef Qnn_ErrorHandle_t (*QnnError_FreeVerboseMessageFn_t)(const char* errorMessage);

#ifdef __cplusplus
}
#endif

#endif
