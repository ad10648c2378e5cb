// SPDX-License-Identifier: Apache-2.0
// Profile levels and events of the HTP.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNHTPPROFILE_H
#define QNNHTPPROFILE_H

#include "QnnProfile.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QNN_HTP_PROFILE_LEVEL_LINTING ((QnnProfile_Level_t)0x4846003C)

#define QNN_HTP_PROFILE_EVENTTYPE_GRAPH_EXECUTE_HOST_RPC_TIME_MICROSEC ((QnnProfile_EventType_t)0x4846003D)
#define QNN_HTP_PROFILE_EVENTTYPE_GRAPH_EXECUTE_HTP_RPC_TIME_MICROSEC ((QnnProfile_EventType_t)0x4846003E)
#define QNN_HTP_PROFILE_EVENTTYPE_GRAPH_EXECUTE_ACCEL_TIME_CYCLE ((QnnProfile_EventType_t)0x4846003F)
#define QNN_HTP_PROFILE_EVENTTYPE_GRAPH_EXECUTE_ACCEL_TIME_MICROSEC ((QnnProfile_EventType_t)0x48460040)
#define QNN_HTP_PROFILE_EVENTTYPE_GRAPH_NUMBER_OF_HVX_THREADS ((QnnProfile_EventType_t)0x48460041)

#ifdef __cplusplus
}
#endif

#endif
