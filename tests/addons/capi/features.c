// SPDX-License-Identifier: Apache-2.0
// Features of Qualcomm's guide to the HTP backend as programs in C use them: ./features LIBRARIES FOLDER CASE. The
// folder has contexts; a case ends with 0, or names the line that is not as the guide says.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "HTP/QnnHtpContext.h"
#include "HTP/QnnHtpDevice.h"
#include "HTP/QnnHtpGraph.h"
#include "HTP/QnnHtpMem.h"
#include "HTP/QnnHtpPerfInfrastructure.h"
#include "HTP/QnnHtpSystemContext.h"
#include "QnnInterface.h"
#include "System/QnnSystemInterface.h"
#include "hexforge_device.h"

#define ELEMENTS 1024
#include "row_tensor.h"

#define MUST(call) REQUIRE((call) == QNN_SUCCESS)
#define ENDS(code, call)                                                                                     \
  do {                                                                                                       \
    const unsigned long ended = (unsigned long)(call);                                                       \
    if (ended != (code)) fprintf(stderr, "line %d: %lu, not %lu\n", __LINE__, ended, (unsigned long)(code)); \
    REQUIRE(ended == (code));                                                                                \
  } while (0)

static QNN_INTERFACE_VER_TYPE qnn;
static Qnn_BackendHandle_t backend;
static Qnn_DeviceHandle_t device;
static QnnHtpDevice_PerfInfrastructure_t perf;
static Qnn_ErrorHandle_t (*device_call)(const char* message, const char* fields);
static const char *libraries, *folder;
static float x[8 * ELEMENTS], y[8 * ELEMENTS];

static void* opened(const char* where, const char* name) {
  char path[4096];
  void* library;
  snprintf(path, sizeof path, "%s/%s", where, name);
  library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) fprintf(stderr, "%s\n", dlerror());
  REQUIRE(library != NULL);
  return library;
}

static QNN_INTERFACE_VER_TYPE table_of(const char* where) {
  const QnnInterface_t** providers;
  Qnn_ErrorHandle_t (*get)(const QnnInterface_t***, uint32_t*);
  uint32_t count;
  *(void**)&get = dlsym(opened(where, "libQnnHtp.so"), "QnnInterface_getProviders");
  MUST(get(&providers, &count));
  return providers[0]->QNN_INTERFACE_VER_NAME;
}

static void begin(void) {
  QnnDevice_Infrastructure_t infrastructure;
  qnn = table_of(libraries);
  *(void**)&device_call = dlsym(opened(libraries, "libhexforge_qnn.so"), "hexforge_device_call");
  MUST(qnn.backendCreate(NULL, NULL, &backend));
  MUST(qnn.deviceCreate(NULL, NULL, &device));
  MUST(qnn.deviceGetInfrastructure(&infrastructure));
  perf = ((QnnHtpDevice_Infrastructure_t*)infrastructure)->perfInfra;
}

// -- devices ----------------------------------------------------------------------------------------------------------

static Qnn_ErrorHandle_t create_device(uint32_t soc, uint32_t arch, int is_signed, Qnn_DeviceHandle_t* made) {
  QnnHtpDevice_CustomConfig_t custom[3];
  QnnDevice_Config_t config[3];
  const QnnDevice_Config_t* list[4] = {NULL};
  int count = 0, i;
  memset(custom, 0, sizeof custom);
  if (soc) {
    custom[count].option = QNN_HTP_DEVICE_CONFIG_OPTION_SOC;
    custom[count++].socModel = soc;
  }
  if (arch) {
    custom[count].option = QNN_HTP_DEVICE_CONFIG_OPTION_ARCH;
    custom[count++].arch.arch = (QnnHtpDevice_Arch_t)arch;
  }
  if (is_signed) {
    custom[count].option = QNN_HTP_DEVICE_CONFIG_OPTION_SIGNEDPD;
    custom[count++].useSignedProcessDomain.useSignedProcessDomain = true;
  }
  for (i = 0; i < count; ++i) {
    config[i].option = QNN_DEVICE_CONFIG_OPTION_CUSTOM;
    config[i].customConfig = &custom[i];
    list[i] = &config[i];
  }
  return qnn.deviceCreate(NULL, list, made);
}

static QnnHtpDevice_OnChipDeviceInfoExtension_t chip_of(Qnn_DeviceHandle_t of) {
  const QnnDevice_PlatformInfo_t* info;
  MUST(qnn.deviceGetInfo(of, &info));
  REQUIRE(info->v1.numHwDevices == 1);
  return ((QnnHtpDevice_DeviceInfoExtension_t*)info->v1.hwDevices[0].v1.deviceInfoExtension)->onChipDevice;
}

static void api_version(void) {
  Qnn_ApiVersion_t version;
  MUST(qnn.backendGetApiVersion(&version));
  REQUIRE(version.backendApiVersion.major == 5 && version.backendApiVersion.minor == 39);
}
static void soc(void) {
  Qnn_DeviceHandle_t made;
  MUST(create_device(QNN_SOC_MODEL_SM8550, 0, 0, &made));
  REQUIRE(chip_of(made).socModel == QNN_SOC_MODEL_SM8550 && chip_of(made).arch == QNN_HTP_DEVICE_ARCH_V73);
  ENDS(QNN_COMMON_ERROR_SYSTEM, create_device(99999, 0, 0, &made));
}
static void arch(void) {
  Qnn_DeviceHandle_t made;
  MUST(create_device(0, QNN_HTP_DEVICE_ARCH_V73, 0, &made));
  REQUIRE(chip_of(made).arch == QNN_HTP_DEVICE_ARCH_V73);
}
static void soc_over_arch(void) {
  Qnn_DeviceHandle_t made;
  MUST(create_device(QNN_SOC_MODEL_SM8650, QNN_HTP_DEVICE_ARCH_V68, 0, &made));
  REQUIRE(chip_of(made).arch == QNN_HTP_DEVICE_ARCH_V75);
}
static void device_info(void) {
  const QnnHtpDevice_OnChipDeviceInfoExtension_t chip = chip_of(device);
  REQUIRE(chip.socModel == QNN_SOC_MODEL_SM8650 && chip.arch == QNN_HTP_DEVICE_ARCH_V75 && chip.vtcmSize == 8);
  REQUIRE(chip.signedPdSupport && chip.dlbcSupport);
  REQUIRE(QNN_HTP_DEVICE_CONFIG_OPTION_ON_CHIP_DEVICE_INFO_EXTENSION !=
          QNN_HTP_DEVICE_CONFIG_OPTION_PCIE_DEVICE_INFO_EXTENSION);
}

// -- contexts ---------------------------------------------------------------------------------------------------------

static size_t read_file(const char* name, void** into) {
  char path[4096];
  FILE* file;
  long size;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  file = fopen(path, "rb");
  REQUIRE(file != NULL);
  fseek(file, 0, SEEK_END);
  size = ftell(file);
  rewind(file);
  *into = malloc((size_t)size + 1);
  REQUIRE(fread(*into, 1, (size_t)size, file) == (size_t)size);
  fclose(file);
  return (size_t)size;
}

