// SPDX-License-Identifier: Apache-2.0
// The HTP backend.
// Written for hexforge from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNHTPCOMMON_H
#define QNNHTPCOMMON_H

#include "QnnCommon.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QNN_HTP_API_VERSION_MAJOR 5
#define QNN_HTP_API_VERSION_MINOR 39
#define QNN_HTP_API_VERSION_PATCH 0

#ifdef __cplusplus
}
#endif

#endif
