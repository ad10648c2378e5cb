// SPDX-License-Identifier: Apache-2.0
// The tables of functions, one for each library; thin.c asks for them by the library's number.
#include "capi/functions.h"

#include "capi/check/check.h"

namespace hexforge::capi {
namespace {

Qnn_ErrorHandle_t not_supported(...) { return QNN_COMMON_ERROR_NOT_SUPPORTED; }
// Calls 13 to 15 of the system's table: onnxruntime's provider asks there for a profile's log in QNN's own format,
// which is not written; its CSV comes from QnnProfile. It fails where these fail.
Qnn_ErrorHandle_t nothing_written(...) { return QNN_SUCCESS; }
constexpr int kSystemLogCalls[] = {13, 14, 15};
constexpr int kSystemCalls = sizeof(QnnSystemInterface_Implementation_t) / sizeof(void*);

// The functions that know by their library which backend they are for.
template <const Library& kLibrary>
struct Of {
  static Qnn_ErrorHandle_t has_capability(QnnProperty_Key_t key) { return property_has_capability(kLibrary, key); }
  static Qnn_ErrorHandle_t create(Qnn_LogHandle_t logger, const QnnBackend_Config_t** config,
                                  Qnn_BackendHandle_t* backend) {
    return backend_create(kLibrary, logger, config, backend);
  }
  static Qnn_ErrorHandle_t api_version(Qnn_ApiVersion_t* version) { return backend_get_api_version(kLibrary, version); }
  static Qnn_ErrorHandle_t device(Qnn_LogHandle_t logger, const QnnDevice_Config_t** config, Qnn_DeviceHandle_t* out) {
    return device_create(kLibrary, logger, config, out);
  }
  static Qnn_ErrorHandle_t platform_info(Qnn_LogHandle_t logger, const QnnDevice_PlatformInfo_t** info) {
    return device_get_platform_info(kLibrary, logger, info);
  }
  static Qnn_ErrorHandle_t infrastructure(QnnDevice_Infrastructure_t* out) {
    return device_get_infrastructure(kLibrary, out);
  }

