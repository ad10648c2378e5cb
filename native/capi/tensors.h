// SPDX-License-Identifier: Apache-2.0
// Tensors and ops between a client's structures, ours, and requests to the compiler process.
#pragma once
#include <string>
#include <vector>

#include "capi/objects.h"

namespace hexforge::capi {

// A tensor that a client declares, with its data where it is static; throws Failure with a code of QnnTensor.
Tensor read_tensor(const Qnn_Tensor_t& given, bool needs_data);
// The parts that both versions of the structure have.
const Qnn_TensorV1_t& fields_of(const Qnn_Tensor_t& tensor, Qnn_ErrorHandle_t code);
void set_id(Qnn_Tensor_t& tensor, std::uint32_t id);
// Bytes that one element takes in a client's buffer; 0 for a type that has none.
std::uint32_t element_bytes(Qnn_DataType_t type);
const char* data_type_name(Qnn_DataType_t type);

// An op's parameters, checked and copied.
std::vector<Param> read_params(const Qnn_OpConfigV1_t& op, Qnn_ErrorHandle_t code);
const Qnn_OpConfigV1_t& fields_of(const Qnn_OpConfig_t& op, Qnn_ErrorHandle_t code);
std::string checked_text(const char* text, const char* what, Qnn_ErrorHandle_t code);

// A request on its way: JSON, and the arrays that it names by number.
class Request {
 public:
  Request(const char* call, const char* backend, const Options& options);
  void context(std::uint64_t number, const std::string& graph);
  void graph(const std::vector<Tensor>& tensors, const std::vector<Node>& nodes, bool with_names = true);
  Json& json() { return json_; }
  std::string text();
  std::vector<Blob> arrays;
  std::string key() const;  // what two requests that ask the same have in common

 private:
  void tensor(const Tensor& tensor, std::size_t number, bool with_names);
  std::int64_t put(const void* data, std::size_t bytes);
  Json json_;
  bool open_ = true;
};

// A tensor of a compiled context as a client's structure, which points into `names`, `dims` and `pairs` that live on.
struct DescribedTensor {
  std::string name;
  std::vector<std::uint32_t> dims;
  std::vector<Qnn_ScaleOffset_t> pairs;
  std::vector<float> scales;
  std::vector<std::int32_t> offsets;
};
Qnn_Tensor_t describe(const TensorInfo& info, Qnn_TensorType_t type, DescribedTensor& kept);
Qnn_DataType_t data_type_of(const TensorInfo& info);

}  // namespace hexforge::capi