// Configurations of the next context.
static QnnContext_Config_t config[8];
static QnnHtpContext_CustomConfig_t htp[8];
static const QnnContext_Config_t* list[9];
static int configs;
static QnnContext_Config_t* plain(QnnContext_ConfigOption_t option) {
  config[configs].option = option;
  list[configs] = &config[configs];
  list[configs + 1] = NULL;
  return &config[configs++];
}
static QnnHtpContext_CustomConfig_t* custom(QnnHtpContext_ConfigOption_t option) {
  QnnHtpContext_CustomConfig_t* made = &htp[configs];
  memset(made, 0, sizeof *made);
  made->option = option;
  plain(QNN_CONTEXT_CONFIG_OPTION_CUSTOM)->customConfig = made;
  return made;
}
static const QnnContext_Config_t** taken(void) {
  static const QnnContext_Config_t* now[9];
  memcpy(now, list, sizeof now);
  if (!configs) now[0] = NULL;
  configs = 0;
  return now;
}

static Qnn_ErrorHandle_t load_with(const char* name, Qnn_DeviceHandle_t on, Qnn_ContextHandle_t* made,
                                   Qnn_ProfileHandle_t profile, Qnn_SignalHandle_t signal) {
  void* bytes;
  const size_t size = read_file(name, &bytes);
  const Qnn_ErrorHandle_t code =
      qnn.contextCreateFromBinaryWithSignal(backend, on, taken(), bytes, size, made, profile, signal);
  free(bytes);
  return code & 0xFFFF;
}
static Qnn_ErrorHandle_t load(const char* name, Qnn_ContextHandle_t* made) {
  return load_with(name, device, made, NULL, NULL);
}
static Qnn_GraphHandle_t graph_of(Qnn_ContextHandle_t context, const char* name) {
  Qnn_GraphHandle_t made;
  MUST(qnn.graphRetrieve(context, name, &made));
  return made;
}

static Qnn_Tensor_t row(const char* name, Qnn_TensorType_t type, uint32_t* shape, float* data) {
  Qnn_Tensor_t made = tensor(name, type, data);
  made.v1.dimensions = shape;
  made.v1.clientBuf.dataSize = (uint32_t)sizeof(float) * shape[0] * shape[1];
  return made;
}
static Qnn_ErrorHandle_t execute(Qnn_GraphHandle_t graph, uint32_t in_batch, uint32_t out_batch, uint32_t width,
                                 Qnn_ProfileHandle_t profile) {
  uint32_t in_shape[] = {in_batch, width}, out_shape[] = {out_batch, width};
  Qnn_Tensor_t in = row("x", QNN_TENSOR_TYPE_APP_WRITE, in_shape, x);
  Qnn_Tensor_t out = row("y", QNN_TENSOR_TYPE_APP_READ, out_shape, y);
  return qnn.graphExecute(graph, &in, 1, &out, 1, profile, NULL) & 0xFFFF;
}
static Qnn_ProfileHandle_t profile_of(QnnProfile_Level_t level) {
  Qnn_ProfileHandle_t made;
  MUST(qnn.profileCreate(backend, level, &made));
  return made;
}
// How long an execution takes as its profile says it.
static double latency_us(Qnn_GraphHandle_t graph, uint32_t width) {
  Qnn_ProfileHandle_t profile = profile_of(QNN_PROFILE_LEVEL_BASIC);
  const QnnProfile_EventId_t* events;
  QnnProfile_EventData_t data;
  uint32_t count;
  MUST(execute(graph, 1, 1, width, profile));
  MUST(qnn.profileGetEvents(profile, &events, &count));
  REQUIRE(count >= 1);
  MUST(qnn.profileGetEventData(events[0], &data));
  MUST(qnn.profileFree(profile));
  return (double)data.value;
}

