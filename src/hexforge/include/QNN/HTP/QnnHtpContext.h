// SPDX-License-Identifier: Apache-2.0
// How the HTP backend keeps and loads a context.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNHTPCONTEXT_H
#define QNNHTPCONTEXT_H

#include "QnnContext.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  SEQUENTIAL_WITH_VA_OPTIMIZATION = 0,
  SEQUENTIAL_WITHOUT_VA_OPTIMIZATION = 1,
  CONCURRENT_OPTIMIZATION = 0x4846001C,
  SHARE_RESOURCES_OPTIMIZATION_UNKNOWN = 0x7FFFFFFF
} QnnHtpContext_ShareResourcesOptimizationType_t;

typedef enum {
  QNN_HTP_CONTEXT_CONFIG_OPTION_WEIGHT_SHARING_ENABLED = 1,
  QNN_HTP_CONTEXT_CONFIG_OPTION_REGISTER_MULTI_CONTEXTS = 2,
  QNN_HTP_CONTEXT_CONFIG_OPTION_SHARE_RESOURCES = 5,
  QNN_HTP_CONTEXT_CONFIG_OPTION_PREPARE_ONLY = 7,
  QNN_HTP_CONTEXT_CONFIG_OPTION_SHARE_RESOURCES_OPTIMIZATION_TYPE = 10,
  QNN_HTP_CONTEXT_CONFIG_OPTION_FILE_READ_MEMORY_BUDGET = 0x4846001D,
  QNN_HTP_CONTEXT_CONFIG_OPTION_IO_MEM_ESTIMATION = 0x4846001E,
  QNN_HTP_CONTEXT_CONFIG_OPTION_DSP_MEMORY_PROFILING_ENABLED = 0x4846001F,
  QNN_HTP_CONTEXT_CONFIG_OPTION_INIT_ACCELERATION = 0x48460020,
  QNN_HTP_CONTEXT_CONFIG_OPTION_SKIP_VALIDATION_ON_BINARY_SECTION = 0x48460021,
  QNN_HTP_CONTEXT_CONFIG_OPTION_REGISTER_CONCURRENT_RESOURCE_SHARING = 0x48460022,
  QNN_HTP_CONTEXT_CONFIG_OPTION_LORA_WEIGHT_SHARING_ENABLED = 0x48460023,
  QNN_HTP_CONTEXT_CONFIG_OPTION_UNKNOWN = 0x7FFFFFFF
} QnnHtpContext_ConfigOption_t;

typedef struct {
  Qnn_ContextHandle_t firstGroupHandle;  // 0 begins a group
  uint64_t maxSpillFillBuffer;  // bytes
} QnnHtpContext_GroupRegistration_t;

typedef struct {
  QnnHtpContext_ConfigOption_t option;
  union {
    bool weightSharingEnabled;
    QnnHtpContext_GroupRegistration_t groupRegistration;
    bool shareResources;
    bool prepareOnly;
    QnnHtpContext_ShareResourcesOptimizationType_t shareResOptType;
    uint64_t fileReadMemoryBudgetInMb;
    bool ioMemEstimation;
    bool dspMemoryProfilingEnabled;
    bool initAcceleration;
    bool skipValidationOnBinarySection;
    QnnHtpContext_GroupRegistration_t concurrentGroupRegistration;
    bool loraWeightSharingEnabled;
  };
} QnnHtpContext_CustomConfig_t;
#define QNN_HTP_CONTEXT_CUSTOM_CONFIG_INIT {QNN_HTP_CONTEXT_CONFIG_OPTION_UNKNOWN, {false}}

#ifdef __cplusplus
}
#endif

#endif
