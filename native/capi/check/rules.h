// SPDX-License-Identifier: Apache-2.0
// What is looked at before and after calls, besides what every call has in common.
#pragma once
#include "capi/check/check.h"

namespace hexforge::capi::check {

void before_backend_free(Qnn_BackendHandle_t backend);
// A profile that a call is given, beside the object that the call is of.
void before_profile(const void* object, const void* profile);
void before_log_free(Qnn_LogHandle_t logger);
void before_context_create(const QnnContext_Config_t** config);
void before_context_from_binary(const QnnContext_Config_t** config);
void after_context_from_binary(Qnn_DeviceHandle_t device, Qnn_ContextHandle_t context);
void before_context_list(const QnnContext_Params_t** params);
void before_context_free(Qnn_ContextHandle_t context);
void before_graph_set_config(Qnn_GraphHandle_t graph, const QnnGraph_Config_t** config);
void after_graph_add_node(Qnn_GraphHandle_t graph);
void before_graph_finalize(Qnn_GraphHandle_t graph);
void after_graph_tensor(Qnn_GraphHandle_t graph, const Qnn_Tensor_t* tensor);
void before_mem_deregister(const Qnn_MemHandle_t* handles, std::uint32_t count);
// True where something was told that explains the code that comes back.
bool before_tensors(Qnn_GraphHandle_t graph, const Qnn_Tensor_t* inputs, std::uint32_t input_count,
                    const Qnn_Tensor_t* outputs, std::uint32_t output_count);
bool before_node(Qnn_GraphHandle_t graph, const Qnn_OpConfig_t& op);
bool before_handle(const void* handle, bool freeing);
void after_code(Qnn_ErrorHandle_t code);

// Who made and who freed handles.
void note_created(const void* handle);
void note_freed(const void* handle);

// One set of libraries for each process.
void look_for_other_libraries();
// What was never freed.
void at_end();

}  // namespace hexforge::capi::check
