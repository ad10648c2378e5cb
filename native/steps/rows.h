// SPDX-License-Identifier: Apache-2.0
// What steps over rows of channels share: their shape, and how a fixed-point result is written.
#pragma once
#include <cstdint>

#include "core/round_and_clamp.h"
#include "kernels/loops.h"

namespace hexforge {
namespace {

struct Rows {
  std::int64_t rows, n;
};

inline Rows rows_of(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs, std::int64_t bytes,
                    const char* what) {
  const Rows r{at.integer("rows"), at.integer("n")};
  require_operands(ins, 1, outs, 1, what);
  require(r.rows >= 0 && r.n >= 1, "rows: bad shape");
  require_bytes(ins[0], times({r.rows, r.n, bytes}), what);
  require_bytes(outs[0], times({r.rows, r.n, bytes}), what);
  return r;
}

inline Affine output_of(const Attributes& at) {
  Affine k;
  k.zero = at.small("zero_point");
  k.low = at.small("low");
  k.high = at.small("high");
  k.zero_a = at.small("zero_a", 0);
  return k;
}

}  // namespace
}  // namespace hexforge
