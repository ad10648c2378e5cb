// SPDX-License-Identifier: Apache-2.0
// The HTP backend.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNHTPCOMMON_H
#define QNNHTPCOMMON_H

#include "QnnCommon.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QNN_HTP_API_VERSION_MAJOR 5
#define QNN_HTP_API_VERSION_MINOR 39
#define QNN_HTP_API_VERSION_PATCH 0
#define QNN_HTP_CORE_TYPE_NSP 0

#define QNN_HTP_API_VERSION_INIT {{QNN_API_VERSION_MAJOR, QNN_API_VERSION_MINOR, QNN_API_VERSION_PATCH}, {QNN_HTP_API_VERSION_MAJOR, QNN_HTP_API_VERSION_MINOR, QNN_HTP_API_VERSION_PATCH}}

#ifdef __cplusplus
}
#endif

#endif
