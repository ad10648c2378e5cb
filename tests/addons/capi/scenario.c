// SPDX-License-Identifier: Apache-2.0
// Plays steps over QNN's API: ./scenario FOLDER_OF_LIBRARIES FILE_OF_STEPS. A line is a step: its word, and what it takes.
// For each step a line: its code, and a digest of what an execution gave.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "HTP/QnnHtpContext.h"
#include "HTP/QnnHtpDevice.h"
#include "HTP/QnnHtpMem.h"
#include "QnnInterface.h"
#include "hexforge_device.h"

#define ELEMENTS 8
#include "row_tensor.h"

#define MUST(call) REQUIRE((call) == QNN_SUCCESS)
#define MOST 64

static QNN_INTERFACE_VER_TYPE qnn;
static Qnn_BackendHandle_t backend;
static Qnn_DeviceHandle_t device;
static QnnHtpDevice_PerfInfrastructure_t perf;
static Qnn_ErrorHandle_t (*device_call)(const char* message, const char* fields);

// What steps name by a number of their own.
static Qnn_ContextHandle_t contexts[MOST];
static Qnn_MemHandle_t memories[MOST];
static uint32_t power_ids[MOST];

static size_t read_file(const char* path, void** into) {
  FILE* file = fopen(path, "rb");
  long size;
  REQUIRE(file != NULL);
  fseek(file, 0, SEEK_END);
  size = ftell(file);
  rewind(file);
  *into = malloc((size_t)size + 1);
  REQUIRE(fread(*into, 1, (size_t)size, file) == (size_t)size);
  fclose(file);
  return (size_t)size;
}

static Qnn_ErrorHandle_t create(int number, const char* path, int priority, int persistent, unsigned limit) {
  QnnContext_Config_t asked[3];
  const QnnContext_Config_t* config[] = {&asked[0], &asked[1], &asked[2], NULL};
  void* binary;
  size_t size = read_file(path, &binary);
  Qnn_ErrorHandle_t code;
  memset(asked, 0, sizeof asked);
  asked[0].option = QNN_CONTEXT_CONFIG_OPTION_PRIORITY;
  asked[0].priority = (Qnn_Priority_t)priority;
  asked[1].option = QNN_CONTEXT_CONFIG_PERSISTENT_BINARY;
  asked[1].isPersistentBinary = (uint32_t)persistent;
  asked[2].option = QNN_CONTEXT_CONFIG_MEMORY_LIMIT_HINT;
  asked[2].memoryLimitHint = limit;
  code = qnn.contextCreateFromBinary(backend, device, config, binary, size, &contexts[number], NULL);
  free(binary);
  return code;
}

static Qnn_Tensor_t described(const char* name, Qnn_TensorType_t type, uint32_t* shape, uint32_t rank, void* data,
                              size_t bytes) {
  Qnn_Tensor_t made = tensor(name, type, data);
  made.v1.rank = rank;
  made.v1.dimensions = shape;
  made.v1.clientBuf.dataSize = (uint32_t)bytes;
  return made;
}

static uint32_t shape_of(const char* text, uint32_t* shape) {
  uint32_t rank = 0;
  char* end;
  for (; *text; text = *end ? end + 1 : end) shape[rank++] = (uint32_t)strtoul(text, &end, 10);
  return rank;
}

