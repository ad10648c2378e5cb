// SPDX-License-Identifier: Apache-2.0
// What handles stand for: backends, devices, contexts, graphs, profiles, memory, signals.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "QnnInterface.h"
#include "capi/compiler.h"
#include "capi/failure.h"
#include "capi/handles.h"
#include "context/compiled_context.h"

namespace hexforge::capi {

using Options = std::map<std::string, std::string>;  // as the backend's own Config spells them

// Bytes of a file, where the arrays in it begin at multiples of 64.
struct Binary {
  std::shared_ptr<std::byte> data;
  std::size_t size = 0;
  std::span<const std::byte> bytes() const { return {data.get(), size}; }
};
Binary copied(const void* data, std::size_t size);

// A library: which backend its functions are for.
struct Library {
  const char* backend;  // hexforge's name
  const char* provider;
  std::uint32_t id;
  Qnn_Version_t version;
};

class Backend final : public Object {
 public:
  static constexpr Kind kind_of = Kind::backend;
  Backend(const Library& library, std::shared_ptr<Logger> logger)
      : Object(Kind::backend), library(library), logger(std::move(logger)) {}
  const Library& library;
  const std::shared_ptr<Logger> logger;
  std::mutex mutex;
  std::unordered_map<std::string, std::string> validated;  // a request, and why it was refused: empty where it was not
  std::vector<std::string> operation_texts;
  std::vector<QnnBackend_OperationName_t> operations;
};

class SimulatedProcess;

class Device final : public Object {
 public:
  static constexpr Kind kind_of = Kind::device;
  Device(const Library& library, std::shared_ptr<Logger> logger)
      : Object(Kind::device), library(library), logger(std::move(logger)) {}
  const Library& library;
  const std::shared_ptr<Logger> logger;
  Options options;
  std::shared_ptr<SimulatedProcess> simulated;  // null where HEXFORGE_DEVICE names no device
  std::atomic<int> contexts{0};
  std::optional<std::int64_t> arch() const;  // of the chip that was asked for
  const QnnDevice_PlatformInfo_t* info();    // of that chip; lives as long as the device

 private:
  struct Info;
  std::mutex mutex_;
  std::shared_ptr<Info> info_;
};

class Signal final : public Object {
 public:
  static constexpr Kind kind_of = Kind::signal;
  explicit Signal(std::shared_ptr<Backend> backend) : Object(Kind::signal), backend(std::move(backend)) {}
  const std::shared_ptr<Backend> backend;
  std::atomic<bool> in_use{false}, triggered{false};
  std::uint64_t timeout_us = 0;  // 0: it only aborts
  std::mutex mutex;
  std::function<void()> abort;  // ends the call that observes it on the simulated device
};

// A signal that is observed by a call, until the call ends; throws Failure where another call has it.
class Observed {
 public:
  Observed(Qnn_SignalHandle_t signal, Qnn_ErrorHandle_t in_use_code);
  ~Observed();
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;
  bool triggered() const { return signal_ && signal_->triggered; }
  const std::shared_ptr<Signal>& signal() const { return signal_; }

 private:
  std::shared_ptr<Signal> signal_;
};

class Profile final : public Object {
 public:
  static constexpr Kind kind_of = Kind::profile;
  Profile(std::shared_ptr<Backend> backend, QnnProfile_Level_t level)
      : Object(Kind::profile), backend(std::move(backend)), level(level) {}
  struct Event {
    QnnProfile_EventType_t type;
    QnnProfile_EventUnit_t unit;
    std::uint64_t value, timestamp;
    std::string identifier;
    std::vector<QnnProfile_EventId_t> subs;
  };
  // Begins anew: the events are those of the last call that was given the profile.
  void clear();
  static QnnProfile_EventId_t add(const std::shared_ptr<Profile>& self, Event event, QnnProfile_EventId_t parent);
  const Event* event(std::size_t at) const;

  const std::shared_ptr<Backend> backend;
  const QnnProfile_Level_t level;
  std::uint64_t most_events = 0;  // 0: as many as there are
  mutable std::mutex mutex;
  std::vector<QnnProfile_EventId_t> roots;

