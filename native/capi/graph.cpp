// SPDX-License-Identifier: Apache-2.0
// QnnGraph and QnnTensor: graphs are built here, prepared by the compiler process, and run natively.
#include <cstring>
#include <optional>

#include "HTP/QnnHtpGraph.h"
#include "capi/check/check.h"
#include "capi/functions.h"
#include "capi/htp_options.h"
#include "capi/simulated/context.h"
#include "capi/tensors.h"

namespace hexforge::capi {
namespace {

// Options of the HTP by the names that its backend has for them.
constexpr HtpOption kHtpOptions[] = {
    {QNN_HTP_GRAPH_CONFIG_OPTION_VTCM_SIZE_IN_MB, "vtcm_mb", sizeof(std::uint32_t)},
    {QNN_HTP_GRAPH_CONFIG_OPTION_VTCM_SIZE, "vtcm_size", sizeof(std::uint64_t)},
    {QNN_HTP_GRAPH_CONFIG_OPTION_FOLD_RELU_ACTIVATION_INTO_CONV_OFF, "fold_relu_activation_into_conv_off", 0},
    {QNN_HTP_GRAPH_CONFIG_OPTION_SHORT_DEPTH_CONV_ON_HMX_OFF, "short_depth_conv_on_hmx_off", 0},
    {QNN_HTP_GRAPH_CONFIG_OPTION_NUM_HVX_THREADS, "num_hvx_threads", sizeof(std::uint64_t)},
    {QNN_HTP_GRAPH_CONFIG_OPTION_WEIGHTS_PACKING, "weights_packing", 0},
    {QNN_HTP_GRAPH_CONFIG_OPTION_NUM_CORES, "num_cores", sizeof(std::uint32_t)},
};
constexpr HtpOption kOptimizations[] = {
    {QNN_HTP_GRAPH_OPTIMIZATION_TYPE_ENABLE_DLBC, "dlbc", 0},
    {QNN_HTP_GRAPH_OPTIMIZATION_TYPE_ENABLE_DLBC_WEIGHTS, "dlbc_weights", 0},
    {QNN_HTP_GRAPH_OPTIMIZATION_TYPE_ENABLE_SLC_ALLOCATOR, "slc_alloc_enable", 0},
};

void require_hvx_threads(const Graph& graph, const Context& context, std::uint64_t count) {
  const std::uint32_t most = hvx_threads_of(context.all_options({}));
  if (!count || count > most)
    throw Failure(QNN_GRAPH_ERROR_INVALID_ARGUMENT, "graph '" + graph.name + "': " + std::to_string(count) +
                                                        " HVX threads; the chip has 1 to " + std::to_string(most));
}

// An optimization, which is switched on or off by 1.0 and 0.0.
void apply_optimization(Graph& graph, std::uint32_t type, float value) {
  if (type == QNN_HTP_GRAPH_OPTIMIZATION_TYPE_FINALIZE_OPTIMIZATION_FLAG) {
    graph.options["htp_graph_finalization_optimization_mode"] = std::to_string(static_cast<std::int64_t>(value));
    return;
  }
  for (const HtpOption& each : kOptimizations)
    if (each.option == type) {
      if (value != 0.0f && value != 1.0f)
        throw Failure(QNN_GRAPH_ERROR_INVALID_ARGUMENT,
                      std::string(each.key) + " is 1.0 or 0.0, not " + std::to_string(value));
      graph.options[each.key] = value == 1.0f ? "1" : "0";
    }
}

// Options that a graph takes after it was finalized: the system level cache, and threads until it first runs.
void change_custom(Graph& graph, const Context& context, const QnnHtpGraph_CustomConfig_t& config) {
  const auto option = static_cast<std::uint32_t>(config.option);
  if (option == QNN_HTP_GRAPH_CONFIG_OPTION_OPTIMIZATION &&
      config.optimizationOption.type == QNN_HTP_GRAPH_OPTIMIZATION_TYPE_ENABLE_SLC_ALLOCATOR) {
    const auto prepared = graph.options.find("slc_alloc_enable");
    const auto in_file = graph.compiled ? graph.compiled->options().find("slc_alloc_enable")
                                        : std::map<std::string, std::string>::const_iterator{};
    const bool has = (prepared != graph.options.end() && prepared->second == "1") ||
                     (graph.compiled && in_file != graph.compiled->options().end() && in_file->second == "1");
    if (!has)
      throw Failure(
          QNN_GRAPH_ERROR_UNSUPPORTED_FEATURE,
          "graph '" + graph.name + "' was not prepared with the SLC allocator, so there is nothing to change");
    set_on_device(graph, "slc", config.optimizationOption.floatValue == 0.0f ? "false" : "true");
    return;
  }
  if (option == QNN_HTP_GRAPH_CONFIG_OPTION_NUM_HVX_THREADS) {
    const std::uint64_t count = number_of(config, sizeof(std::uint64_t));
    if (graph.has_run)
      throw Failure(QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED,
                    "graph '" + graph.name + "': the number of threads cannot be changed after the first execution");
    require_hvx_threads(graph, context, count);
    set_on_device(graph, "num_hvx_threads", std::to_string(count));
    return;
  }
  if (graph.has_run)
    throw Failure(QNN_GRAPH_ERROR_INVALID_ARGUMENT, "options of the HTP are set before the first execution");
}

void apply_custom(Graph& graph, const Context& context, const QnnHtpGraph_CustomConfig_t& config) {
  const auto option = static_cast<std::uint32_t>(config.option);
  for (const HtpOption& each : kHtpOptions)
    if (each.option == option) {
      const std::uint64_t value = number_of(config, each.bytes ? each.bytes : 1);
      if (option == QNN_HTP_GRAPH_CONFIG_OPTION_NUM_HVX_THREADS) require_hvx_threads(graph, context, value);
      graph.options[each.key] = std::to_string(each.bytes ? value : value != 0);
      return;
    }
  if (option == QNN_HTP_GRAPH_CONFIG_OPTION_OPTIMIZATION)
    return apply_optimization(graph, static_cast<std::uint32_t>(config.optimizationOption.type),
                              config.optimizationOption.floatValue);
  if (option == QNN_HTP_GRAPH_CONFIG_OPTION_PRECISION) return;  // floats are computed in half precision either way
  refuse_declared_only(option, "QnnGraph");
  if (context.backend->logger)
    context.backend->logger->say(QNN_LOG_LEVEL_WARN, "QnnGraph: option " + std::to_string(option) +
                                                         " of the HTP does nothing here, and is left out");
}

// Adds a tensor under its name, or finds the same one again; the graph is locked.
std::size_t add_tensor(Graph& graph, Context& context, Tensor tensor, bool again_is_fine) {
  const auto found = graph.by_name.find(tensor.name);
  if (found != graph.by_name.end()) {
    if (!again_is_fine) throw Failure(QNN_TENSOR_ERROR_ALREADY_EXISTS, "tensor '" + tensor.name + "' is there already");
    return found->second;
  }
  {
    std::lock_guard lock(context.mutex);
    tensor.id = context.next_id++;
  }
  const std::size_t place = graph.tensors.size();
  graph.by_name.emplace(tensor.name, place);
  graph.tensors.push_back(std::move(tensor));
  return place;
}

std::size_t place_of(Graph& graph, const Qnn_Tensor_t& given) {
  const Qnn_TensorV1_t& fields = fields_of(given, QNN_GRAPH_ERROR_INVALID_TENSOR);
  if (fields.name)
    if (const auto found = graph.by_name.find(fields.name); found != graph.by_name.end()) {
      const std::uint32_t id = graph.tensors[found->second].id;
      if (fields.id && fields.id != id)
        throw Failure(QNN_GRAPH_ERROR_INVALID_TENSOR, std::string("tensor '") + fields.name + "' has id " +
                                                          std::to_string(id) + ", " + std::to_string(fields.id) +
                                                          " is given");
      return found->second;
    }
  for (std::size_t i = 0; i < graph.tensors.size() && !fields.name; ++i)
    if (graph.tensors[i].id == fields.id) return i;
  throw Failure(QNN_GRAPH_ERROR_INVALID_TENSOR, std::string("tensor '") + (fields.name ? fields.name : "?") +
                                                    "' is none of the graph; create it first");
}

std::shared_ptr<Graph> unfinished(Qnn_GraphHandle_t handle) {
  auto graph = graph_of(handle);
  if (graph->finalized)
    throw Failure(QNN_GRAPH_ERROR_GRAPH_FINALIZED, "graph '" + graph->name + "' is finalized already");
  return graph;
}

void set_ports(Graph& graph, const GraphInfo& info) {
  const auto ports = [&](const std::vector<TensorInfo>& tensors) {
    std::vector<Port> made;
    for (const TensorInfo& each : tensors) {
      const auto found = graph.by_name.find(each.name);
      const std::uint32_t id = found == graph.by_name.end() ? each.id : graph.tensors[found->second].id;
      made.push_back(
          {each.name, id, static_cast<std::uint64_t>(each.bytes), static_cast<std::uint64_t>(each.elements())});
    }
    return made;
  };
  graph.inputs = ports(info.inputs);
  graph.outputs = ports(info.outputs);
}

// Inputs and outputs by the types of the tensors, where no compiled context tells them.
void set_ports_as_declared(Graph& graph) {
  for (const Tensor& each : graph.tensors) {
    std::uint64_t elements = 1;
    for (const std::uint32_t size : each.dims) elements *= size;
    const Port port = {each.name, each.id, elements * element_bytes(each.data_type), elements};
    if (each.type == QNN_TENSOR_TYPE_APP_WRITE) graph.inputs.push_back(port);
    if (each.type == QNN_TENSOR_TYPE_APP_READ) graph.outputs.push_back(port);
  }
}

std::size_t port_of(const std::vector<Port>& ports, const Qnn_TensorV1_t& given, std::size_t at) {
  const auto same = [&](const Port& port) {
    const bool named = given.name && port.name == given.name;
    if (named && given.id && port.id && given.id != port.id)
      throw Failure(QNN_GRAPH_ERROR_INVALID_TENSOR, "tensor '" + port.name + "' has id " + std::to_string(port.id) +
                                                        ", " + std::to_string(given.id) + " is given");
    return given.name ? named : port.id == given.id;
  };
  if (at < ports.size() && same(ports[at])) return at;
  for (std::size_t i = 0; i < ports.size(); ++i)
    if (same(ports[i])) return i;
  for (std::size_t i = 0; i < ports.size(); ++i)
    if (given.id && ports[i].id == given.id) return i;
  throw Failure(QNN_GRAPH_ERROR_INVALID_TENSOR, std::string("tensor '") + (given.name ? given.name : "?") + "' (id " +
                                                    std::to_string(given.id) + ") is no input or output of the graph");
}

// The memory of the tensors of a run, in the order of the graph's ports.
std::vector<Buffer> buffers(const std::vector<Port>& ports, const Qnn_Tensor_t* tensors, std::uint32_t count,
                            const Graph& graph, const char* side) {
  if (count != ports.size())
    throw Failure(QNN_GRAPH_ERROR_INVALID_ARGUMENT, "graph '" + graph.name + "' has " + std::to_string(ports.size()) +
                                                        " " + side + ", " + std::to_string(count) + " are given");
  std::vector<Buffer> made(ports.size(), Buffer{nullptr, 0});
  for (std::uint32_t i = 0; i < count; ++i) {
    const Qnn_TensorV1_t& given = fields_of(tensors[i], QNN_GRAPH_ERROR_INVALID_TENSOR);
    const std::size_t at = port_of(ports, given, i);
    const Port& port = ports[at];
    if (made[at].data) throw Failure(QNN_GRAPH_ERROR_INVALID_TENSOR, "tensor '" + port.name + "' is given twice");
    void* data = nullptr;
    std::uint64_t bytes = 0;
    if (given.memType == QNN_TENSORMEMTYPE_MEMHANDLE) {
      const auto memory = Handles::all().find<Memory>(given.memHandle);
      if (!memory)
        throw Failure(QNN_MEM_ERROR_INVALID_HANDLE, "tensor '" + port.name + "': its memory is not registered");
      if (memory->context.lock() != graph.context.lock())
        throw Failure(QNN_MEM_ERROR_INVALID_HANDLE, "tensor '" + port.name + "': its memory is of another context");
      data = memory->data;
      bytes = memory->bytes;
    } else {
      data = given.clientBuf.data;
      bytes = given.clientBuf.dataSize;
    }
    if (!data && port.bytes) throw Failure(QNN_GRAPH_ERROR_INVALID_TENSOR, "tensor '" + port.name + "' has no memory");
    // A batch: dimensions that are a multiple of those that the graph was prepared for.
    std::uint64_t elements = given.rank && given.dimensions ? 1 : port.elements;
    for (std::uint32_t d = 0; given.dimensions && d < given.rank && d < 32; ++d) elements *= given.dimensions[d];
    if (port.elements && elements && elements % port.elements != 0) {
      const std::uint8_t* dynamic =
          tensors[i].version == QNN_TENSOR_VERSION_2 ? tensors[i].v2.isDynamicDimensions : nullptr;
      throw Failure(dynamic ? QNN_GRAPH_ERROR_DYNAMIC_TENSOR_SHAPE : QNN_GRAPH_ERROR_INVALID_TENSOR,
                    "tensor '" + port.name + "' has " + std::to_string(elements) +
                        " elements by the dimensions given; " + "the graph was prepared for " +
                        std::to_string(port.elements) + " or a multiple");
    }
    const std::uint64_t times = port.elements && elements ? elements / port.elements : 1;
    const std::uint64_t wanted = port.bytes * (times ? times : 1);
    if (bytes < wanted)
      throw Failure(QNN_GRAPH_ERROR_INVALID_TENSOR, "tensor '" + port.name + "' needs " + std::to_string(wanted) +
                                                        " bytes, its memory has " + std::to_string(bytes));
    made[at] = {data, static_cast<std::int64_t>(wanted)};
  }
  return made;
}

void run_in_compiler(const Graph& graph, const Context& context, const std::vector<Buffer>& inputs,
                     const std::vector<Buffer>& outputs) {
  Request request("execute", context.backend->library.backend, {});
  request.context(context.number, graph.name);
  for (const auto& [side, ports] : {std::pair("inputs", &graph.inputs), std::pair("outputs", &graph.outputs)}) {
    request.json().key(side).begin('[');
    for (const Port& port : *ports) request.json().text(port.name);
    request.json().end(']');
  }
  std::vector<Blob> arrays;
  arrays.reserve(inputs.size());
  for (const Buffer& each : inputs) arrays.emplace_back(static_cast<const std::byte*>(each.data), each.bytes);
  const Answer answer = Compiler::of_process().ask(request.text(), arrays);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto& part = answer.parts.at(i);
    if (part.size() != static_cast<std::size_t>(outputs[i].bytes))
      throw Failure(QNN_GRAPH_ERROR_INVALID_TENSOR,
                    "output '" + graph.outputs[i].name + "' has " + std::to_string(part.size()) + " bytes");
    std::memcpy(outputs[i].data, part.data(), part.size());
  }
}

// An execution for a recording: the compiler process writes it down.
void record(const Graph& graph, const Context& context, const std::vector<Buffer>& inputs,
            const std::vector<Buffer>& outputs) {
  Request request("executed", context.backend->library.backend, {});
  request.context(context.number, graph.name);
  std::vector<Blob> arrays;
  for (const auto& [side, ports, given] :
       {std::tuple("inputs", &graph.inputs, &inputs), std::tuple("outputs", &graph.outputs, &outputs)}) {
    request.json().key(side).begin('[');
    for (const Port& port : *ports) request.json().text(port.name);
    request.json().end(']');
    for (const Buffer& each : *given) arrays.emplace_back(static_cast<const std::byte*>(each.data), each.bytes);
  }
  Compiler::of_process().ask(request.text(), arrays);
}

// What a client gives for an execution.
struct Given {
  const Qnn_Tensor_t* inputs;
  std::uint32_t input_count;
  Qnn_Tensor_t* outputs;
  std::uint32_t output_count;
};

std::shared_ptr<Graph> ready(Qnn_GraphHandle_t handle, const Given& given) {
  auto graph = graph_of(handle);
  if (!graph->finalized)
    throw Failure(QNN_GRAPH_ERROR_GRAPH_NOT_FINALIZED,
                  "graph '" + graph->name + "' is not finalized; call QnnGraph_finalize");
  if (context_of(*graph)->prepare_only)
    throw Failure(QNN_GRAPH_ERROR_UNSUPPORTED_FEATURE, "the context was created to prepare graphs only");
  if (graph->compiled && !graph->adapted) {
    const auto& options = graph->compiled->options();
    const auto lora = options.find("lora_weight_sharing");
    if (lora != options.end() && lora->second == "1" && graph->compiled->info(graph->name).updatable_bytes)
      throw Failure(QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED,
                    "graph '" + graph->name + "' shares LoRA weights; QnnContext_applyBinarySection comes first");
  }
  if ((given.input_count && !given.inputs) || (given.output_count && !given.outputs))
    throw Failure(QNN_GRAPH_ERROR_INVALID_ARGUMENT, "inputs or outputs are NULL");
  return graph;
}

// Begins it on the simulated device, which is told which tensors lie in registered memory, and of how many batches.
DeviceRun begun_on_device(const Graph& graph, const Given& given, const std::shared_ptr<Signal>& signal) {
  if (!graph.placed) return {};
  const auto in = buffers(graph.inputs, given.inputs, given.input_count, graph, "inputs");
  std::vector<std::int64_t> memories;
  std::uint32_t copied = 0;
  const auto look = [&](const Qnn_Tensor_t& tensor) {
    const Qnn_TensorV1_t& fields = fields_of(tensor, QNN_GRAPH_ERROR_INVALID_TENSOR);
    const auto memory = fields.memType == QNN_TENSORMEMTYPE_MEMHANDLE ? Handles::all().find<Memory>(fields.memHandle)
                                                                      : std::shared_ptr<Memory>();
    if (memory && memory->on_device) {
      memories.push_back(memory->on_device);
    } else {
      ++copied;
    }
  };
  for (std::uint32_t i = 0; i < given.input_count; ++i) look(given.inputs[i]);
  for (std::uint32_t i = 0; i < given.output_count; ++i) look(given.outputs[i]);
  std::uint64_t batch = 1;
  if (!in.empty() && graph.inputs[0].bytes) batch = static_cast<std::uint64_t>(in[0].bytes) / graph.inputs[0].bytes;
  return begin_on_device(graph, memories, copied != 0, batch, signal);
}

// Runs a graph: first its time on the device, where there is one, then its numbers here.
void execute(const std::shared_ptr<Graph>& graph, const Given& given, Qnn_ProfileHandle_t profile,
             const Observed& observed, const DeviceRun& run, bool later, std::shared_ptr<check::Execution> checked) {
  const auto context = context_of(*graph);
  const std::uint64_t began = now_us();
  const auto in = buffers(graph->inputs, given.inputs, given.input_count, *graph, "inputs");
  const auto out = buffers(graph->outputs, given.outputs, given.output_count, *graph, "outputs");
  graph->has_run = true;
  if (check::on()) {
    if (!checked) checked = check::execution(graph, in, out, given.inputs, given.outputs);
    checked->begin();
  }
  const std::optional<hexforge::Json> took = run.wait(later);
  if (graph->program) {
    RunOptions options;
    if (observed.signal()) options.cancelled = [&] { return observed.triggered(); };
    graph->program->run(in, out, options);
  } else {
    run_in_compiler(*graph, *context, in, out);
  }
  if (check::recording() && graph->program) record(*graph, *context, in, out);
  profile_execution(profile, began, *graph, took ? &*took : nullptr);
}

std::shared_ptr<Logger> logger_of(const std::shared_ptr<Graph>& graph) {
  const auto context = graph ? graph->context.lock() : nullptr;
  return context ? context->backend->logger : nullptr;
}

}  // namespace

