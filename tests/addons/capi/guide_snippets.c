// SPDX-License-Identifier: Apache-2.0
// What Qualcomm's guide of the HTP shows in C, in our words: each function is one of its examples, named by what it sets.
// It is compiled as C and as C++ without a warning; the numbers are the lines of the guide's text.
#include <stdbool.h>
#include <string.h>

#include "HTP/QnnHtpCommon.h"
#include "HTP/QnnHtpContext.h"
#include "HTP/QnnHtpDevice.h"
#include "HTP/QnnHtpGraph.h"
#include "HTP/QnnHtpMem.h"
#include "HTP/QnnHtpPerfInfrastructure.h"
#include "HTP/QnnHtpProfile.h"
#include "HTP/QnnHtpSystemContext.h"
#include "QnnInterface.h"
#include "System/QnnSystemInterface.h"

#ifdef __cplusplus
#define STATIC_CAST(type, value) static_cast<type>(value)
#define STATIC_ASSERT(condition) static_assert(condition, #condition)
#else
#define STATIC_CAST(type, value) ((type)(value))
#define STATIC_ASSERT(condition) _Static_assert(condition, #condition)
#endif

typedef const QNN_INTERFACE_VER_TYPE* Qnn;

static void initialized(Qnn_ContextHandle_t context, Qnn_GraphHandle_t graph, const char* name,
                        QnnContext_createFromBinaryAsyncNotifyType_t type, void* param, Qnn_ErrorHandle_t status) {
  if (type == QNN_CONTEXT_NOTIFY_TYPE_GRAPH_INIT && context && graph && name && param) *(Qnn_ErrorHandle_t*)param = status;
}

static Qnn_ErrorHandle_t provide(Qnn_ContextBinaryDataRequest_t request, Qnn_ContextBinaryDmaDataResponse_t* response,
                                 void* param) {
  if (request.size == 0) return QNN_GRAPH_ERROR_INVALID_ARGUMENT;
  response->dmaBuffer.data = param;
  response->dmaBuffer.fd = -1;
  response->dataStartOffset = 0;
  response->alignedSize = request.offset + request.size;
  return param ? QNN_SUCCESS : (Qnn_ErrorHandle_t)QNN_CONTEXT_ERROR_MEM_ALLOC;
}

static Qnn_ErrorHandle_t release(Qnn_ContextBinaryDmaDataMem_t memory, void* param) {
  return memory.dmaBuffer.data == param ? QNN_SUCCESS : (Qnn_ErrorHandle_t)QNN_CONTEXT_ERROR_INVALID_ARGUMENT;
}

// 9
Qnn_ErrorHandle_t api_version(Qnn qnn);
Qnn_ErrorHandle_t api_version(Qnn qnn) {
  Qnn_ApiVersion_t version = QNN_HTP_API_VERSION_INIT;
  STATIC_ASSERT(QNN_HTP_API_VERSION_MAJOR == 5);
  return qnn->backendGetApiVersion(&version);
}

// 19
Qnn_ErrorHandle_t op_package(Qnn qnn);
Qnn_ErrorHandle_t op_package(Qnn qnn) {
  return qnn->backendRegisterOpPackage(NULL, "libExample.so", "ExampleInterfaceProvider", "CPU");
}

// 63
Qnn_ErrorHandle_t default_soc(Qnn qnn);
Qnn_ErrorHandle_t default_soc(Qnn qnn) {
  QnnHtpDevice_CustomConfig_t custom = QNN_HTP_DEVICE_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_DEVICE_CONFIG_OPTION_SOC;
  custom.socModel = QNN_SOC_MODEL_SM8350;
  QnnDevice_Config_t config = QNN_DEVICE_CONFIG_INIT;
  config.option = QNN_DEVICE_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnDevice_Config_t* list[] = {&config, NULL};
  Qnn_DeviceHandle_t device = NULL;
  return qnn->deviceCreate(NULL, list, &device);
}

// 87
Qnn_ErrorHandle_t soc(Qnn qnn);
Qnn_ErrorHandle_t soc(Qnn qnn) {
  QnnHtpDevice_CustomConfig_t custom = QNN_HTP_DEVICE_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_DEVICE_CONFIG_OPTION_SOC;
  custom.socModel = QNN_SOC_MODEL_SM8550;
  QnnDevice_Config_t config = QNN_DEVICE_CONFIG_INIT;
  config.option = QNN_DEVICE_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnDevice_Config_t* list[] = {&config, NULL};
  Qnn_DeviceHandle_t device = NULL;
  return qnn->deviceCreate(NULL, list, &device);
}

// 99
Qnn_ErrorHandle_t arch(Qnn qnn);
Qnn_ErrorHandle_t arch(Qnn qnn) {
  QnnHtpDevice_CustomConfig_t custom = QNN_HTP_DEVICE_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_DEVICE_CONFIG_OPTION_ARCH;
  custom.arch.arch = QNN_HTP_DEVICE_ARCH_V73;
  QnnDevice_Config_t config = QNN_DEVICE_CONFIG_INIT;
  config.option = QNN_DEVICE_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnDevice_Config_t* list[] = {&config, NULL};
  Qnn_DeviceHandle_t device = NULL;
  return qnn->deviceCreate(NULL, list, &device);
}

// 110
Qnn_ErrorHandle_t signed_process_domain(Qnn qnn);
Qnn_ErrorHandle_t signed_process_domain(Qnn qnn) {
  QnnHtpDevice_CustomConfig_t custom = QNN_HTP_DEVICE_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_DEVICE_CONFIG_OPTION_SIGNEDPD;
  custom.useSignedProcessDomain.useSignedProcessDomain = true;
  QnnDevice_Config_t config = QNN_DEVICE_CONFIG_INIT;
  config.option = QNN_DEVICE_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnDevice_Config_t* list[] = {&config, NULL};
  Qnn_DeviceHandle_t device = NULL;
  return qnn->deviceCreate(NULL, list, &device);
}

// 219
Qnn_ErrorHandle_t prepare_only(Qnn qnn);
Qnn_ErrorHandle_t prepare_only(Qnn qnn) {
  QnnHtpContext_CustomConfig_t custom = QNN_HTP_CONTEXT_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_CONTEXT_CONFIG_OPTION_PREPARE_ONLY;
  custom.prepareOnly = true;
  QnnContext_Config_t config = QNN_CONTEXT_CONFIG_INIT;
  config.option = QNN_CONTEXT_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnContext_Config_t* list[] = {&config, NULL};
  Qnn_ContextHandle_t context = NULL;
  return qnn->contextCreateFromBinary(NULL, NULL, list, NULL, 0, &context, NULL);
}

