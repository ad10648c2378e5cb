// SPDX-License-Identifier: Apache-2.0
// QnnBackend and QnnSignal.
#include <chrono>

#include "capi/functions.h"
#include "capi/simulated/process.h"
#include "capi/system_calls/system_calls.h"
#include "capi/tensors.h"

namespace hexforge::capi {
namespace {

constexpr std::size_t kMostValidationData = 1 << 20;  // larger constants are not looked at by checks
constexpr std::size_t kMostValidated = 65536;

// An op with its tensors, as a graph of its own: one place for each tensor, by its name.
struct LoneOp {
  std::vector<Tensor> tensors;
  std::vector<Node> nodes;
};

LoneOp lone_op(const Qnn_OpConfig_t& config) {
  constexpr auto code = static_cast<Qnn_ErrorHandle_t>(QNN_BACKEND_ERROR_INVALID_ARGUMENT);
  const Qnn_OpConfigV1_t& given = fields_of(config, code);
  LoneOp op;
  Node node;
  node.name = given.name && *given.name ? checked_text(given.name, "an op", code) : std::string("op");
  node.package = checked_text(given.packageName, "an op's package", code);
  node.type = checked_text(given.typeName, "an op's type", code);
  node.params = read_params(given, code);
  const auto place = [&](const Qnn_Tensor_t& tensor) {
    Tensor read = read_tensor(tensor, false);  // ExecuTorch asks before it has the data of constants
    for (std::size_t i = 0; i < op.tensors.size(); ++i)
      if (op.tensors[i].name == read.name) return i;
    if (read.data.size() > kMostValidationData) {
      read.data.clear();
      read.has_data = false;
    }
    op.tensors.push_back(std::move(read));
    return op.tensors.size() - 1;
  };
  for (std::uint32_t i = 0; i < given.numOfInputs; ++i) node.inputs.push_back(place(given.inputTensors[i]));
  for (std::uint32_t i = 0; i < given.numOfOutputs; ++i) node.outputs.push_back(place(given.outputTensors[i]));
  op.nodes.push_back(std::move(node));
  return op;
}

void apply_signal_config(Signal& signal, const QnnSignal_Config_t** config) {
  for (; config && *config; ++config) switch (static_cast<std::uint32_t>((*config)->option)) {
      case QNN_SIGNAL_CONFIG_OPTION_ABORT: signal.timeout_us = 0; break;
      case QNN_SIGNAL_CONFIG_OPTION_TIMEOUT: signal.timeout_us = (*config)->timeoutDurationUs; break;
      default:
        throw Failure(QNN_SIGNAL_ERROR_INVALID_ARGUMENT,
                      "signal option " + std::to_string((*config)->option) + " is not known");
    }
}

}  // namespace

const Library kHtp = {"htp", "HTP_QTI_AISW", QNN_BACKEND_ID_HTP, {5, 39, 0}};
const Library kCpu = {"cpu", "CPU_QTI_AISW", QNN_BACKEND_ID_CPU, {1, 2, 0}};
const Library kGpu = {"gpu", "GPU_QTI_AISW", QNN_BACKEND_ID_GPU, {3, 7, 0}};
const Library kSaver = {"saver", "SAVER_QTI_AISW", QNN_BACKEND_ID_SAVER, {1, 0, 0}};

void require_one_library(const char* call) {
  const auto paths = loaded_libraries();
  if (paths.size() < 2) return;
  std::string all;
  for (const std::string& each : paths) all += (all.empty() ? "" : ", ") + each;
  throw Failure(QNN_COMMON_ERROR_LOADING_BINARIES,
                std::string(call) + ": the library is loaded from " + all + "; one process uses one copy");
}

std::uint64_t now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

std::shared_ptr<Logger> logger_of(const std::shared_ptr<Backend>& backend) {
  return backend ? backend->logger : nullptr;
}

std::shared_ptr<Backend> backend_of(Qnn_BackendHandle_t handle) {
  auto backend = Handles::all().find<Backend>(handle);
  if (!backend)
    throw Failure(QNN_BACKEND_ERROR_INVALID_HANDLE, "there is no such backend: it was freed, or never created");
  return backend;
}

Qnn_ErrorHandle_t backend_create(const Library& library, Qnn_LogHandle_t logger, const QnnBackend_Config_t** config,
                                 Qnn_BackendHandle_t* backend) {
  std::shared_ptr<Logger> log;
  return guarded(
      "QnnBackend_create", [&] { return log; },
      [&] {
        required(backend, QNN_BACKEND_ERROR_INVALID_ARGUMENT, "backend");
        if (logger) log = Handles::all().find<Logger>(logger);
        if (logger && !log) throw Failure(QNN_BACKEND_ERROR_INVALID_ARGUMENT, "there is no such logger");
        for (; config && *config; ++config)
          if ((*config)->option == QNN_BACKEND_CONFIG_OPTION_PLATFORM)
            throw Failure(QNN_BACKEND_ERROR_NOT_SUPPORTED, "platform options are not known here; leave them out");
        *backend = Handles::all().add(std::make_shared<Backend>(library, log));
      });
}

Qnn_ErrorHandle_t backend_set_config(Qnn_BackendHandle_t handle, const QnnBackend_Config_t**) {
  return guarded("QnnBackend_setConfig", no_logger, [&] {
    backend_of(handle);
    throw Failure(QNN_BACKEND_ERROR_NOT_SUPPORTED, "a backend's configuration cannot be changed");
  });
}

Qnn_ErrorHandle_t backend_get_api_version(const Library& library, Qnn_ApiVersion_t* version) {
  return guarded("QnnBackend_getApiVersion", no_logger, [&] {
    *required(version, QNN_BACKEND_ERROR_INVALID_ARGUMENT, "version") = {
        {QNN_API_VERSION_MAJOR, QNN_API_VERSION_MINOR, QNN_API_VERSION_PATCH}, library.version};
  });
}

Qnn_ErrorHandle_t backend_get_build_id(const char** id) {
  // Clients read an SDK's version in it (ExecuTorch looks for "v" and two numbers): that whose ops and rules we follow.
  constexpr const char* build_id = "v2.48.0.hexforge " HEXFORGE_VERSION;
  return guarded("QnnBackend_getBuildId", no_logger,
                 [&] { *required(id, QNN_BACKEND_ERROR_INVALID_ARGUMENT, "id") = build_id; });
}

Qnn_ErrorHandle_t backend_register_op_package(Qnn_BackendHandle_t handle, const char* path, const char* provider,
                                              const char* target) {
  std::shared_ptr<Backend> backend;
  return guarded(
      "QnnBackend_registerOpPackage", [&] { return logger_of(backend); },
      [&] {
        backend = backend_of(handle);
        require_one_library("QnnBackend_registerOpPackage");
        constexpr auto code = static_cast<Qnn_ErrorHandle_t>(QNN_BACKEND_ERROR_INVALID_ARGUMENT);
        std::string spec = checked_text(path, "the package", code) + ":" + checked_text(provider, "the provider", code);
        if (target) spec += std::string(":") + target;
        Request request("package", backend->library.backend, {});
        request.json().key("package").text(spec);
        try {
          Compiler::of_process().ask(request.text());
        } catch (const Failure& failure) {
          if (failure.code == QNN_COMMON_ERROR_SYSTEM_COMMUNICATION) throw;
          throw Failure(QNN_BACKEND_ERROR_OP_PACKAGE_REGISTRATION_FAILED, failure.what());
        }
      });
}

Qnn_ErrorHandle_t backend_get_supported_operations(Qnn_BackendHandle_t handle, std::uint32_t* count,
                                                   const QnnBackend_OperationName_t** operations) {
  std::shared_ptr<Backend> backend;
  return guarded(
      "QnnBackend_getSupportedOperations", [&] { return logger_of(backend); },
      [&] {
        backend = backend_of(handle);
        required(count, QNN_BACKEND_ERROR_INVALID_ARGUMENT, "numOperations");
        required(operations, QNN_BACKEND_ERROR_INVALID_ARGUMENT, "operations");
        std::lock_guard lock(backend->mutex);
        if (backend->operations.empty()) {
          Request request("operations", backend->library.backend, {});
          const Answer answer = Compiler::of_process().ask(request.text());
          std::string name;
          for (const std::byte each : answer.parts.at(0)) {
            if (static_cast<char>(each) != '\n') {
              name += static_cast<char>(each);
              continue;
            }
            backend->operation_texts.push_back(name);
            name.clear();
          }
          if (!name.empty()) backend->operation_texts.push_back(name);
          for (const std::string& text : backend->operation_texts)
            backend->operations.push_back({"qti.aisw", text.c_str(), nullptr});
        }
        *count = static_cast<std::uint32_t>(backend->operations.size());
        *operations = backend->operations.data();
      });
}

Qnn_ErrorHandle_t backend_validate_op_config(Qnn_BackendHandle_t handle, Qnn_OpConfig_t config) {
  std::shared_ptr<Backend> backend;
  return guarded(
      "QnnBackend_validateOpConfig", [&] { return logger_of(backend); },
      [&] {
        backend = backend_of(handle);
        require_one_library("QnnBackend_validateOpConfig");
        const LoneOp op = lone_op(config);
        Request request("validate", backend->library.backend, chip_options(backend->library));
        request.graph(op.tensors, op.nodes, false);
        const std::string key = request.key();
        std::string reason;
        bool known = false;
        {
          std::lock_guard lock(backend->mutex);
          if (const auto found = backend->validated.find(key); found != backend->validated.end()) {
            reason = found->second;
            known = true;
          }
        }
        if (!known) {
          const Answer answer = Compiler::of_process().ask(request.text(), request.arrays);
          if (!answer.parts.empty())
            reason.assign(reinterpret_cast<const char*>(answer.parts[0].data()), answer.parts[0].size());
          std::lock_guard lock(backend->mutex);
          if (backend->validated.size() < kMostValidated) backend->validated.emplace(key, reason);
        }
        if (!reason.empty()) throw Failure(3110, "op '" + op.nodes[0].name + "' (" + op.nodes[0].type + "): " + reason);
      });
}

Qnn_ErrorHandle_t backend_free(Qnn_BackendHandle_t handle) {
  return guarded("QnnBackend_free", no_logger, [&] {
    if (!Handles::all().take<Backend>(handle))
      throw Failure(QNN_BACKEND_ERROR_INVALID_HANDLE, "there is no such backend");
    for (const auto& each : Handles::all().living())
      if (each->kind == Kind::backend || each->kind == Kind::context) return;
    SimulatedProcess::end_all();
  });
}

Qnn_ErrorHandle_t signal_create(Qnn_BackendHandle_t backend, const QnnSignal_Config_t** config,
                                Qnn_SignalHandle_t* signal) {
  return guarded("QnnSignal_create", no_logger, [&] {
    required(signal, QNN_SIGNAL_ERROR_INVALID_ARGUMENT, "signal");
    auto made = std::make_shared<Signal>(backend_of(backend));
    apply_signal_config(*made, config);
    *signal = Handles::all().add(std::move(made));
  });
}

Qnn_ErrorHandle_t signal_set_config(Qnn_SignalHandle_t handle, const QnnSignal_Config_t** config) {
  return guarded("QnnSignal_setConfig", no_logger, [&] {
    const auto signal = Handles::all().find<Signal>(handle);
    if (!signal) throw Failure(QNN_SIGNAL_ERROR_INVALID_HANDLE, "there is no such signal");
    if (signal->in_use) throw Failure(QNN_SIGNAL_ERROR_SIGNAL_IN_USE, "a call observes the signal");
    apply_signal_config(*signal, config);
  });
}

Qnn_ErrorHandle_t signal_trigger(Qnn_SignalHandle_t handle) {
  return guarded("QnnSignal_trigger", no_logger, [&] {
    const auto signal = Handles::all().find<Signal>(handle);
    if (!signal) throw Failure(QNN_SIGNAL_ERROR_INVALID_HANDLE, "there is no such signal");
    if (!signal->in_use) throw Failure(QNN_SIGNAL_ERROR_SIGNAL_IDLE, "no call observes the signal");
    signal->triggered = true;
    std::function<void()> abort;
    {
      std::lock_guard lock(signal->mutex);
      abort = signal->abort;
    }
    if (abort) abort();
  });
}

Qnn_ErrorHandle_t signal_free(Qnn_SignalHandle_t handle) {
  return guarded("QnnSignal_free", no_logger, [&] {
    const auto signal = Handles::all().find<Signal>(handle);
    if (!signal) throw Failure(QNN_SIGNAL_ERROR_INVALID_HANDLE, "there is no such signal");
    if (signal->in_use) throw Failure(QNN_SIGNAL_ERROR_SIGNAL_IN_USE, "a call observes the signal");
    Handles::all().take<Signal>(handle);
  });
}

Observed::Observed(Qnn_SignalHandle_t handle, Qnn_ErrorHandle_t in_use_code) {
  if (!handle) return;
  auto signal = Handles::all().find<Signal>(handle);
  if (!signal) throw Failure(QNN_SIGNAL_ERROR_INVALID_HANDLE, "there is no such signal");
  if (signal->in_use.exchange(true)) throw Failure(in_use_code, "another call observes the signal");
  signal->triggered = false;
  signal_ = std::move(signal);
}

Observed::~Observed() {
  if (!signal_) return;
  std::lock_guard lock(signal_->mutex);
  signal_->abort = nullptr;
  signal_->in_use = false;
}

}  // namespace hexforge::capi