std::shared_ptr<Graph> graph_of(Qnn_GraphHandle_t handle) {
  auto graph = Handles::all().find<Graph>(handle);
  if (!graph)
    throw Failure(QNN_GRAPH_ERROR_INVALID_HANDLE,
                  "there is no such graph: its context was freed, or it was never created");
  return graph;
}

std::shared_ptr<Context> context_of(const Graph& graph) {
  auto context = graph.context.lock();
  if (!context) throw Failure(QNN_GRAPH_ERROR_INVALID_HANDLE, "the context of graph '" + graph.name + "' was freed");
  return context;
}

void apply_graph_config(Graph& graph, const QnnGraph_Config_t** config, bool changing) {
  const auto context = context_of(graph);
  for (; config && *config; ++config) {
    const QnnGraph_Config_t& own = **config;
    switch (own.option) {
      case QNN_GRAPH_CONFIG_OPTION_CUSTOM:
        if (own.customConfig && context->backend->library.id == QNN_BACKEND_ID_HTP) {
          const auto& custom = *static_cast<const QnnHtpGraph_CustomConfig_t*>(own.customConfig);
          if (changing && graph.finalized) {
            change_custom(graph, *context, custom);
          } else {
            apply_custom(graph, *context, custom);
          }
        }
        break;
      case QNN_GRAPH_CONFIG_OPTION_PRIORITY:
        set_priority_on_device(graph, own.priority);
        graph.priority = own.priority;
        break;
      case QNN_GRAPH_CONFIG_OPTION_ERROR_REPORTING:
      case QNN_GRAPH_CONFIG_OPTION_PROFILE_HANDLE: break;
      default:
        throw Failure(QNN_GRAPH_ERROR_INVALID_ARGUMENT, "graph option " + std::to_string(own.option) + " is not known");
    }
  }
}

