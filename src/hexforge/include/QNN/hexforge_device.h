// SPDX-License-Identifier: Apache-2.0
// What the simulated device (HEXFORGE_DEVICE) can be asked for beyond QNN's calls. libhexforge_qnn.so, beside
// libQnnHtp.so, exports it: a program that is to run without hexforge, too, looks it up by dlsym.
#ifndef HEXFORGE_DEVICE_H
#define HEXFORGE_DEVICE_H

#include "QnnCommon.h"

#ifdef __cplusplus
extern "C" {
#endif

// A message of the table of calls (docs/device.md) with its fields as JSON, such as "sleep" and "\"us\": 500"; waits until
// its call is over. Returns QNN's code.
QNN_API Qnn_ErrorHandle_t hexforge_device_call(const char* message, const char* fields);

#ifdef __cplusplus
}
#endif

#endif