// 227
Qnn_ErrorHandle_t weight_sharing(Qnn qnn);
Qnn_ErrorHandle_t weight_sharing(Qnn qnn) {
  QnnHtpContext_CustomConfig_t custom = QNN_HTP_CONTEXT_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_CONTEXT_CONFIG_OPTION_WEIGHT_SHARING_ENABLED;
  custom.weightSharingEnabled = true;
  QnnContext_Config_t config = QNN_CONTEXT_CONFIG_INIT;
  config.option = QNN_CONTEXT_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnContext_Config_t* list[] = {&config, NULL};
  Qnn_ContextHandle_t context = NULL;
  return qnn->contextCreateFromBinary(NULL, NULL, list, NULL, 0, &context, NULL);
}

// 257
Qnn_ErrorHandle_t spill_fill_size(Qnn qnn, const QnnSystemContext_BinaryInfo_t* info);
Qnn_ErrorHandle_t spill_fill_size(Qnn qnn, const QnnSystemContext_BinaryInfo_t* info) {
  if (info->version != QNN_SYSTEM_CONTEXT_BINARY_INFO_VERSION_1) return 0;
  const QnnHtpSystemContext_HwBlobInfo_t* blob =
      STATIC_CAST(QnnHtpSystemContext_HwBlobInfo_t*, info->contextBinaryInfoV1.hwInfoBlob);
  if (blob->version != QNN_SYSTEM_CONTEXT_HTP_HW_INFO_BLOB_VERSION_V1) return qnn != NULL;
  return blob->contextBinaryHwInfoBlobV1_t.spillFillBufferSize;
}

// 261
Qnn_ErrorHandle_t register_multi_contexts(Qnn qnn);
Qnn_ErrorHandle_t register_multi_contexts(Qnn qnn) {
  QnnHtpContext_CustomConfig_t custom = QNN_HTP_CONTEXT_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_CONTEXT_CONFIG_OPTION_REGISTER_MULTI_CONTEXTS;
  QnnHtpContext_GroupRegistration_t group;
  group.firstGroupHandle = NULL;
  group.maxSpillFillBuffer = 30081024;
  custom.groupRegistration = group;
  QnnContext_Config_t config = QNN_CONTEXT_CONFIG_INIT;
  config.option = QNN_CONTEXT_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnContext_Config_t* list[] = {&config, NULL};
  Qnn_ContextHandle_t context = NULL;
  return qnn->contextCreateFromBinary(NULL, NULL, list, NULL, 0, &context, NULL);
}

// 307
Qnn_ErrorHandle_t concurrent_resource_sharing(Qnn qnn);
Qnn_ErrorHandle_t concurrent_resource_sharing(Qnn qnn) {
  QnnHtpContext_CustomConfig_t custom = QNN_HTP_CONTEXT_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_CONTEXT_CONFIG_OPTION_REGISTER_CONCURRENT_RESOURCE_SHARING;
  QnnHtpContext_GroupRegistration_t group;
  group.firstGroupHandle = NULL;
  group.maxSpillFillBuffer = 30081024;
  custom.concurrentGroupRegistration = group;
  QnnContext_Config_t config = QNN_CONTEXT_CONFIG_INIT;
  config.option = QNN_CONTEXT_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnContext_Config_t* list[] = {&config, NULL};
  Qnn_ContextHandle_t context = NULL;
  return qnn->contextCreateFromBinary(NULL, NULL, list, NULL, 0, &context, NULL);
}

// 349
Qnn_ErrorHandle_t file_read_memory_budget(Qnn qnn);
Qnn_ErrorHandle_t file_read_memory_budget(Qnn qnn) {
  QnnHtpContext_CustomConfig_t custom = QNN_HTP_CONTEXT_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_CONTEXT_CONFIG_OPTION_FILE_READ_MEMORY_BUDGET;
  custom.fileReadMemoryBudgetInMb = 25;
  QnnContext_Config_t config = QNN_CONTEXT_CONFIG_INIT;
  config.option = QNN_CONTEXT_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnContext_Config_t* list[] = {&config, NULL};
  Qnn_ContextHandle_t context = NULL;
  return qnn->contextCreateFromBinary(NULL, NULL, list, NULL, 0, &context, NULL);
}

// 359
Qnn_ErrorHandle_t io_memory_estimation(Qnn qnn);
Qnn_ErrorHandle_t io_memory_estimation(Qnn qnn) {
  QnnHtpContext_CustomConfig_t custom = QNN_HTP_CONTEXT_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_CONTEXT_CONFIG_OPTION_IO_MEM_ESTIMATION;
  custom.ioMemEstimation = true;
  QnnContext_Config_t config = QNN_CONTEXT_CONFIG_INIT;
  config.option = QNN_CONTEXT_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnContext_Config_t* list[] = {&config, NULL};
  Qnn_ContextHandle_t context = NULL;
  return qnn->contextCreateFromBinary(NULL, NULL, list, NULL, 0, &context, NULL);
}

// 381
Qnn_ErrorHandle_t share_with_va(Qnn qnn);
Qnn_ErrorHandle_t share_with_va(Qnn qnn) {
  QnnHtpContext_CustomConfig_t custom = QNN_HTP_CONTEXT_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_CONTEXT_CONFIG_OPTION_SHARE_RESOURCES_OPTIMIZATION_TYPE;
  custom.shareResOptType = SEQUENTIAL_WITH_VA_OPTIMIZATION;
  QnnContext_Config_t config = QNN_CONTEXT_CONFIG_INIT;
  config.option = QNN_CONTEXT_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnContext_Config_t* list[] = {&config, NULL};
  Qnn_ContextHandle_t context = NULL;
  return qnn->contextCreateFromBinary(NULL, NULL, list, NULL, 0, &context, NULL);
}