static void other_arch(void) {
  Qnn_ContextHandle_t made;
  ENDS(QNN_CONTEXT_ERROR_CREATE_FROM_BINARY, load("v79.bin", &made));
  MUST(load("v73.bin", &made));
  plain(QNN_CONTEXT_CONFIG_BINARY_COMPATIBILITY)->binaryCompatibilityType = QNN_CONTEXT_BINARY_COMPATIBILITY_STRICT;
  ENDS(QNN_CONTEXT_ERROR_BINARY_SUBOPTIMAL, load("v73.bin", &made));
}
static void signed_domain(void) {
  Qnn_DeviceHandle_t on;
  Qnn_ContextHandle_t made;
  MUST(create_device(0, 0, 1, &on));
  ENDS(QNN_COMMON_ERROR_LOADING_BINARIES, load_with("dense.bin", on, &made, NULL, NULL));
  MUST(load("dense.bin", &made));
}
static void variable_batch(void) {
  Qnn_ContextHandle_t made;
  Qnn_GraphHandle_t graph;
  float three[3 * 8];
  int i;
  MUST(load("dense.bin", &made));
  graph = graph_of(made, "dense");
  for (i = 0; i < 24; ++i) x[i] = (float)i / 24;
  MUST(execute(graph, 3, 3, 8, NULL));
  memcpy(three, y, sizeof three);
  MUST(execute(graph, 1, 1, 8, NULL));
  REQUIRE(!memcmp(three, y, 8 * sizeof(float)));
  ENDS(QNN_GRAPH_ERROR_INVALID_ARGUMENT, execute(graph, 3, 2, 8, NULL));
}
static QnnHtpContext_GroupRegistration_t* group(Qnn_ContextHandle_t first, uint64_t bytes) {
  QnnHtpContext_GroupRegistration_t* made =
      &custom(QNN_HTP_CONTEXT_CONFIG_OPTION_REGISTER_MULTI_CONTEXTS)->groupRegistration;
  made->firstGroupHandle = first;
  made->maxSpillFillBuffer = bytes;
  return made;
}
static void multi_contexts(void) {
  Qnn_ContextHandle_t first, second;
  group(NULL, 0);
  ENDS(QNN_CONTEXT_ERROR_INVALID_CONFIG, load("dense.bin", &first));
  group(NULL, 1 << 20);
  MUST(load("dense.bin", &first));
  group(first, 1 << 21);
  REQUIRE(load("dense.bin", &second) != QNN_SUCCESS);
  group(first, 1 << 20);
  MUST(load("dense.bin", &second));
  group(first, 1 << 20);
  plain(QNN_CONTEXT_CONFIG_PERSISTENT_BINARY)->isPersistentBinary = 1;
  plain(QNN_CONTEXT_CONFIG_MEMORY_LIMIT_HINT)->memoryLimitHint = 1;
  ENDS(QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE, load("dense.bin", &second));
}
static void spill_fill_size(void) {
  const QnnSystemInterface_t** providers;
  const QnnSystemContext_BinaryInfo_t* info;
  const QnnHtpSystemContext_HwBlobInfo_t* blob;
  QnnSystemContext_Handle_t system;
  Qnn_ContextBinarySize_t size = 0;
  Qnn_ErrorHandle_t (*get)(const QnnSystemInterface_t***, uint32_t*);
  uint32_t count;
  void* bytes;
  const size_t length = read_file("spills.bin", &bytes);
  *(void**)&get = dlsym(opened(libraries, "libQnnSystem.so"), "QnnSystemInterface_getProviders");
  MUST(get(&providers, &count));
  MUST(providers[0]->QNN_SYSTEM_INTERFACE_VER_NAME.systemContextCreate(&system));
  MUST(providers[0]->QNN_SYSTEM_INTERFACE_VER_NAME.systemContextGetBinaryInfo(system, bytes, length, &info, &size));
  REQUIRE(info->version == QNN_SYSTEM_CONTEXT_BINARY_INFO_VERSION_1);
  REQUIRE(info->contextBinaryInfoV1.hwInfoBlobSize == sizeof *blob);
  blob = (const QnnHtpSystemContext_HwBlobInfo_t*)info->contextBinaryInfoV1.hwInfoBlob;
  REQUIRE(blob->version == QNN_SYSTEM_CONTEXT_HTP_HW_INFO_BLOB_VERSION_V1);
  REQUIRE(blob->contextBinaryHwInfoBlobV1_t.spillFillBufferSize > 0);
}
static void read_budget(void) {
  Qnn_ContextHandle_t made;
  custom(QNN_HTP_CONTEXT_CONFIG_OPTION_FILE_READ_MEMORY_BUDGET)->fileReadMemoryBudgetInMb = 1;
  MUST(load("big.bin", &made));
  custom(QNN_HTP_CONTEXT_CONFIG_OPTION_FILE_READ_MEMORY_BUDGET)->fileReadMemoryBudgetInMb = 25;
  MUST(load("big.bin", &made));
}
static void io_estimation(void) {
  Qnn_ContextHandle_t made;
  custom(QNN_HTP_CONTEXT_CONFIG_OPTION_IO_MEM_ESTIMATION)->ioMemEstimation = true;
  MUST(load("big.bin", &made));
}
static void heap_profiling(void) {
  Qnn_ProfileHandle_t profile = profile_of(QNN_PROFILE_LEVEL_BASIC);
  Qnn_ContextHandle_t made;
  const QnnProfile_EventId_t *events, *subs;
  QnnProfile_EventData_t data;
  uint32_t count, turn, i, found;
  for (turn = 0; turn < 2; ++turn) {
    if (turn) {
      MUST(qnn.contextFree(made, profile));
    } else {
      custom(QNN_HTP_CONTEXT_CONFIG_OPTION_DSP_MEMORY_PROFILING_ENABLED)->dspMemoryProfilingEnabled = true;
      MUST(load_with("dense.bin", device, &made, profile, NULL));
    }
    MUST(qnn.profileGetEvents(profile, &events, &count));
    MUST(qnn.profileGetSubEvents(events[0], &subs, &count));
    for (i = found = 0; i < count; ++i) {
      MUST(qnn.profileGetEventData(subs[i], &data));
      found +=
          !strcmp(data.identifier, turn ? "DSP:after_context_freed" : "DSP:before_context_created") && data.value > 0;
    }
    REQUIRE(found == 1);
  }
}

