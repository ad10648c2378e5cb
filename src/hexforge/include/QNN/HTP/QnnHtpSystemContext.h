// SPDX-License-Identifier: Apache-2.0
// What a context of the HTP says of itself: its spill-fill buffer.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNHTPSYSTEMCONTEXT_H
#define QNNHTPSYSTEMCONTEXT_H

#include "System/QnnSystemContext.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  QNN_SYSTEM_CONTEXT_HTP_HW_INFO_BLOB_VERSION_V1 = 1,
  QNN_SYSTEM_CONTEXT_HTP_HW_INFO_BLOB_UNDEFINED = 0x7FFFFFFF
} QnnHtpSystemContext_HwInfoBlobVersion_t;

typedef enum {
  QNN_SYSTEM_CONTEXT_HTP_GRAPH_INFO_BLOB_VERSION_V1 = 1,
  QNN_SYSTEM_CONTEXT_HTP_GRAPH_INFO_BLOB_UNDEFINED = 0x7FFFFFFF
} QnnHtpSystemContext_GraphInfoBlobVersion_t;

typedef struct {
  uint32_t graphListIndex;  // the first graph that the figure is of
  uint64_t spillFillBufferSize;  // bytes
} QnnHtpSystemContext_HwBlobInfoV1_t;

// hwInfoBlob of a context's information.
typedef struct {
  QnnHtpSystemContext_HwInfoBlobVersion_t version;
  union {
    QnnHtpSystemContext_HwBlobInfoV1_t contextBinaryHwInfoBlobV1_t;
  };
} QnnHtpSystemContext_HwBlobInfo_t;

typedef struct {
  uint64_t spillFillBufferSize;  // bytes
} QnnHtpSystemContext_GraphBlobInfoV1_t;

// graphBlobInfo of a graph's information.
typedef struct {
  QnnHtpSystemContext_GraphInfoBlobVersion_t version;
  union {
    QnnHtpSystemContext_GraphBlobInfoV1_t contextBinaryGraphBlobInfoV1;
  };
} QnnHtpSystemContext_GraphBlobInfo_t;

#ifdef __cplusplus
}
#endif

#endif
