// SPDX-License-Identifier: Apache-2.0
// The sanitizer: with HEXFORGE_QNN_CHECK=1 every misuse that QNN's documents call undefined or unexpected is reported,
// with the call, its arguments and what to do. Another value names a file that gets a line of JSON for each finding.
// HEXFORGE_QNN_CALLS names a file that gets a line for each call. Without both, nothing here is in any call's way.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "capi/objects.h"

namespace hexforge::capi::check {

bool on();         // findings are asked for
bool calls_on();   // a line for each call is
bool recording();  // HEXFORGE_QNN_RECORD: graphs and executions go to the compiler process, which writes them down

// A call of the API that is on its way in this thread.
struct Call {
  const char* name;
  std::uint64_t number;
  std::function<std::string()> arguments;
};
Call* current_call();
void set_current_call(Call* call);

// Tells a finding of the current call; the same one is told once.
void report(const char* rule, const std::string& what, const std::string& advice, Qnn_ErrorHandle_t code = 0);
// As above, for something that was called earlier.
void report_for(const std::string& call, const std::string& arguments, const char* rule, const std::string& what,
                const std::string& advice, Qnn_ErrorHandle_t code = 0);
void log_call(const Call& call, Qnn_ErrorHandle_t code, std::uint64_t took_us);

// "context#3": what a finding calls an object by.
std::string name_of(const void* handle);

// An execution, from the call to the end of its run. Null where nothing is checked.
class Execution {
 public:
  Execution(std::shared_ptr<Graph> graph, std::span<const Buffer> inputs, std::span<const Buffer> outputs,
            std::vector<const void*> memories);
  ~Execution();
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;
  // Its turn has come; throws Failure where its memory is gone, which would end the process.
  void begin();
  const Graph& graph() const { return *graph_; }
  bool running() const { return running_; }
  bool uses(const void* memory) const;
  bool overlaps(const Execution& other, std::string& which) const;
  std::string told() const { return call_ + "(" + arguments_ + ")"; }

 private:
  struct Watched {
    const Port* port;
    Buffer buffer;
    std::uint64_t digest;
  };
  void look_at_inputs(const char* when, bool& gone) const;
  void look_at_indices() const;
  std::shared_ptr<Graph> graph_;
  std::vector<Watched> inputs_, outputs_;
  std::vector<const void*> memories_;
  std::string call_, arguments_;
  bool running_ = false;
};
std::shared_ptr<Execution> execution(const std::shared_ptr<Graph>& graph, std::span<const Buffer> inputs,
                                     std::span<const Buffer> outputs, const Qnn_Tensor_t* input_tensors,
                                     const Qnn_Tensor_t* output_tensors);
// Executions that wait or run: the first that fits, as text; empty where none does.
std::string in_flight(const std::function<bool(const Execution&)>& fits);

// The bytes of a context that its client promised to keep (QNN_CONTEXT_CONFIG_PERSISTENT_BINARY).
void keep_watch(const Context& context, const void* bytes, std::uint64_t size);
void look_at_binary(const Context& context);
void end_watch(const Context& context);

// A table whose functions check, then call those of `table`.
void wrap(QnnInterface_Implementation_t& table, std::uint32_t backend);

}  // namespace hexforge::capi::check
