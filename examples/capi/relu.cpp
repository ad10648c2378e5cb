// SPDX-License-Identifier: Apache-2.0
// QNN's C API from C++: handles that free themselves, errors that are thrown. Builds a graph, runs it, saves it, loads it
// again on another backend handle and runs that: `relu FOLDER_OF_LIBRARIES`. `hexforge lib-path` prints the folder.
#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "QnnInterface.h"
#include "QnnOpDef.h"

namespace {

using Api = QNN_INTERFACE_VER_TYPE;

class Error : public std::runtime_error {
 public:
  Error(const std::string& call, Qnn_ErrorHandle_t code) : std::runtime_error(call + ": error " + std::to_string(code)) {}
};

// The library: opened once, its table of functions, and calls that throw.
class Library {
 public:
  explicit Library(const std::string& path) : opened_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!opened_) throw std::runtime_error(dlerror());
    const auto providers = reinterpret_cast<QnnInterface_GetProvidersFn_t>(dlsym(opened_, "QnnInterface_getProviders"));
    const QnnInterface_t** list = nullptr;
    std::uint32_t count = 0;
    check("QnnInterface_getProviders", providers(&list, &count));
    api = list[0]->QNN_INTERFACE_VER_NAME;
  }
  void check(const char* call, Qnn_ErrorHandle_t code) const {
    const char* text = nullptr;
    if (code == QNN_SUCCESS) return;
    if (api.errorGetVerboseMessage && api.errorGetVerboseMessage(code, &text) == QNN_SUCCESS) {
      const std::string whole = text;
      api.errorFreeVerboseMessage(text);
      throw Error(whole, code);
    }
    throw Error(call, code);
  }
  Api api{};

 private:
  void* opened_;
};

// A handle with the call that frees it.
class Handle {
 public:
  Handle(void* handle, std::function<void(void*)> free) : own_(handle, std::move(free)) {}
  void* get() const { return own_.get(); }

 private:
  std::unique_ptr<void, std::function<void(void*)>> own_;
};

Handle backend(const Library& qnn) {
  Qnn_BackendHandle_t made = nullptr;
  qnn.check("QnnBackend_create", qnn.api.backendCreate(nullptr, nullptr, &made));
  return {made, [&qnn](void* handle) { qnn.api.backendFree(handle); }};
}

Handle context(const Library& qnn, const Handle& owner, const std::vector<std::byte>* binary = nullptr) {
  Qnn_ContextHandle_t made = nullptr;
  if (binary)
    qnn.check("QnnContext_createFromBinary", qnn.api.contextCreateFromBinary(owner.get(), nullptr, nullptr, binary->data(),
                                                                            binary->size(), &made, nullptr));
  else
    qnn.check("QnnContext_create", qnn.api.contextCreate(owner.get(), nullptr, nullptr, &made));
  return {made, [&qnn](void* handle) { qnn.api.contextFree(handle, nullptr); }};
}

using Values = std::array<float, 8>;
std::uint32_t dimensions[] = {1, 8};

Qnn_Tensor_t tensor(const char* name, Qnn_TensorType_t type, Values* values = nullptr) {
  Qnn_Tensor_t made = QNN_TENSOR_INIT;
  made.v1.name = name;
  made.v1.type = type;
  made.v1.dataType = QNN_DATATYPE_FLOAT_32;
  made.v1.rank = 2;
  made.v1.dimensions = dimensions;
  made.v1.memType = QNN_TENSORMEMTYPE_RAW;
  if (values) made.v1.clientBuf = {values->data(), sizeof(Values)};
  return made;
}

Values run(const Library& qnn, const Handle& owner, Values values) {
  Qnn_GraphHandle_t graph = nullptr;
  Values result{};
  Qnn_Tensor_t x = tensor("x", QNN_TENSOR_TYPE_APP_WRITE, &values), y = tensor("y", QNN_TENSOR_TYPE_APP_READ, &result);
  qnn.check("QnnGraph_retrieve", qnn.api.graphRetrieve(owner.get(), "relu", &graph));
  qnn.check("QnnGraph_execute", qnn.api.graphExecute(graph, &x, 1, &y, 1, nullptr, nullptr));
  return result;
}

std::vector<std::byte> prepared(const Library& qnn, const Values& values) {
  const Handle owner = backend(qnn), own = context(qnn, owner);
  Qnn_GraphHandle_t graph = nullptr;
  Qnn_Tensor_t x = tensor("x", QNN_TENSOR_TYPE_APP_WRITE), y = tensor("y", QNN_TENSOR_TYPE_APP_READ);
  qnn.check("QnnGraph_create", qnn.api.graphCreate(own.get(), "relu", nullptr, &graph));
  qnn.check("QnnTensor_createGraphTensor", qnn.api.tensorCreateGraphTensor(graph, &x));
  qnn.check("QnnTensor_createGraphTensor", qnn.api.tensorCreateGraphTensor(graph, &y));
  Qnn_OpConfig_t op = QNN_OPCONFIG_INIT;
  op.v1.name = "relu";
  op.v1.packageName = QNN_OP_PACKAGE_NAME_QTI_AISW;
  op.v1.typeName = QNN_OP_RELU;
  op.v1.numOfInputs = op.v1.numOfOutputs = 1;
  op.v1.inputTensors = &x;
  op.v1.outputTensors = &y;
  qnn.check("QnnGraph_addNode", qnn.api.graphAddNode(graph, op));
  qnn.check("QnnGraph_finalize", qnn.api.graphFinalize(graph, nullptr, nullptr));
  for (const float each : run(qnn, own, values)) std::printf("%g\n", static_cast<double>(each));
  Qnn_ContextBinarySize_t size = 0;
  qnn.check("QnnContext_getBinarySize", qnn.api.contextGetBinarySize(own.get(), &size));
  std::vector<std::byte> binary(size);
  qnn.check("QnnContext_getBinary", qnn.api.contextGetBinary(own.get(), binary.data(), size, &size));
  return binary;
}

}  // namespace

int main(int count, char** arguments) try {
  if (count != 2) throw std::runtime_error("relu FOLDER_OF_LIBRARIES");
  const Library qnn(std::string(arguments[1]) + "/libQnnHtp.so");
  const Values values = {-4, -3, -2, -1, 0, 1, 2, 3};
  const std::vector<std::byte> binary = prepared(qnn, values);
  const Handle owner = backend(qnn), own = context(qnn, owner, &binary);
  if (run(qnn, own, values) != Values{0, 0, 0, 0, 0, 1, 2, 3}) throw std::runtime_error("the loaded graph differs");
  return EXIT_SUCCESS;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return EXIT_FAILURE;
}