Qnn_ErrorHandle_t graph_create(Qnn_ContextHandle_t handle, const char* name, const QnnGraph_Config_t** config,
                               Qnn_GraphHandle_t* out) {
  std::shared_ptr<Context> context;
  return guarded(
      "QnnGraph_create", [&] { return context ? context->backend->logger : nullptr; },
      [&] {
        context = context_of(handle);
        require_one_library("QnnGraph_create");
        required(out, QNN_GRAPH_ERROR_INVALID_ARGUMENT, "graph");
        std::string own = checked_text(name, "the graph", QNN_GRAPH_ERROR_INVALID_NAME);
        if (context->from_binary)
          throw Failure(QNN_GRAPH_ERROR_CREATE_FAILED,
                        "the context was created from a binary; it takes no more graphs");
        auto graph = std::make_shared<Graph>(context, std::move(own));
        apply_graph_config(*graph, config, false);
        std::lock_guard lock(context->mutex);
        for (const auto& each : context->graphs)
          if (each->name == graph->name)
            throw Failure(QNN_GRAPH_ERROR_INVALID_NAME, "the context has a graph '" + each->name + "'");
        context->graphs.push_back(graph);
        context->binary = {};
        *out = Handles::all().add(graph);
      });
}

Qnn_ErrorHandle_t graph_create_subgraph(Qnn_GraphHandle_t handle, const char*, Qnn_GraphHandle_t*) {
  return guarded("QnnGraph_createSubgraph", no_logger, [&] {
    graph_of(handle);
    throw Failure(QNN_GRAPH_ERROR_UNSUPPORTED_FEATURE, "there are no subgraphs");
  });
}

