// SPDX-License-Identifier: Apache-2.0
// The DSP backend, which hexforge does not have.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNDSPCOMMON_H
#define QNNDSPCOMMON_H

#include "QnnCommon.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QNN_DSP_API_VERSION_MAJOR 1
#define QNN_DSP_API_VERSION_MINOR 0
#define QNN_DSP_API_VERSION_PATCH 0

#ifdef __cplusplus
}
#endif

#endif
