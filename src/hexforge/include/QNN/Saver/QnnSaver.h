// SPDX-License-Identifier: Apache-2.0
// Where the Saver writes.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNSAVER_H
#define QNNSAVER_H

#include "Saver/QnnSaverCommon.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  QNN_SAVER_CONFIG_OPTION_OUTPUT_DIRECTORY = 0x48460054,
  QNN_SAVER_CONFIG_OPTION_FILE_CONFIG = 0x48460055,
  QNN_SAVER_CONFIG_OPTION_BACKEND_ID = 0x48460056,
  QNN_SAVER_CONFIG_OPTION_UNDEFINED = 0x7FFFFFFF
} QnnSaver_ConfigOption_t;

typedef struct {
  const char* sourceFileName;
  const char* dataFileName;
} QnnSaver_FileConfig_t;

typedef struct {
  QnnSaver_ConfigOption_t option;
  union {
    const char* outputDirectory;
    QnnSaver_FileConfig_t fileConfig;
    uint32_t backendId;
  };
} QnnSaver_Config_t;
#define QNN_SAVER_CONFIG_INIT {QNN_SAVER_CONFIG_OPTION_UNDEFINED, {NULL}}

QNN_API Qnn_ErrorHandle_t QnnSaver_initialize(const QnnSaver_Config_t** config);

#ifdef __cplusplus
}
#endif

#endif
