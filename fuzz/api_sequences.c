// SPDX-License-Identifier: Apache-2.0
// Random sequences of calls of QNN's C API: `api_sequences FOLDER_OF_LIBRARIES CONTEXT FIRST COUNT`. Handles are living
// ones, freed ones, of another kind, or none at all; structures are right, half right or odd. Every call has to come back
// with a code or a result. The number of a sequence is printed before it begins.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "HTP/QnnHtpContext.h"
#include "HTP/QnnHtpDevice.h"
#include "HTP/QnnHtpGraph.h"
#include "HTP/QnnHtpMem.h"
#include "QnnInterface.h"
#include "System/QnnSystemInterface.h"

#define MOST 64
#define ROOM 4096

static QNN_INTERFACE_VER_TYPE qnn[3];  // HTP, CPU, Saver
static const QnnSystemInterface_t* sys;
static uint64_t state;
static char* binary;
static size_t binary_bytes;
static void* handles[MOST];  // whatever calls gave
static unsigned given;
static char room[8][ROOM];  // what tensors point to
static uint32_t sizes[8][8];
static Qnn_ScaleOffset_t scales[8];
static int files[4];
static unsigned long codes, successes;

static uint32_t draw(uint32_t below) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)(state >> 20) % below;
}
static int once_in(uint32_t times) { return draw(times) == 0; }

static void* any_handle(void) {
  switch (draw(12)) {
    case 0: return NULL;
    case 1: return room[draw(8)];
    case 2: return (void*)(uintptr_t)((0x48ull << 48) | ((uint64_t)draw(16) << 44) | draw(1 << 20));
    default: return given ? handles[draw(given)] : NULL;
  }
}
static void keep(Qnn_ErrorHandle_t code, void* handle) {
  ++*(code ? &codes : &successes);
  if (!code && handle) handles[given < MOST ? given++ : draw(MOST)] = handle;
}
static void count(Qnn_ErrorHandle_t code) { keep(code, NULL); }

static const char* any_name(void) {
  static const char* const names[] = {"x", "y", "w", "t", "a", "b", "g", "", "\xff\xfe", "relu", NULL};
  return names[draw(11)];
}
static Qnn_DataType_t any_type(void) {
  static const Qnn_DataType_t types[] = {QNN_DATATYPE_FLOAT_32, QNN_DATATYPE_FLOAT_32, QNN_DATATYPE_UFIXED_POINT_8,
                                         QNN_DATATYPE_INT_32, QNN_DATATYPE_BOOL_8, QNN_DATATYPE_UNDEFINED, 0x7777};
  return types[draw(7)];
}

static Qnn_Tensor_t any_tensor(void) {
  Qnn_Tensor_t made = QNN_TENSOR_INIT;
  const uint32_t slot = draw(8);
  made.version = once_in(16) ? (Qnn_TensorVersion_t)draw(4) : (Qnn_TensorVersion_t)(1 + draw(2));
  made.v1.name = any_name();
  made.v1.id = draw(6);
  made.v1.type = (Qnn_TensorType_t)(once_in(20) ? 77 : (int)draw(6));
  made.v1.dataFormat = once_in(20) ? draw(4) : 0;
  made.v1.dataType = any_type();
  made.v1.rank = once_in(24) ? 40 : draw(4);
  made.v1.dimensions = once_in(12) && made.v1.rank < 9 ? NULL : sizes[slot];
  for (uint32_t i = 0; i < 8; ++i) sizes[slot][i] = once_in(16) ? 0xFFFFFFFF : 1 + draw(8);
  if (made.v1.rank > 8 && made.v1.dimensions) made.v1.dimensions = sizes[0];
  if (once_in(3)) {
    made.v1.quantizeParams.encodingDefinition = QNN_DEFINITION_DEFINED;
    made.v1.quantizeParams.quantizationEncoding = (Qnn_QuantizationEncoding_t)(once_in(4) ? (int)draw(9) : 0);
    switch (made.v1.quantizeParams.quantizationEncoding) {
      case QNN_QUANTIZATION_ENCODING_AXIS_SCALE_OFFSET:
        made.v1.quantizeParams.axisScaleOffsetEncoding.axis = (int32_t)draw(9) - 4;
        made.v1.quantizeParams.axisScaleOffsetEncoding.numScaleOffsets = draw(9);
        made.v1.quantizeParams.axisScaleOffsetEncoding.scaleOffset = once_in(4) ? NULL : scales;
        break;
      case QNN_QUANTIZATION_ENCODING_BW_AXIS_SCALE_OFFSET:
        memset(&made.v1.quantizeParams.bwAxisScaleOffsetEncoding, 0, sizeof(Qnn_BwAxisScaleOffset_t));
        made.v1.quantizeParams.bwAxisScaleOffsetEncoding.bitwidth = draw(10);
        break;
      case QNN_QUANTIZATION_ENCODING_BLOCKWISE_EXPANSION: made.v1.quantizeParams.blockwiseExpansion = NULL; break;
      default:
        made.v1.quantizeParams.scaleOffsetEncoding.scale = once_in(8) ? 0.0f / (float)draw(2) : 0.1f;
        made.v1.quantizeParams.scaleOffsetEncoding.offset = -(int32_t)draw(300);
    }
  }
  if (once_in(10)) {
    made.v1.memType = QNN_TENSORMEMTYPE_MEMHANDLE;
    made.v1.memHandle = any_handle();
  } else {
    made.v1.memType = (Qnn_TensorMemType_t)(once_in(20) ? 9 : 0);
    made.v1.clientBuf.data = once_in(8) ? NULL : room[slot];
    made.v1.clientBuf.dataSize = once_in(2) ? ROOM : draw(ROOM);
    if (once_in(2)) {  // what it needs, where that is not more than there is
      uint64_t bytes = 4;
      for (uint32_t i = 0; i < made.v1.rank && i < 8; ++i) bytes = bytes * sizes[slot][i] % (ROOM + 1);
      made.v1.clientBuf.dataSize = (uint32_t)bytes;
    }
  }
  return made;
}

