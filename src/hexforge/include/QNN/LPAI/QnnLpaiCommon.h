// SPDX-License-Identifier: Apache-2.0
// The low-power AI backend, which hexforge does not have.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNLPAICOMMON_H
#define QNNLPAICOMMON_H

#include "QnnCommon.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QNN_LPAI_API_VERSION_MAJOR 1
#define QNN_LPAI_API_VERSION_MINOR 0
#define QNN_LPAI_API_VERSION_PATCH 0

#ifdef __cplusplus
}
#endif

#endif
