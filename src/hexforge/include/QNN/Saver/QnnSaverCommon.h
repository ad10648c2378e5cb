// SPDX-License-Identifier: Apache-2.0
// The Saver backend, which writes down calls.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNSAVERCOMMON_H
#define QNNSAVERCOMMON_H

#include "QnnCommon.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QNN_SAVER_API_VERSION_MAJOR 1
#define QNN_SAVER_API_VERSION_MINOR 0
#define QNN_SAVER_API_VERSION_PATCH 0
#define QNN_SAVER_ERROR_DUMMY_RETVALUE 0x48460057

#ifdef __cplusplus
}
#endif

#endif
