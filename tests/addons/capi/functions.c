// SPDX-License-Identifier: Apache-2.0
// Every function of the table, called: its name in the table and the code, a line each, and checks of what it gives.
// ./functions FOLDER_OF_LIBRARIES ADAPTABLE_CONTEXT ADAPTER
#define _GNU_SOURCE
#include <dlfcn.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "HTP/QnnHtpDevice.h"
#include "HTP/QnnHtpMem.h"
#include "QnnInterface.h"
#include "System/QnnSystemInterface.h"

#define ELEMENTS 4
#include "row_tensor.h"

#define CALL(function, ...) said(#function, qnn.function(__VA_ARGS__))
#define SYSTEM(function, ...) said(#function, sys->v1.function(__VA_ARGS__))

static QNN_INTERFACE_VER_TYPE qnn;
static const QnnSystemInterface_t* sys;
static sem_t notified;
static Qnn_ErrorHandle_t async_status = 77;
static int graphs_told, contexts_told;
static Qnn_ContextHandle_t listed;

static Qnn_ErrorHandle_t said(const char* name, Qnn_ErrorHandle_t code) {
  printf("%s %llu\n", name, (unsigned long long)code);
  return code;
}
static void on_end(void* parameter, Qnn_NotifyStatus_t status) {
  REQUIRE(parameter == &notified);
  async_status = status.error;
  sem_post(&notified);
}
static void on_listed(Qnn_ContextHandle_t context, Qnn_GraphHandle_t graph, const char* name,
                      QnnContext_createFromBinaryAsyncNotifyType_t type, void* parameter, Qnn_ErrorHandle_t status) {
  (void)parameter;
  REQUIRE(status == QNN_SUCCESS);
  if (type == QNN_CONTEXT_NOTIFY_TYPE_GRAPH_INIT) {
    REQUIRE(graph && name && !context);  // onnxruntime's provider owns every context that it is told of
    ++graphs_told;
  } else {
    REQUIRE(context);
    listed = context;
    ++contexts_told;
  }
}
static void on_log(const char* format, QnnLog_Level_t level, uint64_t at, va_list arguments) {
  (void)format;
  (void)level;
  (void)at;
  (void)arguments;
}

static Qnn_GraphHandle_t build(Qnn_ContextHandle_t context, const char* name, const char* type) {
  Qnn_GraphHandle_t graph = NULL;
  Qnn_Tensor_t x = tensor("x", QNN_TENSOR_TYPE_APP_WRITE, NULL), y = tensor("y", QNN_TENSOR_TYPE_APP_READ, NULL);
  Qnn_OpConfig_t op = QNN_OPCONFIG_INIT;
  REQUIRE(!CALL(graphCreate, context, name, NULL, &graph));
  REQUIRE(!CALL(tensorCreateGraphTensor, graph, &x) && !CALL(tensorCreateGraphTensor, graph, &y));
  op.v1.name = "node";
  op.v1.packageName = "qti.aisw";
  op.v1.typeName = type;
  op.v1.numOfInputs = op.v1.numOfOutputs = 1;
  op.v1.inputTensors = &x;
  op.v1.outputTensors = &y;
  REQUIRE(!CALL(graphAddNode, graph, op));
  return graph;
}

static void* read_file(const char* path, size_t* size) {
  FILE* file = fopen(path, "rb");
  REQUIRE(file);
  fseek(file, 0, SEEK_END);
  *size = (size_t)ftell(file);
  rewind(file);
  void* data = malloc(*size);
  REQUIRE(data && fread(data, 1, *size, file) == *size);
  fclose(file);
  return data;
}

static void* symbol(const char* folder, const char* library, const char* name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, library);
  void* opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(opened);
  return dlsym(opened, name);
}

static void device_of(uint32_t model, uint32_t arch, uint32_t vtcm) {
  Qnn_DeviceHandle_t device = NULL;
  const QnnDevice_PlatformInfo_t* info = NULL;
  QnnHtpDevice_CustomConfig_t custom = {.option = QNN_HTP_DEVICE_CONFIG_OPTION_SOC};
  QnnDevice_Config_t config = {.option = QNN_DEVICE_CONFIG_OPTION_CUSTOM};
  const QnnDevice_Config_t* list[] = {&config, NULL};
  custom.socModel = model;
  config.customConfig = &custom;
  REQUIRE(!CALL(deviceCreate, NULL, list, &device) && !CALL(deviceGetInfo, device, &info));
  const QnnHtpDevice_DeviceInfoExtension_t* own =
      (const QnnHtpDevice_DeviceInfoExtension_t*)info->v1.hwDevices[0].v1.deviceInfoExtension;
  REQUIRE(own->onChipDevice.socModel == model && own->onChipDevice.arch == (QnnHtpDevice_Arch_t)arch);
  REQUIRE(own->onChipDevice.vtcmSize == vtcm);
  CALL(deviceSetConfig, device, list);
  REQUIRE(!CALL(deviceFree, device));
}

