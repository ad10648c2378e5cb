// SPDX-License-Identifier: Apache-2.0
// Calls that are wrong, one a line: what was done, and the code that came back.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "HTP/QnnHtpDevice.h"
#include "QnnInterface.h"

static QNN_INTERFACE_VER_TYPE qnn;
static char said[4096];

static void on_log(const char* format, QnnLog_Level_t level, uint64_t timestamp, va_list arguments) {
  (void)level;
  (void)timestamp;
  vsnprintf(said, sizeof said, format, arguments);
}

static void line(const char* what, Qnn_ErrorHandle_t code) { printf("%s %llu\n", what, (unsigned long long)code); }

// The chip of a device that is made with these words as its configuration, or its architecture.
static uint64_t chip_of(const uint32_t words[4]) {
  QnnDevice_Config_t config = {QNN_DEVICE_CONFIG_OPTION_CUSTOM, {.customConfig = (void*)words}};
  const QnnDevice_Config_t* configs[] = {&config, NULL};
  const QnnDevice_PlatformInfo_t* info = NULL;
  Qnn_DeviceHandle_t device = NULL;
  const QnnHtpDevice_OnChipDeviceInfoExtension_t* chip;
  uint64_t found;
  if (qnn.deviceCreate(NULL, configs, &device) || qnn.deviceGetInfo(device, &info)) return 0;
  chip = &((const QnnHtpDevice_DeviceInfoExtension_t*)info->v1.hwDevices[0].v1.deviceInfoExtension)->onChipDevice;
  found = words[0] ? (uint64_t)chip->arch : chip->socModel;
  return qnn.deviceFree(device) ? 0 : found;
}