Qnn_ErrorHandle_t graph_set_config(Qnn_GraphHandle_t handle, const QnnGraph_Config_t** config) {
  std::shared_ptr<Graph> graph;
  return guarded(
      "QnnGraph_setConfig", [&] { return logger_of(graph); },
      [&] {
        graph = graph_of(handle);
        required(config, QNN_GRAPH_ERROR_INVALID_ARGUMENT, "config");
        std::lock_guard lock(graph->mutex);
        apply_graph_config(*graph, config, true);
      });
}

Qnn_ErrorHandle_t tensor_create_graph_tensor(Qnn_GraphHandle_t handle, Qnn_Tensor_t* tensor) {
  std::shared_ptr<Graph> graph;
  return guarded(
      "QnnTensor_createGraphTensor", [&] { return logger_of(graph); },
      [&] {
        graph = Handles::all().find<Graph>(handle);
        if (!graph) throw Failure(QNN_TENSOR_ERROR_INVALID_HANDLE, "there is no such graph");
        required(tensor, QNN_TENSOR_ERROR_INVALID_TENSOR_PARAM, "tensor");
        if (graph->finalized)
          throw Failure(QNN_GRAPH_ERROR_GRAPH_FINALIZED, "graph '" + graph->name + "' is finalized");
        const auto context = context_of(*graph);
        std::lock_guard lock(graph->mutex);
        const std::size_t place = add_tensor(*graph, *context, read_tensor(*tensor, true), false);
        set_id(*tensor, graph->tensors[place].id);
      });
}

