// SPDX-License-Identifier: Apache-2.0
// Memory of the program that tensors lie in.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNMEM_H
#define QNNMEM_H

#include "QnnCommon.h"
#include "QnnTypes.h"

#ifdef __cplusplus
extern "C" {
#endif

// How a call of this component ends.
typedef enum {
  QNN_MEM_NO_ERROR = QNN_SUCCESS,
  QNN_MEM_MIN_ERROR = 8000,
  QNN_MEM_MAX_ERROR = 8999,
  QNN_MEM_ERROR_INVALID_ARGUMENT = 8000,
  QNN_MEM_ERROR_INVALID_HANDLE = 8001,
  QNN_MEM_ERROR_ALREADY_REGISTERED = 8002,
  QNN_MEM_ERROR_MAPPING = 8003,
  QNN_MEM_ERROR_INVALID_SHAPE = 8004,
  QNN_MEM_ERROR_UNSUPPORTED_MEMTYPE = 8005,
  QNN_MEM_ERROR_NOT_SUPPORTED = 1000,
  QNN_MEM_ERROR_UNDEFINED = 0x7FFFFFFF
} QnnMem_Error_t;

typedef enum {
  QNN_MEM_TYPE_ION = 1,
  QNN_MEM_TYPE_CUSTOM = 2,
  QNN_MEM_TYPE_DMA_BUF = 3,
  QNN_MEM_TYPE_UNDEFINED = 0x7FFFFFFF
} Qnn_MemType_t;

typedef struct {
  uint32_t numDim;
  uint32_t* dimSize;
  const char* shapeConfig;
} Qnn_MemShape_t;
#define QNN_MEM_SHAPE_INIT {0, NULL, NULL}

typedef struct {
  int32_t fd;
} Qnn_MemIonInfo_t;

typedef struct {
  int32_t fd;
  void* data;
} Qnn_MemDmaBufInfo_t;

typedef void* Qnn_MemInfoCustom_t;

typedef struct {
  Qnn_MemShape_t memShape;
  Qnn_DataType_t dataType;
  Qnn_MemType_t memType;
  union {
    Qnn_MemIonInfo_t ionInfo;
    Qnn_MemDmaBufInfo_t dmaBufInfo;
    Qnn_MemInfoCustom_t customInfo;
  };
} Qnn_MemDescriptor_t;
#define QNN_MEM_DESCRIPTOR_INIT {QNN_MEM_SHAPE_INIT, QNN_DATATYPE_UNDEFINED, QNN_MEM_TYPE_UNDEFINED, {{0}}}

QNN_API Qnn_ErrorHandle_t QnnMem_register(Qnn_ContextHandle_t context, const Qnn_MemDescriptor_t* memDescriptors,
    uint32_t numDescriptors, Qnn_MemHandle_t* memHandles);

QNN_API Qnn_ErrorHandle_t QnnMem_deRegister(const Qnn_MemHandle_t* memHandles, uint32_t numHandles);

typedef Qnn_ErrorHandle_t (*QnnMem_RegisterFn_t)(Qnn_ContextHandle_t context, const Qnn_MemDescriptor_t* memDescriptors,
    uint32_t numDescriptors, Qnn_MemHandle_t* memHandles);
typedef Qnn_ErrorHandle_t (*QnnMem_DeRegisterFn_t)(const Qnn_MemHandle_t* memHandles, uint32_t numHandles);

#ifdef __cplusplus
}
#endif

#endif
