// SPDX-License-Identifier: Apache-2.0
// Which capabilities a backend has.
// Written for hexforge from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNPROPERTY_H
#define QNNPROPERTY_H

#include "QnnCommon.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  QNN_PROPERTY_NO_ERROR = QNN_SUCCESS,
  QNN_PROPERTY_SUPPORTED = QNN_SUCCESS,
  QNN_PROPERTY_NOT_SUPPORTED = QNN_COMMON_ERROR_NOT_SUPPORTED,
  QNN_PROPERTY_ERROR_UNKNOWN_KEY = 2000,
  QNN_PROPERTY_ERROR_UNDEFINED = 0x7FFFFFFF
} QnnProperty_Error_t;

typedef uint32_t QnnProperty_Key_t;
#define QNN_PROPERTY_PROFILE_SUPPORTS_EXTENDED_EVENT ((QnnProperty_Key_t)1404)
#define QNN_PROPERTY_GROUP_DEVICE ((QnnProperty_Key_t)1501)

// QNN_PROPERTY_SUPPORTED, QNN_PROPERTY_NOT_SUPPORTED or QNN_PROPERTY_ERROR_UNKNOWN_KEY.
QNN_API Qnn_ErrorHandle_t QnnProperty_hasCapability(QnnProperty_Key_t key);

#ifdef __cplusplus
}
#endif

#endif
