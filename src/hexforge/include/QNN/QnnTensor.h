// SPDX-License-Identifier: Apache-2.0
// Tensors of graphs and contexts.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNTENSOR_H
#define QNNTENSOR_H

#include "QnnCommon.h"
#include "QnnTypes.h"

#ifdef __cplusplus
extern "C" {
#endif

// How a call of this component ends.
typedef enum {
  QNN_TENSOR_NO_ERROR = QNN_SUCCESS,
  QNN_TENSOR_MIN_ERROR = 7000,
  QNN_TENSOR_MAX_ERROR = 7999,
  QNN_TENSOR_ERROR_INVALID_HANDLE = 7001,
  QNN_TENSOR_ERROR_DOES_NOT_EXIST = 7002,
  QNN_TENSOR_ERROR_ALREADY_EXISTS = 7003,
  QNN_TENSOR_ERROR_INVALID_TENSOR_PARAM = 7004,
  QNN_TENSOR_ERROR_UNSUPPORTED_TENSOR_PARAM = 7005,
  QNN_TENSOR_ERROR_NAME_HASH_COLLISION = 7006,
  QNN_TENSOR_ERROR_INCOMPATIBLE_TENSOR_UPDATE = 7007,
  QNN_TENSOR_ERROR_UNSUPPORTED_FEATURE = 1000,
  QNN_TENSOR_ERROR_UNDEFINED = 0x7FFFFFFF
} QnnTensor_Error_t;

// The tensor's id is written back.
QNN_API Qnn_ErrorHandle_t QnnTensor_createContextTensor(Qnn_ContextHandle_t context, Qnn_Tensor_t* tensor);

QNN_API Qnn_ErrorHandle_t QnnTensor_createGraphTensor(Qnn_GraphHandle_t graph, Qnn_Tensor_t* tensor);

QNN_API Qnn_ErrorHandle_t QnnTensor_updateGraphTensors(Qnn_GraphHandle_t graph, const Qnn_Tensor_t** tensors, uint64_t
    numTensors);

QNN_API Qnn_ErrorHandle_t QnnTensor_updateContextTensors(Qnn_ContextHandle_t context, const Qnn_Tensor_t** tensors,
    uint64_t numTensors);

typedef Qnn_ErrorHandle_t (*QnnTensor_CreateContextTensorFn_t)(Qnn_ContextHandle_t context, Qnn_Tensor_t* tensor);
typedef Qnn_ErrorHandle_t (*QnnTensor_CreateGraphTensorFn_t)(Qnn_GraphHandle_t graph, Qnn_Tensor_t* tensor);
typedef Qnn_ErrorHandle_t (*QnnTensor_UpdateGraphTensorsFn_t)(Qnn_GraphHandle_t graph, const Qnn_Tensor_t** tensors,
    uint64_t numTensors);
typedef Qnn_ErrorHandle_t (*QnnTensor_UpdateContextTensorsFn_t)(Qnn_ContextHandle_t context, const Qnn_Tensor_t**
    tensors, uint64_t numTensors);

#ifdef __cplusplus
}
#endif

#endif
