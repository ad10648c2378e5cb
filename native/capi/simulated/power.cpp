// SPDX-License-Identifier: Apache-2.0
#include "capi/simulated/power.h"

#include <algorithm>
#include <iterator>

#include "capi/failure.h"

namespace hexforge::capi {
namespace {

constexpr auto kInvalid = static_cast<Qnn_ErrorHandle_t>(QNN_HTP_PERF_INFRASTRUCTURE_ERROR_INVALID_INPUT);
constexpr std::size_t kMostIds = 4096;
constexpr std::uint32_t kMostPollingUs = 10000;
constexpr std::uint32_t kLeastSleepUs = 10, kMostSleepUs = 65535;

[[noreturn]] void refuse(const std::string& what) { throw Failure(kInvalid, what); }

Failure no_id(std::uint32_t id) { return {kInvalid, "there is no power config id " + std::to_string(id)}; }

void require_corners(bool given, std::uint32_t least, std::uint32_t target, std::uint32_t most, const char* what) {
  constexpr std::uint32_t known[] = {DCVS_VOLTAGE_CORNER_DISABLE,     DCVS_VOLTAGE_VCORNER_MIN_VOLTAGE_CORNER,
                                     DCVS_VOLTAGE_VCORNER_SVS2,       DCVS_VOLTAGE_VCORNER_SVS,
                                     DCVS_VOLTAGE_VCORNER_SVS_PLUS,   DCVS_VOLTAGE_VCORNER_NOM,
                                     DCVS_VOLTAGE_VCORNER_NOM_PLUS,   DCVS_VOLTAGE_VCORNER_TURBO,
                                     DCVS_VOLTAGE_VCORNER_TURBO_PLUS, DCVS_VOLTAGE_VCORNER_TURBO_L2,
                                     DCVS_VOLTAGE_VCORNER_TURBO_L3,   DCVS_VOLTAGE_VCORNER_MAX_VOLTAGE_CORNER};
  if (!given) return;
  for (const std::uint32_t corner : {least, target, most})
    if (std::find(std::begin(known), std::end(known), corner) == std::end(known))
      refuse(std::string(what) + ": " + std::to_string(corner) + " is no voltage corner");
  if (least > target || target > most) refuse(std::string(what) + "Min, Target and Max are not in this order");
}

void require_mode(std::uint32_t mode) {
  constexpr std::uint32_t most = QNN_HTP_PERF_INFRASTRUCTURE_POWERMODE_DUTY_CYCLE_MODE;
  if (mode > most || mode & (mode - 1)) refuse("powerMode " + std::to_string(mode) + " is none");
}

// A field of DcvsV3 by its name, where the vote sets what it is of: others may hold anything.
class Vote {
 public:
  explicit Vote(Json& json, const char* kind) : json_(json) {
    json_.begin('{').key("kind").text(kind).key("fields").begin('{');
  }
  ~Vote() { json_.end('}').end('}'); }
  Vote(const Vote&) = delete;
  Vote& operator=(const Vote&) = delete;
  void field(const char* name, std::uint32_t value) { json_.key(name).number(value); }