static Qnn_ErrorHandle_t notified;
static int graphs_told;
static void on_list(Qnn_ContextHandle_t context, Qnn_GraphHandle_t graph, const char* name,
                    QnnContext_createFromBinaryAsyncNotifyType_t type, void* parameter, Qnn_ErrorHandle_t status) {
  (void)name;
  if (type == QNN_CONTEXT_NOTIFY_TYPE_GRAPH_INIT) graphs_told += graph != NULL;
  if (type != QNN_CONTEXT_NOTIFY_TYPE_CONTEXT_INIT) return;
  *(Qnn_ContextHandle_t*)parameter = context;
  notified = status & 0xFFFF;
}
// A list of two contexts: what its members are created with was said before, and what it shares is said now.
static Qnn_ErrorHandle_t load_list(int share, QnnHtpContext_ShareResourcesOptimizationType_t type,
                                   Qnn_ContextHandle_t* made) {
  void* bytes;
  const size_t size = read_file("dense.bin", &bytes);
  const QnnContext_Config_t* members[9];
  QnnContext_Params_t first = {QNN_CONTEXT_PARAMS_VERSION_1, {{members, bytes, size, NULL, on_list, &made[0]}}};
  QnnContext_Params_t second = {QNN_CONTEXT_PARAMS_VERSION_1, {{members, bytes, size, NULL, on_list, &made[1]}}};
  const QnnContext_Params_t* params[] = {&first, &second, NULL};
  Qnn_ErrorHandle_t code;
  int own = configs;
  memset(members, 0, sizeof members);
  memcpy(members, list, sizeof(list[0]) * (size_t)own);
  if (share) custom(QNN_HTP_CONTEXT_CONFIG_OPTION_SHARE_RESOURCES)->shareResources = true;
  if (share) custom(QNN_HTP_CONTEXT_CONFIG_OPTION_SHARE_RESOURCES_OPTIMIZATION_TYPE)->shareResOptType = type;
  list[configs] = NULL;
  code = qnn.contextCreateFromBinaryListAsync(backend, device, params, list + own, NULL) & 0xFFFF;
  configs = 0;
  free(bytes);
  return code;
}
static void share_resources(void) {
  Qnn_ContextHandle_t made[2];
  custom(QNN_HTP_CONTEXT_CONFIG_OPTION_SHARE_RESOURCES)->shareResources = true;
  ENDS(QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE, load("dense.bin", &made[0]));
  MUST(load_list(1, SEQUENTIAL_WITH_VA_OPTIMIZATION, made));
  ENDS(QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE, load_list(1, CONCURRENT_OPTIMIZATION, made));  // v81 has it
  plain(QNN_CONTEXT_CONFIG_PERSISTENT_BINARY)->isPersistentBinary = 1;
  plain(QNN_CONTEXT_CONFIG_MEMORY_LIMIT_HINT)->memoryLimitHint = 1;
  ENDS(QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE, load_list(1, SEQUENTIAL_WITH_VA_OPTIMIZATION, made));
}
static void list_async(void) {
  Qnn_ContextHandle_t made[2] = {NULL, NULL};
  MUST(load_list(0, SEQUENTIAL_WITH_VA_OPTIMIZATION, made));
  REQUIRE(made[0] && made[1] && graphs_told == 2);
  MUST(execute(graph_of(made[1], "dense"), 1, 1, 8, NULL));
  group(NULL, 1 << 20);
  ENDS(QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE, load_list(0, SEQUENTIAL_WITH_VA_OPTIMIZATION, made));
}
static void init_acceleration(void) {
  Qnn_ContextHandle_t made;
  MUST(load("big.bin", &made));
  custom(QNN_HTP_CONTEXT_CONFIG_OPTION_INIT_ACCELERATION)->initAcceleration = true;
  MUST(load("big.bin", &made));
}
#define IN_WEIGHTS 8300  // a byte of the adapter's weights
static Qnn_ErrorHandle_t apply(Qnn_ContextHandle_t context, const char* graph, const char* name, size_t damaged) {
  QnnContext_Buffer_t buffer;
  void* bytes;
  const size_t size = read_file(name, &bytes);
  Qnn_ErrorHandle_t code;
  memset(&buffer, 0, sizeof buffer);
  buffer.version = QNN_CONTEXT_BUFFER_VERSION_1;
  buffer.v1.memType = QNN_CONTEXTMEMTYPE_RAW;
  buffer.v1.binaryBuf.dataBuffer = bytes;
  buffer.v1.binaryBuf.dataBufferSize = size;
  if (damaged) ((unsigned char*)bytes)[damaged] ^= 0x40;
  code = qnn.contextApplyBinarySection(context, graph_of(context, graph), QNN_CONTEXT_SECTION_UPDATABLE, &buffer, NULL,
                                       NULL);
  free(bytes);
  return code & 0xFFFF;
}
static void skip_validation(void) {
  Qnn_ContextHandle_t made;
  MUST(load("updatable.bin", &made));
  ENDS(QNN_CONTEXT_ERROR_INVALID_ARGUMENT, apply(made, "a", "adapter.bin", IN_WEIGHTS));
  MUST(qnn.contextFree(made, NULL));
  custom(QNN_HTP_CONTEXT_CONFIG_OPTION_SKIP_VALIDATION_ON_BINARY_SECTION)->skipValidationOnBinarySection = true;
  MUST(load("updatable.bin", &made));
  MUST(apply(made, "a", "adapter.bin", IN_WEIGHTS));
}
static void apply_section(void) {
  Qnn_ContextHandle_t made;
  float before;
  MUST(load("updatable.bin", &made));
  x[0] = 1;
  MUST(execute(graph_of(made, "a"), 1, 1, 8, NULL));
  before = y[0];
  MUST(apply(made, "a", "adapter.bin", 0));
  MUST(execute(graph_of(made, "a"), 1, 1, 8, NULL));
  REQUIRE(y[0] != before);
}
static void concurrent_sharing(int has) {
  QnnHtpContext_GroupRegistration_t* own =
      &custom(QNN_HTP_CONTEXT_CONFIG_OPTION_REGISTER_CONCURRENT_RESOURCE_SHARING)->concurrentGroupRegistration;
  Qnn_ContextHandle_t made;
  own->maxSpillFillBuffer = 1 << 20;
  if (!has) {
    ENDS(QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE, load("dense.bin", &made));
    return;
  }
  MUST(load("v81.bin", &made));
  plain(QNN_CONTEXT_CONFIG_OPTION_PRIORITY)->priority = QNN_PRIORITY_LOW;
  ENDS(QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE, qnn.contextSetConfig(made, taken()) & 0xFFFF);
}
static void concurrent(void) { concurrent_sharing(1); }
static void not_concurrent(void) { concurrent_sharing(0); }
static void lora(void) {
  Qnn_ContextHandle_t made;
  MUST(load("lora.bin", &made));
  ENDS(QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED, execute(graph_of(made, "a"), 1, 1, 8, NULL));
  MUST(apply(made, "a", "lora_adapter.bin", 0));
  MUST(execute(graph_of(made, "a"), 1, 1, 8, NULL));
}
static void prepare_only(void) {
  Qnn_ContextHandle_t made;
  custom(QNN_HTP_CONTEXT_CONFIG_OPTION_PREPARE_ONLY)->prepareOnly = true;
  MUST(load("dense.bin", &made));
  REQUIRE(execute(graph_of(made, "dense"), 1, 1, 8, NULL) != QNN_SUCCESS);
}
static void switching(void) {
  const char* order[] = {"b", NULL};
  Qnn_ContextHandle_t made;
  plain(QNN_CONTEXT_CONFIG_MEMORY_LIMIT_HINT)->memoryLimitHint = 1;
  ENDS(QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE, load("pair.bin", &made));
  plain(QNN_CONTEXT_CONFIG_MEMORY_LIMIT_HINT)->memoryLimitHint = 1;
  plain(QNN_CONTEXT_CONFIG_PERSISTENT_BINARY)->isPersistentBinary = 1;
  plain(QNN_CONTEXT_CONFIG_GRAPH_RETENTION_ORDER)->graphRetentionOrder = order;
  MUST(load("pair.bin", &made));
  MUST(execute(graph_of(made, "a"), 1, 1, 40, NULL));
  MUST(execute(graph_of(made, "b"), 1, 1, 40, NULL));
}
static void timeouts(void) {
  QnnSignal_Config_t own;
  const QnnSignal_Config_t* own_list[] = {&own, NULL};
  Qnn_SignalHandle_t signal;
  Qnn_ContextHandle_t made;
  memset(&own, 0, sizeof own);
  own.option = QNN_SIGNAL_CONFIG_OPTION_TIMEOUT;
  own.timeoutDurationUs = 10;
  MUST(qnn.signalCreate(backend, own_list, &signal));
  ENDS(QNN_CONTEXT_ERROR_TIMED_OUT, load_with("dense.bin", device, &made, NULL, signal));
  own.timeoutDurationUs = 1000 * 1000 * 1000;
  MUST(qnn.signalSetConfig(signal, own_list));
  MUST(load_with("dense.bin", device, &made, NULL, signal));
  ENDS(QNN_SIGNAL_ERROR_SIGNAL_IDLE, qnn.signalTrigger(signal) & 0xFFFF);
}
static void priorities(void) {
  Qnn_ContextHandle_t made;
  plain(QNN_CONTEXT_CONFIG_OPTION_PRIORITY)->priority = QNN_PRIORITY_HIGH;
  ENDS(QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED, load("dense.bin", &made));
  plain(QNN_CONTEXT_CONFIG_OPTION_PRIORITY)->priority = (Qnn_Priority_t)77;
  ENDS(QNN_CONTEXT_ERROR_INVALID_CONFIG, load("dense.bin", &made));
  plain(QNN_CONTEXT_CONFIG_OPTION_PRIORITY)->priority = QNN_PRIORITY_LOW;
  MUST(load("dense.bin", &made));
  plain(QNN_CONTEXT_CONFIG_OPTION_PRIORITY)->priority = QNN_PRIORITY_NORMAL_HIGH;
  ENDS(QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED, qnn.contextSetConfig(made, taken()) & 0xFFFF);
}
static void error_codes(void) {
  const char* enabled[] = {"a", NULL};
  Qnn_ContextHandle_t made;
  Qnn_GraphHandle_t graph;
  const char* text;
  plain(QNN_CONTEXT_CONFIG_ENABLE_GRAPHS)->enableGraphs = enabled;
  MUST(load("pair.bin", &made));
  ENDS(QNN_GRAPH_ERROR_DISABLED, qnn.graphRetrieve(made, "b", &graph) & 0xFFFF);
  ENDS(QNN_GRAPH_ERROR_GRAPH_DOES_NOT_EXIST, qnn.graphRetrieve(made, "c", &graph) & 0xFFFF);
  MUST(qnn.errorGetMessage(QNN_GRAPH_ERROR_DISABLED, &text));
  REQUIRE(strlen(text) > 10);
  MUST(load("updatable.bin", &made));
  ENDS(QNN_CONTEXT_ERROR_INVALID_ARGUMENT, apply(made, "a", "adapter.bin", IN_WEIGHTS));
}