// y = op(x, …): mostly a right one, so that graphs come about.
static void any_node(QNN_INTERFACE_VER_TYPE* api, void* graph) {
  static const char* const ops[] = {"Relu", "ElementWiseAdd", "Sigmoid", "Transpose", "NoSuchOp", "Softmax", "MatMul", NULL};
  static const char* const parameters[] = {"axis", "perm", "operation", "beta", NULL};
  Qnn_Tensor_t tensors[4];
  Qnn_Param_t params[3];
  Qnn_OpConfig_t op = QNN_OPCONFIG_INIT;
  for (int i = 0; i < 4; ++i) tensors[i] = any_tensor();
  for (int i = 0; i < 3; ++i) {
    memset(&params[i], 0, sizeof params[i]);
    params[i].name = parameters[draw(5)];
    params[i].paramType = (Qnn_ParamType_t)draw(3);
    if (params[i].paramType == QNN_PARAMTYPE_TENSOR) {
      params[i].tensorParam = any_tensor();
    } else {
      params[i].scalarParam.dataType = any_type();
      params[i].scalarParam.uint32Value = draw(5);
    }
  }
  op.version = once_in(20) ? (Qnn_OpConfigVersion_t)7 : QNN_OPCONFIG_VERSION_1;
  op.v1.name = any_name();
  op.v1.packageName = once_in(10) ? any_name() : "qti.aisw";
  op.v1.typeName = ops[draw(8)];
  op.v1.numOfParams = once_in(2) ? draw(4) : 0;
  op.v1.params = once_in(10) ? NULL : params;
  op.v1.numOfInputs = once_in(10) ? 0 : 1 + draw(2);
  op.v1.inputTensors = once_in(20) ? NULL : tensors;
  op.v1.numOfOutputs = once_in(10) ? draw(3) : 1;
  op.v1.outputTensors = tensors + 2;
  count(once_in(4) ? api->backendValidateOpConfig(graph, op) : api->graphAddNode(graph, op));
}

static void right_graph(QNN_INTERFACE_VER_TYPE* api, void* context) {
  static uint32_t dims[] = {1, 8};
  Qnn_GraphHandle_t graph = NULL;
  Qnn_Tensor_t in = QNN_TENSOR_INIT, out;
  Qnn_OpConfig_t op = QNN_OPCONFIG_INIT;
  keep(api->graphCreate(context, any_name(), NULL, &graph), graph);
  if (!graph) return;
  in.v1.name = "x";
  in.v1.type = QNN_TENSOR_TYPE_APP_WRITE;
  in.v1.dataType = QNN_DATATYPE_FLOAT_32;
  in.v1.rank = 2;
  in.v1.dimensions = dims;
  in.v1.memType = QNN_TENSORMEMTYPE_RAW;
  out = in;
  out.v1.name = "y";
  out.v1.type = QNN_TENSOR_TYPE_APP_READ;
  count(api->tensorCreateGraphTensor(graph, &in));
  count(api->tensorCreateGraphTensor(graph, &out));
  op.v1.name = "relu";
  op.v1.packageName = "qti.aisw";
  op.v1.typeName = "Relu";
  op.v1.numOfInputs = op.v1.numOfOutputs = 1;
  op.v1.inputTensors = &in;
  op.v1.outputTensors = &out;
  count(api->graphAddNode(graph, op));
  if (once_in(3)) any_node(api, graph);
  if (!once_in(4)) count(api->graphFinalize(graph, any_handle(), any_handle()));
  in.v1.clientBuf.data = room[0];
  in.v1.clientBuf.dataSize = once_in(8) ? draw(40) : 32;
  out.v1.clientBuf.data = room[1];
  out.v1.clientBuf.dataSize = 32;
  if (once_in(2))
    count(api->graphExecute(graph, &in, 1, &out, 1, NULL, NULL));
  else
    count(api->graphExecuteAsync(graph, &in, 1, &out, 1, NULL, NULL, NULL, NULL));
}

