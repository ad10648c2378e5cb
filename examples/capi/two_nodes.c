// SPDX-License-Identifier: Apache-2.0
// A graph of two nodes through QNN's C API: backend, device, votes, context, graph, execute, profile; then the context
// saved, loaded again and run again.
//
//     cc two_nodes.c $(pkg-config --cflags hexforge) -ldl -o two_nodes
//     ./two_nodes LIBRARY_FOLDER [CONTEXT_FILE]         builds, runs, saves
//     ./two_nodes LIBRARY_FOLDER CONTEXT_FILE load      only loads and runs: no Python is started
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#include <windows.h>
#define LIBRARY(name) "Qnn" name ".dll"
#else
#include <dlfcn.h>
#if defined(__APPLE__)
#define LIBRARY(name) "libQnn" name ".dylib"
#else
#define LIBRARY(name) "libQnn" name ".so"
#endif
#endif

#include "HTP/QnnHtpDevice.h"
#include "HTP/QnnHtpGraph.h"
#include "QnnInterface.h"
#include "System/QnnSystemInterface.h"

#define INPUTS 16
#define OUTPUTS 8

static void check(Qnn_ErrorHandle_t status, const char* what) {
  if (status == QNN_SUCCESS) return;
  fprintf(stderr, "%s: error %llu\n", what, (unsigned long long)QNN_GET_ERROR_CODE(status));
  exit(1);
}

static void on_log(const char* format, QnnLog_Level_t level, uint64_t timestamp, va_list arguments) {
  (void)timestamp;
  fprintf(stderr, "[%d] ", (int)level);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
}

#if defined(_WIN32)
static void* symbol(const char* folder, const char* library, const char* name) {
  char path[4096];
  HMODULE handle;
  void* found;
  snprintf(path, sizeof path, "%s/%s", folder, library);
  handle = LoadLibraryA(path);
  found = handle ? (void*)GetProcAddress(handle, name) : NULL;
  if (!found) {
    fprintf(stderr, "%s: error %lu\n", path, GetLastError());
    exit(1);
  }
  return found;
}
#else
static void* symbol(const char* folder, const char* library, const char* name) {
  char path[4096];
  void *handle, *found;
  snprintf(path, sizeof path, "%s/%s", folder, library);
  handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  found = handle ? dlsym(handle, name) : NULL;
  if (!found) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  return found;
}
#endif

static QNN_INTERFACE_VER_TYPE interface_of(const char* folder) {
  QnnInterface_GetProvidersFn_t get_providers;
  const QnnInterface_t** providers = NULL;
  uint32_t count = 0, i;
  *(void**)&get_providers = symbol(folder, LIBRARY("Htp"), "QnnInterface_getProviders");
  check(get_providers(&providers, &count), "QnnInterface_getProviders");
  for (i = 0; i < count; ++i)
    if (providers[i]->apiVersion.coreApiVersion.major == QNN_API_VERSION_MAJOR &&
        providers[i]->apiVersion.coreApiVersion.minor >= QNN_API_VERSION_MINOR)
      return providers[i]->QNN_INTERFACE_VER_NAME;
  fprintf(stderr, "no provider of this API version\n");
  exit(1);
}

static Qnn_Tensor_t tensor_of(const char* name, Qnn_TensorType_t type, uint32_t rank, uint32_t* dimensions, void* data,
                              uint32_t bytes) {
  Qnn_Tensor_t tensor = QNN_TENSOR_INIT;
  tensor.v1.name = name;
  tensor.v1.type = type;
  tensor.v1.dataType = QNN_DATATYPE_FLOAT_32;
  tensor.v1.rank = rank;
  tensor.v1.dimensions = dimensions;
  tensor.v1.memType = QNN_TENSORMEMTYPE_RAW;
  tensor.v1.clientBuf.data = data;
  tensor.v1.clientBuf.dataSize = bytes;
  return tensor;
}

static float x[INPUTS], y[OUTPUTS], again[OUTPUTS], weights[INPUTS * OUTPUTS];
static uint32_t x_dims[] = {1, INPUTS}, w_dims[] = {INPUTS, OUTPUTS}, y_dims[] = {1, OUTPUTS};

