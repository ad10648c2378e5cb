// SPDX-License-Identifier: Apache-2.0
// The functions of QNN's API as they stand in the tables; interface.cpp puts them there.
#pragma once
#include "QnnInterface.h"
#include "System/QnnSystemInterface.h"
#include "capi/objects.h"
#include "context/json.h"

namespace hexforge::capi {

extern const Library kHtp, kCpu, kGpu, kSaver;

// What the type of a pointer to a function of QNN's is declared as here: those of a library are told which.
template <class Pointer>
struct FunctionOf;
template <class... A>
struct FunctionOf<Qnn_ErrorHandle_t (*)(A...)> {
  using yes = Qnn_ErrorHandle_t(A...);
  using library = Qnn_ErrorHandle_t(const Library&, A...);
  using refused = void();
  using nothing = void();
};
// call_table.inc is written from the table functions.csv when the libraries are built.
#define QNN_CALL(how, member, type, name, function) FunctionOf<type>::how function;
#include "call_table.inc"
#include "system_call_table.inc"
#undef QNN_CALL

// Options of a context and of graphs, as a client's configurations say them.
void apply_context_config(Context& context, const QnnContext_Config_t** config, bool changing);
void apply_graph_config(Graph& graph, const QnnGraph_Config_t** config, bool changing);
// What a profile says of an execution beside its time.
struct ExecutionFacts {
  std::uint64_t hvx_threads = 0, yields = 0, vtcm_us = 0, power_us = 0;
};
// What a call took, told to its profile.
void profile_call(Qnn_ProfileHandle_t profile, QnnProfile_EventType_t type, std::uint64_t began_us, const char* what,
                  const GraphTimeline* timeline = nullptr, const ExecutionFacts& facts = {});
// The same for an execution, and what it took on the simulated device where it ran there.
void profile_execution(Qnn_ProfileHandle_t profile, std::uint64_t began_us, const Graph& graph,
                       const hexforge::Json* took);

struct HeapEvent;
void profile_heap(Qnn_ProfileHandle_t profile, const std::vector<HeapEvent>& events);
// How many HVX threads the chip of some options has.
std::uint32_t hvx_threads_of(const Options& options);

}  // namespace hexforge::capi