// One input x of a file's bytes, one output y.
static Qnn_ErrorHandle_t execute(int number, const char* name, const char* path, const char* in_shape,
                                 const char* out_shape, size_t out_bytes, char* digest) {
  Qnn_GraphHandle_t graph;
  void *from, *to = calloc(1, out_bytes);
  size_t size = read_file(path, &from), i;
  uint32_t in_dims[8], out_dims[8];
  Qnn_Tensor_t in = described("x", QNN_TENSOR_TYPE_APP_WRITE, in_dims, shape_of(in_shape, in_dims), from, size);
  Qnn_Tensor_t out = described("y", QNN_TENSOR_TYPE_APP_READ, out_dims, shape_of(out_shape, out_dims), to, out_bytes);
  Qnn_ErrorHandle_t code = qnn.graphRetrieve(contexts[number], name, &graph);
  uint64_t hash = 1469598103934665603u;
  if (code == QNN_SUCCESS) code = qnn.graphExecute(graph, &in, 1, &out, 1, NULL, NULL);
  if (code == QNN_SUCCESS) {
    for (i = 0; i < out_bytes; ++i) hash = (hash ^ ((unsigned char*)to)[i]) * 1099511628211u;
    sprintf(digest, "%016llx", (unsigned long long)hash);
  }
  free(from);
  free(to);
  return code;
}

static Qnn_ErrorHandle_t register_memory(int number, int context, unsigned bytes) {
  uint32_t shape[] = {bytes};
  Qnn_MemDescriptor_t given;
  Qnn_ErrorHandle_t code;
  int file = memfd_create("tensor", 0);
  memset(&given, 0, sizeof given);
  REQUIRE(file >= 0 && ftruncate(file, bytes) == 0);
  given.memShape.numDim = 1;
  given.memShape.dimSize = shape;
  given.dataType = QNN_DATATYPE_UINT_8;
  given.memType = QNN_MEM_TYPE_ION;
  given.ionInfo.fd = file;
  code = qnn.memRegister(contexts[context], &given, 1, &memories[number]);
  close(file);
  return code;
}

static Qnn_ErrorHandle_t set_priority(int context, int priority) {
  QnnContext_Config_t asked;
  const QnnContext_Config_t* config[] = {&asked, NULL};
  memset(&asked, 0, sizeof asked);
  asked.option = QNN_CONTEXT_CONFIG_OPTION_PRIORITY;
  asked.priority = (Qnn_Priority_t)priority;
  return qnn.contextSetConfig(contexts[context], config);
}

static Qnn_ErrorHandle_t vote(int id, unsigned least, unsigned target, unsigned most, unsigned sleep_us, unsigned rpc_us,
                              unsigned polling_us) {
  QnnHtpPerfInfrastructure_PowerConfig_t asked[3];
  const QnnHtpPerfInfrastructure_PowerConfig_t* config[] = {&asked[0], &asked[1], &asked[2], NULL};
  QnnHtpPerfInfrastructure_DcvsV3_t* dcvs = &asked[0].dcvsV3Config;
  memset(asked, 0, sizeof asked);
  asked[0].option = QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_DCVS_V3;
  dcvs->contextId = power_ids[id];
  dcvs->powerMode = QNN_HTP_PERF_INFRASTRUCTURE_POWERMODE_PERFORMANCE_MODE;
  dcvs->setSleepLatency = dcvs->setBusParams = dcvs->setCoreParams = 1;
  dcvs->sleepLatency = sleep_us;
  dcvs->busVoltageCornerMin = dcvs->coreVoltageCornerMin = (QnnHtpPerfInfrastructure_VoltageCorner_t)least;
  dcvs->busVoltageCornerTarget = dcvs->coreVoltageCornerTarget = (QnnHtpPerfInfrastructure_VoltageCorner_t)target;
  dcvs->busVoltageCornerMax = dcvs->coreVoltageCornerMax = (QnnHtpPerfInfrastructure_VoltageCorner_t)most;
  asked[1].option = QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_RPC_CONTROL_LATENCY;
  asked[1].rpcControlLatencyConfig = rpc_us;
  asked[2].option = QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_RPC_POLLING_TIME;
  asked[2].rpcPollingTimeConfig = polling_us;
  return perf.setPowerConfig(power_ids[id], config);
}

