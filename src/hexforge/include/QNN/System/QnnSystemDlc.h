// SPDX-License-Identifier: Apache-2.0
// Graphs of a DLC file, which hexforge answers with QNN_COMMON_ERROR_NOT_SUPPORTED.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNSYSTEMDLC_H
#define QNNSYSTEMDLC_H

#include "QnnInterface.h"
#include "System/QnnSystemContext.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef void* QnnSystemDlc_Handle_t;

typedef struct {
  const char* graphName;
  const QnnGraph_Config_t** graphConfigs;
} QnnSystemDlc_GraphConfigInfo_t;

QNN_API Qnn_ErrorHandle_t QnnSystemDlc_createFromFile(Qnn_LogHandle_t logger, const char* dlcPath,
    QnnSystemDlc_Handle_t* dlcHandle);

QNN_API Qnn_ErrorHandle_t QnnSystemDlc_createFromBinary(Qnn_LogHandle_t logger, const uint8_t* buffer,
    Qnn_ContextBinarySize_t bufferSize, QnnSystemDlc_Handle_t* dlcHandle);

QNN_API Qnn_ErrorHandle_t QnnSystemDlc_composeGraphs(QnnSystemDlc_Handle_t dlcHandle, const
    QnnSystemDlc_GraphConfigInfo_t** graphConfigs, uint32_t numGraphConfigs, Qnn_BackendHandle_t backend,
    Qnn_ContextHandle_t context, QnnInterface_t backendInterface, QnnSystemContext_GraphInfoVersion_t graphVersion,
    QnnSystemContext_GraphInfo_t** graphs, uint32_t* numGraphs);

QNN_API Qnn_ErrorHandle_t QnnSystemDlc_getOpMappings(QnnSystemDlc_Handle_t dlcHandle, const void** opMappings, uint32_t*
    numOpMappings);

QNN_API Qnn_ErrorHandle_t QnnSystemDlc_free(QnnSystemDlc_Handle_t dlcHandle);

typedef Qnn_ErrorHandle_t (*QnnSystemDlc_CreateFromFileFn_t)(Qnn_LogHandle_t logger, const char* dlcPath,
    QnnSystemDlc_Handle_t* dlcHandle);
typedef Qnn_ErrorHandle_t (*QnnSystemDlc_CreateFromBinaryFn_t)(Qnn_LogHandle_t logger, const uint8_t* buffer,
    Qnn_ContextBinarySize_t bufferSize, QnnSystemDlc_Handle_t* dlcHandle);
typedef Qnn_ErrorHandle_t (*QnnSystemDlc_ComposeGraphsFn_t)(QnnSystemDlc_Handle_t dlcHandle, const
    QnnSystemDlc_GraphConfigInfo_t** graphConfigs, uint32_t numGraphConfigs, Qnn_BackendHandle_t backend,
    Qnn_ContextHandle_t context, QnnInterface_t backendInterface, QnnSystemContext_GraphInfoVersion_t graphVersion,
    QnnSystemContext_GraphInfo_t** graphs, uint32_t* numGraphs);
typedef Qnn_ErrorHandle_t (*QnnSystemDlc_GetOpMappingsFn_t)(QnnSystemDlc_Handle_t dlcHandle, const void** opMappings,
    uint32_t* numOpMappings);
typedef Qnn_ErrorHandle_t (*QnnSystemDlc_FreeFn_t)(QnnSystemDlc_Handle_t dlcHandle);

#ifdef __cplusplus
}
#endif

#endif
