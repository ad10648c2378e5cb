// SPDX-License-Identifier: Apache-2.0
// What callers of QNN give that may be left out, and what they get wrong: callers LIBRARY CASE [PACKAGE].
#define _GNU_SOURCE
#include <dlfcn.h>
#include <semaphore.h>
#include <string.h>

#include "HTP/QnnHtpDevice.h"
#include "QnnInterface.h"

#define ELEMENTS 4
#include "row_tensor.h"

static QNN_INTERFACE_VER_TYPE qnn;
static Qnn_BackendHandle_t backend;
static float in[2 * ELEMENTS] = {-1, 2, -3, 4}, out[2 * ELEMENTS];
static sem_t entered, leave;

static Qnn_GraphHandle_t built(Qnn_ContextHandle_t context, const char* name, const char* package, const char* type) {
  Qnn_GraphHandle_t graph = NULL;
  Qnn_Tensor_t x = tensor("x", QNN_TENSOR_TYPE_APP_WRITE, NULL), y = tensor("y", QNN_TENSOR_TYPE_APP_READ, NULL);
  Qnn_OpConfig_t op = QNN_OPCONFIG_INIT;
  REQUIRE(!qnn.graphCreate(context, name, NULL, &graph));
  REQUIRE(!qnn.tensorCreateGraphTensor(graph, &x) && !qnn.tensorCreateGraphTensor(graph, &y));
  op.v1.name = "node";
  op.v1.packageName = package;
  op.v1.typeName = type;
  op.v1.numOfInputs = op.v1.numOfOutputs = 1;
  op.v1.inputTensors = &x;
  op.v1.outputTensors = &y;
  REQUIRE(!qnn.graphAddNode(graph, op));
  REQUIRE(!qnn.graphFinalize(graph, NULL, NULL));
  return graph;
}

static Qnn_ContextHandle_t context_of(Qnn_DeviceHandle_t device, const QnnContext_Config_t** config) {
  Qnn_ContextHandle_t context = NULL;
  REQUIRE(!qnn.contextCreate(backend, device, config, &context));
  return context;
}

static Qnn_ErrorHandle_t run(Qnn_GraphHandle_t graph, Qnn_Tensor_t x, Qnn_Tensor_t y) {
  return qnn.graphExecute(graph, &x, 1, &y, 1, NULL, NULL);
}

static Qnn_Tensor_t x_of(void) { return tensor("x", QNN_TENSOR_TYPE_APP_WRITE, in); }
static Qnn_Tensor_t y_of(void) { return tensor("y", QNN_TENSOR_TYPE_APP_READ, out); }

static void on_end(void* parameter, Qnn_NotifyStatus_t status) {
  REQUIRE(!parameter && !status.error);
  sem_post(&entered);
  sem_wait(&leave);
}

// A queue of one: the second that waits is refused, and one more is taken when the first has ended.
static void queue_depth(void) {
  QnnContext_Config_t config = QNN_CONTEXT_CONFIG_INIT;
  const QnnContext_Config_t* list[] = {&config, NULL};
  Qnn_ContextHandle_t context = NULL;
  Qnn_Tensor_t x = x_of(), y = y_of();
  config.option = QNN_CONTEXT_CONFIG_ASYNC_EXECUTION_QUEUE_DEPTH;
  config.asyncExeQueueDepth.type = QNN_CONTEXT_ASYNC_EXECUTION_QUEUE_DEPTH_TYPE_NUMERIC;
  config.asyncExeQueueDepth.depth = 0;
  REQUIRE(qnn.contextCreate(backend, NULL, list, &context) == QNN_CONTEXT_ERROR_INVALID_CONFIG);
  config.asyncExeQueueDepth.depth = 301;
  REQUIRE(qnn.contextCreate(backend, NULL, list, &context) == QNN_CONTEXT_ERROR_INVALID_CONFIG);
  config.asyncExeQueueDepth.depth = 1;
  context = context_of(NULL, list);
  Qnn_GraphHandle_t graph = built(context, "relu", "qti.aisw", "Relu");
  sem_init(&entered, 0, 0);
  sem_init(&leave, 0, 0);
  REQUIRE(!qnn.graphExecuteAsync(graph, &x, 1, &y, 1, NULL, NULL, on_end, NULL));
  sem_wait(&entered);  // the first has run, and its notify function holds the queue
  REQUIRE(!qnn.graphExecuteAsync(graph, &x, 1, &y, 1, NULL, NULL, on_end, NULL));
  REQUIRE(qnn.graphExecuteAsync(graph, &x, 1, &y, 1, NULL, NULL, on_end, NULL) ==
          QNN_GRAPH_ERROR_EXECUTION_ASYNC_FIFO_FULL);
  sem_post(&leave);
  sem_wait(&entered);
  sem_post(&leave);
  REQUIRE(!qnn.contextFree(context, NULL));
}