Qnn_ErrorHandle_t tensor_create_context_tensor(Qnn_ContextHandle_t handle, Qnn_Tensor_t* tensor) {
  std::shared_ptr<Context> context;
  return guarded(
      "QnnTensor_createContextTensor", [&] { return context ? context->backend->logger : nullptr; },
      [&] {
        context = Handles::all().find<Context>(handle);
        if (!context) throw Failure(QNN_TENSOR_ERROR_INVALID_HANDLE, "there is no such context");
        required(tensor, QNN_TENSOR_ERROR_INVALID_TENSOR_PARAM, "tensor");
        Tensor read = read_tensor(*tensor, true);
        std::lock_guard lock(context->mutex);
        for (const Tensor& each : context->tensors)
          if (each.name == read.name)
            throw Failure(QNN_TENSOR_ERROR_ALREADY_EXISTS, "tensor '" + read.name + "' is there already");
        read.id = context->next_id++;
        set_id(*tensor, read.id);
        context->tensors.push_back(std::move(read));
      });
}

Qnn_ErrorHandle_t tensor_update_graph_tensors(Qnn_GraphHandle_t handle, const Qnn_Tensor_t**, std::uint64_t) {
  return guarded("QnnTensor_updateGraphTensors", no_logger, [&] {
    graph_of(handle);
    throw Failure(QNN_TENSOR_ERROR_UNSUPPORTED_FEATURE,
                  "updateable tensors are not known here; use QnnContext_applyBinarySection");
  });
}