// Changes a graph's weights by an adapter: outputs differ from the base's.
static void adapt(Qnn_BackendHandle_t backend, const char* context_path, const char* adapter_path) {
  size_t size, adapter_size;
  char *binary = read_file(context_path, &size), *adapter = read_file(adapter_path, &adapter_size);
  QnnSystemContext_Handle_t system = NULL;
  const QnnSystemContext_BinaryInfo_t *info = NULL, *again = NULL;
  Qnn_ContextBinarySize_t info_size = 0;
  REQUIRE(!SYSTEM(systemContextCreate, &system));
  REQUIRE(!SYSTEM(systemContextGetBinaryInfo, system, binary, size, &info, &info_size));
  REQUIRE(!SYSTEM(systemContextGetMetaData, system, binary, size, &again));
  const QnnSystemContext_GraphInfoV1_t* own = &info->contextBinaryInfoV1.graphs[0].graphInfoV1;
  Qnn_Tensor_t inputs[8], outputs[8];
  REQUIRE(own->numGraphInputs <= 8 && own->numGraphOutputs <= 8);
  static char room[16][1 << 16], before[1 << 16];
  for (uint32_t i = 0; i < own->numGraphInputs; ++i) {
    inputs[i] = own->graphInputs[i];
    for (size_t k = 0; k < sizeof room[i]; ++k) room[i][k] = (char)(k * 37 + i);
    inputs[i].v1.memType = QNN_TENSORMEMTYPE_RAW;
    inputs[i].v1.clientBuf.data = room[i];
    inputs[i].v1.clientBuf.dataSize = sizeof room[i];
  }
  for (uint32_t i = 0; i < own->numGraphOutputs; ++i) {
    outputs[i] = own->graphOutputs[i];
    outputs[i].v1.memType = QNN_TENSORMEMTYPE_RAW;
    outputs[i].v1.clientBuf.data = room[8 + i];
    outputs[i].v1.clientBuf.dataSize = sizeof room[0];
  }
  Qnn_ContextHandle_t context = NULL;
  Qnn_GraphHandle_t graph = NULL;
  QnnContext_Buffer_t buffer = {.version = QNN_CONTEXT_BUFFER_VERSION_1};
  buffer.v1.memType = QNN_CONTEXTMEMTYPE_RAW;
  buffer.v1.binaryBuf.dataBuffer = adapter;
  buffer.v1.binaryBuf.dataBufferSize = adapter_size;
  REQUIRE(!CALL(contextCreateFromBinary, backend, NULL, NULL, binary, size, &context, NULL));
  REQUIRE(!CALL(graphRetrieve, context, own->graphName, &graph));
  REQUIRE(!CALL(graphExecute, graph, inputs, own->numGraphInputs, outputs, own->numGraphOutputs, NULL, NULL));
  memcpy(before, room[8], sizeof before);
  REQUIRE(!CALL(contextApplyBinarySection, context, graph, QNN_CONTEXT_SECTION_UPDATABLE, &buffer, NULL, NULL));
  REQUIRE(!CALL(graphExecute, graph, inputs, own->numGraphInputs, outputs, own->numGraphOutputs, NULL, NULL));
  REQUIRE(memcmp(before, room[8], sizeof before) != 0);
  buffer.v1.binaryBuf.dataBuffer = binary;
  REQUIRE(CALL(contextApplyBinarySection, context, graph, QNN_CONTEXT_SECTION_UPDATABLE, &buffer, NULL, NULL));
  REQUIRE(!CALL(contextFree, context, NULL) && !SYSTEM(systemContextFree, system));
  free(binary);
  free(adapter);
}