static void on_log(const char* format, QnnLog_Level_t level, uint64_t at, va_list arguments) {
  static __thread char text[8192];
  (void)level;
  (void)at;
  vsnprintf(text, sizeof text, format, arguments);
}
static void on_context(Qnn_ContextHandle_t context, Qnn_GraphHandle_t graph, const char* name,
                       QnnContext_createFromBinaryAsyncNotifyType_t type, void* parameter, Qnn_ErrorHandle_t status) {
  (void)name;
  (void)type;
  (void)parameter;
  keep(status, context);
  keep(status, graph);
}
static void on_end(void* parameter, Qnn_NotifyStatus_t status) {
  (void)parameter;
  (void)status;
}

static const QnnContext_Config_t** context_config(void) {
  static QnnHtpContext_CustomConfig_t custom[3];
  static QnnContext_Config_t config[3];
  static const QnnContext_Config_t* list[4];
  static const char* enabled[] = {"a", NULL};
  uint32_t number = draw(4);
  if (once_in(2)) return NULL;
  for (uint32_t i = 0; i < number && i < 3; ++i) {
    static const int options[] = {1, 2, 5, 7, 10, 11, 99};
    memset(&custom[i], 0, sizeof custom[i]);
    memset(&config[i], 0, sizeof config[i]);
    config[i].option = (QnnContext_ConfigOption_t)draw(10);
    custom[i].option = (QnnHtpContext_ConfigOption_t)options[draw(7)];
    custom[i].groupRegistration.firstGroupHandle = any_handle();
    custom[i].groupRegistration.maxSpillFillBuffer = draw(100);
    switch (config[i].option) {
      case QNN_CONTEXT_CONFIG_OPTION_CUSTOM: config[i].customConfig = once_in(8) ? NULL : &custom[i]; break;
      case QNN_CONTEXT_CONFIG_ENABLE_GRAPHS: config[i].enableGraphs = enabled; break;
      case QNN_CONTEXT_CONFIG_OPTION_OEM_STRING: config[i].oemString = any_name(); break;
      default: config[i].memoryLimitHint = draw(3); break;
    }
    list[i] = &config[i];
  }
  list[number < 3 ? number : 3] = NULL;
  return list;
}