  static QnnInterface_t table() {
    QnnInterface_t made{};
    made.backendId = kLibrary.id;
    made.providerName = kLibrary.provider;
    made.apiVersion = {{QNN_API_VERSION_MAJOR, QNN_API_VERSION_MINOR, QNN_API_VERSION_PATCH}, kLibrary.version};
    QnnInterface_Implementation_t& f = made.v2;
    f.propertyHasCapability = has_capability;
    f.backendCreate = create;
    f.backendSetConfig = backend_set_config;
    f.backendGetApiVersion = api_version;
    f.backendGetBuildId = backend_get_build_id;
    f.backendRegisterOpPackage = backend_register_op_package;
    f.backendGetSupportedOperations = backend_get_supported_operations;
    f.backendValidateOpConfig = backend_validate_op_config;
    f.backendFree = backend_free;
    f.contextCreate = context_create;
    f.contextSetConfig = context_set_config;
    f.contextGetBinarySize = context_get_binary_size;
    f.contextGetBinary = context_get_binary;
    f.contextCreateFromBinary = context_create_from_binary;
    f.contextFree = context_free;
    f.graphCreate = graph_create;
    f.graphCreateSubgraph = graph_create_subgraph;
    f.graphSetConfig = graph_set_config;
    f.graphAddNode = graph_add_node;
    f.graphFinalize = graph_finalize;
    f.graphRetrieve = graph_retrieve;
    f.graphExecute = graph_execute;
    f.graphExecuteAsync = graph_execute_async;
    f.tensorCreateContextTensor = tensor_create_context_tensor;
    f.tensorCreateGraphTensor = tensor_create_graph_tensor;
    f.logCreate = log_create;
    f.logSetLogLevel = log_set_log_level;
    f.logFree = log_free;
    f.profileCreate = profile_create;
    f.profileSetConfig = profile_set_config;
    f.profileGetEvents = profile_get_events;
    f.profileGetSubEvents = profile_get_sub_events;
    f.profileGetEventData = profile_get_event_data;
    f.profileGetExtendedEventData = profile_get_extended_event_data;
    f.profileFree = profile_free;
    f.memRegister = mem_register;
    f.memDeRegister = mem_de_register;
    f.deviceGetPlatformInfo = platform_info;
    f.deviceFreePlatformInfo = device_free_platform_info;
    f.deviceGetInfrastructure = infrastructure;
    f.deviceCreate = device;
    f.deviceSetConfig = device_set_config;
    f.deviceGetInfo = device_get_info;
    f.deviceFree = device_free;
    f.signalCreate = signal_create;
    f.signalSetConfig = signal_set_config;
    f.signalTrigger = signal_trigger;
    f.signalFree = signal_free;
    f.errorGetMessage = error_get_message;
    f.errorGetVerboseMessage = error_get_verbose_message;
    f.errorFreeVerboseMessage = error_free_verbose_message;
    f.contextValidateBinary = context_validate_binary;
    f.contextCreateFromBinaryWithSignal = context_create_from_binary_with_signal;
    f.contextCreateFromBinaryListAsync = context_create_from_binary_list_async;
    f.tensorUpdateGraphTensors = tensor_update_graph_tensors;
    f.tensorUpdateContextTensors = tensor_update_context_tensors;
    f.contextApplyBinarySection = context_apply_binary_section;
    return made;
  }
};

// A table with room behind it: functions that newer versions append say that they are not supported.
struct Table {
  QnnInterface_t interface{};
  QnnInterface_UnspecifiedFn_t appended[32];
};

template <const Library& kLibrary>
Table whole_table() {
  const auto refuse = reinterpret_cast<QnnInterface_UnspecifiedFn_t>(not_supported);
  Table made;
  made.interface = Of<kLibrary>::table();
  QnnInterface_Implementation_t& f = made.interface.v2;
  for (auto* each : {&f.graphPrepareExecutionEnvironment, &f.graphReleaseExecutionEnvironment, &f.graphGetProperty,
                     &f.contextGetBinarySectionSize, &f.contextGetBinarySection, &f.backendGetProperty,
                     &f.contextGetProperty, &f.contextGetIncrementalBinary, &f.contextReleaseIncrementalBinary,
                     &f.contextFinalize, &f.globalConfigSet, &f.contextCreateFromBinaryWithCallback})
    *each = refuse;
  check::wrap(f, kLibrary.id);
  for (auto& each : made.appended) each = refuse;
  return made;
}

}  // namespace
}  // namespace hexforge::capi

using namespace hexforge::capi;

extern "C" QNN_API const QnnInterface_t** hexforge_qnn_providers(std::uint32_t backend, std::uint32_t* count) {
  static const Table htp = whole_table<kHtp>(), cpu = whole_table<kCpu>(), gpu = whole_table<kGpu>(),
                     saver = whole_table<kSaver>();
  static const QnnInterface_t* lists[] = {&htp.interface, &cpu.interface, &gpu.interface, &saver.interface};
  for (const QnnInterface_t*& each : lists)
    if (each->backendId == backend) {
      *count = 1;
      return &each;
    }
  *count = 0;
  return nullptr;
}

extern "C" QNN_API const QnnSystemInterface_t** hexforge_qnn_system_providers(std::uint32_t* count) {
  struct SystemTable {
    QnnSystemInterface_t interface;
    QnnInterface_UnspecifiedFn_t appended[60];  // logs, DLC files, profiles: not supported
  };
  static const SystemTable table = [] {
    SystemTable made = {
        {0,
         "SYSTEM_QTI_AISW",
         {QNN_SYSTEM_API_VERSION_MAJOR, QNN_SYSTEM_API_VERSION_MINOR, QNN_SYSTEM_API_VERSION_PATCH},
         {{system_context_create, system_context_get_binary_info, system_context_get_metadata, system_context_free}}},
        {}};
    for (auto& each : made.appended) each = reinterpret_cast<QnnInterface_UnspecifiedFn_t>(not_supported);
    for (const int call : kSystemLogCalls)
      made.appended[call - kSystemCalls] = reinterpret_cast<QnnInterface_UnspecifiedFn_t>(nothing_written);
    return made;
  }();
  static const QnnSystemInterface_t* list[] = {&table.interface};
  *count = 1;
  return list;
}