Qnn_ErrorHandle_t tensor_update_context_tensors(Qnn_ContextHandle_t handle, const Qnn_Tensor_t**, std::uint64_t) {
  return guarded("QnnTensor_updateContextTensors", no_logger, [&] {
    context_of(handle);
    throw Failure(QNN_TENSOR_ERROR_UNSUPPORTED_FEATURE,
                  "updateable tensors are not known here; use QnnContext_applyBinarySection");
  });
}

Qnn_ErrorHandle_t graph_add_node(Qnn_GraphHandle_t handle, Qnn_OpConfig_t config) {
  std::shared_ptr<Graph> graph;
  return guarded(
      "QnnGraph_addNode", [&] { return logger_of(graph); },
      [&] {
        graph = unfinished(handle);
        const auto context = context_of(*graph);
        constexpr auto code = static_cast<Qnn_ErrorHandle_t>(QNN_GRAPH_ERROR_INVALID_OP_CONFIG);
        const Qnn_OpConfigV1_t& given = fields_of(config, code);
        Node node;
        node.name = checked_text(given.name, "an op", code);
        node.package = checked_text(given.packageName, "an op's package", code);
        node.type = checked_text(given.typeName, "an op's type", code);
        node.params = read_params(given, code);
        std::lock_guard lock(graph->mutex);
        const auto place = [&](const Qnn_Tensor_t& tensor) {
          const Qnn_TensorV1_t& fields = fields_of(tensor, QNN_GRAPH_ERROR_INVALID_TENSOR);
          if (fields.name && !graph->by_name.contains(fields.name)) {  // a tensor of the context
            std::unique_lock context_lock(context->mutex);
            for (const Tensor& each : context->tensors)
              if (each.name == fields.name) {
                Tensor copy = each;
                context_lock.unlock();
                const std::uint32_t id = copy.id;
                const std::size_t at = add_tensor(*graph, *context, std::move(copy), true);
                graph->tensors[at].id = id;
                return at;
              }
          }
          return place_of(*graph, tensor);
        };
        for (std::uint32_t i = 0; i < given.numOfInputs; ++i) node.inputs.push_back(place(given.inputTensors[i]));
        for (std::uint32_t i = 0; i < given.numOfOutputs; ++i) node.outputs.push_back(place(given.outputTensors[i]));
        graph->nodes.push_back(std::move(node));
      });
}