static void dimensions(void) {
  Qnn_GraphHandle_t graph = built(context_of(NULL, NULL), "relu", "qti.aisw", "Relu");
  uint32_t twice[] = {2, ELEMENTS}, odd[] = {1, ELEMENTS - 1};
  uint8_t flags[] = {0, 1};
  Qnn_Tensor_t x = x_of(), y = y_of();
  x.v1.dimensions = y.v1.dimensions = odd;
  REQUIRE(run(graph, x, y) == QNN_GRAPH_ERROR_INVALID_TENSOR);
  x.version = y.version = QNN_TENSOR_VERSION_2;
  x.v2.isDynamicDimensions = y.v2.isDynamicDimensions = flags;
  REQUIRE(run(graph, x, y) == QNN_GRAPH_ERROR_DYNAMIC_TENSOR_SHAPE);
  x.v2.dimensions = y.v2.dimensions = twice;
  x.v2.clientBuf.dataSize = y.v2.clientBuf.dataSize = sizeof in;
  REQUIRE(!run(graph, x, y) && out[1] == 2 && out[2] == 0);
}

static void ids(void) {
  Qnn_ContextHandle_t context = context_of(NULL, NULL);
  Qnn_GraphHandle_t graph = built(context, "relu", "qti.aisw", "Relu"), other = NULL;
  Qnn_Tensor_t x = x_of(), y = y_of(), made = tensor("x", QNN_TENSOR_TYPE_APP_WRITE, NULL);
  Qnn_OpConfig_t op = QNN_OPCONFIG_INIT;
  REQUIRE(!run(graph, x, y));  // by names alone
  x.v1.id = 4711;
  REQUIRE(run(graph, x, y) == QNN_GRAPH_ERROR_INVALID_TENSOR);
  REQUIRE(!qnn.graphCreate(context, "other", NULL, &other) && !qnn.tensorCreateGraphTensor(other, &made));
  made.v1.id += 4711;
  op.v1.name = "node";
  op.v1.packageName = "qti.aisw";
  op.v1.typeName = "Relu";
  op.v1.numOfInputs = 1;
  op.v1.inputTensors = &made;
  REQUIRE(qnn.graphAddNode(other, op) == QNN_GRAPH_ERROR_INVALID_TENSOR);
}

// No configuration, and no parameter that may be left out.
static void nothing_given(void) {
  Qnn_DeviceHandle_t device = NULL;
  REQUIRE(!qnn.deviceCreate(NULL, NULL, &device));
  Qnn_GraphHandle_t graph = built(context_of(device, NULL), "softmax", "qti.aisw", "Softmax");
  REQUIRE(!run(graph, x_of(), y_of()));
  float sum = 0;
  for (int i = 0; i < ELEMENTS; ++i) sum += out[i];
  REQUIRE(sum > 0.99f && sum < 1.01f && out[3] > out[1] && out[1] > out[0]);
}