int main(int argc, char** argv) {
  char path[4096];
  QnnInterface_GetProvidersFn_t get_providers;
  const QnnInterface_t** providers = NULL;
  uint32_t count = 0, dims[] = {4}, wrong_dims[] = {3};
  float x[4] = {-1, 2, -3, 4}, y[4];
  const char* message = NULL;
  char* garbage = calloc(1, 4096);
  void* library;
  Qnn_LogHandle_t logger = NULL;
  Qnn_BackendHandle_t backend = NULL;
  Qnn_ContextHandle_t context = NULL, other = NULL;
  Qnn_GraphHandle_t graph = NULL, again = NULL;
  Qnn_ProfileHandle_t profile = NULL;
  Qnn_Tensor_t in = QNN_TENSOR_INIT, out = QNN_TENSOR_INIT, stranger = QNN_TENSOR_INIT, bad;
  Qnn_OpConfig_t op = QNN_OPCONFIG_INIT;
  if (argc < 2) return 2;
  snprintf(path, sizeof path, "%s/libQnnHtp.so", argv[1]);
  library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return 3;
  *(void**)&get_providers = dlsym(library, "QnnInterface_getProviders");
  line("providers_null", get_providers(NULL, &count));
  if (get_providers(&providers, &count)) return 4;
  qnn = providers[0]->QNN_INTERFACE_VER_NAME;

  line("log_create_null", qnn.logCreate(on_log, QNN_LOG_LEVEL_ERROR, NULL));
  if (qnn.logCreate(on_log, QNN_LOG_LEVEL_ERROR, &logger)) return 5;
  line("backend_with_a_stranger", qnn.backendCreate((Qnn_LogHandle_t)garbage, NULL, &backend));
  if (qnn.backendCreate(logger, NULL, &backend)) return 6;
  line("context_of_no_backend", qnn.contextCreate(NULL, NULL, NULL, &context));
  line("context_of_a_logger", qnn.contextCreate((Qnn_BackendHandle_t)logger, NULL, NULL, &context));
  if (qnn.contextCreate(backend, NULL, NULL, &context)) return 7;
  if (qnn.contextCreate(backend, NULL, NULL, &other)) return 8;
  line("graph_without_a_name", qnn.graphCreate(context, NULL, NULL, &graph));
  if (qnn.graphCreate(context, "g", NULL, &graph)) return 9;
  line("graph_twice", qnn.graphCreate(context, "g", NULL, &again));
  line("graph_unknown", qnn.graphRetrieve(context, "h", &again));
  line("graph_of_another", qnn.graphRetrieve(other, "g", &again));
  line("finalize_empty", qnn.graphFinalize(graph, NULL, NULL));
  line("binary_too_early", qnn.contextGetBinarySize(context, &(Qnn_ContextBinarySize_t){0}));

  in.v1.name = "x";
  in.v1.type = QNN_TENSOR_TYPE_APP_WRITE;
  in.v1.dataType = QNN_DATATYPE_FLOAT_32;
  in.v1.rank = 1;
  in.v1.dimensions = dims;
  in.v1.memType = QNN_TENSORMEMTYPE_RAW;
  out = in;
  out.v1.name = "y";
  out.v1.type = QNN_TENSOR_TYPE_APP_READ;
  bad = in;
  bad.version = (Qnn_TensorVersion_t)9;
  line("tensor_version", qnn.tensorCreateGraphTensor(graph, &bad));
  bad = in;
  bad.v1.name = "\xff\xfe";
  line("tensor_name", qnn.tensorCreateGraphTensor(graph, &bad));
  bad = in;
  bad.v1.dataType = (Qnn_DataType_t)0x1234;
  line("tensor_type", qnn.tensorCreateGraphTensor(graph, &bad));
  bad = in;
  bad.v1.type = QNN_TENSOR_TYPE_STATIC;
  line("tensor_data", qnn.tensorCreateGraphTensor(graph, &bad));
  if (qnn.tensorCreateGraphTensor(graph, &in) || qnn.tensorCreateGraphTensor(graph, &out)) return 10;
  line("tensor_twice", qnn.tensorCreateGraphTensor(graph, &in));
  stranger = in;
  stranger.v1.name = "z";

  op.v1.name = "relu";
  op.v1.packageName = "qti.aisw";
  op.v1.typeName = "Relu";
  op.v1.numOfInputs = op.v1.numOfOutputs = 1;
  op.v1.outputTensors = &out;
  line("node_with_null", qnn.graphAddNode(graph, op));
  op.v1.inputTensors = &stranger;
  line("node_with_a_stranger", qnn.graphAddNode(graph, op));
  op.v1.inputTensors = &in;
  op.v1.typeName = "Relux";
  line("op_unknown", qnn.backendValidateOpConfig(backend, op));
  puts(strstr(said, "no QNN op is named 'Relux'") ? "reason_logged 1" : "reason_logged 0");
  op.v1.typeName = "Relu";
  line("op_known", qnn.backendValidateOpConfig(backend, op));
  {  // ExecuTorch asks about ops whose constants have no data yet
    Qnn_Tensor_t pair[2];
    pair[0] = in;
    pair[1] = in;
    pair[1].v1.name = "constant";
    pair[1].v1.type = QNN_TENSOR_TYPE_STATIC;
    op.v1.typeName = "ElementWiseAdd";
    op.v1.numOfInputs = 2;
    op.v1.inputTensors = pair;
    line("op_without_data", qnn.backendValidateOpConfig(backend, op));
    op.v1.typeName = "Relu";
    op.v1.numOfInputs = 1;
    op.v1.inputTensors = &in;
  }
  line("chip_at_byte_4", chip_of((uint32_t[4]){0, 57, 0, 0}));  // older interfaces: ExecuTorch 1.5
  line("chip_at_byte_8", chip_of((uint32_t[4]){0, 0, 57, 0}));  // newer ones: onnxruntime-qnn 2.7
  line("arch_at_byte_8", chip_of((uint32_t[4]){1, 0, 73, 0}));
  line("arch_at_byte_12", chip_of((uint32_t[4]){1, 0, 0, 73}));
  if (qnn.graphAddNode(graph, op)) return 11;
  in.v1.clientBuf.data = x;
  in.v1.clientBuf.dataSize = sizeof x;
  out.v1.clientBuf.data = y;
  out.v1.clientBuf.dataSize = sizeof y;
  line("execute_too_early", qnn.graphExecute(graph, &in, 1, &out, 1, NULL, NULL));
  if (qnn.graphFinalize(graph, NULL, NULL)) return 12;
  line("node_too_late", qnn.graphAddNode(graph, op));
  line("execute_without_inputs", qnn.graphExecute(graph, NULL, 0, &out, 1, NULL, NULL));
  bad = in;
  bad.v1.clientBuf.dataSize = 8;
  line("execute_small", qnn.graphExecute(graph, &bad, 1, &out, 1, NULL, NULL));
  bad = in;
  bad.v1.clientBuf.data = NULL;
  line("execute_null", qnn.graphExecute(graph, &bad, 1, &out, 1, NULL, NULL));
  bad = in;
  bad.v1.id = 999;
  bad.v1.name = "q";
  line("execute_stranger", qnn.graphExecute(graph, &bad, 1, &out, 1, NULL, NULL));
  bad = in;
  bad.v1.dimensions = wrong_dims;
  line("execute_other_size", qnn.graphExecute(graph, &bad, 1, &out, 1, NULL, NULL));
  line("execute_freed_profile", qnn.graphExecute(graph, &in, 1, &out, 1, (Qnn_ProfileHandle_t)garbage, NULL));
  line("execute", qnn.graphExecute(graph, &in, 1, &out, 1, NULL, NULL));
  printf("y %g %g %g %g\n", y[0], y[1], y[2], y[3]);
  line("profile_level", qnn.profileCreate(backend, 77, &profile));
  line("binary_garbage", qnn.contextCreateFromBinary(backend, NULL, NULL, garbage, 4096, &again, NULL));
  line("message", qnn.errorGetMessage(6023, &message));
  puts(message && strstr(message, "finali") ? "message_text 1" : "message_text 0");
  line("message_unknown", qnn.errorGetMessage(64000, &message));
  line("free", qnn.contextFree(context, NULL));
  line("free_twice", qnn.contextFree(context, NULL));
  line("execute_freed", qnn.graphExecute(graph, &in, 1, &out, 1, NULL, NULL));
  line("other", qnn.contextFree(other, NULL));
  line("backend", qnn.backendFree(backend));
  line("backend_twice", qnn.backendFree(backend));
  line("logger", qnn.logFree(logger));
  free(garbage);
  return 0;
}
