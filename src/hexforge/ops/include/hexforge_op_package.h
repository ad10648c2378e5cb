// SPDX-License-Identifier: Apache-2.0
/* SPDX-License-Identifier: Apache-2.0
 * Op packages for hexforge in C or C++: fill a hexforge_op_package and give it out by a function of your choice.
 *
 *   const hexforge_op_package* my_interface(void);
 *
 * `hexforge op-package build SOURCE.cpp -o libmine.so` compiles it, and
 * `op_packages=MyOp:libmine.so:my_interface` registers it. Tensors are dense, row-major float32; quantized tensors are
 * given as the real numbers they stand for, and results are quantized by hexforge.
 */
#ifndef HEXFORGE_OP_PACKAGE_H
#define HEXFORGE_OP_PACKAGE_H
#include <stdint.h>

#define HEXFORGE_OP_PACKAGE_API 1
#define HEXFORGE_MAX_RANK 8

typedef struct {
  int32_t rank;
  int64_t dims[HEXFORGE_MAX_RANK];
} hexforge_shape;

typedef struct {
  const char* type;       /* the op's name, e.g. "Swish" */
  const char* inputs;     /* names separated by spaces, "in" */
  const char* outputs;    /* names separated by spaces, "out" */
  const char* params;     /* numbers with defaults, "alpha=1.0 beta=0", or "" */
  const char* work;       /* the kind of work, e.g. "lookup"; NULL is "add" */
  int32_t lanes;          /* vector operations for each output element */
  int32_t lookups;        /* table look-ups for each output element */
  /* Shapes of the outputs from those of the inputs; 0 where they fit. NULL: each is as the first input. */
  int32_t (*infer)(const hexforge_shape* in, int32_t inputs, const double* params, hexforge_shape* out);
  /* Computes the outputs; 0 on success. Called from several threads at once. */
  int32_t (*run)(const float* const* in, const hexforge_shape* in_shapes, const double* params, float* const* out,
                 const hexforge_shape* out_shapes);
} hexforge_op;

typedef struct {
  int32_t api;            /* HEXFORGE_OP_PACKAGE_API */
  const char* name;       /* the package's name */
  const char* domain;     /* the ONNX domain of its nodes */
  int32_t count;
  const hexforge_op* ops;
} hexforge_op_package;

#endif
