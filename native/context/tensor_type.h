// SPDX-License-Identifier: Apache-2.0
// What a tensor of a context is: its data type, dimensions and encoding, read from the text form of ir/text.py.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hexforge {

enum class DType : std::uint8_t {
  int4,
  int8,
  int16,
  int32,
  int64,
  uint4,
  uint8,
  uint16,
  uint32,
  uint64,
  float16,
  bfloat16,
  float32,
  boolean
};

// real = scale * (q + offset), as QNN has it: an offset is the zero point with its sign changed.
struct Encoding {
  enum class Kind : std::uint8_t { none, scale_offset, axis_scale_offset, blockwise_expansion, block };
  Kind kind = Kind::none;
  std::int64_t axis = 0, block_axis = 0;
  std::int64_t bitwidth = 0;  // 0: that of the data type
  std::int64_t block_scale_bitwidth = 0;
  std::vector<std::int64_t> block_shape;
  std::vector<double> scales;
  std::vector<std::int64_t> offsets, block_scales;
};

struct TensorInfo {
  std::string name;
  std::uint32_t id = 0;  // 1, 2, … over the inputs and outputs of all graphs of a context, in the order of the file
  DType dtype = DType::uint8;
  std::vector<std::int64_t> dims;
  Encoding encoding;
  std::int64_t bytes = 0;  // of a client's buffer; 4-bit elements are packed by two
  int tile = 0;            // columns of a tile where the bytes lie in the HMX layout, 0 where they lie row by row

  bool fixed_point() const { return encoding.kind != Encoding::Kind::none; }
  std::int64_t elements() const;
};

// The type in a text such as "uint8[1, 8] {scale=0.1, offset=-128}"; throws ContextError.
TensorInfo parse_tensor_type(std::string_view text);
int element_bits(DType dtype);
const char* name(DType dtype);

}  // namespace hexforge
