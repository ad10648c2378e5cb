// SPDX-License-Identifier: Apache-2.0
// One misuse of QNN's API for each name: ./misuse FOLDER_OF_LIBRARIES CONTEXT CASE. The context has the graphs a and b,
// each y = relu(x) of ELEMENTS floats. Nothing here asks for the compiler process.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "HTP/QnnHtpContext.h"
#include "HTP/QnnHtpDevice.h"
#include "HTP/QnnHtpGraph.h"
#include "QnnInterface.h"

#define ELEMENTS 65536
#include "row_tensor.h"

#define MUST(call) REQUIRE((call) == QNN_SUCCESS)
#define REFUSED(call) REQUIRE((call) != QNN_SUCCESS)

static QNN_INTERFACE_VER_TYPE qnn;
static Qnn_BackendHandle_t backend;
static Qnn_DeviceHandle_t device;
static Qnn_ContextHandle_t context;
static Qnn_GraphHandle_t graph_a, graph_b;
static char* binary;
static size_t binary_bytes;
static uint32_t twice[] = {2, ELEMENTS};
static float x[2 * ELEMENTS], y[2 * ELEMENTS], z[2 * ELEMENTS];

static Qnn_ProfileHandle_t profile;
static Qnn_SignalHandle_t stop;  // both are given to executions where there are some
static Qnn_ErrorHandle_t execute(Qnn_GraphHandle_t graph, float* from, float* to) {
  Qnn_Tensor_t in = tensor("x", QNN_TENSOR_TYPE_APP_WRITE, from), out = tensor("y", QNN_TENSOR_TYPE_APP_READ, to);
  return qnn.graphExecute(graph, &in, 1, &out, 1, profile, stop);
}

static Qnn_ContextHandle_t load(const QnnContext_Config_t** config) {
  Qnn_ContextHandle_t made = NULL;
  MUST(qnn.contextCreateFromBinary(backend, device, config, binary, binary_bytes, &made, NULL));
  return made;
}

static Qnn_GraphHandle_t graph_of(Qnn_ContextHandle_t owner, const char* name) {
  Qnn_GraphHandle_t made = NULL;
  MUST(qnn.graphRetrieve(owner, name, &made));
  return made;
}

// Executions that wait: the first one's notify function holds the queue until it is let go.
static sem_t reached, held, ended;
static void hold(void* parameter, Qnn_NotifyStatus_t status) {
  (void)parameter;
  (void)status;
  sem_post(&reached);
  sem_wait(&held);
}
static void end(void* parameter, Qnn_NotifyStatus_t status) {
  (void)parameter;
  (void)status;
  sem_post(&ended);
}
static void execute_later(float* from, float* to, Qnn_NotifyFn_t notify) {
  Qnn_Tensor_t in = tensor("x", QNN_TENSOR_TYPE_APP_WRITE, from), out = tensor("y", QNN_TENSOR_TYPE_APP_READ, to);
  MUST(qnn.graphExecuteAsync(graph_a, &in, 1, &out, 1, NULL, NULL, notify, NULL));
}
static void let_go(void) {
  sem_post(&held);
  sem_wait(&ended);
}
static void* let_go_soon(void* unused) {
  usleep(50000);
  sem_post(&held);
  return unused;
}

typedef struct {
  Qnn_GraphHandle_t graph;
  float *from, *to;
  pthread_barrier_t* barrier;
} Runs;
static void* run_often(void* given) {
  Runs* own = given;
  pthread_barrier_wait(own->barrier);
  for (int i = 0; i < 400; ++i) {
    const Qnn_ErrorHandle_t code = execute(own->graph, own->from, own->to);
    REQUIRE(code == QNN_SUCCESS || code == QNN_GRAPH_ERROR_SIGNAL_IN_USE);
  }
  return NULL;
}
static void run_both(Qnn_GraphHandle_t first, Qnn_GraphHandle_t second, float* first_output, float* second_output) {
  pthread_t thread;
  pthread_barrier_t barrier;
  Runs one = {first, x, first_output, &barrier}, two = {second, x, second_output, &barrier};
  pthread_barrier_init(&barrier, NULL, 2);
  pthread_create(&thread, NULL, run_often, &one);
  run_often(&two);
  pthread_join(thread, NULL);
}