Qnn_ErrorHandle_t graph_finalize(Qnn_GraphHandle_t handle, Qnn_ProfileHandle_t profile, Qnn_SignalHandle_t signal) {
  std::shared_ptr<Graph> graph;
  return guarded(
      "QnnGraph_finalize", [&] { return logger_of(graph); },
      [&] {
        graph = graph_of(handle);
        const auto context = context_of(*graph);
        std::lock_guard lock(graph->mutex);
        if (graph->finalized) return;  // a graph of a binary is, and a second call changes nothing
        Observed observed(signal, QNN_GRAPH_ERROR_SIGNAL_IN_USE);
        if (graph->nodes.empty())
          throw Failure(QNN_GRAPH_ERROR_FINALIZE_FAILED, "graph '" + graph->name + "' has no node");
        const std::uint64_t began = now_us();
        Request request("finalize", context->backend->library.backend, context->all_options(graph->options));
        request.context(context->number, graph->name);
        request.json().key("weight_sharing").boolean(context->weight_sharing);
        request.graph(graph->tensors, graph->nodes);
        const Answer answer = Compiler::of_process().ask(request.text(), request.arrays);
        if (const auto logger = context->backend->logger)
          for (const std::string& warning : answer.warnings) logger->say(QNN_LOG_LEVEL_WARN, warning);
        const auto& file = answer.parts.at(0);
        if (file.empty()) {
          set_ports_as_declared(*graph);
        } else {
          graph->binary = copied(file.data(), file.size());
          graph->compiled = CompiledContext::open_memory(graph->binary.bytes(), graph->binary.data,
                                                         {.verify = false, .enable_graphs = {}});
          set_ports(*graph, graph->compiled->info(graph->name));
          try {
            graph->program = graph->compiled->graph(graph->name);
          } catch (const ContextError& error) {
            if (error.kind != ContextError::Kind::unsupported) throw;  // else it runs in the compiler process
          }
          graph->timeline = graph->compiled->timeline(graph->name);
        }
        if (observed.triggered()) throw Failure(QNN_GRAPH_ERROR_ABORTED, "the signal was triggered");
        if (graph->binary.data && !context->prepare_only) {
          place_on_device(*context, {graph}, graph->binary, observed.signal());
          if (graph->priority) set_priority_on_device(*graph, *graph->priority);
        }
        for (Tensor& each : graph->tensors) std::vector<std::byte>().swap(each.data);
        graph->nodes.clear();
        graph->finalized = true;
        profile_call(profile, QNN_PROFILE_EVENTTYPE_FINALIZE, began, graph->name.c_str());
      });
}