static sem_t low_done;
static void on_low(void* parameter, Qnn_NotifyStatus_t status) {
  (void)parameter;
  REQUIRE(status.error == QNN_SUCCESS);
  sem_post(&low_done);
}
static void preemption(void) {
  uint32_t shape[] = {1, 1024};
  Qnn_ContextHandle_t low, high;
  Qnn_Tensor_t in = row("x", QNN_TENSOR_TYPE_APP_WRITE, shape, x), out = row("y", QNN_TENSOR_TYPE_APP_READ, shape, y);
  plain(QNN_CONTEXT_CONFIG_OPTION_PRIORITY)->priority = QNN_PRIORITY_LOW;
  MUST(load("deep.bin", &low));
  plain(QNN_CONTEXT_CONFIG_OPTION_PRIORITY)->priority = QNN_PRIORITY_HIGH;
  MUST(load("dense.bin", &high));
  sem_init(&low_done, 0, 0);
  MUST(qnn.graphExecuteAsync(graph_of(low, "deep"), &in, 1, &out, 1, NULL, NULL, on_low, NULL));
  MUST(device_call("sleep", "\"us\": 250"));  // it runs
  MUST(execute(graph_of(high, "dense"), 1, 1, 8, NULL));
  sem_wait(&low_done);
}
static void second_library(void) {
  const QNN_INTERFACE_VER_TYPE other = table_of(folder);
  Qnn_DeviceHandle_t made;
  Qnn_ContextHandle_t context;
  ENDS(QNN_COMMON_ERROR_LOADING_BINARIES, other.deviceCreate(NULL, NULL, &made) & 0xFFFF);
  ENDS(QNN_COMMON_ERROR_LOADING_BINARIES, qnn.deviceCreate(NULL, NULL, &made) & 0xFFFF);
  ENDS(QNN_COMMON_ERROR_LOADING_BINARIES, qnn.contextCreate(backend, device, NULL, &context) & 0xFFFF);
}

// -- graphs that are built --------------------------------------------------------------------------------------------

