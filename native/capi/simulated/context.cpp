// SPDX-License-Identifier: Apache-2.0
#include "capi/simulated/context.h"

#include "capi/tensors.h"

namespace hexforge::capi {
namespace {

constexpr auto kInvalidConfig = static_cast<Qnn_ErrorHandle_t>(QNN_CONTEXT_ERROR_INVALID_CONFIG);

// An object of what the context is created with: options as they were given, a group by its first context's number.
std::string creation_json(const Context& context) {
  Json json;
  json.begin('{');
  for (const auto& [key, value] : context.creation) json.key(key).written(value);
  if (!context.group_key.empty()) {
    json.key(context.group_key).begin('{').key("first");
    const auto first = context.first_of_group.lock();
    if (first && !first->placed.empty()) {
      json.number(first->placed.front());
    } else if (context.joins_group) {
      json.number(0);
    } else {
      json.null();
    }
    json.key("bytes").number(static_cast<std::int64_t>(context.spill_fill_bytes)).end('}');
  }
  return json.end('}').done();
}

void put_chip(Json& json, const Context& context) {
  json.key("options").begin('{');
  for (const auto& [key, value] : context.all_options({})) json.key(key).text(value);
  json.end('}');
}

// A judgement of the compiler process; a program that has none runs contexts all the same, and is told.
void judge(const Context& context, const std::string& request, std::span<const Blob> arrays = {}) {
  try {
    Compiler::of_process().ask(request, arrays);
  } catch (const Failure& failure) {
    if (failure.code != QNN_COMMON_ERROR_SYSTEM_COMMUNICATION && failure.code != QNN_COMMON_ERROR_NOT_SUPPORTED) throw;
    if (context.backend->logger)
      context.backend->logger->say(QNN_LOG_LEVEL_WARN,
                                   std::string("options of a context are not looked at: ") + failure.what());
  }
}

// What the device must know of a binary: its graphs with their figures and their time.
std::string described(const Context& context, const Binary& binary) {
  Json request;
  request.begin('{').key("call").text("describe").key("soc").text(context.simulated->soc()).end('}');
  const Blob file = binary.bytes();
  const Answer answer = Compiler::of_process().ask(request.done(), {&file, 1});
  const auto& part = answer.parts.at(0);
  return {reinterpret_cast<const char*>(part.data()), part.size()};
}

void put_graph(DeviceMessage& message, const Graph& graph) {
  message.key("context").number(graph.placed);
  message.key("graph").text(graph.name);
}

// Ends a call on the device when its signal is triggered.
class AbortedBy {
 public:
  AbortedBy(std::shared_ptr<Signal> signal, const std::shared_ptr<SimulatedProcess>& process, std::int64_t call)
      : signal_(std::move(signal)) {
    if (!signal_) return;
    std::lock_guard lock(signal_->mutex);
    signal_->abort = [process, call] { process->abort(call); };
  }
  ~AbortedBy() {
    if (!signal_) return;
    std::lock_guard lock(signal_->mutex);
    signal_->abort = nullptr;
  }
  AbortedBy(const AbortedBy&) = delete;
  AbortedBy& operator=(const AbortedBy&) = delete;

