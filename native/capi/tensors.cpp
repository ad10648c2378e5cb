// SPDX-License-Identifier: Apache-2.0
#include "capi/tensors.h"

#include <cstring>

namespace hexforge::capi {
namespace {

constexpr std::uint32_t kMostRank = 32;
constexpr std::uint32_t kMostScales = 1u << 24;
constexpr std::uint32_t kMostTensors = 1u << 16;
constexpr auto kTensorFault = static_cast<Qnn_ErrorHandle_t>(QNN_TENSOR_ERROR_INVALID_TENSOR_PARAM);

struct TypeFacts {
  Qnn_DataType_t type;
  const char* name;
  std::uint32_t bytes;
};
constexpr TypeFacts kTypes[] = {
    {QNN_DATATYPE_INT_8, "INT_8", 1},
    {QNN_DATATYPE_INT_16, "INT_16", 2},
    {QNN_DATATYPE_INT_32, "INT_32", 4},
    {QNN_DATATYPE_INT_64, "INT_64", 8},
    {QNN_DATATYPE_UINT_8, "UINT_8", 1},
    {QNN_DATATYPE_UINT_16, "UINT_16", 2},
    {QNN_DATATYPE_UINT_32, "UINT_32", 4},
    {QNN_DATATYPE_UINT_64, "UINT_64", 8},
    {QNN_DATATYPE_FLOAT_16, "FLOAT_16", 2},
    {QNN_DATATYPE_FLOAT_32, "FLOAT_32", 4},
    {QNN_DATATYPE_FLOAT_64, "FLOAT_64", 8},
    {QNN_DATATYPE_SFIXED_POINT_4, "SFIXED_POINT_4", 1},
    {QNN_DATATYPE_SFIXED_POINT_8, "SFIXED_POINT_8", 1},
    {QNN_DATATYPE_SFIXED_POINT_16, "SFIXED_POINT_16", 2},
    {QNN_DATATYPE_SFIXED_POINT_32, "SFIXED_POINT_32", 4},
    {QNN_DATATYPE_UFIXED_POINT_4, "UFIXED_POINT_4", 1},
    {QNN_DATATYPE_UFIXED_POINT_8, "UFIXED_POINT_8", 1},
    {QNN_DATATYPE_UFIXED_POINT_16, "UFIXED_POINT_16", 2},
    {QNN_DATATYPE_UFIXED_POINT_32, "UFIXED_POINT_32", 4},
    {QNN_DATATYPE_BOOL_8, "BOOL_8", 1},
};

const TypeFacts* facts_of(Qnn_DataType_t type) {
  for (const TypeFacts& each : kTypes)
    if (each.type == type) return &each;
  return nullptr;
}

std::string numbered(char letter, std::size_t number) {
  std::string made(1, letter);
  return made.append(std::to_string(number));
}

[[noreturn]] void wrong(const std::string& name, const std::string& what) {
  throw Failure(kTensorFault, "tensor '" + name + "': " + what);
}

void read_encoding(const Qnn_QuantizeParams_t& given, Tensor& tensor) {
  if (given.encodingDefinition != QNN_DEFINITION_DEFINED) return;
  tensor.quantized = true;
  tensor.encoding = given.quantizationEncoding;
  const auto counted = [&](std::uint32_t count, const void* pointer) {
    if (!count || count > kMostScales || !pointer) wrong(tensor.name, "its encoding has no scales");
  };
  switch (given.quantizationEncoding) {
    case QNN_QUANTIZATION_ENCODING_SCALE_OFFSET:
      tensor.scales = {given.scaleOffsetEncoding.scale};
      tensor.offsets = {given.scaleOffsetEncoding.offset};
      return;
    case QNN_QUANTIZATION_ENCODING_BW_SCALE_OFFSET:
      tensor.bits = given.bwScaleOffsetEncoding.bitwidth;
      tensor.scales = {given.bwScaleOffsetEncoding.scale};
      tensor.offsets = {given.bwScaleOffsetEncoding.offset};
      return;
    case QNN_QUANTIZATION_ENCODING_AXIS_SCALE_OFFSET: {
      const Qnn_AxisScaleOffset_t& own = given.axisScaleOffsetEncoding;
      counted(own.numScaleOffsets, own.scaleOffset);
      tensor.axis = own.axis;
      for (std::uint32_t i = 0; i < own.numScaleOffsets; ++i) {
        tensor.scales.push_back(own.scaleOffset[i].scale);
        tensor.offsets.push_back(own.scaleOffset[i].offset);
      }
      return;
    }
    case QNN_QUANTIZATION_ENCODING_BW_AXIS_SCALE_OFFSET: {
      const Qnn_BwAxisScaleOffset_t& own = given.bwAxisScaleOffsetEncoding;
      counted(own.numElements, own.scales);
      tensor.axis = own.axis;
      tensor.bits = own.bitwidth;
      tensor.scales.assign(own.scales, own.scales + own.numElements);
      if (own.offsets) {
        tensor.offsets.assign(own.offsets, own.offsets + own.numElements);
      } else {
        tensor.offsets.assign(own.numElements, 0);
      }
      return;
    }
    case QNN_QUANTIZATION_ENCODING_BLOCKWISE_EXPANSION: {
      const Qnn_BlockwiseExpansion_t* own = given.blockwiseExpansion;
      if (!own || !own->scaleOffsets || !own->blocksScale8) wrong(tensor.name, "its blockwise encoding has no scales");
      const auto rank = static_cast<std::int64_t>(tensor.dims.size());
      const std::int64_t axis = own->axis < 0 ? own->axis + rank : own->axis;
      if (axis < 0 || axis >= rank) wrong(tensor.name, "the axis of its encoding is outside its dimensions");
      const std::uint32_t slices = tensor.dims[static_cast<std::size_t>(axis)];
      counted(slices, own->scaleOffsets);
      const std::uint64_t blocks = static_cast<std::uint64_t>(slices) * own->numBlocksPerAxis;
      if (!blocks || blocks > kMostScales) wrong(tensor.name, "its blockwise encoding has no blocks");
      tensor.axis = own->axis;
      tensor.blocks = own->numBlocksPerAxis;
      tensor.block_bits = own->blockScaleBitwidth;
      tensor.block_bytes = own->blockScaleStorageType == QNN_BLOCKWISE_EXPANSION_BITWIDTH_SCALE_STORAGE_16 ? 2 : 1;
      for (std::uint32_t i = 0; i < slices; ++i) {
        tensor.scales.push_back(own->scaleOffsets[i].scale);
        tensor.offsets.push_back(own->scaleOffsets[i].offset);
      }
      const auto* bytes = reinterpret_cast<const std::byte*>(own->blocksScale8);
      tensor.block_scales.assign(bytes, bytes + blocks * tensor.block_bytes);
      return;
    }
    default: wrong(tensor.name, "hexforge has no encoding " + std::to_string(given.quantizationEncoding));
  }
}

}  // namespace

std::uint32_t element_bytes(Qnn_DataType_t type) {
  const TypeFacts* facts = facts_of(type);
  return facts ? facts->bytes : 0;
}

const char* data_type_name(Qnn_DataType_t type) {
  const TypeFacts* facts = facts_of(type);
  return facts ? facts->name : nullptr;
}

std::string checked_text(const char* text, const char* what, Qnn_ErrorHandle_t code) {
  if (!text || !*text) throw Failure(code, std::string(what) + " has no name");
  std::string made(text);
  if (!is_utf8(made)) throw Failure(code, std::string(what) + " has a name that is not UTF-8");
  return made;
}

const Qnn_TensorV1_t& fields_of(const Qnn_Tensor_t& tensor, Qnn_ErrorHandle_t code) {
  if (tensor.version != QNN_TENSOR_VERSION_1 && tensor.version != QNN_TENSOR_VERSION_2)
    throw Failure(code, "a tensor has version " + std::to_string(tensor.version) + "; 1 and 2 are known");
  return tensor.v1;  // version 2 begins with the same fields
}

void set_id(Qnn_Tensor_t& tensor, std::uint32_t id) { tensor.v1.id = id; }

Tensor read_tensor(const Qnn_Tensor_t& given, bool needs_data) {
  const Qnn_TensorV1_t& fields = fields_of(given, kTensorFault);
  Tensor tensor;
  tensor.id = fields.id;
  tensor.name = checked_text(fields.name, "a tensor", kTensorFault);
  tensor.type = fields.type;
  tensor.data_type = fields.dataType;
  if (static_cast<unsigned>(fields.type) > QNN_TENSOR_TYPE_NULL) wrong(tensor.name, "has no type that is known");
  if (fields.type == QNN_TENSOR_TYPE_NULL) return tensor;
  const TypeFacts* facts = facts_of(fields.dataType);
  if (!facts) wrong(tensor.name, "has data type " + std::to_string(fields.dataType) + ", which hexforge has not");
  if (fields.dataFormat != QNN_TENSOR_DATA_FORMAT_FLAT_BUFFER)
    wrong(tensor.name, "has data format " + std::to_string(fields.dataFormat) + "; only flat buffers are known");
  if (fields.rank > kMostRank || (fields.rank && !fields.dimensions)) wrong(tensor.name, "has no dimensions");
  std::uint64_t elements = 1;
  for (std::uint32_t i = 0; i < fields.rank; ++i) {
    const std::uint32_t size = fields.dimensions[i];
    tensor.dims.push_back(size);
    if (size && elements > (std::uint64_t{1} << 40) / size) wrong(tensor.name, "has more elements than any memory");
    elements *= size;
  }
  read_encoding(fields.quantizeParams, tensor);
  if (given.version == QNN_TENSOR_VERSION_2) {
    const Qnn_TensorV2_t& more = given.v2;
    if (more.sparseParams.type != QNN_SPARSE_LAYOUT_UNDEFINED && fields.dataFormat == QNN_TENSOR_DATA_FORMAT_SPARSE)
      throw Failure(QNN_TENSOR_ERROR_UNSUPPORTED_TENSOR_PARAM, "tensor '" + tensor.name + "': is sparse");
    if (more.isDynamicDimensions)
      tensor.dynamic.assign(more.isDynamicDimensions, more.isDynamicDimensions + fields.rank);
  }
  if (fields.type == QNN_TENSOR_TYPE_STATIC && fields.memType == QNN_TENSORMEMTYPE_RAW) {
    if (!fields.clientBuf.data && !needs_data) return tensor;
    if (!fields.clientBuf.data) wrong(tensor.name, "is static and has no data");
    const std::uint64_t wanted = elements * facts->bytes;
    if (fields.clientBuf.dataSize != wanted)
      wrong(tensor.name, "needs " + std::to_string(wanted) + " bytes of data, " +
                             std::to_string(fields.clientBuf.dataSize) + " were given");
    const auto* bytes = static_cast<const std::byte*>(fields.clientBuf.data);
    tensor.data.assign(bytes, bytes + wanted);
    tensor.has_data = true;
  }
  return tensor;
}

const Qnn_OpConfigV1_t& fields_of(const Qnn_OpConfig_t& op, Qnn_ErrorHandle_t code) {
  if (op.version != QNN_OPCONFIG_VERSION_1)
    throw Failure(code, "the op has version " + std::to_string(op.version) + "; 1 is known");
  const Qnn_OpConfigV1_t& own = op.v1;
  if ((own.numOfParams && !own.params) || (own.numOfInputs && !own.inputTensors) ||
      (own.numOfOutputs && !own.outputTensors))
    throw Failure(code, "the op has parameters or tensors that are NULL");
  if (own.numOfParams > kMostTensors || own.numOfInputs > kMostTensors || own.numOfOutputs > kMostTensors)
    throw Failure(code, "the op has more than 65536 parameters or tensors");
  return own;
}

std::vector<Param> read_params(const Qnn_OpConfigV1_t& op, Qnn_ErrorHandle_t code) {
  std::vector<Param> params;
  for (std::uint32_t i = 0; i < op.numOfParams; ++i) {
    const Qnn_Param_t& given = op.params[i];
    Param param;
    param.name = checked_text(given.name, "a parameter", code);
    if (given.paramType == QNN_PARAMTYPE_TENSOR) {
      param.tensor = read_tensor(given.tensorParam, true);
      if (!param.tensor->has_data) throw Failure(code, "parameter '" + param.name + "' has no data");
    } else if (given.paramType == QNN_PARAMTYPE_SCALAR) {
      param.scalar = given.scalarParam;
      if (given.scalarParam.dataType == QNN_DATATYPE_STRING)
        param.text = checked_text(given.scalarParam.stringValue, "a text", code);
      else if (!facts_of(given.scalarParam.dataType))
        throw Failure(code,
                      "parameter '" + param.name + "' has data type " + std::to_string(given.scalarParam.dataType));
    } else {
      throw Failure(code, "parameter '" + param.name + "' is neither a number nor a tensor");
    }
    params.push_back(std::move(param));
  }
  return params;
}

Request::Request(const char* call, const char* backend, const Options& options) {
  json_.begin('{').key("call").text(call).key("backend").text(backend).key("options").begin('{');
  for (const auto& [key, value] : options) json_.key(key).text(value);
  json_.end('}');
}

void Request::context(std::uint64_t number, const std::string& graph) {
  json_.key("context").number(static_cast<std::int64_t>(number));
  if (!graph.empty()) json_.key("graph").text(graph);
}

std::int64_t Request::put(const void* data, std::size_t bytes) {
  arrays.emplace_back(static_cast<const std::byte*>(data), bytes);
  return static_cast<std::int64_t>(arrays.size()) - 1;
}

void Request::tensor(const Tensor& tensor, std::size_t number, bool with_names) {
  json_.begin('{').key("name").text(with_names ? tensor.name : numbered('t', number));
  json_.key("type").number(tensor.type).key("dtype").number(tensor.data_type).key("dims").begin('[');
  for (const std::uint32_t size : tensor.dims) json_.number(size);
  json_.end(']').key("data");
  if (tensor.has_data) {
    json_.number(put(tensor.data.data(), tensor.data.size()));
  } else {
    json_.null();
  }
  if (!tensor.dynamic.empty()) {
    json_.key("dynamic").begin('[');
    for (const std::uint8_t each : tensor.dynamic) json_.number(each);
    json_.end(']');
  }
  if (tensor.quantized) {
    json_.key("encoding").begin('{').key("kind").number(tensor.encoding).key("axis").number(tensor.axis);
    json_.key("bits")
        .number(tensor.bits)
        .key("blocks")
        .number(tensor.blocks)
        .key("block_bits")
        .number(tensor.block_bits);
    json_.key("block_bytes").number(tensor.block_bytes);
    json_.key("scales").number(put(tensor.scales.data(), tensor.scales.size() * sizeof(float)));
    json_.key("offsets").number(put(tensor.offsets.data(), tensor.offsets.size() * sizeof(std::int32_t)));
    json_.key("block_scales");
    if (tensor.block_scales.empty()) {
      json_.null();
    } else {
      json_.number(put(tensor.block_scales.data(), tensor.block_scales.size()));
    }
    json_.end('}');
  }
  json_.end('}');
}

void Request::graph(const std::vector<Tensor>& tensors, const std::vector<Node>& nodes, bool with_names) {
  json_.key("tensors").begin('[');
  std::size_t number = 0;
  for (const Tensor& each : tensors) tensor(each, number++, with_names);
  for (const Node& node : nodes)
    for (const Param& param : node.params)
      if (param.tensor) tensor(*param.tensor, number++, with_names);
  json_.end(']').key("nodes").begin('[');
  std::size_t of_param = tensors.size(), of_node = 0;
  for (const Node& node : nodes) {
    json_.begin('{').key("name").text(with_names ? node.name : numbered('n', of_node++));
    json_.key("package").text(node.package).key("op").text(node.type).key("params").begin('{');
    for (const Param& param : node.params) {
      json_.key(param.name);
      const Qnn_Scalar_t& s = param.scalar;
      if (param.tensor) {
        json_.begin('{').key("tensor").number(static_cast<std::int64_t>(of_param++)).end('}');
        continue;
      }
      switch (s.dataType) {
        case QNN_DATATYPE_FLOAT_32: json_.real(s.floatValue); break;
        case QNN_DATATYPE_FLOAT_64: json_.real(s.doubleValue); break;
        case QNN_DATATYPE_BOOL_8: json_.boolean(s.bool8Value != 0); break;
        case QNN_DATATYPE_STRING: json_.text(param.text); break;
        case QNN_DATATYPE_INT_8:
        case QNN_DATATYPE_SFIXED_POINT_8: json_.number(s.int8Value); break;
        case QNN_DATATYPE_INT_16:
        case QNN_DATATYPE_SFIXED_POINT_16: json_.number(s.int16Value); break;
        case QNN_DATATYPE_INT_32:
        case QNN_DATATYPE_SFIXED_POINT_32: json_.number(s.int32Value); break;
        case QNN_DATATYPE_UINT_8:
        case QNN_DATATYPE_UFIXED_POINT_8: json_.number(s.uint8Value); break;
        case QNN_DATATYPE_UINT_16:
        case QNN_DATATYPE_UFIXED_POINT_16: json_.number(s.uint16Value); break;
        case QNN_DATATYPE_UINT_32:
        case QNN_DATATYPE_UFIXED_POINT_32: json_.number(s.uint32Value); break;
        default: json_.number(s.int64Value); break;
      }
    }
    json_.end('}');
    for (const auto& [side, places] : {std::pair("inputs", &node.inputs), std::pair("outputs", &node.outputs)}) {
      json_.key(side).begin('[');
      for (const std::size_t place : *places) json_.number(static_cast<std::int64_t>(place));
      json_.end(']');
    }
    json_.end('}');
  }
  json_.end(']');
}

std::string Request::text() {
  if (open_) json_.end('}');
  open_ = false;
  return json_.done();
}

std::string Request::key() const {
  std::string key = json_.done();
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const Blob& array : arrays) {
    for (const std::byte each : array) hash = (hash ^ static_cast<std::uint64_t>(each)) * 0x100000001b3ull;
    hash = (hash ^ array.size()) * 0x100000001b3ull;
  }
  return key + std::to_string(hash);
}

