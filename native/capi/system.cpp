// SPDX-License-Identifier: Apache-2.0
// QnnSystemContext: what the bytes of a context hold.
#include "HTP/QnnHtpSystemContext.h"
#include "capi/functions.h"
#include "capi/tensors.h"

namespace hexforge::capi {
namespace {

class System final : public Object {
 public:
  static constexpr Kind kind_of = Kind::system;
  System() : Object(Kind::system) {}
  std::mutex mutex;
  std::deque<DescribedTensor> tensors;
  std::deque<std::vector<Qnn_Tensor_t>> lists;
  std::deque<std::string> names;
  std::vector<QnnSystemContext_GraphInfo_t> graphs;
  std::string build, soc;
  QnnHtpSystemContext_HwBlobInfo_t hardware{};
  QnnSystemContext_BinaryInfo_t info{};
};

std::uint32_t backend_id(const std::string& name) {
  for (const Library* library : {&kHtp, &kCpu, &kGpu, &kSaver})
    if (name == library->backend) return library->id;
  return QNN_BACKEND_ID_NULL;
}

void fill(System& system, const CompiledContext& context) {
  system.tensors.clear();
  system.lists.clear();
  system.names.clear();
  system.graphs.clear();
  const auto list = [&](const std::vector<TensorInfo>& infos, Qnn_TensorType_t type) -> std::vector<Qnn_Tensor_t>& {
    auto& made = system.lists.emplace_back();
    for (const TensorInfo& each : infos) made.push_back(describe(each, type, system.tensors.emplace_back()));
    return made;
  };
  for (const GraphInfo& each : context.graphs()) {
    auto& inputs = list(each.inputs, QNN_TENSOR_TYPE_APP_WRITE);
    auto& outputs = list(each.outputs, QNN_TENSOR_TYPE_APP_READ);
    QnnSystemContext_GraphInfo_t graph{};
    graph.version = QNN_SYSTEM_CONTEXT_GRAPH_INFO_VERSION_1;
    graph.graphInfoV1 = {system.names.emplace_back(each.name).c_str(), static_cast<std::uint32_t>(inputs.size()),
                         inputs.data(), static_cast<std::uint32_t>(outputs.size()), outputs.data()};
    system.graphs.push_back(graph);
  }
  system.build = context.producer();
  system.soc = context.targets().empty() ? std::string() : context.targets()[0].soc;
  system.info = {};
  system.info.version = QNN_SYSTEM_CONTEXT_BINARY_INFO_VERSION_1;
  QnnSystemContext_BinaryInfoV1_t& own = system.info.contextBinaryInfoV1;
  own.backendId = backend_id(context.backend());
  own.buildId = system.build.c_str();
  own.coreApiVersion = {QNN_API_VERSION_MAJOR, QNN_API_VERSION_MINOR, QNN_API_VERSION_PATCH};
  own.socVersion = system.soc.c_str();
  own.contextBlobVersion = {1, 0, 0};
  own.contextBlobSize = static_cast<Qnn_ContextBinarySize_t>(context.bytes());
  if (own.backendId == QNN_BACKEND_ID_HTP) {
    system.hardware = {};
    system.hardware.version = QNN_SYSTEM_CONTEXT_HTP_HW_INFO_BLOB_VERSION_V1;
    auto& blob = system.hardware.contextBinaryHwInfoBlobV1_t;
    for (std::size_t i = 0; i < context.graphs().size(); ++i)
      if (const auto bytes = static_cast<std::uint64_t>(context.graphs()[i].spill_fill_bytes);
          bytes > blob.spillFillBufferSize)
        blob.graphListIndex = static_cast<std::uint32_t>(i), blob.spillFillBufferSize = bytes;
    own.hwInfoBlobVersion = {1, 0, 0};
    own.hwInfoBlobSize = sizeof system.hardware;
    own.hwInfoBlob = &system.hardware;
  }
  own.numGraphs = static_cast<std::uint32_t>(system.graphs.size());
  own.graphs = system.graphs.data();
}

void look_into(QnnSystemContext_Handle_t handle, const void* bytes, std::uint64_t size,
               const QnnSystemContext_BinaryInfo_t** info) {
  const auto system = Handles::all().find<System>(handle);
  if (!system) throw Failure(QNN_SYSTEM_CONTEXT_ERROR_INVALID_HANDLE, "there is no such system context");
  required(bytes, QNN_SYSTEM_CONTEXT_ERROR_INVALID_ARGUMENT, "binaryBuffer");
  required(info, QNN_SYSTEM_CONTEXT_ERROR_INVALID_ARGUMENT, "binaryInfo");
  const std::span<const std::byte> given(static_cast<const std::byte*>(bytes), size);
  std::lock_guard lock(system->mutex);
  try {
    const auto alive = std::make_shared<int>();  // the bytes are the client's, and stay during the call
    fill(*system, *CompiledContext::open_memory(given, alive, {.verify = false, .enable_graphs = {}}));
  } catch (const ContextError& error) { throw Failure(QNN_SYSTEM_CONTEXT_ERROR_MALFORMED_BINARY, error.what()); }
  *info = &system->info;
}

}  // namespace

Qnn_ErrorHandle_t system_context_create(QnnSystemContext_Handle_t* handle) {
  return guarded("QnnSystemContext_create", no_logger, [&] {
    *required(handle, QNN_SYSTEM_CONTEXT_ERROR_INVALID_ARGUMENT, "sysCtxHandle") =
        Handles::all().add(std::make_shared<System>());
  });
}

Qnn_ErrorHandle_t system_context_get_binary_info(QnnSystemContext_Handle_t handle, void* bytes, std::uint64_t size,
                                                 const QnnSystemContext_BinaryInfo_t** info,
                                                 Qnn_ContextBinarySize_t* info_size) {
  return guarded("QnnSystemContext_getBinaryInfo", no_logger, [&] {
    look_into(handle, bytes, size, info);
    if (info_size) *info_size = sizeof(QnnSystemContext_BinaryInfo_t);
  });
}

Qnn_ErrorHandle_t system_context_get_meta_data(QnnSystemContext_Handle_t handle, const void* bytes, std::uint64_t size,
                                               const QnnSystemContext_BinaryInfo_t** info) {
  return guarded("QnnSystemContext_getMetaData", no_logger, [&] { look_into(handle, bytes, size, info); });
}

Qnn_ErrorHandle_t system_context_free(QnnSystemContext_Handle_t handle) {
  return guarded("QnnSystemContext_free", no_logger, [&] {
    if (!Handles::all().take<System>(handle))
      throw Failure(QNN_SYSTEM_CONTEXT_ERROR_INVALID_HANDLE, "there is no such system context");
  });
}

}  // namespace hexforge::capi