 private:
  const std::shared_ptr<Signal> signal_;
};

void put_signal(DeviceMessage& message, const std::shared_ptr<Signal>& signal) {
  if (signal) message.key("signal_us").real(static_cast<double>(signal->timeout_us));
}

void take_placed(const hexforge::Json& made, Context& context, const std::vector<std::shared_ptr<Graph>>& graphs) {
  const std::int64_t number = made["context"].integer();
  context.placed.push_back(number);
  for (const auto& graph : graphs) graph->placed = number;
}

}  // namespace

const char* priority_name(Qnn_Priority_t priority, Qnn_ErrorHandle_t code) {
  // Those that have no name in the headers are what onnxruntime's provider passes.
  constexpr std::pair<int, const char*> names[] = {{QNN_PRIORITY_LOW, "LOW"},
                                                   {50, "NORMAL_LOW"},
                                                   {QNN_PRIORITY_NORMAL, "NORMAL"},
                                                   {QNN_PRIORITY_NORMAL_HIGH, "NORMAL_HIGH"},
                                                   {QNN_PRIORITY_HIGH, "HIGH"},
                                                   {300, "HIGH_PLUS"},
                                                   {400, "CRITICAL"},
                                                   {500, "CRITICAL_PLUS"}};
  for (const auto& [number, name] : names)
    if (number == static_cast<int>(priority)) return name;
  throw Failure(code, "priority " + std::to_string(static_cast<int>(priority)) + " is not one of Qnn_Priority_t");
}

void check_creation(const Context& context) {
  if (context.creation.empty() && context.group_key.empty()) return;
  if (context.simulated) {
    DeviceMessage message("check_config");
    message.key("config").written(creation_json(context));
    context.simulated->ask(message, kInvalidConfig);
    return;
  }
  bool plain = context.group_key.empty();  // options that go with everything need nobody to judge them
  for (const auto& [key, value] : context.creation)
    plain &= key == "priority" || key == "prepare_only" || key == "enable_graphs" || key == "binary_compatibility" ||
             key == "is_persistent_binary" || key == "init_acceleration" || key == "io_mem_estimation";
  if (plain) return;
  Json request;
  request.begin('{').key("call").text("check_config");
  put_chip(request, context);
  request.key("config").written(creation_json(context)).end('}');
  judge(context, request.done());
}

void check_suits(const Context& context) {
  const auto strict = context.creation.find("binary_compatibility");
  const bool is_strict = strict != context.creation.end() && strict->second == "\"strict\"";
  const Options chip = context.all_options({});
  const auto model = chip.find("soc_model");
  if (model == chip.end() && !chip.contains("htp_arch")) return;
  if (!is_strict && model != chip.end())
    for (const TargetInfo& target : context.compiled->targets())
      if (const auto own = target.facts.find("soc_model");
          own != target.facts.end() && std::to_string(own->second) == model->second)
        return;
  Json request;
  request.begin('{').key("call").text("suits").key("strict").boolean(is_strict);
  put_chip(request, context);
  request.end('}');
  const Blob file = context.binary.bytes();
  judge(context, request.done(), {&file, 1});
}

void place_on_device(Context& context, const std::vector<std::shared_ptr<Graph>>& graphs, const Binary& binary,
                     const std::shared_ptr<Signal>& signal) {
  if (!context.simulated) return;
  DeviceMessage message("create");
  message.key("binary").written(described(context, binary));
  message.key("config").written(creation_json(context));
  put_signal(message, signal);
  const std::int64_t call = context.simulated->begin(message, kInvalidConfig);
  const AbortedBy aborted(signal, context.simulated, call);
  take_placed(context.simulated->wait(call, kInvalidConfig), context, graphs);
}

std::vector<Qnn_ErrorHandle_t> place_list_on_device(const std::vector<std::shared_ptr<Context>>& contexts,
                                                    std::vector<std::string>& messages) {
  std::vector<Qnn_ErrorHandle_t> codes(contexts.size(), QNN_SUCCESS);
  messages.assign(contexts.size(), "");
  if (contexts.empty() || !contexts.front()->simulated) return codes;
  const Context& first = *contexts.front();
  DeviceMessage message("create_list");
  message.key("members").begin('[');
  for (const auto& each : contexts) {
    const std::string binary = described(*each, each->binary);
    message.object().begin('{').key("binary").written(binary).key("config").written(creation_json(*each)).end('}');
  }
  message.object().end(']');
  message.key("shared").begin('{');
  if (first.shares_resources) message.key("share_resources").boolean(true);
  if (!first.sharing_type.empty()) message.key("share_resources_optimization_type").text(first.sharing_type);
  message.object().end('}');
  const hexforge::Json begun = first.simulated->ask(message, kInvalidConfig);
  for (std::size_t i = 0; i < contexts.size(); ++i) try {
      const std::int64_t call = begun.list().at(i)["call"].integer();
      take_placed(first.simulated->wait(call, kInvalidConfig), *contexts[i], contexts[i]->graphs);
    } catch (const Failure& failure) {
      codes[i] = failure.code;
      messages[i] = failure.what();
    }
  return codes;
}

void free_on_device(Context& context) {
  if (!context.simulated) return;
  for (const std::int64_t number : context.placed) {
    DeviceMessage message("free");
    message.key("context").number(number);
    context.simulated->whole(message, QNN_CONTEXT_ERROR_INVALID_HANDLE);
  }
  context.placed.clear();
}

void set_priority_on_device(const Context& context, Qnn_Priority_t priority) {
  const char* name = priority_name(priority, kInvalidConfig);
  if (!context.simulated) return;
  for (const std::int64_t number : context.placed) {
    DeviceMessage message("set_context");
    message.key("context").number(number);
    message.key("priority").text(name);
    context.simulated->ask(message, kInvalidConfig);
  }
}

void set_on_device(const Graph& graph, const char* key, const std::string& value) {
  const auto context = context_of(graph);
  if (!context->simulated || !graph.placed) return;
  DeviceMessage message("set_graph");
  put_graph(message, graph);
  message.key(key).written(value);
  context->simulated->ask(message, QNN_GRAPH_ERROR_INVALID_ARGUMENT);
}

void set_priority_on_device(const Graph& graph, Qnn_Priority_t priority) {
  const char* name = priority_name(priority, QNN_GRAPH_ERROR_INVALID_ARGUMENT);
  set_on_device(graph, "priority", std::string("\"") + name + "\"");
}

void apply_on_device(const Graph& graph, const std::string& adapter) {
  const auto context = context_of(graph);
  if (!context->simulated || !graph.placed) return;
  DeviceMessage message("apply");
  put_graph(message, graph);
  message.key("adapter").text(adapter);
  context->simulated->ask(message, QNN_CONTEXT_ERROR_INVALID_ARGUMENT);
}

DeviceRun begin_on_device(const Graph& graph, const std::vector<std::int64_t>& memories, bool copies,
                          std::uint64_t batch, const std::shared_ptr<Signal>& signal) {
  const auto context = context_of(graph);
  if (!context->simulated || !graph.placed) return {};
  DeviceMessage message("execute");
  put_graph(message, graph);
  message.key("shared").begin('[');
  for (const std::int64_t number : memories) message.object().number(number);
  message.object().end(']');
  message.key("raw").boolean(copies);
  message.key("batch").number(static_cast<std::int64_t>(batch));
  put_signal(message, signal);
  const std::int64_t call = context->simulated->begin(message, QNN_GRAPH_ERROR_INVALID_ARGUMENT);
  if (signal) {
    std::lock_guard lock(signal->mutex);
    signal->abort = [process = context->simulated, call] { process->abort(call); };
  }
  return {context->simulated, call};
}

std::optional<hexforge::Json> DeviceRun::wait(bool when_quiet) const {
  if (!process) return std::nullopt;
  constexpr auto invalid = static_cast<Qnn_ErrorHandle_t>(QNN_GRAPH_ERROR_INVALID_ARGUMENT);
  return when_quiet ? process->wait_when_quiet(call, invalid) : process->wait(call, invalid);
}

std::vector<std::int64_t> register_on_device(const Context& context, const std::vector<std::shared_ptr<Memory>>& made) {
  std::vector<std::int64_t> numbers(made.size(), 0);
  if (!context.simulated || context.placed.empty()) return numbers;
  DeviceMessage message("register");
  message.key("context").number(context.placed.front());
  message.key("tensors").begin('[');
  for (const auto& memory : made)
    message.object()
        .begin('{')
        .key("buffer")
        .number(memory->buffer)
        .key("bytes")
        .number(static_cast<std::int64_t>(memory->buffer_bytes))
        .key("tensor")
        .text("memory " + std::to_string(memory->number))
        .key("offset")
        .number(static_cast<std::int64_t>(memory->offset))
        .end('}');
  message.object().end(']');
  const hexforge::Json answer = context.simulated->ask(message, QNN_MEM_ERROR_INVALID_ARGUMENT);
  for (std::size_t i = 0; i < made.size(); ++i) numbers[i] = answer.list().at(i).integer();
  return numbers;
}

void deregister_on_device(const Context& context, const std::vector<std::int64_t>& handles) {
  if (!context.simulated || handles.empty()) return;
  DeviceMessage message("deregister");
  message.key("handles").begin('[');
  for (const std::int64_t number : handles) message.object().number(number);
  message.object().end(']');
  context.simulated->ask(message, QNN_MEM_ERROR_INVALID_HANDLE);
}

std::vector<HeapEvent> heap_events(const Context& context, const char* event) {
  std::vector<HeapEvent> made;
  const auto asked = context.creation.find("dsp_memory_profiling_enabled");
  if (!context.simulated || asked == context.creation.end() || asked->second != "true") return made;
  DeviceMessage message("log");
  message.key("events").begin('[').text(event).end(']');
  const hexforge::Json answer = context.simulated->ask(message, QNN_PROFILE_ERROR_INVALID_ARGUMENT);
  if (!answer.list().empty()) made.push_back({event, answer.list().back()["bytes"].integer()});
  return made;
}

}  // namespace hexforge::capi
