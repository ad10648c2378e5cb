// SPDX-License-Identifier: Apache-2.0
// What programs of these tests share: a check that ends the program, and a tensor of a row of floats.
#pragma once
#include <stdio.h>
#include <stdlib.h>

#include "QnnTypes.h"

#define REQUIRE(condition)                                    \
  do {                                                        \
    if (!(condition)) {                                       \
      fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
      exit(3);                                                \
    }                                                         \
  } while (0)

static uint32_t dims[] = {1, ELEMENTS};

static Qnn_Tensor_t tensor(const char* name, Qnn_TensorType_t type, void* data) {
  Qnn_Tensor_t made = QNN_TENSOR_INIT;
  made.v1.name = name;
  made.v1.type = type;
  made.v1.dataType = QNN_DATATYPE_FLOAT_32;
  made.v1.rank = 2;
  made.v1.dimensions = dims;
  made.v1.memType = QNN_TENSORMEMTYPE_RAW;
  made.v1.clientBuf.data = data;
  made.v1.clientBuf.dataSize = data ? sizeof(float) * ELEMENTS : 0;
  return made;
}
