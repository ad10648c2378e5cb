// SPDX-License-Identifier: Apache-2.0
// Contexts, executions and memory on the simulated device; nothing happens where a program has none.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "capi/objects.h"
#include "capi/simulated/process.h"

namespace hexforge::capi {

// What a context is created with, as the device reads it: refused here as the device would, before there is a graph.
void check_creation(const Context& context);
// Whether a context of a file suits the chip of its device, by QNN_CONTEXT_CONFIG_BINARY_COMPATIBILITY.
void check_suits(const Context& context);
// Creates a context with the graphs of a binary on the device.
void place_on_device(Context& context, const std::vector<std::shared_ptr<Graph>>& graphs, const Binary& binary,
                     const std::shared_ptr<Signal>& signal = nullptr);
// The contexts of a list, which may share resources; what each ended with. Its list's options come first.
std::vector<Qnn_ErrorHandle_t> place_list_on_device(const std::vector<std::shared_ptr<Context>>& contexts,
                                                    std::vector<std::string>& messages);
void free_on_device(Context& context);
void set_priority_on_device(const Context& context, Qnn_Priority_t priority);
void set_priority_on_device(const Graph& graph, Qnn_Priority_t priority);
void set_on_device(const Graph& graph, const char* key, const std::string& value);  // written as JSON
void apply_on_device(const Graph& graph, const std::string& adapter);
// A name of Priority's, as the device has it; throws Failure for none.
const char* priority_name(Qnn_Priority_t priority, Qnn_ErrorHandle_t code);

// An execution that was begun on the device.
struct DeviceRun {
  std::shared_ptr<SimulatedProcess> process;
  std::int64_t call = 0;
  std::optional<hexforge::Json> wait(bool when_quiet) const;  // what it took; nothing without a device
};
DeviceRun begin_on_device(const Graph& graph, const std::vector<std::int64_t>& memories, bool copies,
                          std::uint64_t batch, const std::shared_ptr<Signal>& signal);

std::vector<std::int64_t> register_on_device(const Context& context, const std::vector<std::shared_ptr<Memory>>& made);
void deregister_on_device(const Context& context, const std::vector<std::int64_t>& handles);

// What the DSP's heap had in use around contexts that asked for it to be profiled.
struct HeapEvent {
  const char* name;
  std::int64_t bytes;
};
std::vector<HeapEvent> heap_events(const Context& context, const char* event);

}  // namespace hexforge::capi