// 393
Qnn_ErrorHandle_t share_concurrently(Qnn qnn);
Qnn_ErrorHandle_t share_concurrently(Qnn qnn) {
  QnnHtpContext_CustomConfig_t custom = QNN_HTP_CONTEXT_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_CONTEXT_CONFIG_OPTION_SHARE_RESOURCES_OPTIMIZATION_TYPE;
  custom.shareResOptType = CONCURRENT_OPTIMIZATION;
  QnnContext_Config_t config = QNN_CONTEXT_CONFIG_INIT;
  config.option = QNN_CONTEXT_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnContext_Config_t* list[] = {&config, NULL};
  Qnn_ContextHandle_t context = NULL;
  return qnn->contextCreateFromBinary(NULL, NULL, list, NULL, 0, &context, NULL);
}

// 403
Qnn_ErrorHandle_t share_resources(Qnn qnn);
Qnn_ErrorHandle_t share_resources(Qnn qnn) {
  QnnHtpContext_CustomConfig_t custom = QNN_HTP_CONTEXT_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_CONTEXT_CONFIG_OPTION_SHARE_RESOURCES;
  custom.shareResources = true;
  QnnContext_Config_t config = QNN_CONTEXT_CONFIG_INIT;
  config.option = QNN_CONTEXT_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnContext_Config_t* list[] = {&config, NULL};
  Qnn_ContextHandle_t context = NULL;
  return qnn->contextCreateFromBinary(NULL, NULL, list, NULL, 0, &context, NULL);
}

// 406
Qnn_ErrorHandle_t share_sequentially(Qnn qnn);
Qnn_ErrorHandle_t share_sequentially(Qnn qnn) {
  QnnHtpContext_CustomConfig_t custom = QNN_HTP_CONTEXT_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_CONTEXT_CONFIG_OPTION_SHARE_RESOURCES_OPTIMIZATION_TYPE;
  custom.shareResOptType = SEQUENTIAL_WITHOUT_VA_OPTIMIZATION;
  QnnContext_Config_t config = QNN_CONTEXT_CONFIG_INIT;
  config.option = QNN_CONTEXT_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnContext_Config_t* list[] = {&config, NULL};
  Qnn_ContextHandle_t context = NULL;
  return qnn->contextCreateFromBinary(NULL, NULL, list, NULL, 0, &context, NULL);
}

// 414
Qnn_ErrorHandle_t init_acceleration(Qnn qnn);
Qnn_ErrorHandle_t init_acceleration(Qnn qnn) {
  QnnHtpContext_CustomConfig_t custom = QNN_HTP_CONTEXT_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_CONTEXT_CONFIG_OPTION_INIT_ACCELERATION;
  custom.initAcceleration = true;
  QnnContext_Config_t config = QNN_CONTEXT_CONFIG_INIT;
  config.option = QNN_CONTEXT_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnContext_Config_t* list[] = {&config, NULL};
  Qnn_ContextHandle_t context = NULL;
  return qnn->contextCreateFromBinary(NULL, NULL, list, NULL, 0, &context, NULL);
}

// 422
Qnn_ErrorHandle_t skip_validation_of_a_section(Qnn qnn);
Qnn_ErrorHandle_t skip_validation_of_a_section(Qnn qnn) {
  QnnHtpContext_CustomConfig_t custom = QNN_HTP_CONTEXT_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_CONTEXT_CONFIG_OPTION_SKIP_VALIDATION_ON_BINARY_SECTION;
  custom.skipValidationOnBinarySection = true;
  QnnContext_Config_t config = QNN_CONTEXT_CONFIG_INIT;
  config.option = QNN_CONTEXT_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnContext_Config_t* list[] = {&config, NULL};
  Qnn_ContextHandle_t context = NULL;
  return qnn->contextCreateFromBinary(NULL, NULL, list, NULL, 0, &context, NULL);
}

// 430
Qnn_ErrorHandle_t lora_weight_sharing(Qnn qnn);
Qnn_ErrorHandle_t lora_weight_sharing(Qnn qnn) {
  QnnHtpContext_CustomConfig_t custom = QNN_HTP_CONTEXT_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_CONTEXT_CONFIG_OPTION_LORA_WEIGHT_SHARING_ENABLED;
  custom.loraWeightSharingEnabled = true;
  QnnContext_Config_t config = QNN_CONTEXT_CONFIG_INIT;
  config.option = QNN_CONTEXT_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnContext_Config_t* list[] = {&config, NULL};
  Qnn_ContextHandle_t context = NULL;
  return qnn->contextCreateFromBinary(NULL, NULL, list, NULL, 0, &context, NULL);
}

// 456
Qnn_ErrorHandle_t optimization_level(Qnn qnn);
Qnn_ErrorHandle_t optimization_level(Qnn qnn) {
  QnnHtpGraph_CustomConfig_t custom = QNN_HTP_GRAPH_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_GRAPH_CONFIG_OPTION_OPTIMIZATION;
  custom.optimizationOption.type = QNN_HTP_GRAPH_OPTIMIZATION_TYPE_FINALIZE_OPTIMIZATION_FLAG;
  custom.optimizationOption.floatValue = 3;
  QnnGraph_Config_t config = QNN_GRAPH_CONFIG_INIT;
  config.option = QNN_GRAPH_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnGraph_Config_t* list[] = {&config, NULL};
  return qnn->graphSetConfig(NULL, list);
}

// 464
Qnn_ErrorHandle_t precision(Qnn qnn);
Qnn_ErrorHandle_t precision(Qnn qnn) {
  QnnHtpGraph_CustomConfig_t custom = QNN_HTP_GRAPH_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_GRAPH_CONFIG_OPTION_PRECISION;
  custom.precision = QNN_PRECISION_FLOAT16;
  QnnGraph_Config_t config = QNN_GRAPH_CONFIG_INIT;
  config.option = QNN_GRAPH_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnGraph_Config_t* list[] = {&config, NULL};
  return qnn->graphSetConfig(NULL, list);
}

// 472
Qnn_ErrorHandle_t vtcm_megabytes(Qnn qnn);
Qnn_ErrorHandle_t vtcm_megabytes(Qnn qnn) {
  QnnHtpGraph_CustomConfig_t custom = QNN_HTP_GRAPH_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_GRAPH_CONFIG_OPTION_VTCM_SIZE_IN_MB;
  custom.vtcmSizeInMB = 8;
  QnnGraph_Config_t config = QNN_GRAPH_CONFIG_INIT;
  config.option = QNN_GRAPH_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnGraph_Config_t* list[] = {&config, NULL};
  return qnn->graphSetConfig(NULL, list);
}