static void any_call(void) {
  QNN_INTERFACE_VER_TYPE* api = &qnn[once_in(8) ? draw(3) : 0];
  void *made = NULL, *handle = any_handle(), *other = any_handle();
  const char* text = NULL;
  const QnnProfile_EventId_t* ids = NULL;
  static QnnProfile_EventId_t last_id = 0;
  uint32_t number = 0;
  Qnn_ContextBinarySize_t size = 0;
  Qnn_Tensor_t in[2] = {any_tensor(), any_tensor()}, out[2] = {any_tensor(), any_tensor()};
  const size_t bytes = once_in(4) ? draw((uint32_t)binary_bytes) : binary_bytes;
  switch (draw(34)) {
    case 0: keep(api->logCreate(once_in(4) ? NULL : on_log, (QnnLog_Level_t)draw(2), once_in(9) ? NULL : &made), made); break;
    case 1: keep(api->backendCreate(handle, NULL, &made), made); break;
    case 2: case 3: keep(api->backendCreate(NULL, NULL, &made), made); break;
    case 4: {
      QnnHtpDevice_CustomConfig_t custom = {.option = (QnnHtpDevice_ConfigOption_t)draw(4)};
      QnnDevice_Config_t config = {.option = (QnnDevice_ConfigOption_t)(once_in(6) ? 9 : 0)};
      const QnnDevice_Config_t* list[] = {&config, NULL};
      custom.socModel = draw(120);
      config.customConfig = &custom;
      keep(api->deviceCreate(once_in(2) ? handle : NULL, once_in(2) ? list : NULL, &made), made);
      break;
    }
    case 5: case 6: keep(api->contextCreate(handle, once_in(2) ? other : NULL, context_config(), &made), made); break;
    case 7: case 8:
      keep(api->contextCreateFromBinary(handle, once_in(3) ? other : NULL, context_config(), binary, bytes, &made, NULL), made);
      break;
    case 9: keep(api->contextCreateFromBinaryWithSignal(handle, NULL, NULL, binary, bytes, &made, other, any_handle()), made); break;
    case 10: {
      QnnContext_Params_t params = {.version = (QnnContext_ParamsVersion_t)(once_in(6) ? 3 : 1),
                                    .v1 = {context_config(), binary, bytes, NULL, once_in(3) ? NULL : on_context, NULL}};
      const QnnContext_Params_t* list[] = {&params, NULL};
      count(api->contextCreateFromBinaryListAsync(handle, NULL, list, NULL, once_in(3) ? other : NULL));
      break;
    }
    case 11: count(api->contextValidateBinary(handle, NULL, NULL, binary, bytes)); break;
    case 12: count(api->contextFree(handle, once_in(3) ? other : NULL)); break;
    case 13: count(api->contextSetConfig(handle, context_config())); break;
    case 14: {
      count(api->contextGetBinarySize(handle, &size));
      if (size && size < (1 << 20)) {
        char* buffer = malloc(size);
        count(api->contextGetBinary(handle, buffer, once_in(4) ? draw((uint32_t)size) : size, &size));
        free(buffer);
      }
      break;
    }
    case 15: keep(api->graphCreate(handle, any_name(), NULL, &made), made); break;
    case 16: keep(api->graphRetrieve(handle, any_name(), &made), made); break;
    case 17: count(api->tensorCreateGraphTensor(handle, in)); break;
    case 18: count(api->tensorCreateContextTensor(handle, in)); break;
    case 19: any_node(api, handle); break;
    case 20: right_graph(api, handle); break;
    case 21: count(api->graphFinalize(handle, other, any_handle())); break;
    case 22: case 23: count(api->graphExecute(handle, in, draw(3), out, draw(3), once_in(2) ? other : NULL, NULL)); break;
    case 24: {
      count(api->graphExecuteAsync(handle, in, draw(3), out, draw(3), NULL, once_in(2) ? other : NULL, on_end, NULL));
      break;
    }
    case 25: keep(api->profileCreate(handle, draw(4), &made), made); break;
    case 26: {
      count(api->profileGetEvents(handle, &ids, &number));
      if (ids && number) last_id = ids[draw(number)];
      QnnProfile_EventData_t data;
      QnnProfile_ExtendedEventData_t more;
      count(api->profileGetEventData(last_id, &data));
      count(api->profileGetExtendedEventData(last_id, &more));
      count(api->profileGetSubEvents(last_id + draw(2), &ids, &number));
      break;
    }
    case 27: {
      Qnn_MemDescriptor_t descriptor;
      QnnMemHtp_Descriptor_t custom;
      memset(&descriptor, 0, sizeof descriptor);
      memset(&custom, 0, sizeof custom);
      descriptor.memShape.numDim = once_in(8) ? 50 : draw(3);
      descriptor.memShape.dimSize = once_in(8) ? NULL : sizes[draw(8)];
      descriptor.dataType = any_type();
      descriptor.memType = (Qnn_MemType_t)draw(4);
      if (descriptor.memType == QNN_MEM_TYPE_CUSTOM) {
        custom.type = (QnnHtpMem_Type_t)draw(3);
        custom.size = draw(ROOM);
        custom.sharedBufferConfig.fd = files[draw(4)];
        custom.sharedBufferConfig.offset = once_in(8) ? UINT64_MAX - draw(100) : draw(ROOM);
        descriptor.customInfo = once_in(6) ? NULL : &custom;
      } else {
        descriptor.ionInfo.fd = once_in(6) ? -1 : files[draw(4)];
      }
      keep(api->memRegister(handle, &descriptor, once_in(8) ? 0 : 1, &made), made);
      break;
    }
    case 28: count(api->memDeRegister(&handle, 1)); break;
    case 29: keep(api->signalCreate(handle, NULL, &made), made); break;
    case 30: count(once_in(2) ? api->signalTrigger(handle) : api->signalFree(handle)); break;
    case 31: {
      count(api->errorGetMessage(draw(15000), &text));
      if (!api->errorGetVerboseMessage(draw(15000), &text)) api->errorFreeVerboseMessage(text);
      const QnnDevice_PlatformInfo_t* info = NULL;
      count(api->deviceGetPlatformInfo(handle, &info));
      count(api->deviceGetInfo(handle, &info));
      count(api->propertyHasCapability(draw(2000)));
      break;
    }
    case 32: {
      const QnnSystemContext_BinaryInfo_t* info = NULL;
      keep(sys->v1.systemContextCreate(&made), made);
      count(sys->v1.systemContextGetBinaryInfo(once_in(3) ? handle : made, binary, bytes, &info, &size));
      if (once_in(2)) count(sys->v1.systemContextFree(made));
      break;
    }
    default:
      switch (draw(6)) {
        case 0: count(api->backendFree(handle)); break;
        case 1: count(api->deviceFree(handle)); break;
        case 2: count(api->logFree(handle)); break;
        case 3: count(api->profileFree(handle)); break;
        case 4: {
          QnnContext_Buffer_t buffer = {.version = QNN_CONTEXT_BUFFER_VERSION_1};
          buffer.v1.memType = (QnnContext_MemType_t)draw(2);
          buffer.v1.binaryBuf.dataBuffer = binary;
          buffer.v1.binaryBuf.dataBufferSize = bytes;
          count(api->contextApplyBinarySection(handle, other, (QnnContext_SectionType_t)draw(3), &buffer, NULL, NULL));
          break;
        }
        default: count(api->graphSetConfig(handle, NULL)); break;
      }
  }
}

