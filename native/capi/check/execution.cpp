// SPDX-License-Identifier: Apache-2.0
// Executions and what they use, and the bytes of contexts that clients keep.
#include <algorithm>
#include <list>
#include <map>

#include "capi/check/check.h"
#include "capi/check/client_memory.h"

namespace hexforge::capi::check {
namespace {

constexpr std::uint64_t kMostOfAnInput = 64 << 20, kMostOfABinary = 1 << 20;

struct Flights {
  std::mutex mutex;
  std::list<Execution*> executions;
};
Flights& flights() {
  static auto* all = new Flights;
  return *all;
}

struct KeptBinary {
  const void* bytes;
  std::uint64_t size, digest;
};
std::mutex kept_mutex;
std::map<const Context*, KeptBinary>& kept() {
  static auto* all = new std::map<const Context*, KeptBinary>;
  return *all;
}

bool meet(const Buffer& a, const Buffer& b) {
  const auto *first = static_cast<const std::byte*>(a.data), *second = static_cast<const std::byte*>(b.data);
  return first < second + b.bytes && second < first + a.bytes;
}

}  // namespace

Execution::Execution(std::shared_ptr<Graph> graph, std::span<const Buffer> inputs, std::span<const Buffer> outputs,
                     std::vector<const void*> memories)
    : graph_(std::move(graph)), memories_(std::move(memories)) {
  if (const Call* call = current_call()) {
    call_ = call->name;
    arguments_ = call->arguments();
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Watched input{&graph_->inputs[i], inputs[i], 0};
    digest_client(input.buffer.data, static_cast<std::uint64_t>(input.buffer.bytes), kMostOfAnInput, input.digest);
    inputs_.push_back(input);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) outputs_.push_back({&graph_->outputs[i], outputs[i], 0});
  std::lock_guard lock(flights().mutex);
  flights().executions.push_back(this);
}

Execution::~Execution() {
  {
    std::lock_guard lock(flights().mutex);
    flights().executions.remove(this);
  }
  bool gone = false;
  if (running_) look_at_inputs("while it ran", gone);
}

bool Execution::uses(const void* memory) const {
  return std::find(memories_.begin(), memories_.end(), memory) != memories_.end();
}

bool Execution::overlaps(const Execution& other, std::string& which) const {
  for (const Watched& mine : outputs_)
    for (const auto* side : {&other.outputs_, &other.inputs_})
      for (const Watched& theirs : *side)
        if (meet(mine.buffer, theirs.buffer)) {
          which = "output '" + mine.port->name + "' of graph '" + graph_->name + "' lies in the memory of '" +
                  theirs.port->name + "' of graph '" + other.graph_->name + "'";
          return true;
        }
  return false;
}

void Execution::look_at_inputs(const char* when, bool& gone) const {
  for (const Watched& each : inputs_) {
    std::uint64_t digest = 0;
    if (!digest_client(each.buffer.data, static_cast<std::uint64_t>(each.buffer.bytes), kMostOfAnInput, digest)) {
      gone = true;
      report_for(call_, arguments_, "buffer-freed-in-use",
                 "the memory of input '" + each.port->name + "' was given back " + when,
                 "Keep an execution's buffers until it has ended: until executeAsync's notify function was called.");
      continue;
    }
    const bool own_output = std::any_of(outputs_.begin(), outputs_.end(),
                                        [&](const Watched& out) { return meet(out.buffer, each.buffer); });
    if (digest != each.digest && !own_output)
      report_for(call_, arguments_, "input-changed-in-use",
                 "the bytes of input '" + each.port->name + "' changed " + when +
                     ": they were written to, or their memory was freed",
                 "Leave an execution's inputs alone until it has ended: until executeAsync's notify function was "
                 "called.");
  }
}

// seed: scatter_index <= context length - roundup(ARN, 32)
void Execution::look_at_indices() const {
  if (!graph_->compiled) return;
  const GraphInfo& info = graph_->compiled->info(graph_->name);
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const auto last = info.last_indices.find(inputs_[i].port->name);
    if (last == info.last_indices.end()) continue;
    const std::uint64_t elements = inputs_[i].port->elements;
    const std::uint64_t each = elements ? inputs_[i].port->bytes / elements : 0;
    std::int64_t first = INT64_MAX;
    for (std::uint64_t k = 0; k < elements && (each == 4 || each == 8); ++k) {
      std::int64_t index = 0;
      if (!read_client(static_cast<const std::byte*>(inputs_[i].buffer.data) + k * each, &index, each)) return;
      first = std::min(first, each == 4 ? static_cast<std::int64_t>(static_cast<std::int32_t>(index)) : index);
    }
    if (first == INT64_MAX || first <= last->second) continue;
    report_for(call_, arguments_, "late-scatter-index",
               "input '" + last->first + "' says position " + std::to_string(first) +
                   " for new tokens; the last one that a native KV cache of this length has is " +
                   std::to_string(last->second),
               "Keep scatter_index <= context length - the number of new tokens, rounded up to a multiple of 32.");
  }
}