// 479
Qnn_ErrorHandle_t most_vtcm(Qnn qnn);
Qnn_ErrorHandle_t most_vtcm(Qnn qnn) {
  QnnHtpGraph_CustomConfig_t custom = QNN_HTP_GRAPH_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_GRAPH_CONFIG_OPTION_VTCM_SIZE_IN_MB;
  custom.vtcmSizeInMB = QNN_HTP_GRAPH_CONFIG_OPTION_MAX;
  QnnGraph_Config_t config = QNN_GRAPH_CONFIG_INIT;
  config.option = QNN_GRAPH_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnGraph_Config_t* list[] = {&config, NULL};
  return qnn->graphSetConfig(NULL, list);
}

// 483
Qnn_ErrorHandle_t no_folded_relu(Qnn qnn);
Qnn_ErrorHandle_t no_folded_relu(Qnn qnn) {
  QnnHtpGraph_CustomConfig_t custom = QNN_HTP_GRAPH_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_GRAPH_CONFIG_OPTION_FOLD_RELU_ACTIVATION_INTO_CONV_OFF;
  custom.foldReluActivationIntoConvOff = true;
  QnnGraph_Config_t config = QNN_GRAPH_CONFIG_INIT;
  config.option = QNN_GRAPH_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnGraph_Config_t* list[] = {&config, NULL};
  return qnn->graphSetConfig(NULL, list);
}

// 491
Qnn_ErrorHandle_t no_short_depth_conv_on_hmx(Qnn qnn);
Qnn_ErrorHandle_t no_short_depth_conv_on_hmx(Qnn qnn) {
  QnnHtpGraph_CustomConfig_t custom = QNN_HTP_GRAPH_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_GRAPH_CONFIG_OPTION_SHORT_DEPTH_CONV_ON_HMX_OFF;
  custom.shortDepthConvOnHmxOff = true;
  QnnGraph_Config_t config = QNN_GRAPH_CONFIG_INIT;
  config.option = QNN_GRAPH_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnGraph_Config_t* list[] = {&config, NULL};
  return qnn->graphSetConfig(NULL, list);
}

// 507
Qnn_ErrorHandle_t weights_packing(Qnn qnn);
Qnn_ErrorHandle_t weights_packing(Qnn qnn) {
  QnnHtpGraph_CustomConfig_t custom = QNN_HTP_GRAPH_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_GRAPH_CONFIG_OPTION_WEIGHTS_PACKING;
  custom.weightsPacking = true;
  QnnGraph_Config_t config = QNN_GRAPH_CONFIG_INIT;
  config.option = QNN_GRAPH_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnGraph_Config_t* list[] = {&config, NULL};
  return qnn->graphSetConfig(NULL, list);
}

// 515
Qnn_ErrorHandle_t finalize_config(Qnn qnn);
Qnn_ErrorHandle_t finalize_config(Qnn qnn) {
  QnnHtpGraph_CustomConfig_t custom = QNN_HTP_GRAPH_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_GRAPH_CONFIG_OPTION_FINALIZE_CONFIG;
  custom.finalizeConfig.key = "P";
  custom.finalizeConfig.value.dataType = QNN_DATATYPE_INT_32;
  custom.finalizeConfig.value.int32Value = 1;
  QnnGraph_Config_t config = QNN_GRAPH_CONFIG_INIT;
  config.option = QNN_GRAPH_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnGraph_Config_t* list[] = {&config, NULL};
  return qnn->graphSetConfig(NULL, list);
}

// 539
Qnn_ErrorHandle_t on_chip_extension(Qnn qnn, const QnnHtpDevice_CustomConfig_t* info);
Qnn_ErrorHandle_t on_chip_extension(Qnn qnn, const QnnHtpDevice_CustomConfig_t* info) {
  if (info->option == QNN_HTP_DEVICE_CONFIG_OPTION_ON_CHIP_DEVICE_INFO_EXTENSION) return 0;
  const QnnDevice_PlatformInfo_t* platform = NULL;
  Qnn_ErrorHandle_t code = qnn->deviceGetPlatformInfo(NULL, &platform);
  if (code != QNN_SUCCESS) return code;
  const QnnHtpDevice_DeviceInfoExtension_t* extension =
      STATIC_CAST(QnnHtpDevice_DeviceInfoExtension_t*, platform->v1.hwDevices[0].v1.deviceInfoExtension);
  const QnnHtpDevice_OnChipDeviceInfoExtension_t chip = extension->onChipDevice;
  return chip.vtcmSize && chip.socModel && chip.arch && !chip.signedPdSupport && chip.dlbcSupport;
}

// 543
Qnn_ErrorHandle_t card_extension(Qnn qnn, const QnnHtpDevice_CustomConfig_t* info);
Qnn_ErrorHandle_t card_extension(Qnn qnn, const QnnHtpDevice_CustomConfig_t* info) {
  if (info->option == QNN_HTP_DEVICE_CONFIG_OPTION_PCIE_DEVICE_INFO_EXTENSION) return 0;
  QnnHtpDevice_DeviceInfoExtension_t extension;
  QnnDevice_HardwareDeviceInfo_t hardware = QNN_DEVICE_HARDWARE_DEVICE_INFO_INIT;
  QnnDevice_PlatformInfo_t platform = QNN_DEVICE_PLATFORM_INFO_INIT;
  QnnDevice_Config_t config = QNN_DEVICE_CONFIG_INIT;
  const QnnDevice_Config_t* list[] = {&config, NULL};
  Qnn_DeviceHandle_t device = NULL;
  memset(&extension, 0, sizeof(extension));
  extension.devType = QNN_HTP_DEVICE_TYPE_PCIE;
  extension.pcieDevice.vtcmSize = 8;
  extension.pcieDevice.numOfNsps = 2;
  hardware.v1.deviceInfoExtension = &extension;
  platform.v1.numHwDevices = 1;
  platform.v1.hwDevices = &hardware;
  config.option = QNN_DEVICE_CONFIG_OPTION_PLATFORM_INFO;
  config.hardwareInfo = &platform;
  return qnn->deviceCreate(NULL, list, &device);
}

