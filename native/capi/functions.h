// SPDX-License-Identifier: Apache-2.0
// The functions of QNN's API as they stand in the tables; interface.cpp puts them there.
#pragma once
#include "QnnInterface.h"
#include "System/QnnSystemInterface.h"
#include "capi/objects.h"
#include "context/json.h"

namespace hexforge::capi {

extern const Library kHtp, kCpu, kGpu, kSaver;

Qnn_ErrorHandle_t property_has_capability(const Library& library, QnnProperty_Key_t key);
Qnn_ErrorHandle_t backend_create(const Library& library, Qnn_LogHandle_t logger, const QnnBackend_Config_t** config,
                                 Qnn_BackendHandle_t* backend);
Qnn_ErrorHandle_t backend_get_api_version(const Library& library, Qnn_ApiVersion_t* version);
Qnn_ErrorHandle_t device_create(const Library& library, Qnn_LogHandle_t logger, const QnnDevice_Config_t** config,
                                Qnn_DeviceHandle_t* device);
Qnn_ErrorHandle_t device_get_platform_info(const Library& library, Qnn_LogHandle_t logger,
                                           const QnnDevice_PlatformInfo_t** platform_info);
Qnn_ErrorHandle_t device_get_infrastructure(const Library& library, QnnDevice_Infrastructure_t* infrastructure);

Qnn_ErrorHandle_t backend_set_config(Qnn_BackendHandle_t, const QnnBackend_Config_t**);
Qnn_ErrorHandle_t backend_get_build_id(const char**);
Qnn_ErrorHandle_t backend_register_op_package(Qnn_BackendHandle_t, const char*, const char*, const char*);
Qnn_ErrorHandle_t backend_get_supported_operations(Qnn_BackendHandle_t, std::uint32_t*,
                                                   const QnnBackend_OperationName_t**);
Qnn_ErrorHandle_t backend_validate_op_config(Qnn_BackendHandle_t, Qnn_OpConfig_t);
Qnn_ErrorHandle_t backend_free(Qnn_BackendHandle_t);

Qnn_ErrorHandle_t context_create(Qnn_BackendHandle_t, Qnn_DeviceHandle_t, const QnnContext_Config_t**,
                                 Qnn_ContextHandle_t*);
Qnn_ErrorHandle_t context_set_config(Qnn_ContextHandle_t, const QnnContext_Config_t**);
Qnn_ErrorHandle_t context_get_binary_size(Qnn_ContextHandle_t, Qnn_ContextBinarySize_t*);
Qnn_ErrorHandle_t context_get_binary(Qnn_ContextHandle_t, void*, Qnn_ContextBinarySize_t, Qnn_ContextBinarySize_t*);
Qnn_ErrorHandle_t context_create_from_binary(Qnn_BackendHandle_t, Qnn_DeviceHandle_t, const QnnContext_Config_t**,
                                             const void*, Qnn_ContextBinarySize_t, Qnn_ContextHandle_t*,
                                             Qnn_ProfileHandle_t);
Qnn_ErrorHandle_t context_create_from_binary_with_signal(Qnn_BackendHandle_t, Qnn_DeviceHandle_t,
                                                         const QnnContext_Config_t**, const void*,
                                                         Qnn_ContextBinarySize_t, Qnn_ContextHandle_t*,
                                                         Qnn_ProfileHandle_t, Qnn_SignalHandle_t);
Qnn_ErrorHandle_t context_create_from_binary_list_async(Qnn_BackendHandle_t, Qnn_DeviceHandle_t,
                                                        const QnnContext_Params_t**, const QnnContext_Config_t**,
                                                        Qnn_SignalHandle_t);
Qnn_ErrorHandle_t context_validate_binary(Qnn_BackendHandle_t, Qnn_DeviceHandle_t, const QnnContext_Config_t**,
                                          const void*, Qnn_ContextBinarySize_t);
Qnn_ErrorHandle_t context_apply_binary_section(Qnn_ContextHandle_t, Qnn_GraphHandle_t, QnnContext_SectionType_t,
                                               const QnnContext_Buffer_t*, Qnn_ProfileHandle_t, Qnn_SignalHandle_t);
Qnn_ErrorHandle_t context_free(Qnn_ContextHandle_t, Qnn_ProfileHandle_t);

Qnn_ErrorHandle_t graph_create(Qnn_ContextHandle_t, const char*, const QnnGraph_Config_t**, Qnn_GraphHandle_t*);
Qnn_ErrorHandle_t graph_create_subgraph(Qnn_GraphHandle_t, const char*, Qnn_GraphHandle_t*);
Qnn_ErrorHandle_t graph_set_config(Qnn_GraphHandle_t, const QnnGraph_Config_t**);
Qnn_ErrorHandle_t graph_add_node(Qnn_GraphHandle_t, Qnn_OpConfig_t);
Qnn_ErrorHandle_t graph_finalize(Qnn_GraphHandle_t, Qnn_ProfileHandle_t, Qnn_SignalHandle_t);
Qnn_ErrorHandle_t graph_retrieve(Qnn_ContextHandle_t, const char*, Qnn_GraphHandle_t*);
Qnn_ErrorHandle_t graph_execute(Qnn_GraphHandle_t, const Qnn_Tensor_t*, std::uint32_t, Qnn_Tensor_t*, std::uint32_t,
                                Qnn_ProfileHandle_t, Qnn_SignalHandle_t);
Qnn_ErrorHandle_t graph_execute_async(Qnn_GraphHandle_t, const Qnn_Tensor_t*, std::uint32_t, Qnn_Tensor_t*,
                                      std::uint32_t, Qnn_ProfileHandle_t, Qnn_SignalHandle_t, Qnn_NotifyFn_t, void*);

Qnn_ErrorHandle_t tensor_create_context_tensor(Qnn_ContextHandle_t, Qnn_Tensor_t*);
Qnn_ErrorHandle_t tensor_create_graph_tensor(Qnn_GraphHandle_t, Qnn_Tensor_t*);
Qnn_ErrorHandle_t tensor_update_graph_tensors(Qnn_GraphHandle_t, const Qnn_Tensor_t**, std::uint64_t);
Qnn_ErrorHandle_t tensor_update_context_tensors(Qnn_ContextHandle_t, const Qnn_Tensor_t**, std::uint64_t);

Qnn_ErrorHandle_t log_create(QnnLog_Callback_t, QnnLog_Level_t, Qnn_LogHandle_t*);
Qnn_ErrorHandle_t log_set_log_level(Qnn_LogHandle_t, QnnLog_Level_t);
Qnn_ErrorHandle_t log_free(Qnn_LogHandle_t);

Qnn_ErrorHandle_t profile_create(Qnn_BackendHandle_t, QnnProfile_Level_t, Qnn_ProfileHandle_t*);
Qnn_ErrorHandle_t profile_set_config(Qnn_ProfileHandle_t, const QnnProfile_Config_t**);
Qnn_ErrorHandle_t profile_get_events(Qnn_ProfileHandle_t, const QnnProfile_EventId_t**, std::uint32_t*);
Qnn_ErrorHandle_t profile_get_sub_events(QnnProfile_EventId_t, const QnnProfile_EventId_t**, std::uint32_t*);
Qnn_ErrorHandle_t profile_get_event_data(QnnProfile_EventId_t, QnnProfile_EventData_t*);
Qnn_ErrorHandle_t profile_get_extended_event_data(QnnProfile_EventId_t, QnnProfile_ExtendedEventData_t*);
Qnn_ErrorHandle_t profile_free(Qnn_ProfileHandle_t);

Qnn_ErrorHandle_t mem_register(Qnn_ContextHandle_t, const Qnn_MemDescriptor_t*, std::uint32_t, Qnn_MemHandle_t*);
Qnn_ErrorHandle_t mem_de_register(const Qnn_MemHandle_t*, std::uint32_t);

Qnn_ErrorHandle_t device_free_platform_info(Qnn_LogHandle_t, const QnnDevice_PlatformInfo_t*);
Qnn_ErrorHandle_t device_set_config(Qnn_DeviceHandle_t, const QnnDevice_Config_t**);
Qnn_ErrorHandle_t device_get_info(Qnn_DeviceHandle_t, const QnnDevice_PlatformInfo_t**);
Qnn_ErrorHandle_t device_free(Qnn_DeviceHandle_t);

Qnn_ErrorHandle_t signal_create(Qnn_BackendHandle_t, const QnnSignal_Config_t**, Qnn_SignalHandle_t*);
Qnn_ErrorHandle_t signal_set_config(Qnn_SignalHandle_t, const QnnSignal_Config_t**);
Qnn_ErrorHandle_t signal_trigger(Qnn_SignalHandle_t);
Qnn_ErrorHandle_t signal_free(Qnn_SignalHandle_t);

Qnn_ErrorHandle_t error_get_message(Qnn_ErrorHandle_t, const char**);
Qnn_ErrorHandle_t error_get_verbose_message(Qnn_ErrorHandle_t, const char**);
Qnn_ErrorHandle_t error_free_verbose_message(const char*);

Qnn_ErrorHandle_t system_context_create(QnnSystemContext_Handle_t*);
Qnn_ErrorHandle_t system_context_get_binary_info(QnnSystemContext_Handle_t, void*, std::uint64_t,
                                                 const QnnSystemContext_BinaryInfo_t**, Qnn_ContextBinarySize_t*);
Qnn_ErrorHandle_t system_context_get_metadata(QnnSystemContext_Handle_t, const void*, std::uint64_t,
                                              const QnnSystemContext_BinaryInfo_t**);
Qnn_ErrorHandle_t system_context_free(QnnSystemContext_Handle_t);

// Options of a context and of graphs, as a client's configurations say them.
void apply_context_config(Context& context, const QnnContext_Config_t** config, bool changing);
void apply_graph_config(Graph& graph, const QnnGraph_Config_t** config, bool changing);
// What a call took, told to its profile.
void profile_call(Qnn_ProfileHandle_t profile, QnnProfile_EventType_t type, std::uint64_t began_us, const char* what,
                  const GraphTimeline* timeline = nullptr);
// The same for an execution, and what it took on the simulated device where it ran there.
void profile_execution(Qnn_ProfileHandle_t profile, std::uint64_t began_us, const Graph& graph,
                       const hexforge::Json* took);

}  // namespace hexforge::capi