static float weights[ELEMENTS * 64];
static QnnHtpGraph_CustomConfig_t graph_htp[4];
static int graph_configs;
static QnnHtpGraph_CustomConfig_t* graph_option(QnnHtpGraph_ConfigOption_t option) {
  memset(&graph_htp[graph_configs], 0, sizeof graph_htp[0]);
  graph_htp[graph_configs].option = option;
  return &graph_htp[graph_configs++];
}
static void optimization(QnnHtpGraph_OptimizationType_t type, float value) {
  QnnHtpGraph_CustomConfig_t* made = graph_option(QNN_HTP_GRAPH_CONFIG_OPTION_OPTIMIZATION);
  made->optimizationOption.type = type;
  made->optimizationOption.floatValue = value;
}
static const QnnGraph_Config_t** graph_list(void) {
  static QnnGraph_Config_t own[4];
  static const QnnGraph_Config_t* now[5];
  int i;
  for (i = 0; i < graph_configs; ++i) {
    own[i].option = QNN_GRAPH_CONFIG_OPTION_CUSTOM;
    own[i].customConfig = &graph_htp[i];
    now[i] = &own[i];
  }
  now[graph_configs] = NULL;
  graph_configs = 0;
  return now;
}
static int8_t small[64 * 64];  // weights of 8 bits that 4 bits could hold
static void quantize(Qnn_Tensor_t* made, Qnn_DataType_t type, float scale, int32_t offset) {
  made->v1.dataType = type;
  made->v1.quantizeParams.encodingDefinition = QNN_DEFINITION_DEFINED;
  made->v1.quantizeParams.quantizationEncoding = QNN_QUANTIZATION_ENCODING_SCALE_OFFSET;
  made->v1.quantizeParams.scaleOffsetEncoding.scale = scale;
  made->v1.quantizeParams.scaleOffsetEncoding.offset = offset;
}
static int quantized;  // the next graph is of 8 bits
// y = x w, 64 wide, with the options that were said; 0, or the code of the call that refused.
static Qnn_ErrorHandle_t build(Qnn_ContextHandle_t context, const char* name, Qnn_GraphHandle_t* made) {
  uint32_t shape[] = {1, 64}, square[] = {64, 64};
  Qnn_Tensor_t in = row("x", QNN_TENSOR_TYPE_APP_WRITE, shape, NULL),
               out = row("y", QNN_TENSOR_TYPE_APP_READ, shape, NULL);
  Qnn_Tensor_t w = row("w", QNN_TENSOR_TYPE_STATIC, square, weights);
  Qnn_OpConfig_t op = QNN_OPCONFIG_INIT;
  Qnn_Tensor_t inputs[2];
  Qnn_ErrorHandle_t code = qnn.graphCreate(context, name, graph_list(), made) & 0xFFFF;
  int i;
  if (code) return code;
  for (i = 0; i < 64 * 64; ++i) weights[i] = (float)(i % 7) / 7;
  in.v1.clientBuf.dataSize = out.v1.clientBuf.dataSize = 0;
  if (quantized) {
    for (i = 0; i < 64 * 64; ++i) small[i] = (int8_t)(i % 15 - 7);
    quantize(&in, QNN_DATATYPE_UFIXED_POINT_8, 0.01f, -128);
    quantize(&out, QNN_DATATYPE_UFIXED_POINT_8, 0.1f, -128);
    quantize(&w, QNN_DATATYPE_SFIXED_POINT_8, 0.01f, 0);
    w.v1.clientBuf.data = small;
    w.v1.clientBuf.dataSize = sizeof small;
  }
  MUST(qnn.tensorCreateGraphTensor(*made, &in));
  MUST(qnn.tensorCreateGraphTensor(*made, &out));
  MUST(qnn.tensorCreateGraphTensor(*made, &w));
  inputs[0] = in;
  inputs[1] = w;
  op.v1.name = "product";
  op.v1.packageName = "qti.aisw";
  op.v1.typeName = "MatMul";
  op.v1.numOfInputs = 2;
  op.v1.inputTensors = inputs;
  op.v1.numOfOutputs = 1;
  op.v1.outputTensors = &out;
  MUST(qnn.graphAddNode(*made, op));
  return qnn.graphFinalize(*made, NULL, NULL) & 0xFFFF;
}
static Qnn_ContextHandle_t empty_context(void) {
  Qnn_ContextHandle_t made;
  MUST(qnn.contextCreate(backend, device, taken(), &made));
  return made;
}
static void graph_building(void) {
  Qnn_ContextHandle_t context = empty_context(), again;
  Qnn_GraphHandle_t graph;
  Qnn_ContextBinarySize_t size, written;
  float first[64];
  void* bytes;
  MUST(build(context, "g", &graph));
  x[3] = 0.5f;
  MUST(execute(graph, 1, 1, 64, NULL));
  memcpy(first, y, sizeof first);
  MUST(qnn.contextGetBinarySize(context, &size));
  bytes = malloc(size);
  MUST(qnn.contextGetBinary(context, bytes, size, &written));
  MUST(qnn.contextCreateFromBinary(backend, device, NULL, bytes, written, &again, NULL));
  MUST(execute(graph_of(again, "g"), 1, 1, 64, NULL));
  REQUIRE(!memcmp(first, y, sizeof first));
}
static void weight_sharing(void) {
  Qnn_ContextHandle_t context;
  Qnn_GraphHandle_t graph;
  custom(QNN_HTP_CONTEXT_CONFIG_OPTION_WEIGHT_SHARING_ENABLED)->weightSharingEnabled = true;
  context = empty_context();
  graph_option(QNN_HTP_GRAPH_CONFIG_OPTION_VTCM_SIZE_IN_MB)->vtcmSizeInMB = 2;
  MUST(build(context, "two", &graph));
  graph_option(QNN_HTP_GRAPH_CONFIG_OPTION_VTCM_SIZE_IN_MB)->vtcmSizeInMB = 2;
  MUST(build(context, "again", &graph));
  graph_option(QNN_HTP_GRAPH_CONFIG_OPTION_VTCM_SIZE_IN_MB)->vtcmSizeInMB = 4;
  REQUIRE(build(context, "four", &graph) != QNN_SUCCESS);
  custom(QNN_HTP_CONTEXT_CONFIG_OPTION_WEIGHT_SHARING_ENABLED)->weightSharingEnabled = true;
  context = empty_context();
  optimization(QNN_HTP_GRAPH_OPTIMIZATION_TYPE_ENABLE_DLBC, 1);
  REQUIRE(build(context, "dlbc", &graph) != QNN_SUCCESS);
}
static void precision(void) {
  Qnn_GraphHandle_t graph;
  graph_option(QNN_HTP_GRAPH_CONFIG_OPTION_PRECISION)->precision = QNN_PRECISION_FLOAT16;
  MUST(build(empty_context(), "g", &graph));
  MUST(execute(graph, 1, 1, 64, NULL));
}
static void vtcm_mb(void) {
  Qnn_GraphHandle_t graph;
  graph_option(QNN_HTP_GRAPH_CONFIG_OPTION_VTCM_SIZE_IN_MB)->vtcmSizeInMB = 4;
  MUST(build(empty_context(), "g", &graph));
  MUST(execute(graph, 1, 1, 64, NULL));
  graph_option(QNN_HTP_GRAPH_CONFIG_OPTION_VTCM_SIZE_IN_MB)->vtcmSizeInMB = 64;  // the chip has 8
  REQUIRE(build(empty_context(), "g", &graph) != QNN_SUCCESS);
}
static void vtcm_bytes(void) {
  Qnn_GraphHandle_t graph;
  graph_option(QNN_HTP_GRAPH_CONFIG_OPTION_VTCM_SIZE)->vtcmSizeInBytes = 8323072;
  MUST(build(empty_context(), "g", &graph));
  MUST(execute(graph, 1, 1, 64, NULL));
  graph_option(QNN_HTP_GRAPH_CONFIG_OPTION_VTCM_SIZE)->vtcmSizeInBytes = 100;  // no multiple of 64 KB
  REQUIRE(build(empty_context(), "g", &graph) != QNN_SUCCESS);
}
static void hvx_threads(void) {
  Qnn_GraphHandle_t graph;
  double one, four;
  graph_option(QNN_HTP_GRAPH_CONFIG_OPTION_NUM_HVX_THREADS)->numHvxThreads = 0;
  ENDS(QNN_GRAPH_ERROR_INVALID_ARGUMENT, build(empty_context(), "g", &graph));
  graph_option(QNN_HTP_GRAPH_CONFIG_OPTION_NUM_HVX_THREADS)->numHvxThreads = 99;
  ENDS(QNN_GRAPH_ERROR_INVALID_ARGUMENT, build(empty_context(), "g", &graph));
  graph_option(QNN_HTP_GRAPH_CONFIG_OPTION_NUM_HVX_THREADS)->numHvxThreads = 1;
  MUST(build(empty_context(), "one", &graph));
  one = latency_us(graph, 64);
  graph_option(QNN_HTP_GRAPH_CONFIG_OPTION_NUM_HVX_THREADS)->numHvxThreads = 4;
  MUST(build(empty_context(), "four", &graph));
  graph_option(QNN_HTP_GRAPH_CONFIG_OPTION_NUM_HVX_THREADS)->numHvxThreads = 2;
  MUST(qnn.graphSetConfig(graph, graph_list()));  // until it first runs
  four = latency_us(graph, 64);
  REQUIRE(four <= one);
  graph_option(QNN_HTP_GRAPH_CONFIG_OPTION_NUM_HVX_THREADS)->numHvxThreads = 2;
  ENDS(QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED, qnn.graphSetConfig(graph, graph_list()) & 0xFFFF);
}
static Qnn_ContextBinarySize_t packed_size(int packing) {
  Qnn_ContextHandle_t context = empty_context();
  Qnn_ContextBinarySize_t size;
  Qnn_GraphHandle_t graph;
  quantized = 1;
  if (packing) graph_option(QNN_HTP_GRAPH_CONFIG_OPTION_WEIGHTS_PACKING)->weightsPacking = true;
  MUST(build(context, "g", &graph));
  MUST(qnn.contextGetBinarySize(context, &size));
  return size;
}
static void weights_packing(void) { REQUIRE(packed_size(1) < packed_size(0)); }
static void dlbc(void) {
  Qnn_GraphHandle_t graph;
  optimization(QNN_HTP_GRAPH_OPTIMIZATION_TYPE_ENABLE_DLBC, 0.5f);
  ENDS(QNN_GRAPH_ERROR_INVALID_ARGUMENT, build(empty_context(), "g", &graph));
  optimization(QNN_HTP_GRAPH_OPTIMIZATION_TYPE_ENABLE_DLBC, 1);
  MUST(build(empty_context(), "g", &graph));
  optimization(QNN_HTP_GRAPH_OPTIMIZATION_TYPE_ENABLE_DLBC_WEIGHTS, 1);
  MUST(build(empty_context(), "g", &graph));
  MUST(execute(graph, 1, 1, 64, NULL));
}
static void slc(void) {
  Qnn_GraphHandle_t graph, other;
  optimization(QNN_HTP_GRAPH_OPTIMIZATION_TYPE_ENABLE_SLC_ALLOCATOR, 1);
  MUST(build(empty_context(), "g", &graph));
  MUST(execute(graph, 1, 1, 64, NULL));
  optimization(QNN_HTP_GRAPH_OPTIMIZATION_TYPE_ENABLE_SLC_ALLOCATOR, 0);
  MUST(qnn.graphSetConfig(graph, graph_list()));  // forced off after a run
  MUST(execute(graph, 1, 1, 64, NULL));
  optimization(QNN_HTP_GRAPH_OPTIMIZATION_TYPE_ENABLE_SLC_ALLOCATOR, 1);
  MUST(qnn.graphSetConfig(graph, graph_list()));
  MUST(build(empty_context(), "without", &other));
  optimization(QNN_HTP_GRAPH_OPTIMIZATION_TYPE_ENABLE_SLC_ALLOCATOR, 0);
  REQUIRE(qnn.graphSetConfig(other, graph_list()) != QNN_SUCCESS);
}

