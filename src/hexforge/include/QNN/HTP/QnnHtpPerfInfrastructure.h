// SPDX-License-Identifier: Apache-2.0
// Votes for clocks, and how the CPU waits for the HTP.
// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.
#ifndef QNNHTPPERFINFRASTRUCTURE_H
#define QNNHTPPERFINFRASTRUCTURE_H

#include "QnnCommon.h"

#ifdef __cplusplus
extern "C" {
#endif

// How a call of this component ends.
typedef enum {
  QNN_HTP_PERF_INFRASTRUCTURE_NO_ERROR = QNN_SUCCESS,
  QNN_HTP_PERF_INFRASTRUCTURE_MIN_ERROR = 13000,
  QNN_HTP_PERF_INFRASTRUCTURE_MAX_ERROR = 13999,
  QNN_HTP_PERF_INFRASTRUCTURE_ERROR_INVALID_HANDLE_PTR = 13000,
  QNN_HTP_PERF_INFRASTRUCTURE_ERROR_INVALID_INPUT = 13001,
  QNN_HTP_PERF_INFRASTRUCTURE_ERROR_UNSUPPORTED_CONFIG = 13002,
  QNN_HTP_PERF_INFRASTRUCTURE_ERROR_TRANSPORT = 13003,
  QNN_HTP_PERF_INFRASTRUCTURE_ERROR_UNSUPPORTED = 13004,
  QNN_HTP_PERF_INFRASTRUCTURE_ERROR_MEM_ALLOC = 13005,
  QNN_HTP_PERF_INFRASTRUCTURE_ERROR_FAILED = 13006,
  QNN_HTP_PERF_INFRASTRUCTURE_ERROR_UNDEFINED = 0x7FFFFFFF
} QnnHtpPerfInfrastructure_Error_t;

typedef enum {
  QNN_HTP_PERF_INFRASTRUCTURE_POWERMODE_ADJUST_UP_DOWN = 0x1,
  QNN_HTP_PERF_INFRASTRUCTURE_POWERMODE_ADJUST_ONLY_UP = 0x2,
  QNN_HTP_PERF_INFRASTRUCTURE_POWERMODE_POWER_SAVER_MODE = 0x4,
  QNN_HTP_PERF_INFRASTRUCTURE_POWERMODE_POWER_SAVER_AGGRESSIVE_MODE = 0x8,
  QNN_HTP_PERF_INFRASTRUCTURE_POWERMODE_PERFORMANCE_MODE = 0x10,
  QNN_HTP_PERF_INFRASTRUCTURE_POWERMODE_DUTY_CYCLE_MODE = 0x20,
  QNN_HTP_PERF_INFRASTRUCTURE_POWERMODE_UNKNOWN = 0x7FFFFFFF
} QnnHtpPerfInfrastructure_PowerMode_t;

typedef enum {
  QNN_HTP_PERF_INFRASTRUCTURE_CLK_PERF_HIGH = 0,
  QNN_HTP_PERF_INFRASTRUCTURE_CLK_PERF_LOW = 1
} QnnHtpPerfInfrastructure_ClkPerfMode_t;

typedef enum {
  DCVS_VOLTAGE_CORNER_DISABLE = 0x10,
  DCVS_VOLTAGE_VCORNER_MIN_VOLTAGE_CORNER = 0x20,
  DCVS_VOLTAGE_VCORNER_SVS2 = 0x30,
  DCVS_VOLTAGE_VCORNER_SVS = 0x40,
  DCVS_VOLTAGE_VCORNER_SVS_PLUS = 0x50,
  DCVS_VOLTAGE_VCORNER_NOM = 0x60,
  DCVS_VOLTAGE_VCORNER_NOM_PLUS = 0x70,
  DCVS_VOLTAGE_VCORNER_TURBO = 0x80,
  DCVS_VOLTAGE_VCORNER_TURBO_PLUS = 0x90,
  DCVS_VOLTAGE_VCORNER_TURBO_L2 = 0x92,
  DCVS_VOLTAGE_VCORNER_TURBO_L3 = 0x93,
  DCVS_VOLTAGE_VCORNER_MAX_VOLTAGE_CORNER = 0xA0,
  DCVS_VOLTAGE_VCORNER_UNKNOWN = 0x7FFFFFFF
} QnnHtpPerfInfrastructure_VoltageCorner_t;

typedef enum {
  QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_DCVS_V3 = 1,
  QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_RPC_CONTROL_LATENCY = 2,
  QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_RPC_POLLING_TIME = 3,
  QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_HMX_V2 = 0x4846002B,
  QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_ADAPTIVE_POLLING_TIME = 0x4846002C,
  QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_UNKNOWN = 0x7FFFFFFF
} QnnHtpPerfInfrastructure_PowerConfigOption_t;

typedef enum {
  DCVS_EXP_VCORNER_DISABLE = 0x4846002D,
  DCVS_EXP_VCORNER_MIN = 0x4846002E,
  DCVS_EXP_VCORNER_LOW_SVS_D2 = 0x4846002F,
  DCVS_EXP_VCORNER_LOW_SVS_D1 = 0x48460030,
  DCVS_EXP_VCORNER_LOW_SVS = 0x48460031,
  DCVS_EXP_VCORNER_SVS = 0x48460032,
  DCVS_EXP_VCORNER_SVS_L1 = 0x48460033,
  DCVS_EXP_VCORNER_NOM = 0x48460034,
  DCVS_EXP_VCORNER_NOM_L1 = 0x48460035,
  DCVS_EXP_VCORNER_TUR = 0x48460036,
  DCVS_EXP_VCORNER_TUR_L1 = 0x48460037,
  DCVS_EXP_VCORNER_TUR_L2 = 0x48460038,
  DCVS_EXP_VCORNER_TUR_L3 = 0x48460039,
  DCVS_EXP_VCORNER_MAX = 0x4846003A,
  DCVS_EXP_VCORNER_UNKNOWN = 0x7FFFFFFF
} QnnHtpPerfInfrastructure_ExpVoltageCorner_t;

typedef enum {
  QNN_HTP_PERF_INFRASTRUCTURE_MEMORY_CONFIGOPTION_GROW_SIZE = 0x4846003B,
  QNN_HTP_PERF_INFRASTRUCTURE_MEMORY_CONFIGOPTION_UNKNOWN = 0x7FFFFFFF
} QnnHtpPerfInfrastructure_MemoryConfigOption_t;

// A vote for the core (HVX) and the bus.
typedef struct {
  uint32_t contextId;  // the power config id
  uint32_t setDcvsEnable;
  uint32_t dcvsEnable;
  QnnHtpPerfInfrastructure_PowerMode_t powerMode;
  uint32_t setSleepLatency;
  uint32_t sleepLatency;  // microseconds, 10 to 65535
  uint32_t setSleepDisable;
  uint32_t sleepDisable;
  uint32_t setBusParams;
  QnnHtpPerfInfrastructure_VoltageCorner_t busVoltageCornerMin;
  QnnHtpPerfInfrastructure_VoltageCorner_t busVoltageCornerTarget;
  QnnHtpPerfInfrastructure_VoltageCorner_t busVoltageCornerMax;
  uint32_t setCoreParams;
  QnnHtpPerfInfrastructure_VoltageCorner_t coreVoltageCornerMin;
  QnnHtpPerfInfrastructure_VoltageCorner_t coreVoltageCornerTarget;
  QnnHtpPerfInfrastructure_VoltageCorner_t coreVoltageCornerMax;
} QnnHtpPerfInfrastructure_DcvsV3_t;

// A vote for the matrix unit.
typedef struct {
  uint32_t hmxPickDefault;  // 1: the vote follows that of the core
  QnnHtpPerfInfrastructure_ExpVoltageCorner_t hmxVoltageCornerMin;
  QnnHtpPerfInfrastructure_ExpVoltageCorner_t hmxVoltageCornerTarget;
  QnnHtpPerfInfrastructure_ExpVoltageCorner_t hmxVoltageCornerMax;
  QnnHtpPerfInfrastructure_ClkPerfMode_t hmxPerfMode;
} QnnHtpPerfInfrastructure_HmxV2_t;

typedef struct {
  QnnHtpPerfInfrastructure_PowerConfigOption_t option;
  union {
    QnnHtpPerfInfrastructure_DcvsV3_t dcvsV3Config;
    uint32_t rpcControlLatencyConfig;  // microseconds
    uint32_t rpcPollingTimeConfig;  // microseconds, 0 to 10000
    QnnHtpPerfInfrastructure_HmxV2_t hmxV2Config;
    uint32_t adaptivePollingTimeConfig;  // microseconds
  };
} QnnHtpPerfInfrastructure_PowerConfig_t;
#define QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIG_INIT {QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_UNKNOWN, {{0, 0, \
  0, QNN_HTP_PERF_INFRASTRUCTURE_POWERMODE_UNKNOWN, 0, 0, 0, 0, 0, DCVS_VOLTAGE_VCORNER_UNKNOWN, \
  DCVS_VOLTAGE_VCORNER_UNKNOWN, DCVS_VOLTAGE_VCORNER_UNKNOWN, 0, DCVS_VOLTAGE_VCORNER_UNKNOWN, \
  DCVS_VOLTAGE_VCORNER_UNKNOWN, DCVS_VOLTAGE_VCORNER_UNKNOWN}}}

typedef struct {
  QnnHtpPerfInfrastructure_MemoryConfigOption_t option;
  union {
    uint32_t memGrowSizeConfig;
  };
} QnnHtpPerfInfrastructure_MemoryConfig_t;

typedef Qnn_ErrorHandle_t (*QnnHtpPerfInfrastructure_CreatePowerConfigIdFn_t)(uint32_t deviceId, uint32_t coreId,
    uint32_t* powerConfigId);

typedef Qnn_ErrorHandle_t (*QnnHtpPerfInfrastructure_DestroyPowerConfigIdFn_t)(uint32_t powerConfigId);

typedef Qnn_ErrorHandle_t (*QnnHtpPerfInfrastructure_SetPowerConfigFn_t)(uint32_t powerConfigId, const
    QnnHtpPerfInfrastructure_PowerConfig_t** config);

typedef Qnn_ErrorHandle_t (*QnnHtpPerfInfrastructure_SetMemoryConfigFn_t)(uint32_t deviceId, uint32_t coreId, const
    QnnHtpPerfInfrastructure_MemoryConfig_t** config);

#ifdef __cplusplus
}
#endif

#endif