// 579
Qnn_ErrorHandle_t clock_corners(Qnn qnn);
Qnn_ErrorHandle_t clock_corners(Qnn qnn) {
  QnnDevice_Infrastructure_t infrastructure = NULL;
  Qnn_ErrorHandle_t code = qnn->deviceGetInfrastructure(&infrastructure);
  if (code != QNN_SUCCESS) return code;
  QnnHtpDevice_Infrastructure_t* htp = STATIC_CAST(QnnHtpDevice_Infrastructure_t*, infrastructure);
  QnnHtpDevice_PerfInfrastructure_t votes = htp->perfInfra;
  QnnHtpPerfInfrastructure_PowerConfig_t config;
  memset(&config, 0, sizeof(config));
  config.option = QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_DCVS_V3;
  config.dcvsV3Config.setBusParams = 1;
  config.dcvsV3Config.busVoltageCornerMin = DCVS_VOLTAGE_VCORNER_TURBO;
  config.dcvsV3Config.busVoltageCornerTarget = DCVS_VOLTAGE_VCORNER_TURBO;
  config.dcvsV3Config.busVoltageCornerMax = DCVS_VOLTAGE_VCORNER_TURBO;
  config.dcvsV3Config.setCoreParams = 1;
  config.dcvsV3Config.coreVoltageCornerMin = DCVS_VOLTAGE_VCORNER_TURBO;
  config.dcvsV3Config.coreVoltageCornerTarget = DCVS_VOLTAGE_VCORNER_TURBO;
  config.dcvsV3Config.coreVoltageCornerMax = DCVS_VOLTAGE_VCORNER_TURBO;
  const QnnHtpPerfInfrastructure_PowerConfig_t* list[] = {&config, NULL};
  return votes.setPowerConfig(1, list);
}

// 595
Qnn_ErrorHandle_t sleep_and_mode(Qnn qnn);
Qnn_ErrorHandle_t sleep_and_mode(Qnn qnn) {
  QnnDevice_Infrastructure_t infrastructure = NULL;
  Qnn_ErrorHandle_t code = qnn->deviceGetInfrastructure(&infrastructure);
  if (code != QNN_SUCCESS) return code;
  QnnHtpDevice_Infrastructure_t* htp = STATIC_CAST(QnnHtpDevice_Infrastructure_t*, infrastructure);
  QnnHtpDevice_PerfInfrastructure_t votes = htp->perfInfra;
  QnnHtpPerfInfrastructure_PowerConfig_t config;
  memset(&config, 0, sizeof(config));
  config.option = QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_DCVS_V3;
  config.dcvsV3Config.setDcvsEnable = 1;
  config.dcvsV3Config.dcvsEnable = 0;
  config.dcvsV3Config.setSleepLatency = 1;
  config.dcvsV3Config.sleepLatency = 100;
  config.dcvsV3Config.setSleepDisable = 1;
  config.dcvsV3Config.sleepDisable = 1;
  config.dcvsV3Config.powerMode = QNN_HTP_PERF_INFRASTRUCTURE_POWERMODE_PERFORMANCE_MODE;
  const QnnHtpPerfInfrastructure_PowerConfig_t* list[] = {&config, NULL};
  return votes.setPowerConfig(1, list);
}

// 620
Qnn_ErrorHandle_t create_power_config_id(Qnn qnn);
Qnn_ErrorHandle_t create_power_config_id(Qnn qnn) {
  QnnDevice_Infrastructure_t infrastructure = NULL;
  Qnn_ErrorHandle_t code = qnn->deviceGetInfrastructure(&infrastructure);
  if (code != QNN_SUCCESS) return code;
  QnnHtpDevice_Infrastructure_t* htp = STATIC_CAST(QnnHtpDevice_Infrastructure_t*, infrastructure);
  QnnHtpDevice_PerfInfrastructure_t votes = htp->perfInfra;
  uint32_t id = 0, device = 0, core = 0;
  return votes.createPowerConfigId(device, core, &id);
}

// 638
Qnn_ErrorHandle_t vote(Qnn qnn);
Qnn_ErrorHandle_t vote(Qnn qnn) {
  QnnDevice_Infrastructure_t infrastructure = NULL;
  Qnn_ErrorHandle_t code = qnn->deviceGetInfrastructure(&infrastructure);
  if (code != QNN_SUCCESS) return code;
  QnnHtpDevice_Infrastructure_t* htp = STATIC_CAST(QnnHtpDevice_Infrastructure_t*, infrastructure);
  QnnHtpDevice_PerfInfrastructure_t votes = htp->perfInfra;
  QnnHtpPerfInfrastructure_PowerConfig_t config;
  memset(&config, 0, sizeof(config));
  config.option = QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_DCVS_V3;
  config.dcvsV3Config.contextId = 1;
  config.dcvsV3Config.busVoltageCornerMin = DCVS_VOLTAGE_VCORNER_MAX_VOLTAGE_CORNER;
  config.dcvsV3Config.coreVoltageCornerMax = DCVS_VOLTAGE_VCORNER_MAX_VOLTAGE_CORNER;
  const QnnHtpPerfInfrastructure_PowerConfig_t* list[] = {&config, NULL};
  return votes.setPowerConfig(1, list);
}

// 698
Qnn_ErrorHandle_t destroy_power_config_id(Qnn qnn);
Qnn_ErrorHandle_t destroy_power_config_id(Qnn qnn) {
  QnnDevice_Infrastructure_t infrastructure = NULL;
  Qnn_ErrorHandle_t code = qnn->deviceGetInfrastructure(&infrastructure);
  if (code != QNN_SUCCESS) return code;
  return STATIC_CAST(QnnHtpDevice_Infrastructure_t*, infrastructure)->perfInfra.destroyPowerConfigId(1);
}

// 736
Qnn_ErrorHandle_t rpc_control_latency(Qnn qnn);
Qnn_ErrorHandle_t rpc_control_latency(Qnn qnn) {
  QnnDevice_Infrastructure_t infrastructure = NULL;
  Qnn_ErrorHandle_t code = qnn->deviceGetInfrastructure(&infrastructure);
  if (code != QNN_SUCCESS) return code;
  QnnHtpDevice_Infrastructure_t* htp = STATIC_CAST(QnnHtpDevice_Infrastructure_t*, infrastructure);
  QnnHtpDevice_PerfInfrastructure_t votes = htp->perfInfra;
  QnnHtpPerfInfrastructure_PowerConfig_t config;
  memset(&config, 0, sizeof(config));
  config.option = QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_RPC_CONTROL_LATENCY;
  config.rpcControlLatencyConfig = 100;
  const QnnHtpPerfInfrastructure_PowerConfig_t* list[] = {&config, NULL};
  return votes.setPowerConfig(1, list);
}

