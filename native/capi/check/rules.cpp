// SPDX-License-Identifier: Apache-2.0
#include "capi/check/rules.h"

#include <cstring>
#include <map>
#include <set>

#include "HTP/QnnHtpContext.h"
#include "HTP/QnnHtpGraph.h"
#include "capi/check/arguments.h"

namespace hexforge::capi::check {
namespace {

std::mutex notes_mutex;
std::map<const void*, std::string>& created() {
  static auto* all = new std::map<const void*, std::string>;
  return *all;
}
std::map<const void*, std::string>& freed() {
  static auto* all = new std::map<const void*, std::string>;
  return *all;
}
std::string noted(const std::map<const void*, std::string>& notes, const void* handle) {
  std::lock_guard lock(notes_mutex);
  const auto found = notes.find(handle);
  return found == notes.end() ? std::string() : found->second;
}
std::string this_call() {
  const Call* call = current_call();
  return call ? std::string(call->name) + ", call " + std::to_string(call->number) : std::string();
}

// Data of static tensors between their creation and the end of their graph's preparation.
struct StaticData {
  std::string tensor;
  const void* data;
  std::uint64_t bytes, digest;
};
std::mutex statics_mutex;
std::multimap<const void*, StaticData>& statics() {
  static auto* all = new std::multimap<const void*, StaticData>;
  return *all;
}

const QnnHtpContext_CustomConfig_t* registration(const QnnContext_Config_t** config) {
  for (; config && *config; ++config) {
    if ((*config)->option != QNN_CONTEXT_CONFIG_OPTION_CUSTOM || !(*config)->customConfig) continue;
    const auto* own = static_cast<const QnnHtpContext_CustomConfig_t*>((*config)->customConfig);
    if (own->option == QNN_HTP_CONTEXT_CONFIG_OPTION_REGISTER_MULTI_CONTEXTS) return own;
  }
  return nullptr;
}

// Graphs of other names that have a tensor, by its name or number.
std::string owner_of(const Graph& graph, const Qnn_TensorV1_t& tensor) {
  const auto has = [&](const Graph& other) {
    const auto port = [&](const std::vector<Port>& ports) {
      for (const Port& each : ports)
        if (tensor.name ? each.name == tensor.name : each.id == tensor.id) return true;
      return false;
    };
    return (tensor.name && other.by_name.contains(tensor.name)) || port(other.inputs) || port(other.outputs);
  };
  for (const auto& each : Handles::all().living()) {
    if (each->kind != Kind::graph) continue;
    auto& other = static_cast<Graph&>(*each);
    if (&other == &graph) continue;
    const std::unique_lock lock(other.mutex, std::try_to_lock);  // one that another thread works on is passed over
    if (lock && has(other)) return other.name;
  }
  return "";
}

bool copy_tensor(const Qnn_Tensor_t* from, Qnn_Tensor_t& to) {
  return from && read_client(from, &to, sizeof to) &&
         (to.version == QNN_TENSOR_VERSION_1 || to.version == QNN_TENSOR_VERSION_2);
}

}  // namespace

void note_created(const void* handle) {
  if (Handles::parts(handle).kind == Kind::none) return;
  std::lock_guard lock(notes_mutex);
  created()[handle] = this_call();
}

void note_freed(const void* handle) {
  if (Handles::parts(handle).kind == Kind::none) return;
  std::lock_guard lock(notes_mutex);
  created().erase(handle);
  freed()[handle] = this_call();
}

bool before_handle(const void* handle, bool freeing) {
  if (!Handles::all().was_freed(handle)) return false;
  const std::string by = noted(freed(), handle);
  report(freeing ? "double-free" : "use-after-free",
         name_of(handle) + " was freed" + (by.empty() ? " with what it belongs to" : " by " + by),
         freeing ? "Free every handle once; graphs go with their context." : "Use a handle before it is freed.");
  return true;
}

void after_code(Qnn_ErrorHandle_t code) {
  const std::string what = last_message(code);
  const char *text = code_text(code), *name = code_name(code);
  const auto tell = [&](const char* rule, const char* advice) { report(rule, what, advice, code); };
  switch (code) {
    case QNN_GRAPH_ERROR_GRAPH_NOT_FINALIZED: return tell("execute-before-finalize", "Call QnnGraph_finalize first.");
    case QNN_GRAPH_ERROR_GRAPH_FINALIZED:
      return tell("changed-after-finalize", "Add tensors and nodes before QnnGraph_finalize, or build another graph.");
    case QNN_CONTEXT_ERROR_NOT_FINALIZED:
      return tell("binary-before-finalize", "Finalize every graph of the context first.");
    case QNN_GRAPH_ERROR_SIGNAL_IN_USE:
    case QNN_SIGNAL_ERROR_SIGNAL_IN_USE:
      return tell("signal-in-use", "Give each call that runs at the same time a signal of its own.");
    case QNN_DEVICE_ERROR_ASSOCIATED_TO_CONTEXT:
      return tell("freed-too-early", "Free the contexts of a device before the device.");
    default:
      if (name && std::strstr(name, "_INVALID_")) tell("invalid-argument", text ? text : "Look at the arguments.");
  }
}

void before_backend_free(Qnn_BackendHandle_t backend) {
  for (const auto& each : Handles::all().living()) {
    const Backend* owner = nullptr;
    if (each->kind == Kind::context) owner = static_cast<const Context&>(*each).backend.get();
    if (each->kind == Kind::profile) owner = static_cast<const Profile&>(*each).backend.get();
    if (each->kind == Kind::signal) owner = static_cast<const Signal&>(*each).backend.get();
    if (owner && owner->handle == backend)
      return report("freed-too-early", name_of(backend) + " is freed while " + name_of(each->handle) + " is in use",
                    "Free contexts, profiles and signals of a backend before the backend.");
  }
}

void before_profile(const void* object, const void* handle) {
  const auto profile = Handles::all().find<Profile>(handle);
  if (!profile || object == handle) return;
  std::shared_ptr<Backend> owner = Handles::all().find<Backend>(object);
  auto context = Handles::all().find<Context>(object);
  if (const auto graph = Handles::all().find<Graph>(object)) context = graph->context.lock();
  if (context) owner = context->backend;
  if (owner && owner != profile->backend)
    report("profile-of-another-backend",
           name_of(handle) + " was created for " + name_of(profile->backend->handle) + ", and " + name_of(object) +
               " is of " + name_of(owner->handle),
           "Create a profile with the backend whose calls it is given to.");
}

void before_log_free(Qnn_LogHandle_t logger) {
  for (const auto& each : Handles::all().living()) {
    const Logger* owner = nullptr;
    if (each->kind == Kind::backend) owner = static_cast<const Backend&>(*each).logger.get();
    if (each->kind == Kind::device) owner = static_cast<const Device&>(*each).logger.get();
    if (owner && owner->handle == logger)
      return report("freed-too-early", name_of(logger) + " is freed while " + name_of(each->handle) + " uses it",
                    "Free backends and devices before the logger that they were given.");
  }
}

void before_context_create(const QnnContext_Config_t** config) {
  if (registration(config))
    report("group-registration", "a context that is not created from a binary is registered to a group",
           "Use QNN_HTP_CONTEXT_CONFIG_OPTION_REGISTER_MULTI_CONTEXTS with QnnContext_createFromBinary only.");
}

void before_context_from_binary(const QnnContext_Config_t** config) {
  const QnnHtpContext_CustomConfig_t* own = registration(config);
  if (!own) return;
  const QnnHtpContext_GroupRegistration_t& group = own->groupRegistration;
  if (!group.firstGroupHandle) {
    if (!group.maxSpillFillBuffer)
      report("group-registration", "the first context of a group has no size of the spill-fill buffer",
             "Set maxSpillFillBuffer to the largest of the group; qnn-context-binary-utility prints it.");
    return;
  }
  const auto first = Handles::all().find<Context>(group.firstGroupHandle);
  if (!first) return;  // a code says so
  if (!first->group)
    report("group-registration", name_of(group.firstGroupHandle) + " began no group",
           "Register the first context with firstGroupHandle 0.");
  else if (group.maxSpillFillBuffer && group.maxSpillFillBuffer != first->spill_fill_bytes)
    report("group-registration",
           "maxSpillFillBuffer " + std::to_string(group.maxSpillFillBuffer) + " is not that of the group, " +
               std::to_string(first->spill_fill_bytes),
           "Give the same value as for the first context, or none.");
}

void after_context_from_binary(Qnn_DeviceHandle_t device_handle, Qnn_ContextHandle_t handle) {
  const auto context = Handles::all().find<Context>(handle);
  const auto device = Handles::all().find<Device>(device_handle);
  if (!context || !context->compiled) return;
  if (context->shares_resources && context->persistent_binary && context->memory_limited)
    report("switching-with-sharing", "graphs are switched, and resources are shared",
           "Leave out QNN_HTP_CONTEXT_CONFIG_OPTION_SHARE_RESOURCES, or the memory limit.");
  if (!device) return;
  const std::int64_t wanted = device->arch().value_or(0);
  std::string archs;
  for (const TargetInfo& each : context->compiled->targets()) {
    const auto arch = each.facts.find("htp_arch");
    if (arch == each.facts.end() || !wanted || arch->second == wanted) return;
    archs += (archs.empty() ? "v" : ", v") + std::to_string(arch->second);
  }
  if (!archs.empty())
    report("other-arch", "the context was prepared for " + archs + ", the device is v" + std::to_string(wanted),
           "Prepare the context for the chip that it is loaded on; results of another architecture's are "
           "indeterminate.");
}

void before_context_list(const QnnContext_Params_t** params) {
  for (; params && *params; ++params)
    if ((*params)->version == QNN_CONTEXT_PARAMS_VERSION_1 && registration((*params)->v1.config))
      return report("group-registration", "a context of a list is registered to a group",
                    "Use QNN_HTP_CONTEXT_CONFIG_OPTION_SHARE_RESOURCES as configuration of the list instead.");
}

void before_context_free(Qnn_ContextHandle_t handle) {
  const auto context = Handles::all().find<Context>(handle);
  if (!context) return;
  const std::string call = in_flight([&](const Execution& each) { return each.graph().context.lock() == context; });
  if (!call.empty())
    report("context-freed-in-use", name_of(handle) + " is freed while a graph of it runs or waits: " + call,
           "Wait for executions to end, and for executeAsync's notify functions, before QnnContext_free.");
  std::size_t memories = 0;
  {
    std::lock_guard lock(context->mutex);
    memories = context->memories.size();
  }
  if (memories)
    report("memory-still-registered",
           std::to_string(memories) + " memory handles of " + name_of(handle) + " are registered",
           "Call QnnMem_deRegister before QnnContext_free.");
  end_watch(*context);
}

void before_graph_set_config(Qnn_GraphHandle_t handle, const QnnGraph_Config_t** config) {
  const auto graph = Handles::all().find<Graph>(handle);
  for (; graph && graph->has_run && config && *config; ++config) {
    if ((*config)->option != QNN_GRAPH_CONFIG_OPTION_CUSTOM || !(*config)->customConfig) continue;
    const auto* own = static_cast<const QnnHtpGraph_CustomConfig_t*>((*config)->customConfig);
    const bool cache = own->option == QNN_HTP_GRAPH_CONFIG_OPTION_OPTIMIZATION &&
                       own->optimizationOption.type == QNN_HTP_GRAPH_OPTIMIZATION_TYPE_ENABLE_SLC_ALLOCATOR;
    if (!cache)  // it may be forced off at any time
      return report("late-config", "graph '" + graph->name + "' was executed already",
                    "Set options such as the number of HVX threads before the first execution.");
  }
}

void after_graph_add_node(Qnn_GraphHandle_t handle) {
  const auto graph = Handles::all().find<Graph>(handle);
  if (!graph) return;
  std::lock_guard lock(graph->mutex);
  if (graph->nodes.empty()) return;
  const Node& last = graph->nodes.back();
  for (const std::size_t input : last.inputs) {
    if (graph->tensors[input].type != QNN_TENSOR_TYPE_NATIVE) continue;
    bool written = false;
    for (const Node& node : graph->nodes)
      for (const std::size_t output : node.outputs) written |= &node != &last && output == input;
    if (!written)
      return report(
          "node-order",
          "node '" + last.name + "' reads tensor '" + graph->tensors[input].name + "', which no earlier node writes",
          "Add nodes in the order of their dependencies.");
  }
}

void after_graph_tensor(Qnn_GraphHandle_t handle, const Qnn_Tensor_t* tensor) {
  Qnn_Tensor_t own{};
  if (!copy_tensor(tensor, own) || own.v1.type != QNN_TENSOR_TYPE_STATIC) return;
  StaticData data{own.v1.name ? own.v1.name : "", own.v1.clientBuf.data, own.v1.clientBuf.dataSize, 0};
  if (own.v1.memType != QNN_TENSORMEMTYPE_RAW || !digest_client(data.data, data.bytes, 64 << 20, data.digest)) return;
  std::lock_guard lock(statics_mutex);
  statics().emplace(handle, std::move(data));
}

void before_graph_finalize(Qnn_GraphHandle_t handle) {
  std::lock_guard lock(statics_mutex);
  const auto [first, last] = statics().equal_range(handle);
  for (auto each = first; each != last; ++each) {
    std::uint64_t digest = 0;
    const StaticData& own = each->second;
    const bool there = digest_client(own.data, own.bytes, 64 << 20, digest);
    if (!there || digest != own.digest)
      report("weights-changed",
             "the data of static tensor '" + own.tensor + "' " + (there ? "changed" : "were given back") +
                 " before the graph was finalized",
             "Keep the data of static tensors as they are until QnnGraph_finalize has ended. hexforge copied them when "
             "the tensor was created; another backend may read them now.");
  }
  statics().erase(first, last);
}

void before_mem_deregister(const Qnn_MemHandle_t* handles, std::uint32_t count) {
  for (std::uint32_t i = 0; handles && i < count; ++i) {
    void* handle = nullptr;
    if (!read_client(handles + i, &handle, sizeof handle) || before_handle(handle, true)) continue;
    const std::string call = in_flight([&](const Execution& each) { return each.uses(handle); });
    if (!call.empty())
      report("memory-deregistered-in-use", name_of(handle) + " is used by an execution: " + call,
             "Wait for the execution to end before QnnMem_deRegister.");
  }
}

bool before_tensors(Qnn_GraphHandle_t handle, const Qnn_Tensor_t* inputs, std::uint32_t input_count,
                    const Qnn_Tensor_t* outputs, std::uint32_t output_count) {
  const auto graph = Handles::all().find<Graph>(handle);
  if (!graph || !graph->finalized) return false;
  bool told = false;
  std::set<std::uint64_t> batches;
  const auto look = [&](const Qnn_Tensor_t* tensors, std::uint32_t count, const std::vector<Port>& ports) {
    for (std::uint32_t i = 0; tensors && i < count && i < 65536; ++i) {
      Qnn_Tensor_t own{};
      if (!copy_tensor(tensors + i, own)) continue;
      if (own.v1.memType == QNN_TENSORMEMTYPE_MEMHANDLE) told |= before_handle(own.v1.memHandle, false);
      const Port* port = nullptr;
      for (const Port& each : ports)
        if (own.v1.name ? each.name == own.v1.name : each.id == own.v1.id) port = &each;
      std::string other;
      if (!port) {
        other = owner_of(*graph, own.v1);
      } else if (own.v1.name && own.v1.id && own.v1.id != port->id) {  // found by its name, and it is another one
        const auto context = graph->context.lock();
        for (const auto& each : context ? context->graphs : std::vector<std::shared_ptr<Graph>>())
          for (const auto* side : {&each->inputs, &each->outputs})
            for (const Port& candidate : *side)
              if (each != graph && candidate.id == own.v1.id) other = each->name;
      }
      if (!other.empty()) {
        told = true;
        report("tensor-of-another-graph",
               "tensor " + quoted(own.v1.name) + " (id " + std::to_string(own.v1.id) + ") is of graph '" + other +
                   "', not of '" + graph->name + "'",
               "Use the tensors that were created for this graph, or that its context's information has for it.");
      }
      if (!port || !port->elements || !own.v1.rank || !own.v1.dimensions) continue;
      std::uint64_t elements = 1;
      for (std::uint32_t d = 0; d < own.v1.rank && d < 32; ++d) {
        std::uint32_t size = 0;
        if (!read_client(own.v1.dimensions + d, &size, sizeof size)) return;
        elements *= size;
      }
      if (elements && elements % port->elements == 0) batches.insert(elements / port->elements);
    }
  };
  look(inputs, input_count, graph->inputs);
  look(outputs, output_count, graph->outputs);
  if (batches.size() > 1) {
    told = true;
    report("mixed-batch",
           "inputs and outputs have " + std::to_string(batches.size()) +
               " different multiples of the "
               "batch that graph '" +
               graph->name + "' was prepared for",
           "Give all inputs and outputs the same multiple.");
  }
  return told;
}

bool before_node(Qnn_GraphHandle_t handle, const Qnn_OpConfig_t& op) {
  const auto graph = Handles::all().find<Graph>(handle);
  if (!graph || graph->finalized || op.version != QNN_OPCONFIG_VERSION_1) return false;
  const auto context = graph->context.lock();
  bool told = false;
  for (const auto& [tensors, count] :
       {std::pair(op.v1.inputTensors, op.v1.numOfInputs), std::pair(op.v1.outputTensors, op.v1.numOfOutputs)})
    for (std::uint32_t i = 0; tensors && i < count && i < 65536; ++i) {
      Qnn_Tensor_t own{};
      if (!copy_tensor(tensors + i, own) || !own.v1.name) continue;
      bool known = false;
      {
        std::lock_guard lock(graph->mutex);
        known = graph->by_name.contains(own.v1.name);
      }
      if (context) {
        std::lock_guard lock(context->mutex);
        for (const Tensor& each : context->tensors) known |= each.name == own.v1.name;
      }
      const std::string other = known ? std::string() : owner_of(*graph, own.v1);
      if (other.empty()) continue;
      told = true;
      report("tensor-of-another-graph",
             "tensor " + quoted(own.v1.name) + " is of graph '" + other + "', not of '" + graph->name + "'",
             "Create the tensor in this graph, or in the context for all of its graphs.");
    }
  return told;
}

void look_for_other_libraries() {
  const std::set<std::string> paths = loaded_libraries();
  if (paths.size() > 1)
    report("second-library", *paths.begin() + " and " + *paths.rbegin() + " are loaded in one process",
           "Load one set of QNN libraries for each process.");
}

void at_end() {
  for (const auto& each : Handles::all().living()) {
    if (each->kind == Kind::graph) continue;  // goes with its context
    const std::string by = noted(created(), each->handle);
    report("missing-free", name_of(each->handle) + (by.empty() ? "" : " (" + by + ")") + " was never freed",
           "Free what was created, in the opposite order.");
  }
}

}  // namespace hexforge::capi::check