// -- votes ------------------------------------------------------------------------------------------------------------

static uint32_t new_id(void) {
  uint32_t id;
  MUST(perf.createPowerConfigId(0, 0, &id));
  return id;
}
static Qnn_ErrorHandle_t set(uint32_t id, const QnnHtpPerfInfrastructure_PowerConfig_t* first,
                             const QnnHtpPerfInfrastructure_PowerConfig_t* second) {
  const QnnHtpPerfInfrastructure_PowerConfig_t* own[] = {first, second, NULL};
  return perf.setPowerConfig(id, own) & 0xFFFF;
}
static QnnHtpPerfInfrastructure_PowerConfig_t dcvs(uint32_t id, uint32_t corner) {
  QnnHtpPerfInfrastructure_PowerConfig_t made;
  QnnHtpPerfInfrastructure_DcvsV3_t* own = &made.dcvsV3Config;
  memset(&made, 0, sizeof made);
  made.option = QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_DCVS_V3;
  own->contextId = id;
  own->powerMode = QNN_HTP_PERF_INFRASTRUCTURE_POWERMODE_PERFORMANCE_MODE;
  own->setSleepLatency = own->setBusParams = own->setCoreParams = own->setDcvsEnable = 1;
  own->sleepLatency = 40;
  own->busVoltageCornerMin = own->busVoltageCornerTarget = own->busVoltageCornerMax =
      (QnnHtpPerfInfrastructure_VoltageCorner_t)corner;
  own->coreVoltageCornerMin = own->coreVoltageCornerTarget = own->coreVoltageCornerMax =
      (QnnHtpPerfInfrastructure_VoltageCorner_t)corner;
  return made;
}
static QnnHtpPerfInfrastructure_PowerConfig_t rpc(QnnHtpPerfInfrastructure_PowerConfigOption_t option, uint32_t us) {
  QnnHtpPerfInfrastructure_PowerConfig_t made;
  memset(&made, 0, sizeof made);
  made.option = option;
  made.rpcPollingTimeConfig = us;
  return made;
}
#define LATENCY(us) rpc(QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_RPC_CONTROL_LATENCY, us)
#define POLLING(us) rpc(QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_RPC_POLLING_TIME, us)
#define ADAPTIVE(us) rpc(QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_ADAPTIVE_POLLING_TIME, us)

