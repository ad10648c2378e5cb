// SPDX-License-Identifier: Apache-2.0
// The same Swish as swish.py in C++:
//   hexforge op-package build examples/op_package/swish.cpp -o libswish.so
//   hexforge run model.onnx --op-package Swish:libswish.so:swish_package
#include <cmath>

#include "hexforge_op_package.h"

static int32_t run(const float* const* in, const hexforge_shape* shapes, const double* params, float* const* out,
                   const hexforge_shape*) {
  int64_t count = 1;
  for (int32_t i = 0; i < shapes[0].rank; i++) count *= shapes[0].dims[i];
  for (int64_t i = 0; i < count; i++) out[0][i] = in[0][i] / (1 + std::exp(-(float)params[0] * in[0][i]));
  return 0;
}

static const hexforge_op ops[] = {{"Swish", "in", "out", "beta=1.0", "lookup", 1, 1, nullptr, run}};
static const hexforge_op_package package = {HEXFORGE_OP_PACKAGE_API, "example.native", "com.example", 1, ops};

extern "C" const hexforge_op_package* swish_package(void) { return &package; }
