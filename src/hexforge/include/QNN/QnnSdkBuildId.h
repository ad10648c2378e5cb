// SPDX-License-Identifier: Apache-2.0
// Which SDK the headers follow.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNSDKBUILDID_H
#define QNNSDKBUILDID_H

#ifdef __cplusplus
extern "C" {
#endif

#define QNN_SDK_BUILD_ID "v2.48.0.hexforge"

#ifdef __cplusplus
}
#endif

#endif