static Qnn_GraphHandle_t loaded(const char* file, const char* graph) {
  Qnn_ContextHandle_t made;
  MUST(load(file, &made));
  return graph_of(made, graph);
}
static void power_ids(void) {
  uint32_t id = new_id();
  ENDS(QNN_HTP_PERF_INFRASTRUCTURE_ERROR_INVALID_INPUT, perf.createPowerConfigId(7, 99, &id) & 0xFFFF);
  MUST(perf.destroyPowerConfigId(id));
  ENDS(QNN_HTP_PERF_INFRASTRUCTURE_ERROR_INVALID_INPUT, perf.destroyPowerConfigId(id) & 0xFFFF);
}
static void dcvs_votes(void) {
  const uint32_t id = new_id();
  Qnn_GraphHandle_t graph = loaded("deep.bin", "deep");
  QnnHtpPerfInfrastructure_PowerConfig_t vote = dcvs(id, DCVS_VOLTAGE_VCORNER_SVS2);
  double slow, fast;
  MUST(set(id, &vote, NULL));
  slow = latency_us(graph, 1024);
  vote = dcvs(id, DCVS_VOLTAGE_VCORNER_MAX_VOLTAGE_CORNER);
  MUST(set(id, &vote, NULL));
  fast = latency_us(graph, 1024);
  REQUIRE(fast < slow);
  vote = dcvs(id, 0x37);
  ENDS(QNN_HTP_PERF_INFRASTRUCTURE_ERROR_INVALID_INPUT, set(id, &vote, NULL));
  vote = dcvs(id, DCVS_VOLTAGE_VCORNER_TURBO);
  vote.dcvsV3Config.powerMode = (QnnHtpPerfInfrastructure_PowerMode_t)0x777;
  ENDS(QNN_HTP_PERF_INFRASTRUCTURE_ERROR_INVALID_INPUT, set(id, &vote, NULL));
  vote = dcvs(id + 1, DCVS_VOLTAGE_VCORNER_TURBO);
  ENDS(QNN_HTP_PERF_INFRASTRUCTURE_ERROR_INVALID_INPUT, set(id, &vote, NULL));
}
static void corners(void) {
  static const uint32_t all[] = {DCVS_VOLTAGE_VCORNER_MIN_VOLTAGE_CORNER,
                                 DCVS_VOLTAGE_VCORNER_SVS2,
                                 DCVS_VOLTAGE_VCORNER_SVS,
                                 DCVS_VOLTAGE_VCORNER_SVS_PLUS,
                                 DCVS_VOLTAGE_VCORNER_NOM,
                                 DCVS_VOLTAGE_VCORNER_NOM_PLUS,
                                 DCVS_VOLTAGE_VCORNER_TURBO,
                                 DCVS_VOLTAGE_VCORNER_TURBO_PLUS,
                                 DCVS_VOLTAGE_VCORNER_TURBO_L2,
                                 DCVS_VOLTAGE_VCORNER_TURBO_L3,
                                 DCVS_VOLTAGE_VCORNER_MAX_VOLTAGE_CORNER};
  Qnn_GraphHandle_t graph = loaded("deep.bin", "deep");
  const uint32_t id = new_id();
  double before = 1e9, now;
  size_t i;
  for (i = 0; i < sizeof all / sizeof *all; ++i) {
    QnnHtpPerfInfrastructure_PowerConfig_t vote = dcvs(id, all[i]);
    MUST(set(id, &vote, NULL));
    now = latency_us(graph, 1024);
    REQUIRE(now <= before);
    before = now;
  }
}
static void rpc_polling(void) {
  const uint32_t id = new_id();
  Qnn_GraphHandle_t graph = loaded("dense.bin", "dense");
  QnnHtpPerfInfrastructure_PowerConfig_t vote = POLLING(0);
  double without;
  MUST(set(id, &vote, NULL));
  without = latency_us(graph, 8);
  vote = POLLING(9999);
  MUST(set(id, &vote, NULL));
  REQUIRE(latency_us(graph, 8) < without);
  vote = POLLING(20000);
  ENDS(QNN_HTP_PERF_INFRASTRUCTURE_ERROR_INVALID_INPUT, set(id, &vote, NULL));
}
static void rpc_latency(void) {
  const uint32_t id = new_id();
  Qnn_GraphHandle_t graph = loaded("deep.bin", "deep");
  QnnHtpPerfInfrastructure_PowerConfig_t vote = LATENCY(100);
  double low;
  MUST(set(id, &vote, NULL));
  MUST(device_call("sleep", "\"us\": 100000"));
  low = latency_us(graph, 1024);
  vote = LATENCY(1000);
  MUST(set(id, &vote, NULL));
  MUST(device_call("sleep", "\"us\": 100000"));
  REQUIRE(latency_us(graph, 1024) >= low);
}
static void adaptive_polling(void) {
  const uint32_t id = new_id();
  QnnHtpPerfInfrastructure_PowerConfig_t adaptive = ADAPTIVE(1000), polling = POLLING(9999);
  REQUIRE(set(id, &adaptive, NULL) != QNN_SUCCESS);  // without polling there is nothing to adapt
  MUST(set(id, &polling, &adaptive));
  MUST(execute(loaded("dense.bin", "dense"), 1, 1, 8, NULL));
}
static QnnHtpPerfInfrastructure_PowerConfig_t hmx(void) {
  QnnHtpPerfInfrastructure_PowerConfig_t made;
  memset(&made, 0, sizeof made);
  made.option = QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_HMX_V2;
  made.hmxV2Config.hmxPerfMode = QNN_HTP_PERF_INFRASTRUCTURE_CLK_PERF_HIGH;
  made.hmxV2Config.hmxVoltageCornerMin = made.hmxV2Config.hmxVoltageCornerTarget =
      made.hmxV2Config.hmxVoltageCornerMax = DCVS_EXP_VCORNER_TUR;
  return made;
}
static void hmx_votes(void) {
  const uint32_t id = new_id();
  QnnHtpPerfInfrastructure_PowerConfig_t vote = hmx(), core = dcvs(id, DCVS_VOLTAGE_VCORNER_TURBO);
  REQUIRE(set(id, &vote, NULL) != QNN_SUCCESS);  // it needs a vote for HVX with the same id
  MUST(set(id, &core, &vote));
  MUST(execute(loaded("deep.bin", "deep"), 1, 1, 1024, NULL));
}
static void no_hmx_votes(void) {
  const uint32_t id = new_id();
  QnnHtpPerfInfrastructure_PowerConfig_t vote = hmx(), core = dcvs(id, DCVS_VOLTAGE_VCORNER_TURBO);
  ENDS(QNN_HTP_PERF_INFRASTRUCTURE_ERROR_UNSUPPORTED_CONFIG, set(id, &core, &vote));
}
// A vote before each inference, and another one when nothing came for a while.
static void vote_each_inference(void) {
  const uint32_t id = new_id();
  Qnn_GraphHandle_t graph = loaded("deep.bin", "deep");
  QnnHtpPerfInfrastructure_PowerConfig_t burst = dcvs(id, DCVS_VOLTAGE_VCORNER_MAX_VOLTAGE_CORNER);
  QnnHtpPerfInfrastructure_PowerConfig_t relaxed = dcvs(id, DCVS_VOLTAGE_VCORNER_SVS);
  double voted;
  MUST(set(id, &burst, NULL));
  voted = latency_us(graph, 1024);
  MUST(set(id, &relaxed, NULL));
  MUST(device_call("sleep", "\"us\": 500000"));
  REQUIRE(latency_us(graph, 1024) > voted);
}
static void basic_profile(void) {
  static const char* wanted[] = {"Number of HVX threads used",          "RPC (execute) time",
                                 "QNN accelerator (execute) time",      "Num times yield occured",
                                 "Time for initial VTCM acquire",       "Time for HVX + HMX power on and acquire",
                                 "Accelerator (execute) time (cycles)", "Accelerator (execute) time"};
  Qnn_ProfileHandle_t profile = profile_of(QNN_PROFILE_LEVEL_BASIC);
  const QnnProfile_EventId_t *events, *subs;
  QnnProfile_EventData_t data;
  uint32_t count, i, k, found;
  MUST(execute(loaded("deep.bin", "deep"), 1, 1, 1024, profile));
  MUST(qnn.profileGetEvents(profile, &events, &count));
  MUST(qnn.profileGetSubEvents(events[0], &subs, &count));
  for (k = 0; k < sizeof wanted / sizeof *wanted; ++k) {
    for (i = found = 0; i < count; ++i) {
      MUST(qnn.profileGetEventData(subs[i], &data));
      found += !strcmp(data.identifier, wanted[k]);
    }
    if (found != 1) fprintf(stderr, "%s\n", wanted[k]);
    REQUIRE(found == 1);
  }
}

#define CASE(name) {#name, name}
static const struct {
  const char* name;
  void (*shown)(void);
} cases[] = {
    CASE(api_version),
    CASE(soc),
    CASE(arch),
    CASE(soc_over_arch),
    CASE(device_info),
    CASE(other_arch),
    CASE(signed_domain),
    CASE(variable_batch),
    CASE(multi_contexts),
    CASE(spill_fill_size),
    CASE(read_budget),
    CASE(io_estimation),
    CASE(heap_profiling),
    CASE(share_resources),
    CASE(list_async),
    CASE(init_acceleration),
    CASE(skip_validation),
    CASE(apply_section),
    CASE(concurrent),
    CASE(not_concurrent),
    CASE(lora),
    CASE(prepare_only),
    CASE(switching),
    CASE(timeouts),
    CASE(priorities),
    CASE(error_codes),
    CASE(preemption),
    CASE(second_library),
    CASE(graph_building),
    CASE(weight_sharing),
    CASE(precision),
    CASE(vtcm_mb),
    CASE(vtcm_bytes),
    CASE(hvx_threads),
    CASE(weights_packing),
    CASE(dlbc),
    CASE(slc),
    CASE(power_ids),
    CASE(dcvs_votes),
    CASE(corners),
    CASE(rpc_polling),
    CASE(rpc_latency),
    CASE(adaptive_polling),
    CASE(hmx_votes),
    CASE(no_hmx_votes),
    CASE(vote_each_inference),
    CASE(basic_profile),
};

int main(int argc, char** argv) {
  size_t i;
  REQUIRE(argc == 4);
  libraries = argv[1];
  folder = argv[2];
  begin();
  for (i = 0; i < sizeof cases / sizeof *cases; ++i)
    if (!strcmp(argv[3], cases[i].name)) {
      cases[i].shown();
      return 0;
    }
  return 4;
}