static void vote(const QNN_INTERFACE_VER_TYPE* qnn, uint32_t* power_config_id) {
  QnnDevice_Infrastructure_t infrastructure = NULL;
  QnnHtpDevice_Infrastructure_t* htp;
  QnnHtpPerfInfrastructure_PowerConfig_t power, polling;
  const QnnHtpPerfInfrastructure_PowerConfig_t* configs[] = {&power, &polling, NULL};
  check(qnn->deviceGetInfrastructure(&infrastructure), "deviceGetInfrastructure");
  htp = (QnnHtpDevice_Infrastructure_t*)infrastructure;
  check(htp->perfInfra.createPowerConfigId(0, 0, power_config_id), "createPowerConfigId");
  memset(&power, 0, sizeof power);
  power.option = QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_DCVS_V3;
  power.dcvsV3Config.contextId = *power_config_id;
  power.dcvsV3Config.setDcvsEnable = 1;
  power.dcvsV3Config.powerMode = QNN_HTP_PERF_INFRASTRUCTURE_POWERMODE_PERFORMANCE_MODE;
  power.dcvsV3Config.setSleepLatency = 1;
  power.dcvsV3Config.sleepLatency = 40;
  power.dcvsV3Config.setBusParams = 1;
  power.dcvsV3Config.busVoltageCornerMin = DCVS_VOLTAGE_VCORNER_MAX_VOLTAGE_CORNER;
  power.dcvsV3Config.busVoltageCornerTarget = DCVS_VOLTAGE_VCORNER_MAX_VOLTAGE_CORNER;
  power.dcvsV3Config.busVoltageCornerMax = DCVS_VOLTAGE_VCORNER_MAX_VOLTAGE_CORNER;
  power.dcvsV3Config.setCoreParams = 1;
  power.dcvsV3Config.coreVoltageCornerMin = DCVS_VOLTAGE_VCORNER_MAX_VOLTAGE_CORNER;
  power.dcvsV3Config.coreVoltageCornerTarget = DCVS_VOLTAGE_VCORNER_MAX_VOLTAGE_CORNER;
  power.dcvsV3Config.coreVoltageCornerMax = DCVS_VOLTAGE_VCORNER_MAX_VOLTAGE_CORNER;
  memset(&polling, 0, sizeof polling);
  polling.option = QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_RPC_POLLING_TIME;
  polling.rpcPollingTimeConfig = 9999;
  check(htp->perfInfra.setPowerConfig(*power_config_id, configs), "setPowerConfig");
}

static void end_vote(const QNN_INTERFACE_VER_TYPE* qnn, uint32_t power_config_id) {
  QnnDevice_Infrastructure_t infrastructure = NULL;
  check(qnn->deviceGetInfrastructure(&infrastructure), "deviceGetInfrastructure");
  check(((QnnHtpDevice_Infrastructure_t*)infrastructure)->perfInfra.destroyPowerConfigId(power_config_id),
        "destroyPowerConfigId");
}

static void add_node(const QNN_INTERFACE_VER_TYPE* qnn, Qnn_GraphHandle_t graph, const char* name, const char* type,
                     Qnn_Tensor_t* inputs, uint32_t count, Qnn_Tensor_t* output) {
  Qnn_OpConfig_t op = QNN_OPCONFIG_INIT;
  op.v1.name = name;
  op.v1.packageName = "qti.aisw";
  op.v1.typeName = type;
  op.v1.inputTensors = inputs;
  op.v1.numOfInputs = count;
  op.v1.outputTensors = output;
  op.v1.numOfOutputs = 1;
  check(qnn->graphAddNode(graph, op), name);
}

