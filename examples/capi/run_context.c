// SPDX-License-Identifier: Apache-2.0
// Loads a context through QNN's C API, runs a graph of it on some threads, checks every result, and says how long a
// run takes. `run_context FOLDER CONTEXT GRAPH THREADS RUNS INPUTS RESULTS`: inputs and results are files with the bytes of
// all tensors one after the other.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
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

#include "QnnInterface.h"
#include "System/QnnSystemInterface.h"

#define REQUIRE(condition)                                                    \
  if (!(condition)) {                                                         \
    fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
    exit(1);                                                                  \
  }

static double microseconds(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return 1e6 * (double)time.tv_sec + 1e-3 * (double)time.tv_nsec;
}

static void* read_file(const char* path, size_t* size) {
  FILE* file = fopen(path, "rb");
  REQUIRE(file);
  fseek(file, 0, SEEK_END);
  *size = (size_t)ftell(file);
  rewind(file);
  void* data = malloc(*size + 1);
  REQUIRE(data && fread(data, 1, *size, file) == *size);
  fclose(file);
  return data;
}

static size_t tensor_bytes(const Qnn_TensorV1_t* tensor) {
  size_t bytes = 1;
  const unsigned code = (unsigned)tensor->dataType & 0xFF;  // 0x32 is 32 bits
  for (uint32_t i = 0; i < tensor->rank; ++i) bytes *= tensor->dimensions[i];
  return bytes * ((code >> 4) * 10 + (code & 15)) / 8;
}

typedef struct {
  const QnnInterface_Implementation_t* qnn;
  Qnn_GraphHandle_t graph;
  const QnnSystemContext_GraphInfoV1_t* info;
  const char *inputs, *results;  // results: NULL where they are not known
  int runs;
  double *times, *cpu_times;  // of this thread's runs; processor time is that of all threads
  char* first;
} Client;

static Qnn_Tensor_t* with_buffers(const Qnn_Tensor_t* tensors, uint32_t count, char* memory, size_t* used) {
  Qnn_Tensor_t* made = malloc(sizeof(Qnn_Tensor_t) * (count + 1));
  REQUIRE(made);
  for (uint32_t i = 0; i < count; ++i) {
    made[i] = tensors[i];
    const size_t bytes = tensor_bytes(&made[i].v1);
    made[i].v1.memType = QNN_TENSORMEMTYPE_RAW;
    made[i].v1.clientBuf.data = memory + *used;
    made[i].v1.clientBuf.dataSize = (uint32_t)bytes;
    *used += bytes;
  }
  return made;
}

static size_t all_bytes(const Qnn_Tensor_t* tensors, uint32_t count) {
  size_t bytes = 0;
  for (uint32_t i = 0; i < count; ++i) bytes += tensor_bytes(&tensors[i].v1);
  return bytes;
}

static void* run(void* given) {
  Client* client = given;
  const QnnSystemContext_GraphInfoV1_t* info = client->info;
  const size_t in_bytes = all_bytes(info->graphInputs, info->numGraphInputs);
  const size_t out_bytes = all_bytes(info->graphOutputs, info->numGraphOutputs);
  char *in = malloc(in_bytes + 1), *out = malloc(out_bytes + 1);
  REQUIRE(in && out);
  memcpy(in, client->inputs, in_bytes);
  size_t used = 0;
  Qnn_Tensor_t* inputs = with_buffers(info->graphInputs, info->numGraphInputs, in, &used);
  used = 0;
  Qnn_Tensor_t* outputs = with_buffers(info->graphOutputs, info->numGraphOutputs, out, &used);
  client->first = malloc(out_bytes + 1);
  REQUIRE(client->first);
  for (int i = 0; i < client->runs; ++i) {
    if (i < 100) memset(out, 0x5A, out_bytes);
    const double begin = microseconds(CLOCK_MONOTONIC), cpu = microseconds(CLOCK_PROCESS_CPUTIME_ID);
    const Qnn_ErrorHandle_t error = client->qnn->graphExecute(client->graph, inputs, info->numGraphInputs, outputs,
                                                              info->numGraphOutputs, NULL, NULL);
    client->times[i] = microseconds(CLOCK_MONOTONIC) - begin;
    client->cpu_times[i] = microseconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    REQUIRE(error == QNN_SUCCESS);
    if (i == 0) memcpy(client->first, out, out_bytes);
    REQUIRE(memcmp(out, client->results ? client->results : client->first, out_bytes) == 0);
  }
  free(in);
  free(out);
  free(inputs);
  free(outputs);
  return NULL;
}

static int ascending(const void* a, const void* b) {
  const double left = *(const double*)a, right = *(const double*)b;
  return (left > right) - (left < right);
}

#if defined(_WIN32)
static int has_python(void) { return GetModuleHandleA("python3.dll") != NULL; }

static void* load(const char* folder, const char* library, const char* symbol) {
  char path[4096];
  REQUIRE(snprintf(path, sizeof path, "%s/%s", folder, library) < (int)sizeof path);
  HMODULE opened = LoadLibraryA(path);
  if (!opened) fprintf(stderr, "%s: error %lu\n", path, GetLastError());
  REQUIRE(opened);
  return (void*)GetProcAddress(opened, symbol);
}
#else
static int has_python(void) {
  char line[4096];
  int found = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  REQUIRE(maps);
  while (fgets(line, sizeof line, maps)) found |= strstr(line, "libpython") != NULL;
  fclose(maps);
  return found;
}