// 747
Qnn_ErrorHandle_t rpc_polling(Qnn qnn);
Qnn_ErrorHandle_t rpc_polling(Qnn qnn) {
  QnnDevice_Infrastructure_t infrastructure = NULL;
  Qnn_ErrorHandle_t code = qnn->deviceGetInfrastructure(&infrastructure);
  if (code != QNN_SUCCESS) return code;
  QnnHtpDevice_Infrastructure_t* htp = STATIC_CAST(QnnHtpDevice_Infrastructure_t*, infrastructure);
  QnnHtpDevice_PerfInfrastructure_t votes = htp->perfInfra;
  QnnHtpPerfInfrastructure_PowerConfig_t config;
  memset(&config, 0, sizeof(config));
  config.option = QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_RPC_POLLING_TIME;
  config.rpcPollingTimeConfig = 9999;
  const QnnHtpPerfInfrastructure_PowerConfig_t* list[] = {&config, NULL};
  return votes.setPowerConfig(1, list);
}

// 783
Qnn_ErrorHandle_t adaptive_polling(Qnn qnn);
Qnn_ErrorHandle_t adaptive_polling(Qnn qnn) {
  QnnDevice_Infrastructure_t infrastructure = NULL;
  Qnn_ErrorHandle_t code = qnn->deviceGetInfrastructure(&infrastructure);
  if (code != QNN_SUCCESS) return code;
  QnnHtpDevice_Infrastructure_t* htp = STATIC_CAST(QnnHtpDevice_Infrastructure_t*, infrastructure);
  QnnHtpDevice_PerfInfrastructure_t votes = htp->perfInfra;
  QnnHtpPerfInfrastructure_PowerConfig_t config;
  memset(&config, 0, sizeof(config));
  config.option = QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_ADAPTIVE_POLLING_TIME;
  config.adaptivePollingTimeConfig = 1000;
  const QnnHtpPerfInfrastructure_PowerConfig_t* list[] = {&config, NULL};
  return votes.setPowerConfig(1, list);
}

// 888
Qnn_ErrorHandle_t hmx_vote(Qnn qnn);
Qnn_ErrorHandle_t hmx_vote(Qnn qnn) {
  QnnDevice_Infrastructure_t infrastructure = NULL;
  Qnn_ErrorHandle_t code = qnn->deviceGetInfrastructure(&infrastructure);
  if (code != QNN_SUCCESS) return code;
  QnnHtpDevice_Infrastructure_t* htp = STATIC_CAST(QnnHtpDevice_Infrastructure_t*, infrastructure);
  QnnHtpDevice_PerfInfrastructure_t votes = htp->perfInfra;
  QnnHtpPerfInfrastructure_PowerConfig_t config;
  memset(&config, 0, sizeof(config));
  config.option = QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_HMX_V2;
  config.hmxV2Config.hmxPickDefault = 0;
  config.hmxV2Config.hmxPerfMode = QNN_HTP_PERF_INFRASTRUCTURE_CLK_PERF_HIGH;
  config.hmxV2Config.hmxVoltageCornerMin = DCVS_EXP_VCORNER_TUR;
  config.hmxV2Config.hmxVoltageCornerTarget = DCVS_EXP_VCORNER_TUR;
  config.hmxV2Config.hmxVoltageCornerMax = DCVS_EXP_VCORNER_TUR;
  const QnnHtpPerfInfrastructure_PowerConfig_t* list[] = {&config, NULL};
  return votes.setPowerConfig(1, list);
}

// 1002
Qnn_ErrorHandle_t dlbc(Qnn qnn);
Qnn_ErrorHandle_t dlbc(Qnn qnn) {
  QnnHtpGraph_CustomConfig_t custom = QNN_HTP_GRAPH_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_GRAPH_CONFIG_OPTION_OPTIMIZATION;
  custom.optimizationOption.type = QNN_HTP_GRAPH_OPTIMIZATION_TYPE_ENABLE_DLBC;
  custom.optimizationOption.floatValue = 1.0f;
  QnnGraph_Config_t config = QNN_GRAPH_CONFIG_INIT;
  config.option = QNN_GRAPH_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnGraph_Config_t* list[] = {&config, NULL};
  return qnn->graphSetConfig(NULL, list);
}

// 1036
Qnn_ErrorHandle_t dlbc_of_weights(Qnn qnn);
Qnn_ErrorHandle_t dlbc_of_weights(Qnn qnn) {
  QnnHtpGraph_CustomConfig_t custom = QNN_HTP_GRAPH_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_GRAPH_CONFIG_OPTION_OPTIMIZATION;
  custom.optimizationOption.type = QNN_HTP_GRAPH_OPTIMIZATION_TYPE_ENABLE_DLBC_WEIGHTS;
  custom.optimizationOption.floatValue = 1.0f;
  QnnGraph_Config_t config = QNN_GRAPH_CONFIG_INIT;
  config.option = QNN_GRAPH_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnGraph_Config_t* list[] = {&config, NULL};
  return qnn->graphSetConfig(NULL, list);
}

// 1098
Qnn_ErrorHandle_t hvx_threads(Qnn qnn);
Qnn_ErrorHandle_t hvx_threads(Qnn qnn) {
  QnnHtpGraph_CustomConfig_t custom = QNN_HTP_GRAPH_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_GRAPH_CONFIG_OPTION_NUM_HVX_THREADS;
  custom.numHvxThreads = 3;
  QnnGraph_Config_t config = QNN_GRAPH_CONFIG_INIT;
  config.option = QNN_GRAPH_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnGraph_Config_t* list[] = {&config, NULL};
  return qnn->graphSetConfig(NULL, list);
}

// 1137
Qnn_ErrorHandle_t system_level_cache(Qnn qnn);
Qnn_ErrorHandle_t system_level_cache(Qnn qnn) {
  QnnHtpGraph_CustomConfig_t custom = QNN_HTP_GRAPH_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_GRAPH_CONFIG_OPTION_OPTIMIZATION;
  custom.optimizationOption.type = QNN_HTP_GRAPH_OPTIMIZATION_TYPE_ENABLE_SLC_ALLOCATOR;
  custom.optimizationOption.floatValue = 1;
  QnnGraph_Config_t config = QNN_GRAPH_CONFIG_INIT;
  config.option = QNN_GRAPH_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnGraph_Config_t* list[] = {&config, NULL};
  return qnn->graphSetConfig(NULL, list);
}