static Qnn_GraphHandle_t build(const QNN_INTERFACE_VER_TYPE* qnn, Qnn_ContextHandle_t context, Qnn_ProfileHandle_t profile,
                               Qnn_Tensor_t* input, Qnn_Tensor_t* output) {
  QnnHtpGraph_CustomConfig_t vtcm, level;
  QnnGraph_Config_t configs[2] = {QNN_GRAPH_CONFIG_INIT, QNN_GRAPH_CONFIG_INIT};
  const QnnGraph_Config_t* given[] = {&configs[0], &configs[1], NULL};
  Qnn_GraphHandle_t graph = NULL;
  Qnn_Tensor_t product_inputs[2], product;
  memset(&vtcm, 0, sizeof vtcm);
  memset(&level, 0, sizeof level);
  vtcm.option = QNN_HTP_GRAPH_CONFIG_OPTION_VTCM_SIZE_IN_MB;
  vtcm.vtcmSizeInMB = 4;
  level.option = QNN_HTP_GRAPH_CONFIG_OPTION_OPTIMIZATION;
  level.optimizationOption.type = QNN_HTP_GRAPH_OPTIMIZATION_TYPE_FINALIZE_OPTIMIZATION_FLAG;
  level.optimizationOption.floatValue = 3.0f;
  configs[0].option = configs[1].option = QNN_GRAPH_CONFIG_OPTION_CUSTOM;
  configs[0].customConfig = &vtcm;
  configs[1].customConfig = &level;
  check(qnn->graphCreate(context, "two_nodes", given, &graph), "graphCreate");
  product_inputs[0] = tensor_of("x", QNN_TENSOR_TYPE_APP_WRITE, 2, x_dims, NULL, 0);
  product_inputs[1] = tensor_of("w", QNN_TENSOR_TYPE_STATIC, 2, w_dims, weights, sizeof weights);
  product = tensor_of("product", QNN_TENSOR_TYPE_NATIVE, 2, y_dims, NULL, 0);
  *output = tensor_of("y", QNN_TENSOR_TYPE_APP_READ, 2, y_dims, NULL, 0);
  check(qnn->tensorCreateGraphTensor(graph, &product_inputs[0]), "x");
  check(qnn->tensorCreateGraphTensor(graph, &product_inputs[1]), "w");
  check(qnn->tensorCreateGraphTensor(graph, &product), "product");
  check(qnn->tensorCreateGraphTensor(graph, output), "y");
  add_node(qnn, graph, "matmul", "MatMul", product_inputs, 2, &product);
  add_node(qnn, graph, "relu", "Relu", &product, 1, output);
  check(qnn->graphFinalize(graph, profile, NULL), "graphFinalize");
  *input = product_inputs[0];
  return graph;
}

static void run(const QNN_INTERFACE_VER_TYPE* qnn, Qnn_GraphHandle_t graph, Qnn_Tensor_t input, Qnn_Tensor_t output,
                float* result, Qnn_ProfileHandle_t profile) {
  input.v1.clientBuf.data = x;
  input.v1.clientBuf.dataSize = sizeof x;
  output.v1.clientBuf.data = result;
  output.v1.clientBuf.dataSize = sizeof y;
  check(qnn->graphExecute(graph, &input, 1, &output, 1, profile, NULL), "graphExecute");
}

static void print_events(const QNN_INTERFACE_VER_TYPE* qnn, const QnnProfile_EventId_t* events, uint32_t count, int depth) {
  uint32_t i;
  for (i = 0; i < count; ++i) {
    QnnProfile_EventData_t data;
    const QnnProfile_EventId_t* subs = NULL;
    uint32_t sub_count = 0;
    check(qnn->profileGetEventData(events[i], &data), "profileGetEventData");
    printf("%*sevent %u: %llu (unit %u) %s\n", depth * 2, "", data.type, (unsigned long long)data.value, data.unit,
           data.identifier);
    check(qnn->profileGetSubEvents(events[i], &subs, &sub_count), "profileGetSubEvents");
    print_events(qnn, subs, sub_count, depth + 1);
  }
}

static void save(const QNN_INTERFACE_VER_TYPE* qnn, Qnn_ContextHandle_t context, const char* path) {
  Qnn_ContextBinarySize_t size = 0, written = 0;
  void* buffer;
  FILE* file;
  check(qnn->contextGetBinarySize(context, &size), "contextGetBinarySize");
  buffer = malloc(size);
  check(qnn->contextGetBinary(context, buffer, size, &written), "contextGetBinary");
  file = fopen(path, "wb");
  if (!file || fwrite(buffer, 1, written, file) != written || fclose(file)) {
    perror(path);
    exit(1);
  }
  free(buffer);
}