static void group(Qnn_ContextHandle_t first, uint64_t bytes, Qnn_ContextHandle_t* made) {
  QnnHtpContext_CustomConfig_t custom = {.option = QNN_HTP_CONTEXT_CONFIG_OPTION_REGISTER_MULTI_CONTEXTS};
  custom.groupRegistration.firstGroupHandle = first;
  custom.groupRegistration.maxSpillFillBuffer = bytes;
  QnnContext_Config_t config = {.option = QNN_CONTEXT_CONFIG_OPTION_CUSTOM};
  config.customConfig = &custom;
  const QnnContext_Config_t* list[] = {&config, NULL};
  *made = load(list);
}

static Qnn_ContextHandle_t persistent(int limited) {
  QnnContext_Config_t keep = {.option = QNN_CONTEXT_CONFIG_PERSISTENT_BINARY}, limit = keep;
  keep.isPersistentBinary = 1;
  limit.option = QNN_CONTEXT_CONFIG_MEMORY_LIMIT_HINT;
  limit.memoryLimitHint = 1;
  const QnnContext_Config_t* list[] = {&keep, limited ? &limit : NULL, NULL};
  return load(list);
}

static Qnn_MemHandle_t shared_memory(void) {
  Qnn_MemHandle_t handle = NULL;
  Qnn_MemDescriptor_t descriptor;
  int fd = memfd_create("x", 0);
  memset(&descriptor, 0, sizeof descriptor);
  REQUIRE(fd >= 0 && ftruncate(fd, sizeof(float) * ELEMENTS) == 0);
  descriptor.memShape.numDim = 2;
  descriptor.memShape.dimSize = dims;
  descriptor.dataType = QNN_DATATYPE_FLOAT_32;
  descriptor.memType = QNN_MEM_TYPE_ION;
  descriptor.ionInfo.fd = fd;
  MUST(qnn.memRegister(context, &descriptor, 1, &handle));
  close(fd);
  return handle;
}

static Qnn_GraphHandle_t new_graph(Qnn_ContextHandle_t* owner, const char* name) {
  Qnn_GraphHandle_t made = NULL;
  if (!*owner) MUST(qnn.contextCreate(backend, device, NULL, owner));
  MUST(qnn.graphCreate(*owner, name, NULL, &made));
  return made;
}
static Qnn_ErrorHandle_t add_relu(Qnn_GraphHandle_t graph, const char* name, Qnn_Tensor_t in, Qnn_Tensor_t out) {
  Qnn_OpConfig_t op = QNN_OPCONFIG_INIT;
  op.v1.name = name;
  op.v1.packageName = "qti.aisw";
  op.v1.typeName = "Relu";
  op.v1.numOfInputs = op.v1.numOfOutputs = 1;
  op.v1.inputTensors = &in;
  op.v1.outputTensors = &out;
  return qnn.graphAddNode(graph, op);
}

static int listed;
static void* run_list(void* given) {
  pthread_barrier_t* barrier = given;
  QnnContext_Params_t params = {.version = QNN_CONTEXT_PARAMS_VERSION_1,
                                .v1 = {NULL, binary, binary_bytes, NULL, NULL, NULL}};
  const QnnContext_Params_t* list[] = {&params, &params, &params, &params, NULL};
  pthread_barrier_wait(barrier);
  for (int i = 0; i < 50; ++i) MUST(qnn.contextCreateFromBinaryListAsync(backend, device, list, NULL, NULL));
  __atomic_store_n(&listed, 1, __ATOMIC_SEQ_CST);
  return NULL;
}