static Qnn_ErrorHandle_t play(const char* line, char* digest) {
  char word[32], path[512], name[64], in_shape[64], out_shape[64], fields[96];
  int a = 0, b = 0, c = 0;
  unsigned u[6] = {0};
  unsigned long bytes = 0;
  REQUIRE(sscanf(line, "%31s", word) == 1);
  if (!strcmp(word, "create")) {
    REQUIRE(sscanf(line, "%*s %d %511s %d %d %u", &a, path, &b, &c, &u[0]) == 5);
    return create(a, path, b, c, u[0]);
  }
  if (!strcmp(word, "execute")) {
    REQUIRE(sscanf(line, "%*s %d %63s %511s %63s %63s %lu", &a, name, path, in_shape, out_shape, &bytes) == 6);
    return execute(a, name, path, in_shape, out_shape, bytes, digest);
  }
  if (!strcmp(word, "priority")) {
    REQUIRE(sscanf(line, "%*s %d %d", &a, &b) == 2);
    return set_priority(a, b);
  }
  if (!strcmp(word, "register")) {
    REQUIRE(sscanf(line, "%*s %d %d %u", &a, &b, &u[0]) == 3);
    return register_memory(a, b, u[0]);
  }
  if (!strcmp(word, "vote")) {
    REQUIRE(sscanf(line, "%*s %d %u %u %u %u %u %u", &a, &u[0], &u[1], &u[2], &u[3], &u[4], &u[5]) == 7);
    return vote(a, u[0], u[1], u[2], u[3], u[4], u[5]);
  }
  if (!strcmp(word, "sleep")) {
    REQUIRE(sscanf(line, "%*s %63s", name) == 1);
    snprintf(fields, sizeof fields, "\"us\": %s", name);
    return device_call("sleep", fields);
  }
  REQUIRE(sscanf(line, "%*s %d %d", &a, &b) >= 1);
  if (!strcmp(word, "free")) return qnn.contextFree(contexts[a], NULL);
  if (!strcmp(word, "deregister")) return qnn.memDeRegister(&memories[a], 1);
  if (!strcmp(word, "power_id")) return perf.createPowerConfigId(0, (uint32_t)b, &power_ids[a]);
  REQUIRE(!strcmp(word, "destroy"));
  return perf.destroyPowerConfigId(power_ids[a]);
}

int main(int argc, char** argv) {
  char path[512], line[1024], digest[32];
  const QnnInterface_t** providers;
  Qnn_ErrorHandle_t (*get)(const QnnInterface_t***, uint32_t*);
  QnnDevice_Infrastructure_t infrastructure;
  void *library, *common;
  FILE* steps;
  uint32_t count;
  REQUIRE(argc == 3);
  snprintf(path, sizeof path, "%s/libQnnHtp.so", argv[1]);
  REQUIRE((library = dlopen(path, RTLD_NOW | RTLD_LOCAL)) != NULL);
  *(void**)&get = dlsym(library, "QnnInterface_getProviders");
  MUST(get(&providers, &count));
  qnn = providers[0]->QNN_INTERFACE_VER_NAME;
  snprintf(path, sizeof path, "%s/libhexforge_qnn.so", argv[1]);
  REQUIRE((common = dlopen(path, RTLD_NOW | RTLD_LOCAL)) != NULL);
  *(void**)&device_call = dlsym(common, "hexforge_device_call");
  MUST(qnn.backendCreate(NULL, NULL, &backend));
  MUST(qnn.deviceCreate(NULL, NULL, &device));
  MUST(qnn.deviceGetInfrastructure(&infrastructure));
  perf = ((QnnHtpDevice_Infrastructure_t*)infrastructure)->perfInfra;
  REQUIRE((steps = fopen(argv[2], "r")) != NULL);
  while (fgets(line, sizeof line, steps)) {
    strcpy(digest, "-");
    printf("%lu ", (unsigned long)(play(line, digest) & 0xFFFF));
    puts(digest);
  }
  fclose(steps);
  MUST(qnn.deviceFree(device));
  MUST(qnn.backendFree(backend));
  return 0;
}