static void memory(Qnn_ContextHandle_t context, Qnn_GraphHandle_t graph) {
  Qnn_MemHandle_t handles[2];
  Qnn_MemDescriptor_t descriptors[2];
  QnnMemHtp_Descriptor_t custom;
  int ion = memfd_create("x", 0), shared = memfd_create("all", 0);
  REQUIRE(!ftruncate(ion, 16) && !ftruncate(shared, 4096));
  float* x = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, ion, 0);
  float* all = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
  for (int i = 0; i < 4; ++i) x[i] = (float)(i - 2);
  memset(descriptors, 0, sizeof descriptors);
  memset(&custom, 0, sizeof custom);
  for (int i = 0; i < 2; ++i) {
    descriptors[i].memShape.numDim = 2;
    descriptors[i].memShape.dimSize = dims;
    descriptors[i].dataType = QNN_DATATYPE_FLOAT_32;
  }
  descriptors[0].memType = QNN_MEM_TYPE_ION;
  descriptors[0].ionInfo.fd = ion;
  descriptors[1].memType = QNN_MEM_TYPE_CUSTOM;
  descriptors[1].customInfo = &custom;
  custom.type = QNN_HTP_MEM_SHARED_BUFFER;
  custom.size = 4096;
  custom.sharedBufferConfig.fd = shared;
  custom.sharedBufferConfig.offset = UINT64_MAX - 7;  // and 16 bytes from there on
  REQUIRE(CALL(memRegister, context, descriptors, 2, handles) == QNN_MEM_ERROR_INVALID_SHAPE);
  custom.sharedBufferConfig.offset = 256;
  REQUIRE(!CALL(memRegister, context, descriptors, 2, handles));
  Qnn_Tensor_t in = tensor("x", QNN_TENSOR_TYPE_APP_WRITE, NULL), out = tensor("y", QNN_TENSOR_TYPE_APP_READ, NULL);
  in.v1.memType = out.v1.memType = QNN_TENSORMEMTYPE_MEMHANDLE;
  in.v1.memHandle = handles[0];
  out.v1.memHandle = handles[1];
  REQUIRE(!CALL(graphExecute, graph, &in, 1, &out, 1, NULL, NULL));
  REQUIRE(all[64] == 0 && all[65] == 0 && all[66] == 0 && all[67] == 1);
  REQUIRE(!CALL(memDeRegister, handles, 2));
  REQUIRE(CALL(graphExecute, graph, &in, 1, &out, 1, NULL, NULL) == QNN_MEM_ERROR_INVALID_HANDLE);
}

static void profile_of(Qnn_BackendHandle_t backend, Qnn_GraphHandle_t graph, Qnn_Tensor_t* in, Qnn_Tensor_t* out) {
  Qnn_ProfileHandle_t profile = NULL;
  const QnnProfile_EventId_t *events = NULL, *subs = NULL;
  uint32_t count = 0, sub_count = 0;
  QnnProfile_EventData_t data;
  QnnProfile_ExtendedEventData_t more;
  REQUIRE(!CALL(profileCreate, backend, QNN_PROFILE_LEVEL_DETAILED, &profile));
  CALL(profileSetConfig, profile, NULL);
  REQUIRE(!CALL(graphExecute, graph, in, 1, out, 1, profile, NULL));
  REQUIRE(!CALL(profileGetEvents, profile, &events, &count) && count == 1);
  REQUIRE(!CALL(profileGetEventData, events[0], &data) && data.type == QNN_PROFILE_EVENTTYPE_EXECUTE);
  REQUIRE(!CALL(profileGetExtendedEventData, events[0], &more));
  REQUIRE(more.version == QNN_PROFILE_DATA_VERSION_1 && more.v1.type == data.type && more.v1.unit == data.unit);
  REQUIRE(more.v1.value.dataType == QNN_DATATYPE_UINT_64 && more.v1.value.uint64Value == data.value);
  REQUIRE(more.v1.timestamp && !strcmp(more.v1.identifier, data.identifier));
  REQUIRE(!CALL(profileGetSubEvents, events[0], &subs, &sub_count));
  REQUIRE(!CALL(profileFree, profile));
}