static void misuse(const char* name) {
  const char* id = NULL;
  if (!strcmp(name, "nothing")) {
    MUST(execute(graph_a, x, y));
  } else if (!strcmp(name, "use-after-free")) {
    Qnn_ContextHandle_t other = load(NULL);
    Qnn_GraphHandle_t graph = graph_of(other, "a");
    MUST(qnn.contextFree(other, NULL));
    REFUSED(execute(graph, x, y));
  } else if (!strcmp(name, "double-free")) {
    Qnn_ContextHandle_t other = load(NULL);
    MUST(qnn.contextFree(other, NULL));
    REFUSED(qnn.contextFree(other, NULL));
  } else if (!strcmp(name, "execute-before-finalize")) {
    Qnn_ContextHandle_t other = NULL;
    REFUSED(execute(new_graph(&other, "g"), x, y));
    MUST(qnn.contextFree(other, NULL));
  } else if (!strcmp(name, "changed-after-finalize")) {
    Qnn_Tensor_t more = tensor("more", QNN_TENSOR_TYPE_NATIVE, NULL);
    REFUSED(qnn.tensorCreateGraphTensor(graph_a, &more));
  } else if (!strcmp(name, "binary-before-finalize")) {
    Qnn_ContextHandle_t other = NULL;
    Qnn_ContextBinarySize_t size = 0;
    new_graph(&other, "g");
    REFUSED(qnn.contextGetBinarySize(other, &size));
    MUST(qnn.contextFree(other, NULL));
  } else if (!strcmp(name, "tensor-of-another-graph")) {
    Qnn_ContextHandle_t other = NULL;
    Qnn_GraphHandle_t first = new_graph(&other, "first"), second = new_graph(&other, "second");
    Qnn_Tensor_t in = tensor("in", QNN_TENSOR_TYPE_APP_WRITE, NULL), out = tensor("out", QNN_TENSOR_TYPE_APP_READ, NULL);
    MUST(qnn.tensorCreateGraphTensor(first, &in));
    MUST(qnn.tensorCreateGraphTensor(second, &out));
    REFUSED(add_relu(second, "relu", in, out));
    MUST(qnn.contextFree(other, NULL));
  } else if (!strcmp(name, "buffer-freed-in-use")) {
    float* mapped = mmap(NULL, sizeof(float) * ELEMENTS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    execute_later(x, y, hold);
    execute_later(mapped, z, end);
    sem_wait(&reached);  // a run takes memory of its own, which could be what is given back
    munmap(mapped, sizeof(float) * ELEMENTS);
    let_go();
  } else if (!strcmp(name, "input-changed-in-use")) {
    execute_later(x, y, hold);
    execute_later(x, z, end);
    x[7] = 5;
    let_go();
  } else if (!strcmp(name, "buffer-shared")) {
    run_both(graph_a, graph_b, y, y);
  } else if (!strcmp(name, "memory-deregistered-in-use")) {
    Qnn_MemHandle_t memory = shared_memory();
    Qnn_Tensor_t in = tensor("x", QNN_TENSOR_TYPE_APP_WRITE, NULL), out = tensor("y", QNN_TENSOR_TYPE_APP_READ, y);
    in.v1.memType = QNN_TENSORMEMTYPE_MEMHANDLE;
    in.v1.memHandle = memory;
    execute_later(x, z, hold);
    MUST(qnn.graphExecuteAsync(graph_a, &in, 1, &out, 1, NULL, NULL, end, NULL));
    MUST(qnn.memDeRegister(&memory, 1));
    let_go();
  } else if (!strcmp(name, "memory-used-after-free")) {
    Qnn_MemHandle_t memory = shared_memory();
    Qnn_Tensor_t in = tensor("x", QNN_TENSOR_TYPE_APP_WRITE, NULL), out = tensor("y", QNN_TENSOR_TYPE_APP_READ, y);
    in.v1.memType = QNN_TENSORMEMTYPE_MEMHANDLE;
    in.v1.memHandle = memory;
    MUST(qnn.memDeRegister(&memory, 1));
    REFUSED(qnn.graphExecute(graph_a, &in, 1, &out, 1, NULL, NULL));
  } else if (!strcmp(name, "profile-of-another-backend")) {
    Qnn_BackendHandle_t other = NULL;
    MUST(qnn.backendCreate(NULL, NULL, &other));
    MUST(qnn.profileCreate(other, QNN_PROFILE_LEVEL_BASIC, &profile));
    MUST(execute(graph_a, x, y));
    MUST(qnn.profileFree(profile));
    MUST(qnn.backendFree(other));
  } else if (!strcmp(name, "memory-still-registered")) {
    shared_memory();
  } else if (!strcmp(name, "context-freed-in-use")) {
    pthread_t thread;
    execute_later(x, y, hold);
    execute_later(x, z, NULL);
    pthread_create(&thread, NULL, let_go_soon, NULL);
    MUST(qnn.contextFree(context, NULL));
    context = NULL;
    pthread_join(thread, NULL);
  } else if (!strcmp(name, "group-run-concurrently")) {
    Qnn_ContextHandle_t first = NULL, second = NULL;
    group(NULL, 1 << 20, &first);
    group(first, 1 << 20, &second);
    run_both(graph_of(first, "a"), graph_of(second, "a"), y, z);
    MUST(qnn.contextFree(second, NULL));
    MUST(qnn.contextFree(first, NULL));
  } else if (!strcmp(name, "switched-run-concurrently")) {
    Qnn_ContextHandle_t other = persistent(1);
    run_both(graph_of(other, "a"), graph_of(other, "b"), y, z);
    MUST(qnn.contextFree(other, NULL));
  } else if (!strcmp(name, "group-registration")) {
    Qnn_ContextHandle_t first = NULL;
    group(NULL, 0, &first);
    MUST(qnn.contextFree(first, NULL));
  } else if (!strcmp(name, "binary-freed-in-use")) {
    char* kept = binary;
    binary = mmap(NULL, binary_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(binary, kept, binary_bytes);
    Qnn_ContextHandle_t other = persistent(0);
    munmap(binary, binary_bytes);
    binary = kept;
    MUST(execute(graph_of(other, "a"), x, y));
    MUST(qnn.contextFree(other, NULL));
  } else if (!strcmp(name, "weights-changed")) {
    Qnn_ContextHandle_t other = persistent(0);
    binary[binary_bytes / 2] ^= 1;
    MUST(qnn.contextFree(other, NULL));
  } else if (!strcmp(name, "static-data-changed")) {
    Qnn_ContextHandle_t other = NULL;
    Qnn_GraphHandle_t graph = new_graph(&other, "g");
    Qnn_Tensor_t weights = tensor("w", QNN_TENSOR_TYPE_STATIC, z);
    MUST(qnn.tensorCreateGraphTensor(graph, &weights));
    z[3] = 1;
    REFUSED(qnn.graphFinalize(graph, NULL, NULL));
    MUST(qnn.contextFree(other, NULL));
  } else if (!strcmp(name, "node-order")) {
    Qnn_ContextHandle_t other = NULL;
    Qnn_GraphHandle_t graph = new_graph(&other, "g");
    Qnn_Tensor_t between = tensor("t", QNN_TENSOR_TYPE_NATIVE, NULL), out = tensor("out", QNN_TENSOR_TYPE_APP_READ, NULL);
    MUST(qnn.tensorCreateGraphTensor(graph, &between));
    MUST(qnn.tensorCreateGraphTensor(graph, &out));
    MUST(add_relu(graph, "second", between, out));
    MUST(qnn.contextFree(other, NULL));
  } else if (!strcmp(name, "other-arch")) {
    QnnHtpDevice_CustomConfig_t custom = {.option = QNN_HTP_DEVICE_CONFIG_OPTION_SOC};
    custom.socModel = QNN_SOC_MODEL_SM8750;
    QnnDevice_Config_t config = {.option = QNN_DEVICE_CONFIG_OPTION_CUSTOM};
    config.customConfig = &custom;
    const QnnDevice_Config_t* list[] = {&config, NULL};
    MUST(qnn.deviceCreate(NULL, list, &device));
    MUST(qnn.contextFree(load(NULL), NULL));
  } else if (!strcmp(name, "freed-too-early")) {
    MUST(qnn.backendFree(backend));
    backend = NULL;
  } else if (!strcmp(name, "missing-free")) {
    MUST(qnn.profileCreate(backend, QNN_PROFILE_LEVEL_BASIC, &profile));
  } else if (!strcmp(name, "profile-shared")) {
    MUST(qnn.profileCreate(backend, QNN_PROFILE_LEVEL_BASIC, &profile));
    run_both(graph_a, graph_b, y, z);
    MUST(qnn.profileFree(profile));
  } else if (!strcmp(name, "signal-in-use")) {
    MUST(qnn.signalCreate(backend, NULL, &stop));
    run_both(graph_a, graph_b, y, z);
    MUST(qnn.signalFree(stop));
  } else if (!strcmp(name, "switching-with-sharing")) {
    QnnHtpContext_CustomConfig_t custom = {.option = QNN_HTP_CONTEXT_CONFIG_OPTION_SHARE_RESOURCES};
    custom.shareResources = true;
    QnnContext_Config_t keep = {.option = QNN_CONTEXT_CONFIG_PERSISTENT_BINARY}, limit = keep, share = keep;
    keep.isPersistentBinary = 1;
    limit.option = QNN_CONTEXT_CONFIG_MEMORY_LIMIT_HINT;
    limit.memoryLimitHint = 1;
    share.option = QNN_CONTEXT_CONFIG_OPTION_CUSTOM;
    share.customConfig = &custom;
    const QnnContext_Config_t* list[] = {&keep, &limit, &share, NULL};
    MUST(qnn.contextFree(load(list), NULL));
  } else if (!strcmp(name, "mixed-batch")) {
    Qnn_Tensor_t in = tensor("x", QNN_TENSOR_TYPE_APP_WRITE, x), out = tensor("y", QNN_TENSOR_TYPE_APP_READ, y);
    in.v1.dimensions = twice;
    in.v1.clientBuf.dataSize = sizeof x;
    REFUSED(qnn.graphExecute(graph_a, &in, 1, &out, 1, NULL, NULL));
  } else if (!strcmp(name, "late-config")) {
    QnnHtpGraph_CustomConfig_t custom = {.option = QNN_HTP_GRAPH_CONFIG_OPTION_NUM_HVX_THREADS};
    custom.numHvxThreads = 2;
    QnnGraph_Config_t config = {.option = QNN_GRAPH_CONFIG_OPTION_CUSTOM};
    config.customConfig = &custom;
    const QnnGraph_Config_t* list[] = {&config, NULL};
    MUST(execute(graph_a, x, y));
    REFUSED(qnn.graphSetConfig(graph_a, list));
  } else if (!strcmp(name, "invalid-argument")) {
    REFUSED(qnn.graphCreate(context, NULL, NULL, &graph_a));
  } else if (!strcmp(name, "parallel-to-list")) {
    pthread_t thread;
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, run_list, &barrier);
    pthread_barrier_wait(&barrier);
    while (!__atomic_load_n(&listed, __ATOMIC_SEQ_CST)) MUST(qnn.backendGetBuildId(&id));
    pthread_join(thread, NULL);
    _exit(0);  // the list's contexts are left to the system
  } else {
    fprintf(stderr, "no case %s\n", name);
    exit(4);
  }
}

int main(int count, char** arguments) {
  char path[4096];
  QnnInterface_GetProvidersFn_t get_providers;
  const QnnInterface_t** providers = NULL;
  uint32_t number = 0;
  FILE* file;
  REQUIRE(count == 4);
  snprintf(path, sizeof path, "%s/libQnnHtp.so", arguments[1]);
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library);
  *(void**)&get_providers = dlsym(library, "QnnInterface_getProviders");
  MUST(get_providers(&providers, &number));
  qnn = providers[0]->QNN_INTERFACE_VER_NAME;
  REQUIRE((file = fopen(arguments[2], "rb")));
  fseek(file, 0, SEEK_END);
  binary_bytes = (size_t)ftell(file);
  rewind(file);
  REQUIRE((binary = malloc(binary_bytes)) && fread(binary, 1, binary_bytes, file) == binary_bytes);
  fclose(file);
  sem_init(&reached, 0, 0);
  sem_init(&held, 0, 0);
  sem_init(&ended, 0, 0);
  MUST(qnn.backendCreate(NULL, NULL, &backend));
  context = load(NULL);
  graph_a = graph_of(context, "a");
  graph_b = graph_of(context, "b");
  misuse(arguments[3]);
  if (context) MUST(qnn.contextFree(context, NULL));
  if (device) MUST(qnn.deviceFree(device));
  if (backend) MUST(qnn.backendFree(backend));
  free(binary);
  return 0;
}