void Execution::begin() {
  bool gone = false;
  look_at_inputs("before its turn came", gone);
  for (const Watched& each : outputs_) {
    std::uint64_t digest;
    if (digest_client(each.buffer.data, static_cast<std::uint64_t>(each.buffer.bytes), kMostOfABinary, digest))
      continue;
    gone = true;
    report_for(call_, arguments_, "buffer-freed-in-use",
               "the memory of output '" + each.port->name + "' was given back before the execution wrote it",
               "Keep an execution's buffers until it has ended: until executeAsync's notify function was called.");
  }
  if (gone) throw Failure(QNN_GRAPH_ERROR_INVALID_TENSOR, "memory of a tensor was given back before the graph ran");
  look_at_indices();
  const auto context = graph_->context.lock();
  if (context) {
    Call own{call_.c_str(), 0, [this] { return arguments_; }};
    Call* before = current_call();
    if (!before) set_current_call(&own);  // a thread of the queue
    look_at_binary(*context);
    set_current_call(before);
  }
  std::lock_guard lock(flights().mutex);
  for (const Execution* other : flights().executions) {
    if (other == this || !other->running_) continue;
    const auto theirs = other->graph_->context.lock();
    if (context && theirs && context->group && context->group == theirs->group)
      report_for(call_, arguments_, "group-run-concurrently",
                 "graph '" + graph_->name + "' began while graph '" + other->graph_->name +
                     "' ran, and both share one memory: " + context->group_reason,
                 "Run graphs that share resources, and graphs that are switched, one after the other.");
    std::string which;
    if (overlaps(*other, which) || other->overlaps(*this, which))
      report_for(call_, arguments_, "buffer-shared", which + ", and both run at the same time",
                 "Give every execution that runs at the same time an output of its own.");
  }
  running_ = true;
}

std::shared_ptr<Execution> execution(const std::shared_ptr<Graph>& graph, std::span<const Buffer> inputs,
                                     std::span<const Buffer> outputs, const Qnn_Tensor_t* input_tensors,
                                     const Qnn_Tensor_t* output_tensors) {
  if (!on()) return nullptr;
  std::vector<const void*> memories;
  const auto add = [&](const Qnn_Tensor_t* tensors, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      if (tensors[i].v1.memType == QNN_TENSORMEMTYPE_MEMHANDLE) memories.push_back(tensors[i].v1.memHandle);
  };
  add(input_tensors, inputs.size());
  add(output_tensors, outputs.size());
  return std::make_shared<Execution>(graph, inputs, outputs, std::move(memories));
}

std::string in_flight(const std::function<bool(const Execution&)>& fits) {
  std::lock_guard lock(flights().mutex);
  for (const Execution* each : flights().executions)
    if (fits(*each)) return each->told();
  return "";
}

void keep_watch(const Context& context, const void* bytes, std::uint64_t size) {
  if (!on()) return;
  KeptBinary binary{bytes, size, 0};
  if (!digest_client(bytes, size, kMostOfABinary, binary.digest)) return;
  std::lock_guard lock(kept_mutex);
  kept()[&context] = binary;
}

void look_at_binary(const Context& context) {
  std::lock_guard lock(kept_mutex);
  const auto found = kept().find(&context);
  if (found == kept().end()) return;
  std::uint64_t digest = 0;
  if (!digest_client(found->second.bytes, found->second.size, kMostOfABinary, digest)) {
    report("binary-freed-in-use", "the bytes that the context was created from were given back before the context",
           "With QNN_CONTEXT_CONFIG_PERSISTENT_BINARY keep the bytes mapped until QnnContext_free.");
    kept().erase(found);
  } else if (digest != found->second.digest) {
    report("weights-changed", "the bytes that the context was created from changed after they were loaded",
           "With QNN_CONTEXT_CONFIG_PERSISTENT_BINARY graphs are loaded from these bytes again: leave them alone, and "
           "free them after QnnContext_free.");
    kept().erase(found);
  }
}

void end_watch(const Context& context) {
  if (!on()) return;
  look_at_binary(context);
  std::lock_guard lock(kept_mutex);
  kept().erase(&context);
}

}  // namespace hexforge::capi::check
