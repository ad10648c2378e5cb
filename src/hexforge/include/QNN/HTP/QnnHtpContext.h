// SPDX-License-Identifier: Apache-2.0
// How the HTP backend keeps and loads a context.
// Written for hexforge from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNHTPCONTEXT_H
#define QNNHTPCONTEXT_H

#include "QnnContext.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  Qnn_ContextHandle_t firstGroupHandle;  // 0 begins a group
  uint64_t maxSpillFillBuffer;           // bytes
} QnnHtpContext_GroupRegistration_t;

typedef enum {
  SEQUENTIAL_WITH_VA_OPTIMIZATION = 0,
  SEQUENTIAL_WITHOUT_VA_OPTIMIZATION = 1,
  SHARE_RESOURCES_OPTIMIZATION_UNKNOWN = 0x7fffffff
} QnnHtpContext_ShareResourcesOptimizationType_t;

typedef enum {
  QNN_HTP_CONTEXT_CONFIG_OPTION_WEIGHT_SHARING_ENABLED = 1,
  QNN_HTP_CONTEXT_CONFIG_OPTION_REGISTER_MULTI_CONTEXTS = 2,
  QNN_HTP_CONTEXT_CONFIG_OPTION_SHARE_RESOURCES = 5,
  QNN_HTP_CONTEXT_CONFIG_OPTION_PREPARE_ONLY = 7,
  QNN_HTP_CONTEXT_CONFIG_OPTION_SHARE_RESOURCES_OPTIMIZATION_TYPE = 10,
  QNN_HTP_CONTEXT_CONFIG_OPTION_UNKNOWN = 0x7fffffff
} QnnHtpContext_ConfigOption_t;

typedef struct {
  QnnHtpContext_ConfigOption_t option;
  union {
    bool weightSharingEnabled;
    QnnHtpContext_GroupRegistration_t groupRegistration;
    bool shareResources;
    bool prepareOnly;
    QnnHtpContext_ShareResourcesOptimizationType_t shareResOptType;
  };
} QnnHtpContext_CustomConfig_t;

#ifdef __cplusplus
}
#endif

#endif
