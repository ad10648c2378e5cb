// SPDX-License-Identifier: Apache-2.0
// The backend that writes graphs as DLC files, which hexforge does not have.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNIRCOMMON_H
#define QNNIRCOMMON_H

#include "QnnCommon.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QNN_IR_API_VERSION_MAJOR 1
#define QNN_IR_API_VERSION_MINOR 0
#define QNN_IR_API_VERSION_PATCH 0

#ifdef __cplusplus
}
#endif

#endif
