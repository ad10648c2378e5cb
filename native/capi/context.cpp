// SPDX-License-Identifier: Apache-2.0
// QnnContext.
#include <cstdlib>
#include <cstring>

#include "HTP/QnnHtpContext.h"
#include "capi/check/check.h"
#include "capi/functions.h"
#include "capi/htp_options.h"
#include "capi/simulated/context.h"
#include "capi/tensors.h"
#include "core/aligned_memory.h"

namespace hexforge::capi {
namespace {

constexpr std::uint32_t kExtendedUdma = 11;
constexpr std::size_t kMostNames = 4096;  // of graphs in a configuration

// Options that the device has by a name of its own.
constexpr HtpOption kHtpOptions[] = {
    {QNN_HTP_CONTEXT_CONFIG_OPTION_PREPARE_ONLY, "prepare_only", 0},
    {QNN_HTP_CONTEXT_CONFIG_OPTION_SHARE_RESOURCES, "share_resources", 0},
    {QNN_HTP_CONTEXT_CONFIG_OPTION_FILE_READ_MEMORY_BUDGET, "file_read_memory_budget_in_mb", sizeof(std::uint64_t)},
    {QNN_HTP_CONTEXT_CONFIG_OPTION_IO_MEM_ESTIMATION, "io_mem_estimation", 0},
    {QNN_HTP_CONTEXT_CONFIG_OPTION_DSP_MEMORY_PROFILING_ENABLED, "dsp_memory_profiling_enabled", 0},
    {QNN_HTP_CONTEXT_CONFIG_OPTION_INIT_ACCELERATION, "init_acceleration", 0},
    {QNN_HTP_CONTEXT_CONFIG_OPTION_SKIP_VALIDATION_ON_BINARY_SECTION, "skip_validation_on_binary_section", 0},
    {QNN_HTP_CONTEXT_CONFIG_OPTION_LORA_WEIGHT_SHARING_ENABLED, "lora_weight_sharing_enabled", 0},
};

void register_group(Context& context, const QnnHtpContext_GroupRegistration_t& group, const char* key,
                    const char* option) {
  if (!context.group_key.empty() && context.group_key != key)
    throw Failure(QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE,
                  "REGISTER_MULTI_CONTEXTS and REGISTER_CONCURRENT_RESOURCE_SHARING exclude each other");
  const auto first = group.firstGroupHandle ? context_of(group.firstGroupHandle) : nullptr;
  context.group_key = key;
  context.joins_group = first != nullptr;
  context.first_of_group = first;
  context.spill_fill_bytes = group.maxSpillFillBuffer;
  context.group = first ? first->group : next_number();
  context.group_reason = option;
}

void apply_custom(Context& context, const QnnHtpContext_CustomConfig_t& config) {
  const auto option = static_cast<std::uint32_t>(config.option);
  for (const HtpOption& each : kHtpOptions)
    if (each.option == option) {
      const std::uint64_t value = number_of(config, each.bytes ? each.bytes : 1);
      context.creation[each.key] = each.bytes ? std::to_string(value) : value & 0xFF ? "true" : "false";
    }
  switch (option) {
    case QNN_HTP_CONTEXT_CONFIG_OPTION_WEIGHT_SHARING_ENABLED:
      context.weight_sharing = number_of(config, 1) != 0;
      return;
    case QNN_HTP_CONTEXT_CONFIG_OPTION_PREPARE_ONLY: context.prepare_only = number_of(config, 1) != 0; return;
    case kExtendedUdma:
      if (number_of(config, 1)) context.options["extended_udma"] = "1";  // a flag at the same place
      return;
    case QNN_HTP_CONTEXT_CONFIG_OPTION_REGISTER_MULTI_CONTEXTS:
      register_group(context, config.groupRegistration, "register_multi_contexts",
                     "QNN_HTP_CONTEXT_CONFIG_OPTION_REGISTER_MULTI_CONTEXTS");
      return;
    case QNN_HTP_CONTEXT_CONFIG_OPTION_REGISTER_CONCURRENT_RESOURCE_SHARING:
      register_group(context, config.concurrentGroupRegistration, "register_concurrent_resource_sharing",
                     "QNN_HTP_CONTEXT_CONFIG_OPTION_REGISTER_CONCURRENT_RESOURCE_SHARING");
      return;
    case QNN_HTP_CONTEXT_CONFIG_OPTION_LORA_WEIGHT_SHARING_ENABLED:
      if (number_of(config, 1)) context.options["lora_weight_sharing"] = "1";
      return;
    case QNN_HTP_CONTEXT_CONFIG_OPTION_SHARE_RESOURCES: context.shares_resources = number_of(config, 1) != 0; return;
    case QNN_HTP_CONTEXT_CONFIG_OPTION_SHARE_RESOURCES_OPTIMIZATION_TYPE:
      switch (number_of(config, sizeof(std::uint32_t))) {
        case SEQUENTIAL_WITH_VA_OPTIMIZATION: context.sharing_type = "SEQUENTIAL_WITH_VA_OPTIMIZATION"; return;
        case SEQUENTIAL_WITHOUT_VA_OPTIMIZATION: context.sharing_type = "SEQUENTIAL_WITHOUT_VA_OPTIMIZATION"; return;
        case CONCURRENT_OPTIMIZATION: context.sharing_type = "CONCURRENT_OPTIMIZATION"; return;
        default:
          throw Failure(QNN_CONTEXT_ERROR_INVALID_CONFIG,
                        "share resources optimization type " + std::to_string(number_of(config, 4)) + " is not known");
      }
    default:
      for (const HtpOption& each : kHtpOptions)
        if (each.option == option) return;
      refuse_declared_only(option, "QnnContext");
      if (context.backend->logger)
        context.backend->logger->say(QNN_LOG_LEVEL_WARN, "QnnContext: option " + std::to_string(option) +
                                                             " of the HTP is not known here, and is left out");
  }
}

// Names of graphs, up to a null pointer.
std::vector<std::string> names_of(const char* const* names) {
  std::vector<std::string> made;
  for (; names && *names; ++names) {
    if (made.size() >= kMostNames) throw Failure(QNN_CONTEXT_ERROR_INVALID_CONFIG, "a list of graphs has no end");
    made.push_back(checked_text(*names, "a graph", QNN_CONTEXT_ERROR_INVALID_CONFIG));
  }
  return made;
}

std::string json_of(const std::vector<std::string>& names) {
  Json json;
  json.begin('[');
  for (const std::string& name : names) json.text(name);
  return json.end(']').done();
}

std::shared_ptr<Context> made_context(Qnn_BackendHandle_t backend, Qnn_DeviceHandle_t device) {
  auto owner = backend_of(backend);
  std::shared_ptr<Device> on;
  if (device) on = Handles::all().find<Device>(device);
  if (device && !on) throw Failure(QNN_CONTEXT_ERROR_INVALID_ARGUMENT, "there is no such device");
  const bool simulated = owner->library.id == QNN_BACKEND_ID_HTP;
  auto made = std::make_shared<Context>(std::move(owner), std::move(on));
  if (simulated) made->simulated = made->device ? made->device->simulated : SimulatedProcess::attached();
  return made;
}

Port port_of(const TensorInfo& info) {
  return {info.name, info.id, static_cast<std::uint64_t>(info.bytes), static_cast<std::uint64_t>(info.elements())};
}

// Graphs of a file, each ready to be retrieved; what needs Python is handed to the compiler process.
void open_graphs(const std::shared_ptr<Context>& context) {
  context->compiled = CompiledContext::open_memory(context->binary.bytes(), context->binary.data,
                                                   {.verify = true, .enable_graphs = context->enabled_graphs});
  if (context->compiled->backend() != context->backend->library.backend &&
      context->backend->library.id != QNN_BACKEND_ID_SAVER)
    throw Failure(QNN_CONTEXT_ERROR_CREATE_FROM_BINARY,
                  "the context is for the backend " + context->compiled->backend());
  bool handed_over = false;
  for (const GraphInfo& info : context->compiled->graphs()) {
    auto graph = std::make_shared<Graph>(context, info.name);
    graph->compiled = context->compiled;
    for (const TensorInfo& each : info.inputs) graph->inputs.push_back(port_of(each));
    for (const TensorInfo& each : info.outputs) graph->outputs.push_back(port_of(each));
    bool needs_python = check::recording();
    try {
      graph->program = context->compiled->graph(info.name);
    } catch (const ContextError& error) {
      if (error.kind != ContextError::Kind::unsupported) throw;
      needs_python = true;
    }
    if (needs_python && !handed_over) {
      Request request("load", context->backend->library.backend, context->all_options({}));
      request.context(context->number, "");
      const Blob file = context->binary.bytes();
      Compiler::of_process().ask(request.text(), {&file, 1});
      handed_over = true;
    }
    graph->timeline = context->compiled->timeline(info.name);
    graph->finalized = true;
    context->graphs.push_back(std::move(graph));
  }
  context->from_binary = true;
}

std::shared_ptr<Context> opened(Qnn_BackendHandle_t backend, Qnn_DeviceHandle_t device,
                                const QnnContext_Config_t** config, const void* bytes, Qnn_ContextBinarySize_t size,
                                const QnnContext_Config_t** list_config = nullptr) {
  if (!bytes || !size) throw Failure(QNN_CONTEXT_ERROR_INVALID_ARGUMENT, "there are no bytes of a context");
  auto context = made_context(backend, device);
  apply_context_config(*context, config, false);
  if (!context->simulated) check_creation(*context);  // else the device judges it with the binary
  if (list_config) {
    apply_context_config(*context, list_config, false);
    context->creation.erase("share_resources");  // of the list, and not of its members
  }
  context->binary = copied(bytes, size);
  if (!CompiledContext::recognises(context->binary.bytes()))
    throw Failure(
        QNN_CONTEXT_ERROR_CREATE_FROM_BINARY,
        "the bytes are no context of hexforge (one of Qualcomm's SDK?); prepare the graphs again with hexforge");
  open_graphs(context);
  check_suits(*context);
  if (!context->group && context->persistent_binary && context->memory_limited) {
    context->group = next_number();
    context->group_reason = "graphs of a context with QNN_CONTEXT_CONFIG_MEMORY_LIMIT_HINT are switched";
  }
  return context;
}

// A context of a list, and what became of it.
struct ListMember {
  QnnContext_ParamsV1_t params;
  std::shared_ptr<Context> context;
  Qnn_ErrorHandle_t status;
};

// Those that could be opened are created on the device together.
void place_members(std::vector<ListMember>& members, const std::shared_ptr<Logger>& logger) {
  std::vector<std::shared_ptr<Context>> opened;
  std::vector<ListMember*> own;
  for (ListMember& each : members)
    if (!each.status) {
      opened.push_back(each.context);
      own.push_back(&each);
    }
  std::vector<std::string> messages;
  const std::vector<Qnn_ErrorHandle_t> codes = place_list_on_device(opened, messages);
  for (std::size_t i = 0; i < own.size(); ++i) {
    own[i]->status = codes[i];
    if (codes[i] && logger) logger->say(QNN_LOG_LEVEL_ERROR, messages[i]);
  }
}

// Handles of the context and of its graphs.
Qnn_ContextHandle_t published(const std::shared_ptr<Context>& context) {
  for (const auto& graph : context->graphs) Handles::all().add(graph);
  return Handles::all().add(context);
}

const Binary& whole_binary(Context& context) {
  if (context.binary.data) return context.binary;
  if (context.graphs.empty()) throw Failure(QNN_CONTEXT_ERROR_NOT_FINALIZED, "the context has no graph");
  for (const auto& graph : context.graphs)
    if (!graph->finalized)
      throw Failure(QNN_CONTEXT_ERROR_NOT_FINALIZED, "graph '" + graph->name + "' is not finalized");
  if (context.backend->library.id == QNN_BACKEND_ID_SAVER)
    throw Failure(QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE, "the Saver records calls; it has no context binary");
  if (context.graphs.size() == 1) return context.binary = context.graphs[0]->binary;
  Request request("binary", context.backend->library.backend, context.all_options(context.graphs[0]->options));
  request.context(context.number, "");
  request.json().key("weight_sharing").boolean(context.weight_sharing).key("graphs").begin('[');
  for (const auto& graph : context.graphs) request.json().text(graph->name);
  request.json().end(']');
  const Answer answer = Compiler::of_process().ask(request.text());
  context.binary = copied(answer.parts.at(0).data(), answer.parts.at(0).size());
  return context.binary;
}

}  // namespace

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> number{1};
  return number++;
}