Qnn_DataType_t data_type_of(const TensorInfo& info) {
  const bool fixed = info.fixed_point();
  switch (info.dtype) {
    case DType::int4: return QNN_DATATYPE_SFIXED_POINT_4;
    case DType::uint4: return QNN_DATATYPE_UFIXED_POINT_4;
    case DType::int8: return fixed ? QNN_DATATYPE_SFIXED_POINT_8 : QNN_DATATYPE_INT_8;
    case DType::int16: return fixed ? QNN_DATATYPE_SFIXED_POINT_16 : QNN_DATATYPE_INT_16;
    case DType::int32: return fixed ? QNN_DATATYPE_SFIXED_POINT_32 : QNN_DATATYPE_INT_32;
    case DType::int64: return QNN_DATATYPE_INT_64;
    case DType::uint8: return fixed ? QNN_DATATYPE_UFIXED_POINT_8 : QNN_DATATYPE_UINT_8;
    case DType::uint16: return fixed ? QNN_DATATYPE_UFIXED_POINT_16 : QNN_DATATYPE_UINT_16;
    case DType::uint32: return fixed ? QNN_DATATYPE_UFIXED_POINT_32 : QNN_DATATYPE_UINT_32;
    case DType::uint64: return QNN_DATATYPE_UINT_64;
    case DType::float16: return QNN_DATATYPE_FLOAT_16;
    case DType::float32: return QNN_DATATYPE_FLOAT_32;
    case DType::boolean: return QNN_DATATYPE_BOOL_8;
    default: return QNN_DATATYPE_UNDEFINED;
  }
}