static void load(const char* folder, const char* name, QNN_INTERFACE_VER_TYPE* into) {
  char path[4096];
  QnnInterface_GetProvidersFn_t providers;
  const QnnInterface_t** list = NULL;
  uint32_t number = 0;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) exit(3);
  *(void**)&providers = dlsym(library, "QnnInterface_getProviders");
  if (providers(&list, &number)) exit(3);
  *into = list[0]->QNN_INTERFACE_VER_NAME;
}

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  char path[4096];
  Qnn_ErrorHandle_t (*system_providers)(const QnnSystemInterface_t***, uint32_t*);
  const QnnSystemInterface_t** list = NULL;
  uint32_t number = 0;
  load(argv[1], "libQnnHtp.so", &qnn[0]);
  load(argv[1], "libQnnCpu.so", &qnn[1]);
  load(argv[1], "libQnnSaver.so", &qnn[2]);
  snprintf(path, sizeof path, "%s/libQnnSystem.so", argv[1]);
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return 3;
  *(void**)&system_providers = dlsym(library, "QnnSystemInterface_getProviders");
  if (system_providers(&list, &number)) return 3;
  sys = list[0];
  FILE* file = fopen(argv[2], "rb");
  if (!file) return 3;
  fseek(file, 0, SEEK_END);
  binary_bytes = (size_t)ftell(file);
  rewind(file);
  binary = malloc(binary_bytes);
  if (!binary || fread(binary, 1, binary_bytes, file) != binary_bytes) return 3;
  fclose(file);
  for (int i = 0; i < 8; ++i) scales[i].scale = 0.05f * (float)(i + 1);
  for (int i = 0; i < 4; ++i) {
    files[i] = memfd_create("shared", 0);
    if (files[i] < 0 || ftruncate(files[i], ROOM)) return 3;
  }
  const unsigned long first = strtoul(argv[3], NULL, 10), sequences = strtoul(argv[4], NULL, 10);
  for (unsigned long i = first; i < first + sequences; ++i) {
    printf("%lu\n", i);
    fflush(stdout);
    state = 0x9E3779B97F4A7C15ull * (i + 1);
    given = 0;
    keep(qnn[0].backendCreate(NULL, NULL, &handles[0]), handles[0]);
    const uint32_t calls = 10 + draw(50);
    for (uint32_t k = 0; k < calls; ++k) any_call();
    for (unsigned k = given; k-- > 0;)  // in any order that comes about; what is freed already is a code
      {
        if (!qnn[0].contextFree(handles[k], NULL) || !qnn[0].profileFree(handles[k]) || !qnn[0].signalFree(handles[k])) continue;
        if (!qnn[0].memDeRegister(&handles[k], 1) || !sys->v1.systemContextFree(handles[k])) continue;
        if (!qnn[0].deviceFree(handles[k]) || !qnn[0].backendFree(handles[k])) continue;
        qnn[0].logFree(handles[k]);
      }
  }
  fprintf(stderr, "%lu calls did what was asked, %lu ended with a code\n", successes, codes);
  free(binary);
  return 0;
}