Binary copied(const void* data, std::size_t size) {
  Binary binary;
  const std::size_t room = (size + 127) / 64 * 64;
  auto* memory = static_cast<std::byte*>(allocate_aligned(64, room));
  if (!memory) throw std::bad_alloc();
  binary.data = std::shared_ptr<std::byte>(memory, free_aligned);
  binary.size = size;
  if (size) std::memcpy(memory, data, size);
  return binary;
}

Context::Context(std::shared_ptr<Backend> owner, std::shared_ptr<Device> on)
    : Object(Kind::context), backend(std::move(owner)), device(std::move(on)), number(next_number()) {
  if (device) ++device->contexts;
}

Context::~Context() {
  finish_queue();
  if (device) --device->contexts;
}

Options Context::all_options(const Options& own) const {
  Options all = device ? device->options : Options{};
  if (!device && simulated) all["soc_model"] = std::to_string(simulated->soc_model());
  for (const auto& [key, value] : options) all[key] = value;
  for (const auto& [key, value] : own) all[key] = value;
  return all;
}

void Context::run_later(std::function<void()> task) {
  std::lock_guard lock(queue_mutex);
  if (queue.size() >= queue_depth)
    throw Failure(QNN_GRAPH_ERROR_EXECUTION_ASYNC_FIFO_FULL, std::to_string(queue_depth) + " executions wait already");
  queue.push_back(std::move(task));
  if (!runner.joinable())
    runner = std::thread([this] {
      std::unique_lock held(queue_mutex);
      for (;;) {
        queue_changed.wait(held, [this] { return closing || !queue.empty(); });
        if (queue.empty()) return;
        auto next = std::move(queue.front());
        queue.pop_front();
        held.unlock();
        next();
        next = nullptr;
        held.lock();
      }
    });
  queue_changed.notify_one();
}