Qnn_Tensor_t describe(const TensorInfo& info, Qnn_TensorType_t type, DescribedTensor& kept) {
  kept.name = info.name;
  kept.dims.assign(info.dims.begin(), info.dims.end());
  Qnn_Tensor_t tensor = QNN_TENSOR_INIT;
  Qnn_TensorV1_t& fields = tensor.v1;
  fields.id = info.id;
  fields.name = kept.name.c_str();
  fields.type = type;
  fields.dataType = data_type_of(info);
  fields.rank = static_cast<std::uint32_t>(kept.dims.size());
  fields.dimensions = kept.dims.data();
  fields.memType = QNN_TENSORMEMTYPE_RAW;
  const Encoding& encoding = info.encoding;
  Qnn_QuantizeParams_t& params = fields.quantizeParams;
  if (encoding.kind == Encoding::Kind::scale_offset && !encoding.scales.empty()) {
    params.encodingDefinition = QNN_DEFINITION_DEFINED;
    params.quantizationEncoding = QNN_QUANTIZATION_ENCODING_SCALE_OFFSET;
    params.scaleOffsetEncoding = {static_cast<float>(encoding.scales[0]),
                                  static_cast<std::int32_t>(encoding.offsets[0])};
  } else if (encoding.kind == Encoding::Kind::axis_scale_offset) {
    for (std::size_t i = 0; i < encoding.scales.size(); ++i)
      kept.pairs.push_back({static_cast<float>(encoding.scales[i]), static_cast<std::int32_t>(encoding.offsets[i])});
    params.encodingDefinition = QNN_DEFINITION_DEFINED;
    params.quantizationEncoding = QNN_QUANTIZATION_ENCODING_AXIS_SCALE_OFFSET;
    params.axisScaleOffsetEncoding = {static_cast<std::int32_t>(encoding.axis),
                                      static_cast<std::uint32_t>(kept.pairs.size()), kept.pairs.data()};
  }
  return tensor;
}

}  // namespace hexforge::capi