static void load_and_run(const QNN_INTERFACE_VER_TYPE* qnn, const char* folder, Qnn_BackendHandle_t backend,
                         Qnn_DeviceHandle_t device, const char* path) {
  Qnn_ErrorHandle_t (*get_providers)(const QnnSystemInterface_t***, uint32_t*);
  const QnnSystemInterface_t** providers = NULL;
  const QnnSystemContext_BinaryInfo_t* info = NULL;
  const QnnSystemContext_GraphInfoV1_t* described;
  QnnSystemContext_Handle_t system = NULL;
  Qnn_ContextBinarySize_t info_size = 0;
  Qnn_ContextHandle_t context = NULL;
  Qnn_GraphHandle_t graph = NULL;
  uint32_t count = 0;
  long size;
  void* buffer;
  FILE* file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END) || (size = ftell(file)) < 0 || fseek(file, 0, SEEK_SET)) {
    perror(path);
    exit(1);
  }
  buffer = malloc((size_t)size);
  if (fread(buffer, 1, (size_t)size, file) != (size_t)size) exit(1);
  fclose(file);
  *(void**)&get_providers = symbol(folder, LIBRARY("System"), "QnnSystemInterface_getProviders");
  check(get_providers(&providers, &count), "QnnSystemInterface_getProviders");
  check(providers[0]->QNN_SYSTEM_INTERFACE_VER_NAME.systemContextCreate(&system), "systemContextCreate");
  check(providers[0]->QNN_SYSTEM_INTERFACE_VER_NAME.systemContextGetBinaryInfo(system, buffer, (uint64_t)size, &info,
                                                                               &info_size),
        "systemContextGetBinaryInfo");
  described = &info->contextBinaryInfoV1.graphs[0].graphInfoV1;
  printf("%u graph: %s, %u input, %u output\n", info->contextBinaryInfoV1.numGraphs, described->graphName,
         described->numGraphInputs, described->numGraphOutputs);
  check(qnn->contextCreateFromBinary(backend, device, NULL, buffer, (Qnn_ContextBinarySize_t)size, &context, NULL),
        "contextCreateFromBinary");
  free(buffer);
  check(qnn->graphRetrieve(context, described->graphName, &graph), "graphRetrieve");
  run(qnn, graph, described->graphInputs[0], described->graphOutputs[0], again, NULL);
  check(providers[0]->QNN_SYSTEM_INTERFACE_VER_NAME.systemContextFree(system), "systemContextFree");
  check(qnn->contextFree(context, NULL), "contextFree");
}

int main(int argc, char** argv) {
  const char* folder = argc > 1 ? argv[1] : ".";
  const char* path = argc > 2 ? argv[2] : "two_nodes.bin";
  const int only_load = argc > 3;
  QNN_INTERFACE_VER_TYPE qnn = interface_of(folder);
  Qnn_LogHandle_t logger = NULL;
  Qnn_BackendHandle_t backend = NULL;
  Qnn_DeviceHandle_t device = NULL;
  Qnn_ContextHandle_t context = NULL;
  Qnn_ProfileHandle_t profile = NULL;
  Qnn_GraphHandle_t graph;
  Qnn_Tensor_t input, output;
  QnnHtpDevice_CustomConfig_t soc;
  QnnDevice_Config_t device_config = QNN_DEVICE_CONFIG_INIT;
  const QnnDevice_Config_t* device_configs[] = {&device_config, NULL};
  const QnnProfile_EventId_t* events = NULL;
  uint32_t power_config_id = 0, count = 0;
  int i;
  for (i = 0; i < INPUTS; ++i) x[i] = (float)(i * 7 % 13 - 6) / 8.0f;
  for (i = 0; i < INPUTS * OUTPUTS; ++i) weights[i] = (float)(i * 37 % 101 - 50) / 64.0f;

  check(qnn.logCreate(on_log, QNN_LOG_LEVEL_WARN, &logger), "logCreate");
  check(qnn.backendCreate(logger, NULL, &backend), "backendCreate");
  memset(&soc, 0, sizeof soc);
  soc.option = QNN_HTP_DEVICE_CONFIG_OPTION_SOC;
  soc.socModel = QNN_SOC_MODEL_SM8650;
  device_config.option = QNN_DEVICE_CONFIG_OPTION_CUSTOM;
  device_config.customConfig = &soc;
  check(qnn.deviceCreate(logger, device_configs, &device), "deviceCreate");
  vote(&qnn, &power_config_id);
  if (!only_load) {
    check(qnn.profileCreate(backend, QNN_PROFILE_LEVEL_DETAILED, &profile), "profileCreate");
    check(qnn.contextCreate(backend, device, NULL, &context), "contextCreate");
    graph = build(&qnn, context, profile, &input, &output);
    run(&qnn, graph, input, output, y, profile);
    check(qnn.profileGetEvents(profile, &events, &count), "profileGetEvents");
    print_events(&qnn, events, count, 0);
    save(&qnn, context, path);
    check(qnn.contextFree(context, NULL), "contextFree");
    check(qnn.profileFree(profile), "profileFree");
  }
  load_and_run(&qnn, folder, backend, device, path);
  if (!only_load && memcmp(y, again, sizeof y)) {
    fprintf(stderr, "the context that was loaded gives other numbers\n");
    return 1;
  }
  for (i = 0; i < OUTPUTS; ++i) printf("%.9g\n", again[i]);
  end_vote(&qnn, power_config_id);
  check(qnn.deviceFree(device), "deviceFree");
  check(qnn.backendFree(backend), "backendFree");
  check(qnn.logFree(logger), "logFree");
  return 0;
}
