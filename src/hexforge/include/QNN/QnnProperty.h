// SPDX-License-Identifier: Apache-2.0
// Which capabilities a backend has.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNPROPERTY_H
#define QNNPROPERTY_H

#include "QnnCommon.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t QnnProperty_Key_t;

#define QNN_PROPERTY_PROFILE_SUPPORTS_EXTENDED_EVENT ((QnnProperty_Key_t)1404)
#define QNN_PROPERTY_GROUP_DEVICE ((QnnProperty_Key_t)1501)
#define QNN_PROPERTY_TENSOR_SUPPORT_DYNAMIC_DIMENSIONS ((QnnProperty_Key_t)0x48460008)
#define QNN_PROPERTY_TENSOR_SUPPORT_SPARSITY ((QnnProperty_Key_t)0x48460009)
#define QNN_PROPERTY_TENSOR_SUPPORT_UPDATEABLE_STATIC_TENSORS ((QnnProperty_Key_t)0x4846000A)
#define QNN_PROPERTY_GRAPH_SUPPORT_EARLY_TERMINATION ((QnnProperty_Key_t)0x4846000B)
#define QNN_PROPERTY_GRAPH_SUPPORT_FINALIZE_DESERIALIZED_GRAPH ((QnnProperty_Key_t)0x4846000C)
#define QNN_PROPERTY_GRAPH_SUPPORT_ASYNC_EXECUTION ((QnnProperty_Key_t)0x4846000D)
#define QNN_PROPERTY_GRAPH_SUPPORT_SUBGRAPH ((QnnProperty_Key_t)0x4846000E)
#define QNN_PROPERTY_CONTEXT_SUPPORT_CACHING ((QnnProperty_Key_t)0x4846000F)
#define QNN_PROPERTY_CONTEXT_SUPPORT_BINARY_UPDATES ((QnnProperty_Key_t)0x48460010)
#define QNN_PROPERTY_CONTEXT_SUPPORT_CREATE_FROM_BINARY_LIST_ASYNC ((QnnProperty_Key_t)0x48460011)
#define QNN_PROPERTY_PROFILE_SUPPORT_MAX_EVENTS_CONFIG ((QnnProperty_Key_t)0x48460012)
#define QNN_PROPERTY_PROFILE_SUPPORT_OPTRACE_CONFIG ((QnnProperty_Key_t)0x48460013)
#define QNN_PROPERTY_GROUP_MEMORY ((QnnProperty_Key_t)0x48460014)
#define QNN_PROPERTY_GROUP_SIGNAL ((QnnProperty_Key_t)0x48460015)

typedef enum {
  QNN_PROPERTY_NO_ERROR = 0,
  QNN_PROPERTY_SUPPORTED = 0,
  QNN_PROPERTY_NOT_SUPPORTED = 1000,
  QNN_PROPERTY_ERROR_UNKNOWN_KEY = 2000,
  QNN_PROPERTY_ERROR_UNDEFINED = 0x7FFFFFFF
} QnnProperty_Error_t;

// QNN_PROPERTY_SUPPORTED, QNN_PROPERTY_NOT_SUPPORTED or QNN_PROPERTY_ERROR_UNKNOWN_KEY.
QNN_API Qnn_ErrorHandle_t QnnProperty_hasCapability(QnnProperty_Key_t key);

typedef Qnn_ErrorHandle_t (*QnnProperty_HasCapabilityFn_t)(QnnProperty_Key_t key);

#ifdef __cplusplus
}
#endif

#endif
