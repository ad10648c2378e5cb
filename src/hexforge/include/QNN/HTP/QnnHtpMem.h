// SPDX-License-Identifier: Apache-2.0
// Shared buffers of the HTP.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNHTPMEM_H
#define QNNHTPMEM_H

#include "QnnMem.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  QNN_HTP_MEM_SHARED_BUFFER = 2,
  QNN_HTP_MEM_UNDEFINED = 0x7FFFFFFF
} QnnHtpMem_Type_t;

// A tensor's place in a buffer that several tensors share.
typedef struct {
  int32_t fd;
  uint64_t offset;
} QnnHtpMem_SharedBufferConfig_t;

typedef struct {
  QnnHtpMem_Type_t type;
  uint64_t size;
  union {
    QnnHtpMem_SharedBufferConfig_t sharedBufferConfig;
  };
} QnnMemHtp_Descriptor_t;

#ifdef __cplusplus
}
#endif

#endif