void Context::finish_queue() {
  {
    std::lock_guard lock(queue_mutex);
    if (!runner.joinable()) return;
    closing = true;
    queue_changed.notify_one();
  }
  if (runner.get_id() == std::this_thread::get_id()) {
    runner.detach();
  } else {
    runner.join();
  }
}

std::shared_ptr<Context> context_of(Qnn_ContextHandle_t handle) {
  auto context = Handles::all().find<Context>(handle);
  if (!context)
    throw Failure(QNN_CONTEXT_ERROR_INVALID_HANDLE, "there is no such context: it was freed, or never created");
  return context;
}

void set_queue_depth(Context& context, const QnnContext_AsyncExecutionQueueDepth_t& given) {
  if (given.type != QNN_CONTEXT_ASYNC_EXECUTION_QUEUE_DEPTH_TYPE_NUMERIC || !given.depth ||
      given.depth > Context::kDeepestQueue)
    throw Failure(QNN_CONTEXT_ERROR_INVALID_CONFIG,
                  "the depth of a queue is a number from 1 to " + std::to_string(Context::kDeepestQueue));
  std::lock_guard lock(context.queue_mutex);
  context.queue_depth = given.depth;
}

void apply_context_config(Context& context, const QnnContext_Config_t** config, bool changing) {
  for (; config && *config; ++config) {
    const QnnContext_Config_t& own = **config;
    switch (own.option) {
      case QNN_CONTEXT_CONFIG_OPTION_PRIORITY:
        if (changing) {
          set_priority_on_device(context, own.priority);
        } else {
          priority_name(own.priority, QNN_CONTEXT_ERROR_INVALID_CONFIG);
          context.creation["priority"] = std::to_string(static_cast<int>(own.priority));
        }
        context.priority = own.priority;
        break;
      case QNN_CONTEXT_CONFIG_OPTION_CUSTOM:
        if (changing)
          throw Failure(QNN_CONTEXT_ERROR_INVALID_CONFIG, "options of the HTP are set when a context is created");
        if (own.customConfig && context.backend->library.id != QNN_BACKEND_ID_CPU &&
            context.backend->library.id != QNN_BACKEND_ID_GPU)
          apply_custom(context, *static_cast<const QnnHtpContext_CustomConfig_t*>(own.customConfig));
        break;
      case QNN_CONTEXT_CONFIG_ENABLE_GRAPHS:
        context.enabled_graphs = names_of(own.enableGraphs);
        context.creation["enable_graphs"] = json_of(context.enabled_graphs);
        break;
      case QNN_CONTEXT_CONFIG_GRAPH_RETENTION_ORDER:
        context.creation["graph_retention_order"] = json_of(names_of(own.graphRetentionOrder));
        break;
      case QNN_CONTEXT_CONFIG_OPTION_DEFER_GRAPH_INIT:
        context.creation["defer_graph_init"] = own.isGraphInitDeferred ? "true" : "false";
        break;
      case QNN_CONTEXT_CONFIG_OPTION_ERROR_REPORTING:
      case QNN_CONTEXT_CONFIG_OPTION_OEM_STRING: break;
      case QNN_CONTEXT_CONFIG_ASYNC_EXECUTION_QUEUE_DEPTH: set_queue_depth(context, own.asyncExeQueueDepth); break;
      case QNN_CONTEXT_CONFIG_BINARY_COMPATIBILITY:
        if (own.binaryCompatibilityType != QNN_CONTEXT_BINARY_COMPATIBILITY_PERMISSIVE &&
            own.binaryCompatibilityType != QNN_CONTEXT_BINARY_COMPATIBILITY_STRICT)
          throw Failure(QNN_CONTEXT_ERROR_INVALID_CONFIG, "the compatibility of a binary is permissive or strict");
        context.creation["binary_compatibility"] =
            own.binaryCompatibilityType == QNN_CONTEXT_BINARY_COMPATIBILITY_STRICT ? "\"strict\"" : "\"permissive\"";
        break;
      case QNN_CONTEXT_CONFIG_MEMORY_LIMIT_HINT:
        context.memory_limited = own.memoryLimitHint != 0;
        context.creation["memory_limit_hint"] = std::to_string(own.memoryLimitHint);
        break;
      case QNN_CONTEXT_CONFIG_PERSISTENT_BINARY:
        context.persistent_binary = own.isPersistentBinary != 0;
        context.creation["is_persistent_binary"] = own.isPersistentBinary ? "true" : "false";
        break;
      default:
        throw Failure(QNN_CONTEXT_ERROR_INVALID_CONFIG,
                      "context option " + std::to_string(own.option) + " is not known");
    }
  }
}