// 1178
Qnn_ErrorHandle_t no_system_level_cache(Qnn qnn);
Qnn_ErrorHandle_t no_system_level_cache(Qnn qnn) {
  QnnHtpGraph_CustomConfig_t custom = QNN_HTP_GRAPH_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_GRAPH_CONFIG_OPTION_OPTIMIZATION;
  custom.optimizationOption.type = QNN_HTP_GRAPH_OPTIMIZATION_TYPE_ENABLE_SLC_ALLOCATOR;
  custom.optimizationOption.floatValue = 0;
  QnnGraph_Config_t config = QNN_GRAPH_CONFIG_INIT;
  config.option = QNN_GRAPH_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnGraph_Config_t* list[] = {&config, NULL};
  return qnn->graphSetConfig(NULL, list);
}

// 1248
Qnn_ErrorHandle_t cores(Qnn qnn);
Qnn_ErrorHandle_t cores(Qnn qnn) {
  QnnHtpGraph_CustomConfig_t custom = QNN_HTP_GRAPH_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_GRAPH_CONFIG_OPTION_NUM_CORES;
  custom.numCores = 2;
  QnnGraph_Config_t config = QNN_GRAPH_CONFIG_INIT;
  config.option = QNN_GRAPH_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnGraph_Config_t* list[] = {&config, NULL};
  return qnn->graphSetConfig(NULL, list);
}

// 1373
Qnn_ErrorHandle_t shared_buffer(Qnn qnn);
Qnn_ErrorHandle_t shared_buffer(Qnn qnn) {
  QnnMemHtp_Descriptor_t shared;
  Qnn_MemDescriptor_t memory = QNN_MEM_DESCRIPTOR_INIT;
  Qnn_MemHandle_t handle = NULL;
  shared.type = QNN_HTP_MEM_SHARED_BUFFER;
  shared.size = 4096;
  shared.sharedBufferConfig.fd = 3;
  shared.sharedBufferConfig.offset = 0;
  memory.memType = QNN_MEM_TYPE_CUSTOM;
  memory.customInfo = &shared;
  return qnn->memRegister(NULL, &memory, 1, &handle);
}

// 1676
Qnn_ErrorHandle_t dsp_memory_profiling(Qnn qnn);
Qnn_ErrorHandle_t dsp_memory_profiling(Qnn qnn) {
  QnnHtpContext_CustomConfig_t custom = QNN_HTP_CONTEXT_CUSTOM_CONFIG_INIT;
  custom.option = QNN_HTP_CONTEXT_CONFIG_OPTION_DSP_MEMORY_PROFILING_ENABLED;
  custom.dspMemoryProfilingEnabled = true;
  QnnContext_Config_t config = QNN_CONTEXT_CONFIG_INIT;
  config.option = QNN_CONTEXT_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnContext_Config_t* list[] = {&config, NULL};
  Qnn_ContextHandle_t context = NULL;
  return qnn->contextCreateFromBinary(NULL, NULL, list, NULL, 0, &context, NULL);
}

// 1689
Qnn_ErrorHandle_t profile_of_the_dsp(Qnn qnn);
Qnn_ErrorHandle_t profile_of_the_dsp(Qnn qnn) {
  Qnn_ProfileHandle_t profile = NULL;
  const QnnProfile_EventId_t* events = NULL;
  uint32_t count = 0;
  QnnProfile_EventData_t data;
  qnn->profileCreate(NULL, QNN_PROFILE_LEVEL_BASIC, &profile);
  qnn->profileGetEvents(profile, &events, &count);
  for (uint32_t i = 0; i < count; ++i) qnn->profileGetEventData(events[i], &data);
  return qnn->contextFree(NULL, profile);
}

// 2435
Qnn_ErrorHandle_t op_trace(Qnn qnn);
Qnn_ErrorHandle_t op_trace(Qnn qnn) {
  QnnProfile_Config_t config = QNN_PROFILE_CONFIG_INIT;
  config.option = QNN_PROFILE_CONFIG_OPTION_ENABLE_OPTRACE;
  config.enableOptrace = true;
  const QnnProfile_Config_t* list[] = {&config, NULL};
  return qnn->profileSetConfig(NULL, list);
}

// 2702
Qnn_ErrorHandle_t vtcm_bytes(Qnn qnn);
Qnn_ErrorHandle_t vtcm_bytes(Qnn qnn) {
  QnnHtpGraph_CustomConfig_t custom = QNN_HTP_GRAPH_CUSTOM_CONFIG_INIT;
  STATIC_ASSERT((int)QNN_HTP_GRAPH_CONFIG_OPTION_VTCM_SIZE != (int)QNN_HTP_GRAPH_CONFIG_OPTION_VTCM_SIZE_IN_MB);
  custom.option = QNN_HTP_GRAPH_CONFIG_OPTION_VTCM_SIZE;
  custom.vtcmSizeInBytes = 8323072;
  QnnGraph_Config_t config = QNN_GRAPH_CONFIG_INIT;
  config.option = QNN_GRAPH_CONFIG_OPTION_CUSTOM;
  config.customConfig = &custom;
  const QnnGraph_Config_t* list[] = {&config, NULL};
  return qnn->graphSetConfig(NULL, list);
}

// 2792
Qnn_ErrorHandle_t persistent_binary(Qnn qnn);
Qnn_ErrorHandle_t persistent_binary(Qnn qnn) {
  QnnContext_Config_t config = QNN_CONTEXT_CONFIG_INIT;
  config.option = QNN_CONTEXT_CONFIG_PERSISTENT_BINARY;
  config.isPersistentBinary = 1;
  const QnnContext_Config_t* list[] = {&config, NULL};
  Qnn_ContextHandle_t context = NULL;
  return qnn->contextCreateFromBinary(NULL, NULL, list, NULL, 0, &context, NULL);
}

// 2797
Qnn_ErrorHandle_t memory_limit_hint(Qnn qnn);
Qnn_ErrorHandle_t memory_limit_hint(Qnn qnn) {
  QnnContext_Config_t config = QNN_CONTEXT_CONFIG_INIT;
  config.option = QNN_CONTEXT_CONFIG_MEMORY_LIMIT_HINT;
  config.memoryLimitHintConfig = 1;
  const QnnContext_Config_t* list[] = {&config, NULL};
  Qnn_ContextHandle_t context = NULL;
  return qnn->contextCreateFromBinary(NULL, NULL, list, NULL, 0, &context, NULL);
}