 private:
  Json& json_;
};

void write_dcvs(const QnnHtpPerfInfrastructure_DcvsV3_t& own, std::uint32_t id, Json& json) {
  if (own.contextId && own.contextId != id)
    refuse("contextId " + std::to_string(own.contextId) + " is not the power config id that is voted with, " +
           std::to_string(id));
  if (own.setSleepLatency && (own.sleepLatency < kLeastSleepUs || own.sleepLatency > kMostSleepUs))
    refuse("sleepLatency " + std::to_string(own.sleepLatency) + " is not between 10 and 65535 us");
  require_corners(own.setBusParams, own.busVoltageCornerMin, own.busVoltageCornerTarget, own.busVoltageCornerMax,
                  "busVoltageCorner");
  require_corners(own.setCoreParams, own.coreVoltageCornerMin, own.coreVoltageCornerTarget, own.coreVoltageCornerMax,
                  "coreVoltageCorner");
  require_mode(own.powerMode);
  Vote vote(json, "DcvsV3");
  vote.field("setDcvsEnable", own.setDcvsEnable);
  vote.field("dcvsEnable", own.dcvsEnable);
  if (static_cast<int>(own.powerMode) != 0) vote.field("powerMode", own.powerMode);
  vote.field("setSleepLatency", own.setSleepLatency);
  if (own.setSleepLatency) vote.field("sleepLatency", own.sleepLatency);
  vote.field("setSleepDisable", own.setSleepDisable);
  vote.field("sleepDisable", own.sleepDisable);
  vote.field("setBusParams", own.setBusParams);
  vote.field("setCoreParams", own.setCoreParams);
  if (own.setBusParams) {
    vote.field("busVoltageCornerMin", own.busVoltageCornerMin);
    vote.field("busVoltageCornerTarget", own.busVoltageCornerTarget);
    vote.field("busVoltageCornerMax", own.busVoltageCornerMax);
  }
  if (own.setCoreParams) {
    vote.field("coreVoltageCornerMin", own.coreVoltageCornerMin);
    vote.field("coreVoltageCornerTarget", own.coreVoltageCornerTarget);
    vote.field("coreVoltageCornerMax", own.coreVoltageCornerMax);
  }
}

// A corner of the HMX's scale as the corner of the core that it stands for.
std::uint32_t corner_of(std::uint32_t corner) {
  constexpr std::pair<std::uint32_t, std::uint32_t> corners[] = {
      {DCVS_EXP_VCORNER_DISABLE, DCVS_VOLTAGE_CORNER_DISABLE},
      {DCVS_EXP_VCORNER_MIN, DCVS_VOLTAGE_VCORNER_MIN_VOLTAGE_CORNER},
      {DCVS_EXP_VCORNER_LOW_SVS_D2, DCVS_VOLTAGE_VCORNER_SVS2},
      {DCVS_EXP_VCORNER_LOW_SVS_D1, DCVS_VOLTAGE_VCORNER_SVS2},
      {DCVS_EXP_VCORNER_LOW_SVS, DCVS_VOLTAGE_VCORNER_SVS2},
      {DCVS_EXP_VCORNER_SVS, DCVS_VOLTAGE_VCORNER_SVS},
      {DCVS_EXP_VCORNER_SVS_L1, DCVS_VOLTAGE_VCORNER_SVS_PLUS},
      {DCVS_EXP_VCORNER_NOM, DCVS_VOLTAGE_VCORNER_NOM},
      {DCVS_EXP_VCORNER_NOM_L1, DCVS_VOLTAGE_VCORNER_NOM_PLUS},
      {DCVS_EXP_VCORNER_TUR, DCVS_VOLTAGE_VCORNER_TURBO},
      {DCVS_EXP_VCORNER_TUR_L1, DCVS_VOLTAGE_VCORNER_TURBO_PLUS},
      {DCVS_EXP_VCORNER_TUR_L2, DCVS_VOLTAGE_VCORNER_TURBO_L2},
      {DCVS_EXP_VCORNER_TUR_L3, DCVS_VOLTAGE_VCORNER_TURBO_L3},
      {DCVS_EXP_VCORNER_MAX, DCVS_VOLTAGE_VCORNER_MAX_VOLTAGE_CORNER}};
  for (const auto& [own, core] : corners)
    if (own == corner) return core;
  return corner;  // clients of older headers give the core's own
}

void write_hmx(const QnnHtpPerfInfrastructure_HmxV2_t& own, Json& json) {
  const std::uint32_t least = corner_of(own.hmxVoltageCornerMin), target = corner_of(own.hmxVoltageCornerTarget),
                      most = corner_of(own.hmxVoltageCornerMax);
  require_corners(!own.hmxPickDefault, least, target, most, "hmxVoltageCorner");
  if (own.hmxPerfMode != QNN_HTP_PERF_INFRASTRUCTURE_CLK_PERF_HIGH &&
      own.hmxPerfMode != QNN_HTP_PERF_INFRASTRUCTURE_CLK_PERF_LOW && !own.hmxPickDefault)
    refuse("hmxPerfMode " + std::to_string(own.hmxPerfMode) + " is none");
  Vote vote(json, "HmxV2");
  vote.field("hmxPickDefault", own.hmxPickDefault);
  if (own.hmxPickDefault) return;
  vote.field("hmxPerfMode", own.hmxPerfMode);
  vote.field("hmxVoltageCornerMin", least);
  vote.field("hmxVoltageCornerTarget", target);
  vote.field("hmxVoltageCornerMax", most);
}

void write_vote(const QnnHtpPerfInfrastructure_PowerConfig_t& config, std::uint32_t id, Json& json) {
  switch (config.option) {
    case QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_DCVS_V3: return write_dcvs(config.dcvsV3Config, id, json);
    case QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_RPC_CONTROL_LATENCY:
      Vote(json, "RpcControlLatency").field("us", config.rpcControlLatencyConfig);
      return;
    case QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_RPC_POLLING_TIME:
      if (config.rpcPollingTimeConfig > kMostPollingUs)
        refuse("rpcPollingTimeConfig " + std::to_string(config.rpcPollingTimeConfig) + " is not between 0 and 10000");
      Vote(json, "RpcPollingTime").field("us", config.rpcPollingTimeConfig);
      return;
    case QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_ADAPTIVE_POLLING_TIME:
      Vote(json, "AdaptivePollingTime").field("us", config.adaptivePollingTimeConfig);
      return;
    case QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_HMX_V2: return write_hmx(config.hmxV2Config, json);
    default:
      throw Failure(QNN_HTP_PERF_INFRASTRUCTURE_ERROR_UNSUPPORTED_CONFIG,
                    "power config option " + std::to_string(config.option) + " is not known here");
  }
}

}  // namespace

Votes& Votes::all() {
  static Votes* votes = new Votes;
  return *votes;
}

std::uint32_t Votes::create(std::uint32_t device, std::uint32_t core, std::uint32_t cores) {
  Id made{SimulatedProcess::attached(), 0};
  if (made.process) {
    DeviceMessage message("create_power_id");
    message.key("device_id").number(device);
    message.key("core_id").number(core);
    made.on_device = made.process->ask(message, kInvalid)["power_id"].integer();
  } else if (device || core >= cores) {
    refuse("device " + std::to_string(device) + ", core " + std::to_string(core) + ": there is device 0 with " +
           std::to_string(cores) + " core(s)");
  }
  std::lock_guard lock(mutex_);
  if (ids_.size() >= kMostIds)
    throw Failure(QNN_HTP_PERF_INFRASTRUCTURE_ERROR_MEM_ALLOC, "4096 power config ids are in use; destroy some");
  ids_.emplace(++last_, made);
  return last_;
}

Votes::Id Votes::at(std::uint32_t id) const {
  std::lock_guard lock(mutex_);
  const auto found = ids_.find(id);
  if (found == ids_.end()) throw no_id(id);
  return found->second;
}

void Votes::destroy(std::uint32_t id) {
  const Id own = at(id);
  if (own.process) {
    DeviceMessage message("destroy_power_id");
    message.key("power_id").number(own.on_device);
    own.process->ask(message, kInvalid);
  }
  std::lock_guard lock(mutex_);
  if (!ids_.erase(id)) throw no_id(id);
}

void Votes::set(std::uint32_t id, const QnnHtpPerfInfrastructure_PowerConfig_t** configs) {
  const Id own = at(id);
  DeviceMessage message("vote");
  message.key("power_id").number(own.on_device);
  message.key("configs").begin('[');
  for (; *configs; ++configs) write_vote(**configs, id, message.object());
  message.object().end(']');
  if (own.process) own.process->ask(message, kInvalid);
}

}  // namespace hexforge::capi