Qnn_ErrorHandle_t context_create(Qnn_BackendHandle_t backend, Qnn_DeviceHandle_t device,
                                 const QnnContext_Config_t** config, Qnn_ContextHandle_t* out) {
  std::shared_ptr<Context> context;
  return guarded(
      "QnnContext_create", [&] { return context ? context->backend->logger : nullptr; },
      [&] {
        required(out, QNN_CONTEXT_ERROR_INVALID_ARGUMENT, "context");
        require_one_library("QnnContext_create");
        context = made_context(backend, device);
        apply_context_config(*context, config, false);
        check_creation(*context);
        *out = published(context);
      });
}

Qnn_ErrorHandle_t context_set_config(Qnn_ContextHandle_t handle, const QnnContext_Config_t** config) {
  std::shared_ptr<Context> context;
  return guarded(
      "QnnContext_setConfig", [&] { return context ? context->backend->logger : nullptr; },
      [&] {
        context = context_of(handle);
        required(config, QNN_CONTEXT_ERROR_INVALID_ARGUMENT, "config");
        std::lock_guard lock(context->mutex);
        apply_context_config(*context, config, true);
      });
}

Qnn_ErrorHandle_t context_get_binary_size(Qnn_ContextHandle_t handle, Qnn_ContextBinarySize_t* size) {
  std::shared_ptr<Context> context;
  return guarded(
      "QnnContext_getBinarySize", [&] { return context ? context->backend->logger : nullptr; },
      [&] {
        context = context_of(handle);
        required(size, QNN_CONTEXT_ERROR_INVALID_ARGUMENT, "binaryBufferSize");
        std::lock_guard lock(context->mutex);
        *size = whole_binary(*context).size;
      });
}