// As QNN's callers register a package: its path, what it exports, and a target or none.
static void op_package(const char* path) {
  REQUIRE(qnn.backendRegisterOpPackage(backend, path, "nothing_of_it", NULL) ==
          QNN_BACKEND_ERROR_OP_PACKAGE_REGISTRATION_FAILED);
  REQUIRE(!qnn.backendRegisterOpPackage(backend, path, "package", "HTP"));
  REQUIRE(!qnn.backendRegisterOpPackage(backend, path, "package", NULL));
  Qnn_GraphHandle_t graph = built(context_of(NULL, NULL), "swish", "example.activations", "Swish");
  REQUIRE(!run(graph, x_of(), y_of()) && out[3] > 3.9f && out[3] < 4 && out[0] < 0);
}

// Memory of libcdsprpc.so, as a phone's programs allocate it: written here, read and written by the graph.
static void shared_memory(void) {
  void* library = dlopen("libcdsprpc.so", RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library);
  void (*init)(void);
  void* (*alloc)(int, uint32_t, int);
  int (*to_fd)(void*);
  void (*release)(void*);
  *(void**)&init = dlsym(library, "rpcmem_init");
  *(void**)&alloc = dlsym(library, "rpcmem_alloc");
  *(void**)&to_fd = dlsym(library, "rpcmem_to_fd");
  *(void**)&release = dlsym(library, "rpcmem_free");
  REQUIRE(init && alloc && to_fd && release && dlsym(library, "rpcmem_alloc2") && dlsym(library, "rpcmem_deinit"));
  init();
  Qnn_ContextHandle_t context = context_of(NULL, NULL);
  Qnn_GraphHandle_t graph = built(context, "relu", "qti.aisw", "Relu");
  float* data[2] = {alloc(25, 1, sizeof(float) * ELEMENTS), alloc(25, 1, sizeof(float) * ELEMENTS)};
  REQUIRE(data[0] && data[1] && data[0] != data[1]);
  memcpy(data[0], in, sizeof(float) * ELEMENTS);
  Qnn_Tensor_t tensors[2] = {x_of(), y_of()};
  for (int i = 0; i < 2; ++i) {
    Qnn_MemDescriptor_t memory = QNN_MEM_DESCRIPTOR_INIT;
    memory.memShape.numDim = 2;
    memory.memShape.dimSize = dims;
    memory.dataType = QNN_DATATYPE_FLOAT_32;
    memory.memType = QNN_MEM_TYPE_ION;
    memory.ionInfo.fd = to_fd(data[i]);
    REQUIRE(memory.ionInfo.fd >= 0);
    tensors[i].v1.memType = QNN_TENSORMEMTYPE_MEMHANDLE;
    REQUIRE(!qnn.memRegister(context, &memory, 1, &tensors[i].v1.memHandle));
  }
  REQUIRE(!run(graph, tensors[0], tensors[1]));
  for (int i = 0; i < ELEMENTS; ++i) REQUIRE(data[1][i] == (in[i] > 0 ? in[i] : 0));
  for (int i = 0; i < 2; ++i) REQUIRE(!qnn.memDeRegister(&tensors[i].v1.memHandle, 1));
  release(data[0]);
  release(data[0]);
  release(in);
  REQUIRE(to_fd(data[0]) == -1 && to_fd(in) == -1 && to_fd(data[1]) >= 0);
  REQUIRE(!alloc(25, 1, 0) && !alloc(25, 1, -1));
}

int main(int argc, char** argv) {
  const QnnInterface_t** list = NULL;
  uint32_t count = 0;
  QnnInterface_GetProvidersFn_t providers = NULL;
  REQUIRE(argc >= 3);
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library);
  *(void**)&providers = dlsym(library, "QnnInterface_getProviders");
  REQUIRE(providers && !providers(&list, &count) && count);
  qnn = list[0]->QNN_INTERFACE_VER_NAME;
  REQUIRE(!qnn.backendCreate(NULL, NULL, &backend));
  if (!strcmp(argv[2], "queue_depth")) queue_depth();
  if (!strcmp(argv[2], "dimensions")) dimensions();
  if (!strcmp(argv[2], "ids")) ids();
  if (!strcmp(argv[2], "nothing_given")) nothing_given();
  if (!strcmp(argv[2], "shared_memory")) shared_memory();
  if (!strcmp(argv[2], "op_package")) op_package(argv[3]);
  return 0;
}