 private:
  std::deque<Event> events_;
  std::vector<QnnProfile_EventId_t> ids_;
};

class Context;

class Memory final : public Object {
 public:
  static constexpr Kind kind_of = Kind::memory;
  Memory() : Object(Kind::memory) {}
  ~Memory() override;
  std::weak_ptr<Context> context;
  void* data = nullptr;  // of the tensor
  std::uint64_t bytes = 0;
  void* mapped = nullptr;  // what was mapped here, or null
  std::size_t mapped_bytes = 0;
  std::uint64_t number = 0;    // of this program's memory, from 1 on
  std::int64_t on_device = 0;  // its handle there
  std::int64_t buffer = 0;     // what several tensors of one buffer have in common
  std::uint64_t buffer_bytes = 0, offset = 0;
};

// A tensor as a client declared it.
struct Tensor {
  std::uint32_t id = 0;
  std::string name;
  Qnn_TensorType_t type = QNN_TENSOR_TYPE_UNDEFINED;
  Qnn_DataType_t data_type = QNN_DATATYPE_UNDEFINED;
  std::vector<std::uint32_t> dims;
  std::vector<std::uint8_t> dynamic;
  bool quantized = false;
  Qnn_QuantizationEncoding_t encoding = QNN_QUANTIZATION_ENCODING_UNDEFINED;
  std::int32_t axis = 0;
  std::uint32_t bits = 0, blocks = 0, block_bits = 0, block_bytes = 1;
  std::vector<float> scales;
  std::vector<std::int32_t> offsets;
  std::vector<std::byte> block_scales;
  std::vector<std::byte> data;
  bool has_data = false;
};

struct Param {
  std::string name;
  std::optional<Tensor> tensor;
  Qnn_Scalar_t scalar{};
  std::string text;
};

struct Node {
  std::string name, package, type;
  std::vector<Param> params;
  std::vector<std::size_t> inputs, outputs;  // places in the graph's tensors
};

// Where a tensor of a graph goes when it runs.
struct Port {
  std::string name;
  std::uint32_t id;
  std::uint64_t bytes, elements;
};

class Graph final : public Object {
 public:
  static constexpr Kind kind_of = Kind::graph;
  Graph(const std::shared_ptr<Context>& context, std::string name)
      : Object(Kind::graph), context(context), name(std::move(name)) {}
  const std::weak_ptr<Context> context;
  const std::string name;
  std::mutex mutex;  // while it is built; what follows does not change once it is finalized
  std::vector<Tensor> tensors;
  std::unordered_map<std::string, std::size_t> by_name;
  std::vector<Node> nodes;
  Options options;
  std::atomic<bool> finalized{false};
  std::atomic<bool> has_run{false};
  std::atomic<bool> adapted{false};           // an adapter was applied
  Binary binary;                              // a context of this graph alone, as it was prepared
  std::shared_ptr<CompiledContext> compiled;  // that of this graph alone, or of the file
  std::shared_ptr<CompiledGraph> program;     // null where the graph runs in the compiler process
  std::vector<Port> inputs, outputs;
  std::shared_ptr<const GraphTimeline> timeline;
  std::optional<Qnn_Priority_t> priority;  // of its own
  std::int64_t placed = 0;                 // its context on the simulated device; 0 where it has none
};

class Context final : public Object, public std::enable_shared_from_this<Context> {
 public:
  static constexpr Kind kind_of = Kind::context;
  Context(std::shared_ptr<Backend> backend, std::shared_ptr<Device> device);
  ~Context() override;
  const std::shared_ptr<Backend> backend;
  const std::shared_ptr<Device> device;  // or null
  const std::uint64_t number;            // what the compiler process calls it
  Options options;
  bool weight_sharing = false, prepare_only = false;
  bool persistent_binary = false, memory_limited = false, shares_resources = false;
  std::uint64_t group = 0;   // contexts of one number share memory on a chip: one of their graphs runs at a time
  std::string group_reason;  // what made them share it
  std::uint64_t spill_fill_bytes = 0;
  // The same for the simulated device: options by the names of its CreationConfig, each written as JSON.
  std::map<std::string, std::string> creation;
  std::string group_key;  // which of its options registers a group
  bool joins_group = false;
  std::weak_ptr<Context> first_of_group;
  std::string sharing_type;
  std::shared_ptr<SimulatedProcess> simulated;
  std::vector<std::int64_t> placed;  // on the device: one for a file, one for each graph that was finalized
  std::vector<std::string> enabled_graphs;
  Qnn_Priority_t priority = QNN_PRIORITY_NORMAL;
  std::mutex mutex;
  std::uint32_t next_id = 1;
  std::vector<std::shared_ptr<Graph>> graphs;
  std::vector<Tensor> tensors;
  std::vector<void*> memories;
  Binary binary;                              // the file: given, or made when it is asked for
  std::shared_ptr<CompiledContext> compiled;  // of a context that was given as a file
  bool from_binary = false;
  // Executions that wait for their turn, in order, on a thread of the context.
  static constexpr std::uint32_t kDeepestQueue = 300;  // that QNN's HTP backend has
  std::size_t queue_depth = kDeepestQueue;
  std::mutex queue_mutex;
  std::condition_variable queue_changed;
  std::deque<std::function<void()>> queue;
  std::thread runner;
  bool closing = false;

  Options all_options(const Options& own) const;
  void run_later(std::function<void()> task);
  void finish_queue();
};

// Numbers for contexts and groups of them.
std::uint64_t next_number();

std::shared_ptr<Backend> backend_of(Qnn_BackendHandle_t handle);
std::shared_ptr<Context> context_of(Qnn_ContextHandle_t handle);
std::shared_ptr<Graph> graph_of(Qnn_GraphHandle_t handle);
std::shared_ptr<Context> context_of(const Graph& graph);

std::shared_ptr<Logger> no_logger();
std::shared_ptr<Logger> logger_of(const std::shared_ptr<Backend>& backend);

// What the device that was created last asks for: checks of ops are for this chip.
Options chip_options(const Library& library);

std::uint64_t now_us();

// Throws Failure where a second copy of the library is in the process, which QNN does not allow.
void require_one_library(const char* call);

}  // namespace hexforge::capi