Qnn_ErrorHandle_t context_get_binary(Qnn_ContextHandle_t handle, void* buffer, Qnn_ContextBinarySize_t size,
                                     Qnn_ContextBinarySize_t* written) {
  std::shared_ptr<Context> context;
  return guarded(
      "QnnContext_getBinary", [&] { return context ? context->backend->logger : nullptr; },
      [&] {
        context = context_of(handle);
        required(buffer, QNN_CONTEXT_ERROR_INVALID_ARGUMENT, "binaryBuffer");
        required(written, QNN_CONTEXT_ERROR_INVALID_ARGUMENT, "writtenBufferSize");
        std::lock_guard lock(context->mutex);
        const Binary& binary = whole_binary(*context);
        if (size < binary.size)
          throw Failure(QNN_CONTEXT_ERROR_INVALID_ARGUMENT, "the buffer has " + std::to_string(size) + " bytes, " +
                                                                std::to_string(binary.size) + " are needed");
        std::memcpy(buffer, binary.data.get(), binary.size);
        *written = binary.size;
      });
}

Qnn_ErrorHandle_t context_create_from_binary_with_signal(Qnn_BackendHandle_t backend, Qnn_DeviceHandle_t device,
                                                         const QnnContext_Config_t** config, const void* bytes,
                                                         Qnn_ContextBinarySize_t size, Qnn_ContextHandle_t* out,
                                                         Qnn_ProfileHandle_t profile, Qnn_SignalHandle_t signal) {
  std::shared_ptr<Logger> logger;
  return guarded(
      "QnnContext_createFromBinary", [&] { return logger; },
      [&] {
        required(out, QNN_CONTEXT_ERROR_INVALID_ARGUMENT, "context");
        logger = backend_of(backend)->logger;
        const std::uint64_t began = now_us();
        Observed observed(signal, QNN_SIGNAL_ERROR_SIGNAL_IN_USE);
        auto context = opened(backend, device, config, bytes, size);
        if (observed.triggered()) throw Failure(QNN_CONTEXT_ERROR_ABORTED, "the signal was triggered");
        place_on_device(*context, context->graphs, context->binary, observed.signal());
        profile_call(profile, QNN_PROFILE_EVENTTYPE_INIT, began, "QnnContext_createFromBinary");
        profile_heap(profile, heap_events(*context, "DSP:before_context_created"));
        if (context->persistent_binary) check::keep_watch(*context, bytes, size);
        *out = published(context);
      });
}

