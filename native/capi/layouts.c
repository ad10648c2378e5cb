// SPDX-License-Identifier: Apache-2.0
// Sizes and places of what clients and libraries hand each other, as docs/c_api.md has them with their sources.
#include <stddef.h>

#include "HTP/QnnHtpContext.h"
#include "HTP/QnnHtpDevice.h"
#include "HTP/QnnHtpGraph.h"
#include "HTP/QnnHtpMem.h"
#include "QnnInterface.h"
#include "System/QnnSystemInterface.h"

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)
#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field)

#if defined(__LP64__)
SIZE(Qnn_Version_t, 12);
SIZE(Qnn_ApiVersion_t, 24);
SIZE(Qnn_ScaleOffset_t, 8);
SIZE(Qnn_AxisScaleOffset_t, 16);
AT(Qnn_AxisScaleOffset_t, scaleOffset, 8);
SIZE(Qnn_BwScaleOffset_t, 12);
SIZE(Qnn_BwAxisScaleOffset_t, 32);
AT(Qnn_BwAxisScaleOffset_t, scales, 16);
AT(Qnn_BwAxisScaleOffset_t, offsets, 24);
SIZE(Qnn_BlockwiseExpansion_t, 40);
AT(Qnn_BlockwiseExpansion_t, scaleOffsets, 8);
AT(Qnn_BlockwiseExpansion_t, blockScaleStorageType, 24);
AT(Qnn_BlockwiseExpansion_t, blocksScale8, 32);
SIZE(Qnn_QuantizeParams_t, 40);
AT(Qnn_QuantizeParams_t, scaleOffsetEncoding, 8);
SIZE(Qnn_ClientBuffer_t, 16);
SIZE(Qnn_TensorV1_t, 112);
AT(Qnn_TensorV1_t, name, 8);
AT(Qnn_TensorV1_t, type, 16);
AT(Qnn_TensorV1_t, dataType, 24);
AT(Qnn_TensorV1_t, quantizeParams, 32);
AT(Qnn_TensorV1_t, rank, 72);
AT(Qnn_TensorV1_t, dimensions, 80);
AT(Qnn_TensorV1_t, memType, 88);
AT(Qnn_TensorV1_t, clientBuf, 96);
SIZE(Qnn_TensorV2_t, 136);
AT(Qnn_TensorV2_t, clientBuf, 96);
AT(Qnn_TensorV2_t, isDynamicDimensions, 112);
AT(Qnn_TensorV2_t, sparseParams, 120);
AT(Qnn_TensorV2_t, isProduced, 132);
SIZE(Qnn_Tensor_t, 144);
AT(Qnn_Tensor_t, v1, 8);
SIZE(Qnn_Scalar_t, 16);
SIZE(Qnn_Param_t, 160);
AT(Qnn_Param_t, tensorParam, 16);
SIZE(Qnn_OpConfig_t, 80);
AT(Qnn_OpConfigV1_t, params, 32);
AT(Qnn_OpConfigV1_t, outputTensors, 64);
SIZE(QnnBackend_Config_t, 16);
SIZE(QnnDevice_Config_t, 16);
SIZE(QnnDevice_CoreInfo_t, 24);
SIZE(QnnDevice_HardwareDeviceInfo_t, 40);
AT(QnnDevice_HardwareDeviceInfo_t, v1.cores, 24);
AT(QnnDevice_HardwareDeviceInfo_t, v1.deviceInfoExtension, 32);
SIZE(QnnDevice_PlatformInfo_t, 24);
SIZE(QnnContext_Config_t, 16);
SIZE(QnnContext_Params_t, 56);
SIZE(QnnContext_Buffer_t, 32);
SIZE(QnnGraph_Config_t, 16);
SIZE(QnnProfile_EventData_t, 24);
SIZE(QnnProfile_ExtendedEventData_t, 56);
AT(QnnProfile_ExtendedEventData_t, v1.value, 16);
AT(QnnProfile_ExtendedEventData_t, v1.timestamp, 40);
AT(QnnProfile_ExtendedEventData_t, v1.identifier, 48);
SIZE(Qnn_MemDescriptor_t, 48);
AT(Qnn_MemDescriptor_t, ionInfo, 32);
SIZE(QnnMemHtp_Descriptor_t, 32);
AT(QnnMemHtp_Descriptor_t, sharedBufferConfig, 16);
SIZE(QnnHtpDevice_CustomConfig_t, 16);
AT(QnnHtpDevice_CustomConfig_t, socModel, 8);
AT(QnnHtpDevice_CustomConfig_t, arch.arch, 12);
SIZE(QnnHtpDevice_DeviceInfoExtension_t, 32);
SIZE(QnnHtpDevice_Infrastructure_t, 40);
SIZE(QnnHtpPerfInfrastructure_DcvsV3_t, 64);
SIZE(QnnHtpPerfInfrastructure_PowerConfig_t, 68);
SIZE(QnnHtpGraph_CustomConfig_t, 32);
AT(QnnHtpGraph_CustomConfig_t, optimizationOption, 8);
SIZE(QnnHtpContext_CustomConfig_t, 24);
AT(QnnHtpContext_CustomConfig_t, groupRegistration, 8);
SIZE(QnnInterface_Implementation_t, 69 * 8);
AT(QnnInterface_Implementation_t, contextCreateFromBinaryWithSignal, 440);
AT(QnnInterface_Implementation_t, contextCreateFromBinaryListAsync, 448);
AT(QnnInterface_t, apiVersion, 16);
AT(QnnInterface_t, v2, 40);
SIZE(QnnSystemContext_GraphInfo_t, 88);
SIZE(QnnSystemContext_BinaryInfo_t, 144);
AT(QnnSystemContext_BinaryInfo_t, contextBinaryInfoV1.numGraphs, 8 + 112);
AT(QnnSystemContext_BinaryInfo_t, contextBinaryInfoV1.graphs, 8 + 120);
AT(QnnSystemInterface_t, v1, 32);
AT(QnnSystemInterface_Implementation_t, systemContextFree, 24);
AT(QnnSystemInterface_Implementation_t, systemProfileCreateSerializationTarget, 13 * 8);
#endif

typedef int hexforge_layouts_hold;
