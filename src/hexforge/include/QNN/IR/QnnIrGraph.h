// SPDX-License-Identifier: Apache-2.0
// Where a graph is written as a DLC file.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNIRGRAPH_H
#define QNNIRGRAPH_H

#include "IR/QnnIrCommon.h"
#include "QnnGraph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  QNN_IR_GRAPH_CONFIG_OPTION_SERIALIZATION = 0x48460044,
  QNN_IR_GRAPH_CONFIG_OPTION_UNKNOWN = 0x7FFFFFFF
} QnnIrGraph_ConfigOption_t;

typedef enum {
  QNN_IR_GRAPH_SERIALIZATION_TYPE_FLAT_BUFFER = 0x48460045,
  QNN_IR_GRAPH_SERIALIZATION_TYPE_UNDEFINED = 0x7FFFFFFF
} QnnIrGraph_SerializationType_t;

typedef struct {
  QnnIrGraph_SerializationType_t serializationType;
  const char* outputPath;
} QnnIrGraph_SerializationOption_t;

typedef struct {
  QnnIrGraph_ConfigOption_t option;
  union {
    QnnIrGraph_SerializationOption_t serializationOption;
  };
} QnnIrGraph_CustomConfig_t;
#define QNN_IR_GRAPH_CUSTOM_CONFIG_INIT {QNN_IR_GRAPH_CONFIG_OPTION_UNKNOWN, \
  {{QNN_IR_GRAPH_SERIALIZATION_TYPE_UNDEFINED, NULL}}}

#ifdef __cplusplus
}
#endif

#endif