Qnn_ErrorHandle_t context_create_from_binary(Qnn_BackendHandle_t backend, Qnn_DeviceHandle_t device,
                                             const QnnContext_Config_t** config, const void* bytes,
                                             Qnn_ContextBinarySize_t size, Qnn_ContextHandle_t* out,
                                             Qnn_ProfileHandle_t profile) {
  return context_create_from_binary_with_signal(backend, device, config, bytes, size, out, profile, nullptr);
}

// The contexts of a list, one after the other; every one that fails is told, and the others are made all the same.
Qnn_ErrorHandle_t context_create_from_binary_list_async(Qnn_BackendHandle_t backend, Qnn_DeviceHandle_t device,
                                                        const QnnContext_Params_t** params,
                                                        const QnnContext_Config_t** list_config,
                                                        Qnn_SignalHandle_t signal) {
  std::shared_ptr<Logger> logger;
  return guarded(
      "QnnContext_createFromBinaryListAsync", [&] { return logger; },
      [&] {
        logger = backend_of(backend)->logger;
        required(params, QNN_CONTEXT_ERROR_INVALID_ARGUMENT, "contextParams");
        required(*params, QNN_CONTEXT_ERROR_INVALID_ARGUMENT, "the list's first context");
        Observed observed(signal, QNN_SIGNAL_ERROR_SIGNAL_IN_USE);
        const std::uint64_t group = next_number();
        std::vector<ListMember> members;
        for (; *params; ++params) {
          if ((*params)->version != QNN_CONTEXT_PARAMS_VERSION_1)
            throw Failure(QNN_CONTEXT_ERROR_INVALID_ARGUMENT,
                          "parameters of a context have a version that is not known");
          ListMember member{(*params)->v1, nullptr, QNN_SUCCESS};
          member.status = guarded(
              "QnnContext_createFromBinaryListAsync", [&] { return logger; },
              [&] {
                const QnnContext_ParamsV1_t& own = member.params;
                if (observed.triggered()) throw Failure(QNN_CONTEXT_ERROR_ABORTED, "the signal was triggered");
                member.context =
                    opened(backend, device, own.config, own.binaryBuffer, own.binaryBufferSize, list_config);
                if (member.context->shares_resources) {
                  member.context->group = group;
                  member.context->group_reason = "QNN_HTP_CONTEXT_CONFIG_OPTION_SHARE_RESOURCES";
                }
                if (member.context->persistent_binary)
                  check::keep_watch(*member.context, own.binaryBuffer, own.binaryBufferSize);
              });
          members.push_back(std::move(member));
        }
        place_members(members, logger);
        Qnn_ErrorHandle_t first = QNN_SUCCESS;
        for (ListMember& member : members) {
          Qnn_ContextHandle_t handle = nullptr;
          if (!first) first = member.status;
          if (!member.status) handle = published(member.context);
          const QnnContext_ParamsV1_t& own = member.params;
          if (!own.notifyFunc) continue;
          // Of a graph no context is told: onnxruntime's provider owns every context that it is told of, and frees one
          // that comes twice.
          if (handle)
            for (const auto& graph : member.context->graphs)
              own.notifyFunc(nullptr, graph->handle, graph->name.c_str(), QNN_CONTEXT_NOTIFY_TYPE_GRAPH_INIT,
                             own.notifyParam, QNN_SUCCESS);
          own.notifyFunc(handle, nullptr, nullptr, QNN_CONTEXT_NOTIFY_TYPE_CONTEXT_INIT, own.notifyParam,
                         member.status);
        }
        if (first) throw Failure(first, "a context of the list could not be made");
      });
}