// 2860
Qnn_ErrorHandle_t retention_order(Qnn qnn);
Qnn_ErrorHandle_t retention_order(Qnn qnn) {
  QnnContext_Config_t config = QNN_CONTEXT_CONFIG_INIT;
  static const char* const names[] = {"A", "B", NULL};
  config.option = QNN_CONTEXT_CONFIG_GRAPH_RETENTION_ORDER;
  config.graphRetentionOrder = names;
  const QnnContext_Config_t* list[] = {&config, NULL};
  Qnn_ContextHandle_t context = NULL;
  return qnn->contextCreateFromBinary(NULL, NULL, list, NULL, 0, &context, NULL);
}

// 3009
Qnn_ErrorHandle_t strict_compatibility(Qnn qnn);
Qnn_ErrorHandle_t strict_compatibility(Qnn qnn) {
  QnnContext_Config_t config = QNN_CONTEXT_CONFIG_INIT;
  config.option = QNN_CONTEXT_CONFIG_BINARY_COMPATIBILITY;
  config.binaryCompatibilityType = QNN_CONTEXT_BINARY_COMPATIBILITY_STRICT;
  const QnnContext_Config_t* list[] = {&config, NULL};
  Qnn_ContextHandle_t context = NULL;
  return qnn->contextCreateFromBinary(NULL, NULL, list, NULL, 0, &context, NULL);
}

// 3059
Qnn_ErrorHandle_t list_of_contexts(Qnn qnn);
Qnn_ErrorHandle_t list_of_contexts(Qnn qnn) {
  QnnContext_Params_t first = {QNN_CONTEXT_PARAMS_VERSION_1, {{NULL, NULL, 0, NULL, initialized, NULL}}};
  const QnnContext_Params_t* list[] = {&first, NULL};
  return qnn->contextCreateFromBinaryListAsync(NULL, NULL, list, NULL, NULL);
}

// 3167
Qnn_ErrorHandle_t signal_timeout(Qnn qnn);
Qnn_ErrorHandle_t signal_timeout(Qnn qnn) {
  QnnSignal_Config_t config = QNN_SIGNAL_CONFIG_INIT;
  config.option = QNN_SIGNAL_CONFIG_OPTION_TIMEOUT;
  config.timeoutDurationUs = 1000;
  const QnnSignal_Config_t* list[] = {&config, NULL};
  Qnn_SignalHandle_t signal = NULL;
  return qnn->signalCreate(NULL, list, &signal);
}

// 3167
Qnn_ErrorHandle_t signal_abort(Qnn qnn);
Qnn_ErrorHandle_t signal_abort(Qnn qnn) {
  QnnSignal_Config_t config = QNN_SIGNAL_CONFIG_INIT;
  config.option = QNN_SIGNAL_CONFIG_OPTION_ABORT;
  const QnnSignal_Config_t* list[] = {&config, NULL};
  Qnn_SignalHandle_t signal = NULL;
  return qnn->signalCreate(NULL, list, &signal);
}

// 3232
Qnn_ErrorHandle_t graph_priority(Qnn qnn);
Qnn_ErrorHandle_t graph_priority(Qnn qnn) {
  QnnGraph_Config_t config = QNN_GRAPH_CONFIG_INIT;
  config.option = QNN_GRAPH_CONFIG_OPTION_PRIORITY;
  config.priority = QNN_PRIORITY_NORMAL_HIGH;
  const QnnGraph_Config_t* list[] = {&config, NULL};
  return qnn->graphSetConfig(NULL, list);
}

// 3238
Qnn_ErrorHandle_t context_priority(Qnn qnn);
Qnn_ErrorHandle_t context_priority(Qnn qnn) {
  QnnContext_Config_t config = QNN_CONTEXT_CONFIG_INIT;
  config.option = QNN_CONTEXT_CONFIG_OPTION_PRIORITY;
  config.priority = QNN_PRIORITY_HIGH;
  const QnnContext_Config_t* list[] = {&config, NULL};
  Qnn_ContextHandle_t context = NULL;
  return qnn->contextCreateFromBinary(NULL, NULL, list, NULL, 0, &context, NULL);
}

// 3276
Qnn_ErrorHandle_t native_kv_cache(Qnn qnn);
Qnn_ErrorHandle_t native_kv_cache(Qnn qnn) {
  Qnn_Tensor_t tensor = QNN_TENSOR_INIT;
  tensor.v1.dataFormat = QNN_TENSOR_DATA_FORMAT_HMX_WEIGHT_LAYOUT;
  return qnn->tensorCreateGraphTensor(NULL, &tensor);
}

// 3412
Qnn_ErrorHandle_t deferred_graphs(Qnn qnn);
Qnn_ErrorHandle_t deferred_graphs(Qnn qnn) {
  QnnContext_Config_t config = QNN_CONTEXT_CONFIG_INIT;
  config.option = QNN_CONTEXT_CONFIG_OPTION_DEFER_GRAPH_INIT;
  config.isGraphInitDeferred = 1;
  const QnnContext_Config_t* list[] = {&config, NULL};
  Qnn_ContextHandle_t context = NULL;
  return qnn->contextCreateFromBinary(NULL, NULL, list, NULL, 0, &context, NULL);
}

// 3462
Qnn_ErrorHandle_t buffers_of_the_client(Qnn qnn);
Qnn_ErrorHandle_t buffers_of_the_client(Qnn qnn) {
  Qnn_ContextBinaryCallback_t callback;
  Qnn_ContextHandle_t context = NULL;
  memset(&callback, 0, sizeof(callback));
  callback.type = QNN_CONTEXT_CALLBACK_DMA_BUFFER;
  callback.dmaBufferCallback.version = QNN_CONTEXT_CALLBACK_DMA_BUFFER_VERSION_1;
  callback.dmaBufferCallback.v1.dataProvide = provide;
  callback.dmaBufferCallback.v1.dataRelease = release;
  callback.dmaBufferCallback.v1.notifyParam = NULL;
  return qnn->contextCreateFromBinaryWithCallback(NULL, NULL, NULL, &callback, NULL, 0, &context, NULL, NULL);
}