int main(int argc, char** argv) {
  QnnInterface_GetProvidersFn_t providers;
  Qnn_ErrorHandle_t (*system_providers)(const QnnSystemInterface_t***, uint32_t*);
  const QnnInterface_t** list = NULL;
  const QnnSystemInterface_t** system_list = NULL;
  uint32_t count = 0;
  REQUIRE(argc == 4);
  *(void**)&providers = symbol(argv[1], "libQnnHtp.so", "QnnInterface_getProviders");
  *(void**)&system_providers = symbol(argv[1], "libQnnSystem.so", "QnnSystemInterface_getProviders");
  REQUIRE(!providers(&list, &count) && count == 1 && !system_providers(&system_list, &count) && count == 1);
  qnn = list[0]->QNN_INTERFACE_VER_NAME;
  sys = system_list[0];
  sem_init(&notified, 0, 0);

  Qnn_LogHandle_t logger = NULL;
  Qnn_BackendHandle_t backend = NULL;
  Qnn_ContextHandle_t context = NULL, loaded = NULL;
  Qnn_SignalHandle_t stop = NULL;
  Qnn_ApiVersion_t version;
  const char *id = NULL, *text = NULL;
  const QnnBackend_OperationName_t* operations = NULL;
  const QnnDevice_PlatformInfo_t* platform = NULL;
  QnnDevice_Infrastructure_t infrastructure = NULL;
  REQUIRE(!CALL(logCreate, on_log, QNN_LOG_LEVEL_ERROR, &logger));
  REQUIRE(!CALL(logSetLogLevel, logger, QNN_LOG_LEVEL_WARN));
  REQUIRE(!CALL(backendCreate, logger, NULL, &backend));
  CALL(backendSetConfig, backend, NULL);
  REQUIRE(!CALL(backendGetApiVersion, &version) && version.coreApiVersion.major == QNN_API_VERSION_MAJOR);
  REQUIRE(!CALL(backendGetBuildId, &id) && id);
  CALL(backendRegisterOpPackage, backend, "/nowhere/libOps.so", "provider", NULL);
  REQUIRE(!CALL(backendGetSupportedOperations, backend, &count, &operations) && count > 100);
  CALL(propertyHasCapability, QNN_PROPERTY_GROUP_DEVICE);
  REQUIRE(!CALL(deviceGetPlatformInfo, logger, &platform) && !CALL(deviceFreePlatformInfo, logger, platform));
  REQUIRE(!CALL(deviceGetInfrastructure, &infrastructure) && infrastructure);
  device_of(57, 75, 8);
  device_of(69, 79, 8);
  device_of(93, 68, 2);

  float x[4] = {-1, 2, -3, 4}, y[4] = {0};
  Qnn_Tensor_t in = tensor("x", QNN_TENSOR_TYPE_APP_WRITE, x), out = tensor("y", QNN_TENSOR_TYPE_APP_READ, y);
  REQUIRE(!CALL(contextCreate, backend, NULL, NULL, &context) && !CALL(contextSetConfig, context, &(const QnnContext_Config_t*){NULL}));
  Qnn_Tensor_t common = tensor("common", QNN_TENSOR_TYPE_STATIC, x);
  REQUIRE(!CALL(tensorCreateContextTensor, context, &common));
  Qnn_GraphHandle_t relu = build(context, "relu", "Relu"), negative = build(context, "negative", "ElementWiseNeg"), other = NULL;
  Qnn_OpConfig_t op = QNN_OPCONFIG_INIT;
  op.v1.packageName = "qti.aisw";
  op.v1.typeName = "Relu";
  op.v1.numOfInputs = op.v1.numOfOutputs = 1;
  op.v1.inputTensors = &in;
  op.v1.outputTensors = &out;
  REQUIRE(!CALL(backendValidateOpConfig, backend, op));
  REQUIRE(!CALL(graphSetConfig, relu, &(const QnnGraph_Config_t*){NULL}));
  CALL(graphCreateSubgraph, relu, "sub", &other);
  REQUIRE(!CALL(signalCreate, backend, NULL, &stop) && !CALL(signalSetConfig, stop, NULL));
  CALL(signalTrigger, stop);  // nobody observes it
  REQUIRE(!CALL(graphFinalize, relu, NULL, stop) && !CALL(graphFinalize, negative, NULL, NULL));
  REQUIRE(!CALL(signalFree, stop));
  REQUIRE(!CALL(graphExecuteAsync, relu, &in, 1, &out, 1, NULL, NULL, on_end, &notified));
  sem_wait(&notified);
  REQUIRE(async_status == QNN_SUCCESS && y[0] == 0 && y[1] == 2 && y[2] == 0 && y[3] == 4);
  out.v1.clientBuf.dataSize = 4;  // a fault of the run is told by the notify function, or at once
  if (!qnn.graphExecuteAsync(relu, &in, 1, &out, 1, NULL, NULL, on_end, &notified)) {
    sem_wait(&notified);
    REQUIRE(async_status == QNN_GRAPH_ERROR_INVALID_TENSOR);
  }
  out.v1.clientBuf.dataSize = 16;
  memory(context, relu);
  profile_of(backend, relu, &in, &out);

  Qnn_ContextBinarySize_t size = 0, written = 0;
  REQUIRE(!CALL(contextGetBinarySize, context, &size));
  void* binary = malloc(size);
  REQUIRE(!CALL(contextGetBinary, context, binary, size, &written) && written == size);
  REQUIRE(!CALL(contextValidateBinary, backend, NULL, NULL, binary, size));
  REQUIRE(!CALL(contextCreateFromBinaryWithSignal, backend, NULL, NULL, binary, size, &loaded, NULL, NULL));
  REQUIRE(!CALL(graphRetrieve, loaded, "negative", &other) && !CALL(graphExecute, other, &in, 1, &out, 1, NULL, NULL));
  REQUIRE(y[0] == 1 && y[1] == -2 && y[2] == 3 && y[3] == -4);
  REQUIRE(!CALL(graphRetrieve, loaded, "relu", &other) && !CALL(graphExecute, other, &in, 1, &out, 1, NULL, NULL));
  REQUIRE(y[0] == 0 && y[1] == 2 && y[2] == 0 && y[3] == 4);
  QnnContext_Params_t params = {.version = QNN_CONTEXT_PARAMS_VERSION_1, .v1 = {NULL, binary, size, NULL, on_listed, NULL}};
  const QnnContext_Params_t* all[] = {&params, NULL};
  REQUIRE(!CALL(contextCreateFromBinaryListAsync, backend, NULL, all, NULL, NULL));
  REQUIRE(graphs_told == 2 && contexts_told == 1 && !CALL(contextFree, listed, NULL));
  CALL(tensorUpdateGraphTensors, relu, NULL, 0);
  CALL(tensorUpdateContextTensors, context, NULL, 0);
  adapt(backend, argv[2], argv[3]);

  REQUIRE(!CALL(errorGetMessage, QNN_GRAPH_ERROR_INVALID_TENSOR, &text) && text);
  REQUIRE(!CALL(errorGetVerboseMessage, QNN_GRAPH_ERROR_INVALID_TENSOR, &text) && !CALL(errorFreeVerboseMessage, text));
  const QnnSystemProfile_SerializationTarget_t target = {QNN_SYSTEM_PROFILE_SERIALIZATION_TARGET_FILE, {{"log", "."}}};
  const Qnn_Tensor_t tensor = QNN_TENSOR_INIT;
  Qnn_LogHandle_t system_logger = NULL;
  QnnSystemDlc_Handle_t dlc = NULL;
  SYSTEM(systemTensorGetMemoryFootprint, tensor, NULL);
  SYSTEM(systemLogCreate, NULL, QNN_LOG_LEVEL_ERROR, &system_logger);
  SYSTEM(systemLogSetLogLevel, system_logger, QNN_LOG_LEVEL_ERROR);
  SYSTEM(systemLogFree, system_logger);
  SYSTEM(systemDlcCreateFromFile, NULL, "net.dlc", &dlc);
  SYSTEM(systemDlcCreateFromBinary, NULL, NULL, 0, &dlc);
  SYSTEM(systemDlcComposeGraphs, dlc, NULL, 0, backend, context, *list[0], QNN_SYSTEM_CONTEXT_GRAPH_INFO_VERSION_1, NULL, NULL);
  SYSTEM(systemDlcGetOpMappings, dlc, NULL, NULL);
  SYSTEM(systemDlcFree, dlc);
  SYSTEM(systemProfileCreateSerializationTarget, target, NULL, 0, NULL);
  SYSTEM(systemProfileSerializeEventData, NULL, NULL, 0);
  SYSTEM(systemProfileFreeSerializationTarget, NULL);
  CALL(graphPrepareExecutionEnvironment, relu, NULL, 0);
  CALL(graphReleaseExecutionEnvironment, relu, NULL, 0);
  CALL(graphGetProperty, relu, NULL);
  CALL(contextGetBinarySectionSize, context, NULL, QNN_CONTEXT_SECTION_UPDATABLE, NULL);
  CALL(contextGetBinarySection, context, NULL, QNN_CONTEXT_SECTION_UPDATABLE, NULL, NULL, NULL, NULL);
  CALL(backendGetProperty, backend, NULL);
  CALL(contextGetProperty, context, NULL);
  CALL(contextGetIncrementalBinary, context, NULL, NULL, NULL);
  CALL(contextReleaseIncrementalBinary, context, NULL, 0);
  CALL(contextFinalize, context, NULL, NULL);
  CALL(globalConfigSet, NULL);
  CALL(contextCreateFromBinaryWithCallback, backend, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL);
  REQUIRE(!CALL(contextFree, loaded, NULL) && !CALL(contextFree, context, NULL));
  REQUIRE(!CALL(backendFree, backend) && !CALL(logFree, logger));
  free(binary);
  return 0;
}