Qnn_ErrorHandle_t context_validate_binary(Qnn_BackendHandle_t backend, Qnn_DeviceHandle_t device,
                                          const QnnContext_Config_t** config, const void* bytes,
                                          Qnn_ContextBinarySize_t size) {
  std::shared_ptr<Logger> logger;
  return guarded(
      "QnnContext_validateBinary", [&] { return logger; },
      [&] {
        logger = backend_of(backend)->logger;
        opened(backend, device, config, bytes, size);
      });
}

Qnn_ErrorHandle_t context_apply_binary_section(Qnn_ContextHandle_t handle, Qnn_GraphHandle_t graph_handle,
                                               QnnContext_SectionType_t section, const QnnContext_Buffer_t* buffer,
                                               Qnn_ProfileHandle_t profile, Qnn_SignalHandle_t signal) {
  std::shared_ptr<Context> context;
  return guarded(
      "QnnContext_applyBinarySection", [&] { return context ? context->backend->logger : nullptr; },
      [&] {
        context = context_of(handle);
        const auto graph = graph_of(graph_handle);
        if (graph->context.lock() != context)
          throw Failure(QNN_GRAPH_ERROR_INVALID_CONTEXT, "the graph is of another context");
        required(buffer, QNN_CONTEXT_ERROR_INVALID_ARGUMENT, "binaryBuffer");
        if (section != QNN_CONTEXT_SECTION_UPDATABLE || buffer->version != QNN_CONTEXT_BUFFER_VERSION_1 ||
            buffer->v1.memType != QNN_CONTEXTMEMTYPE_RAW || !buffer->v1.binaryBuf.dataBuffer)
          throw Failure(QNN_CONTEXT_ERROR_INVALID_ARGUMENT, "only updatable sections in raw buffers are known");
        if (!graph->finalized || !graph->compiled)
          throw Failure(QNN_CONTEXT_ERROR_NOT_FINALIZED, "the graph is not finalized");
        Observed observed(signal, QNN_SIGNAL_ERROR_SIGNAL_IN_USE);
        const std::uint64_t began = now_us();
        const Binary adapter = copied(buffer->v1.binaryBuf.dataBuffer, buffer->v1.binaryBuf.dataBufferSize);
        const auto skip = context->creation.find("skip_validation_on_binary_section");
        const bool verify = skip == context->creation.end() || skip->second != "true";
        try {
          graph->compiled->apply_adapter(adapter.bytes(), adapter.data, graph->name, verify);
        } catch (const ContextError& error) {
          if (error.kind != ContextError::Kind::format && error.kind != ContextError::Kind::call) throw;
          throw Failure(QNN_CONTEXT_ERROR_INVALID_ARGUMENT, error.what());
        }
        apply_on_device(*graph, "binary section");
        graph->adapted = true;
        profile_call(profile, QNN_PROFILE_EVENTTYPE_INIT, began, "QnnContext_applyBinarySection");
      });
}

Qnn_ErrorHandle_t context_free(Qnn_ContextHandle_t handle, Qnn_ProfileHandle_t profile) {
  std::shared_ptr<Context> context;
  return guarded(
      "QnnContext_free", [&] { return context ? context->backend->logger : nullptr; },
      [&] {
        const std::uint64_t began = now_us();
        context = context_of(handle);
        free_on_device(*context);
        Handles::all().take<Context>(handle);
        context->finish_queue();
        for (const auto& graph : context->graphs) Handles::all().take<Graph>(graph->handle);
        for (void* memory : context->memories) Handles::all().take<Memory>(memory);
        Json request;
        request.begin('{')
            .key("call")
            .text("free")
            .key("context")
            .number(static_cast<std::int64_t>(context->number))
            .end('}');
        Compiler::of_process().tell(request.done());
        profile_call(profile, QNN_PROFILE_EVENTTYPE_DEINIT, began, "QnnContext_free");
        profile_heap(profile, heap_events(*context, "DSP:after_context_freed"));
      });
}

}  // namespace hexforge::capi