Qnn_ErrorHandle_t graph_retrieve(Qnn_ContextHandle_t handle, const char* name, Qnn_GraphHandle_t* out) {
  std::shared_ptr<Context> context;
  return guarded(
      "QnnGraph_retrieve", [&] { return context ? context->backend->logger : nullptr; },
      [&] {
        context = Handles::all().find<Context>(handle);
        if (!context) throw Failure(QNN_GRAPH_ERROR_INVALID_HANDLE, "there is no such context");
        required(out, QNN_GRAPH_ERROR_INVALID_ARGUMENT, "graph");
        required(name, QNN_GRAPH_ERROR_INVALID_NAME, "graphName");
        std::lock_guard lock(context->mutex);
        for (const auto& each : context->graphs)
          if (each->name == name) {
            *out = each->handle;
            return;
          }
        if (context->compiled && context->compiled->has_graph(name))
          throw Failure(QNN_GRAPH_ERROR_DISABLED, std::string("graph '") + name + "' is not enabled");
        throw Failure(QNN_GRAPH_ERROR_GRAPH_DOES_NOT_EXIST, std::string("the context has no graph '") + name + "'");
      });
}

Qnn_ErrorHandle_t graph_execute(Qnn_GraphHandle_t handle, const Qnn_Tensor_t* inputs, std::uint32_t input_count,
                                Qnn_Tensor_t* outputs, std::uint32_t output_count, Qnn_ProfileHandle_t profile,
                                Qnn_SignalHandle_t signal) {
  std::shared_ptr<Graph> graph;
  return guarded(
      "QnnGraph_execute", [&] { return logger_of(graph); },
      [&] {
        const Given given{inputs, input_count, outputs, output_count};
        graph = graph_of(handle);
        ready(handle, given);
        const Observed observed(signal, QNN_GRAPH_ERROR_SIGNAL_IN_USE);
        execute(graph, given, profile, observed, begun_on_device(*graph, given, observed.signal()), false, nullptr);
      });
}

Qnn_ErrorHandle_t graph_execute_async(Qnn_GraphHandle_t handle, const Qnn_Tensor_t* inputs, std::uint32_t input_count,
                                      Qnn_Tensor_t* outputs, std::uint32_t output_count, Qnn_ProfileHandle_t profile,
                                      Qnn_SignalHandle_t signal, Qnn_NotifyFn_t notify, void* notify_param) {
  std::shared_ptr<Graph> graph;
  return guarded(
      "QnnGraph_executeAsync", [&] { return logger_of(graph); },
      [&] {
        const Given given{inputs, input_count, outputs, output_count};
        graph = graph_of(handle);
        ready(handle, given);
        std::vector<Qnn_Tensor_t> in(inputs, inputs + input_count), out(outputs, outputs + output_count);
        std::shared_ptr<check::Execution> checked;
        if (check::on())
          checked = check::execution(graph, buffers(graph->inputs, in.data(), input_count, *graph, "inputs"),
                                     buffers(graph->outputs, out.data(), output_count, *graph, "outputs"), in.data(),
                                     out.data());
        const DeviceRun run = begun_on_device(*graph, given, nullptr);
        context_of(*graph)->run_later([=, in = std::move(in), out = std::move(out)]() mutable {
          const Qnn_ErrorHandle_t status = guarded(
              "QnnGraph_executeAsync", [&] { return logger_of(graph); },
              [&] {
                const Given own{in.data(), static_cast<std::uint32_t>(in.size()), out.data(),
                                static_cast<std::uint32_t>(out.size())};
                if (graph_of(handle) != graph)
                  throw Failure(QNN_GRAPH_ERROR_INVALID_HANDLE, "the graph was freed before it ran");
                ready(handle, own);
                const Observed observed(signal, QNN_GRAPH_ERROR_SIGNAL_IN_USE);
                execute(graph, own, profile, observed, run, true, std::move(checked));
              });
          if (notify) notify(notify_param, {status});
        });
      });
}

}  // namespace hexforge::capi