static void* load(const char* folder, const char* library, const char* symbol) {
  char path[4096];
  REQUIRE(snprintf(path, sizeof path, "%s/%s", folder, library) < (int)sizeof path);
  void* opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!opened) fprintf(stderr, "%s\n", dlerror());
  REQUIRE(opened);
  return dlsym(opened, symbol);
}
#endif

int main(int count, char** arguments) {
  REQUIRE(count == 8);
  QnnInterface_GetProvidersFn_t providers;
  Qnn_ErrorHandle_t (*system_providers)(const QnnSystemInterface_t***, uint32_t*);
  const double before = microseconds(CLOCK_MONOTONIC);
  *(void**)&providers = load(arguments[1], LIBRARY("Htp"), "QnnInterface_getProviders");
  const double loaded = microseconds(CLOCK_MONOTONIC);
  *(void**)&system_providers = load(arguments[1], LIBRARY("System"), "QnnSystemInterface_getProviders");
  REQUIRE(providers && system_providers);
  const QnnInterface_t** list = NULL;
  const QnnSystemInterface_t** system_list = NULL;
  uint32_t number = 0;
  REQUIRE(providers(&list, &number) == QNN_SUCCESS && number > 0);
  REQUIRE(system_providers(&system_list, &number) == QNN_SUCCESS && number > 0);
  const QnnInterface_Implementation_t* qnn = &list[0]->v2;

  size_t size = 0, in_size = 0, out_size = 0;
  void* binary = read_file(arguments[2], &size);
  QnnSystemContext_Handle_t system = NULL;
  const QnnSystemContext_BinaryInfo_t* binary_info = NULL;
  Qnn_ContextBinarySize_t info_size = 0;
  REQUIRE(system_list[0]->v1.systemContextCreate(&system) == QNN_SUCCESS);
  REQUIRE(system_list[0]->v1.systemContextGetBinaryInfo(system, binary, size, &binary_info, &info_size) == QNN_SUCCESS);
  const QnnSystemContext_GraphInfoV1_t* info = NULL;
  for (uint32_t i = 0; i < binary_info->contextBinaryInfoV1.numGraphs; ++i) {
    const QnnSystemContext_GraphInfoV1_t* graph = &binary_info->contextBinaryInfoV1.graphs[i].graphInfoV1;
    if (strcmp(graph->graphName, arguments[3]) == 0) info = graph;
  }
  REQUIRE(info);

  Qnn_BackendHandle_t backend = NULL;
  Qnn_ContextHandle_t context = NULL;
  Qnn_GraphHandle_t graph = NULL;
  REQUIRE(qnn->backendCreate(NULL, NULL, &backend) == QNN_SUCCESS);
  const double opening = microseconds(CLOCK_MONOTONIC);
  REQUIRE(qnn->contextCreateFromBinary(backend, NULL, NULL, binary, size, &context, NULL) == QNN_SUCCESS);
  REQUIRE(qnn->graphRetrieve(context, arguments[3], &graph) == QNN_SUCCESS);
  const double opened = microseconds(CLOCK_MONOTONIC);

  const int threads = atoi(arguments[4]), runs = atoi(arguments[5]);
  char* inputs = read_file(arguments[6], &in_size);
  char* results = strcmp(arguments[7], "-") == 0 ? NULL : read_file(arguments[7], &out_size);
  REQUIRE(in_size == all_bytes(info->graphInputs, info->numGraphInputs));
  REQUIRE(!results || out_size == all_bytes(info->graphOutputs, info->numGraphOutputs));
  Client* clients = calloc((size_t)threads, sizeof(Client));
  pthread_t* running = calloc((size_t)threads, sizeof(pthread_t));
  REQUIRE(clients && running);
  for (int i = 0; i < threads; ++i) {
    Client client = {qnn, graph, info, inputs, results, runs, calloc((size_t)runs, sizeof(double)),
                     calloc((size_t)runs, sizeof(double)), NULL};
    REQUIRE(client.times && client.cpu_times);
    clients[i] = client;
    REQUIRE(pthread_create(&running[i], NULL, run, &clients[i]) == 0);
  }
  for (int i = 0; i < threads; ++i) REQUIRE(pthread_join(running[i], NULL) == 0);
  qsort(clients[0].times, (size_t)runs, sizeof(double), ascending);
  qsort(clients[0].cpu_times, (size_t)runs, sizeof(double), ascending);
  printf("{\"library_us\": %.1f, \"open_us\": %.1f, \"run_us\": %.3f, \"cpu_us\": %.3f, \"python\": %s}\n",
         loaded - before, opened - opening, clients[0].times[runs / 2], clients[0].cpu_times[runs / 2],
         has_python() ? "true" : "false");
  for (int i = 0; i < threads; ++i) {
    free(clients[i].times);
    free(clients[i].cpu_times);
    free(clients[i].first);
  }
  free(clients);
  free(running);
  REQUIRE(qnn->contextFree(context, NULL) == QNN_SUCCESS);
  REQUIRE(qnn->backendFree(backend) == QNN_SUCCESS);
  REQUIRE(system_list[0]->v1.systemContextFree(system) == QNN_SUCCESS);
  free(binary);
  free(inputs);
  free(results);
  return 0;
}
