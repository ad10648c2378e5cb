// SPDX-License-Identifier: Apache-2.0
// QnnDevice, and the HTP's infrastructure: power configs and votes.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "HTP/QnnHtpDevice.h"
#include "capi/functions.h"
#include "capi/simulated/power.h"
#include "capi/simulated/process.h"

namespace hexforge::capi {
namespace {

// The chips that hexforge knows (hexforge/chips/soc.py).
struct Chip {
  std::uint32_t soc_model, arch, vtcm_mb, cores, hvx_threads;
  bool dlbc;
};
constexpr Chip kChips[] = {
#include "chip_table.inc"
};
constexpr std::uint32_t kDefaultSocModel = QNN_SOC_MODEL_SM8550;  // where neither a chip nor an architecture is named
constexpr std::uint32_t kMostCores = 8;

// The chip of a device's options: by its number, else the first of its architecture.
Chip chip_of(const Options& options) {
  const auto number = [&](const char* key) {
    const auto found = options.find(key);
    return found == options.end() ? 0u : static_cast<std::uint32_t>(std::strtoul(found->second.c_str(), nullptr, 10));
  };
  const std::uint32_t model = number("soc_model"), arch = number("htp_arch");
  for (const Chip& each : kChips)
    if (each.soc_model == (model || arch ? model : kDefaultSocModel)) return each;
  for (const Chip& each : kChips)
    if (each.arch == arch) return {0, arch, each.vtcm_mb, 1, each.hvx_threads, each.dlbc};
  return {model, arch, 8, 1, 4, true};
}

Qnn_ErrorHandle_t create_power_config_id(std::uint32_t device, std::uint32_t core, std::uint32_t* id) {
  return guarded("createPowerConfigId", no_logger, [&] {
    required(id, QNN_HTP_PERF_INFRASTRUCTURE_ERROR_INVALID_HANDLE_PTR, "powerConfigId");
    *id = Votes::all().create(device, core, chip_of(chip_options(kHtp)).cores);
  });
}
Qnn_ErrorHandle_t destroy_power_config_id(std::uint32_t id) {
  return guarded("destroyPowerConfigId", no_logger, [&] { Votes::all().destroy(id); });
}
Qnn_ErrorHandle_t set_power_config(std::uint32_t id, const QnnHtpPerfInfrastructure_PowerConfig_t** configs) {
  return guarded("setPowerConfig", no_logger, [&] {
    required(configs, QNN_HTP_PERF_INFRASTRUCTURE_ERROR_INVALID_INPUT, "config");
    Votes::all().set(id, configs);
  });
}
Qnn_ErrorHandle_t set_memory_config(std::uint32_t, std::uint32_t, const QnnHtpPerfInfrastructure_MemoryConfig_t**) {
  return QNN_HTP_PERF_INFRASTRUCTURE_ERROR_UNSUPPORTED;
}

QnnHtpDevice_Infrastructure_t infrastructure = {
    QNN_HTP_DEVICE_INFRASTRUCTURE_TYPE_PERF,
    {{create_power_config_id, destroy_power_config_id, set_power_config, set_memory_config}}};

// A configuration's word by its place. Clients of older interfaces (ExecuTorch 1.5) have the value behind the option,
// at byte 4, those of newer ones (onnxruntime-qnn 2.7) at byte 8: the place that has a chip or an architecture is
// meant.
std::uint32_t word_of(const QnnHtpDevice_CustomConfig_t& config, std::size_t place) {
  std::uint32_t word = 0;
  std::memcpy(&word, reinterpret_cast<const std::byte*>(&config) + place * sizeof(word), sizeof(word));
  return word;
}
bool is_chip(std::uint32_t model) {
  return std::any_of(std::begin(kChips), std::end(kChips), [&](const Chip& each) { return each.soc_model == model; });
}
bool is_arch(std::uint32_t arch) {
  return std::any_of(std::begin(kChips), std::end(kChips), [&](const Chip& each) { return each.arch == arch; });
}

void apply_custom(Device& device, const QnnHtpDevice_CustomConfig_t& config, bool& is_signed) {
  switch (static_cast<std::uint32_t>(config.option)) {
    case QNN_HTP_DEVICE_CONFIG_OPTION_SOC: {
      const bool older = !is_chip(word_of(config, 2)) && is_chip(word_of(config, 1));
      const std::uint32_t model = word_of(config, older ? 1 : 2);
      if (model && !is_chip(model))
        throw Failure(QNN_COMMON_ERROR_SYSTEM, "there is no chip with the model number " + std::to_string(model) +
                                                   "; `hexforge socs` lists them");
      if (model) device.options["soc_model"] = std::to_string(model);
      return;
    }
    case QNN_HTP_DEVICE_CONFIG_OPTION_ARCH: {
      const std::uint32_t arch = word_of(config, is_arch(word_of(config, 2)) ? 2 : 3);
      if (arch != QNN_HTP_DEVICE_ARCH_NONE) device.options["htp_arch"] = std::to_string(arch);
      return;
    }
    case QNN_HTP_DEVICE_CONFIG_OPTION_SIGNEDPD:  // numbers and times are the same in both domains
      // Clients of older interfaces have the flag at byte 8, behind the device's number at byte 4.
      is_signed = (word_of(config, 2) & 0xFF) == 1 || (word_of(config, 3) & 0xFF) == 1;
      return;
    default:
      throw Failure(QNN_DEVICE_ERROR_INVALID_CONFIG,
                    "device option " + std::to_string(config.option) + " of the HTP is not known here");
  }
}

void apply_platform(Device& device, const QnnDevice_PlatformInfo_t& given) {
  if (given.version != QNN_DEVICE_PLATFORM_INFO_VERSION_1 || !given.v1.numHwDevices || !given.v1.hwDevices) return;
  const QnnDevice_HardwareDeviceInfo_t& hardware_info = given.v1.hwDevices[0];
  if (hardware_info.version != QNN_DEVICE_HARDWARE_DEVICE_INFO_VERSION_1 || !hardware_info.v1.deviceInfoExtension)
    return;
  const auto& own = *reinterpret_cast<const QnnHtpDevice_DeviceInfoExtension_t*>(hardware_info.v1.deviceInfoExtension);
  if (own.devType != QNN_HTP_DEVICE_TYPE_ON_CHIP) return;
  if (own.onChipDevice.socModel) device.options["soc_model"] = std::to_string(own.onChipDevice.socModel);
  if (own.onChipDevice.arch) device.options["htp_arch"] = std::to_string(own.onChipDevice.arch);
}

}  // namespace

// Structures that point to one another.
struct Device::Info {
  explicit Info(const Chip& chip)
      : extension{QNN_HTP_DEVICE_TYPE_ON_CHIP,
                  {{chip.vtcm_mb, chip.soc_model, true, chip.dlbc, static_cast<QnnHtpDevice_Arch_t>(chip.arch)}}},
        hardware{QNN_DEVICE_HARDWARE_DEVICE_INFO_VERSION_1,
                 {{0, 0, std::min(chip.cores, kMostCores), cores,
                   reinterpret_cast<QnnDevice_DeviceInfoExtension_t>(&extension)}}},
        platform{QNN_DEVICE_PLATFORM_INFO_VERSION_1, {{1, &hardware}}} {
    for (std::uint32_t i = 0; i < kMostCores; ++i) cores[i] = {QNN_DEVICE_CORE_INFO_VERSION_1, {{i, 0, nullptr}}};
  }
  Info(const Info&) = delete;
  Info& operator=(const Info&) = delete;
  QnnHtpDevice_DeviceInfoExtension_t extension;
  QnnDevice_CoreInfo_t cores[kMostCores];
  QnnDevice_HardwareDeviceInfo_t hardware;
  QnnDevice_PlatformInfo_t platform;
};

const QnnDevice_PlatformInfo_t* Device::info() {
  std::lock_guard lock(mutex_);
  if (!info_) info_ = std::make_shared<Info>(chip_of(options));
  return &info_->platform;
}

std::optional<std::int64_t> Device::arch() const {
  if (options.empty()) return std::nullopt;
  const std::uint32_t arch = chip_of(options).arch;
  return arch ? std::optional<std::int64_t>(arch) : std::nullopt;
}

namespace {

// The simulated device where no client asks for a chip.
const QnnDevice_PlatformInfo_t* default_platform() {
  static Device* device = new Device(kHtp, nullptr);
  return device->info();
}

// The device becomes that of HEXFORGE_DEVICE, which must be the chip that is asked for.
void attach(Device& device, bool is_signed) {
  device.simulated = SimulatedProcess::attached(is_signed);
  if (!device.simulated) return;
  const std::string model = std::to_string(device.simulated->soc_model());
  if (const auto asked = device.options.find("soc_model"); asked != device.options.end() && asked->second != model)
    throw Failure(QNN_COMMON_ERROR_PLATFORM_NOT_SUPPORTED, "HEXFORGE_DEVICE: the device is " + device.simulated->soc() +
                                                               ", and chip " + asked->second +
                                                               " is asked for; serve that one");
  device.options["soc_model"] = model;
}

std::mutex chips_mutex;
std::vector<std::pair<const Library*, std::weak_ptr<Device>>>& chips() {
  static auto* all = new std::vector<std::pair<const Library*, std::weak_ptr<Device>>>;
  return *all;
}

std::shared_ptr<Device> device_of(Qnn_DeviceHandle_t handle) {
  auto device = Handles::all().find<Device>(handle);
  if (!device)
    throw Failure(QNN_DEVICE_ERROR_INVALID_HANDLE, "there is no such device: it was freed, or never created");
  return device;
}

}  // namespace

std::uint32_t hvx_threads_of(const Options& options) { return chip_of(options).hvx_threads; }

Options chip_options(const Library& library) {
  std::lock_guard lock(chips_mutex);
  auto& all = chips();
  while (!all.empty() && all.back().second.expired()) all.pop_back();
  for (auto each = all.rbegin(); each != all.rend(); ++each)
    if (const auto device = each->second.lock(); device && each->first == &library) return device->options;
  return {};
}

Qnn_ErrorHandle_t device_create(const Library& library, Qnn_LogHandle_t logger, const QnnDevice_Config_t** config,
                                Qnn_DeviceHandle_t* device) {
  std::shared_ptr<Logger> log;
  return guarded(
      "QnnDevice_create", [&] { return log; },
      [&] {
        required(device, QNN_DEVICE_ERROR_INVALID_ARGUMENT, "device");
        if (logger) log = Handles::all().find<Logger>(logger);
        if (logger && !log) throw Failure(QNN_DEVICE_ERROR_INVALID_ARGUMENT, "there is no such logger");
        if (library.id != QNN_BACKEND_ID_HTP && library.id != QNN_BACKEND_ID_SAVER)
          throw Failure(QNN_DEVICE_ERROR_UNSUPPORTED_FEATURE, "this backend has no devices");
        require_one_library("QnnDevice_create");
        auto made = std::make_shared<Device>(library, log);
        bool is_signed = false;
        for (; config && *config; ++config) {
          if ((*config)->option == QNN_DEVICE_CONFIG_OPTION_CUSTOM && (*config)->customConfig)
            apply_custom(*made, *static_cast<const QnnHtpDevice_CustomConfig_t*>((*config)->customConfig), is_signed);
          else if ((*config)->option == QNN_DEVICE_CONFIG_OPTION_PLATFORM_INFO && (*config)->hardwareInfo)
            apply_platform(*made, *(*config)->hardwareInfo);
          else
            throw Failure(QNN_DEVICE_ERROR_INVALID_CONFIG,
                          "device option " + std::to_string((*config)->option) + " is not known");
        }
        if (library.id == QNN_BACKEND_ID_HTP) attach(*made, is_signed);
        {
          std::lock_guard lock(chips_mutex);
          chips().emplace_back(&library, made);
        }
        *device = Handles::all().add(std::move(made));
      });
}

Qnn_ErrorHandle_t device_get_platform_info(const Library& library, Qnn_LogHandle_t,
                                           const QnnDevice_PlatformInfo_t** platform_info) {
  return guarded("QnnDevice_getPlatformInfo", no_logger, [&] {
    required(platform_info, QNN_DEVICE_ERROR_INVALID_ARGUMENT, "platformInfo");
    if (library.id != QNN_BACKEND_ID_HTP)
      throw Failure(QNN_DEVICE_ERROR_UNSUPPORTED_FEATURE, "this backend has no devices");
    *platform_info = default_platform();
  });
}

Qnn_ErrorHandle_t device_free_platform_info(Qnn_LogHandle_t, const QnnDevice_PlatformInfo_t* platform_info) {
  return guarded("QnnDevice_freePlatformInfo", no_logger, [&] {
    if (platform_info != default_platform())
      throw Failure(QNN_DEVICE_ERROR_INVALID_ARGUMENT, "it is not from getPlatformInfo");
  });
}

Qnn_ErrorHandle_t device_get_infrastructure(const Library& library, QnnDevice_Infrastructure_t* out) {
  return guarded("QnnDevice_getInfrastructure", no_logger, [&] {
    required(out, QNN_DEVICE_ERROR_INVALID_ARGUMENT, "deviceInfra");
    if (library.id != QNN_BACKEND_ID_HTP)
      throw Failure(QNN_DEVICE_ERROR_UNSUPPORTED_FEATURE, "this backend has no votes");
    *out = reinterpret_cast<QnnDevice_Infrastructure_t>(&infrastructure);
  });
}

Qnn_ErrorHandle_t device_set_config(Qnn_DeviceHandle_t handle, const QnnDevice_Config_t**) {
  return guarded("QnnDevice_setConfig", no_logger, [&] {
    device_of(handle);
    throw Failure(QNN_DEVICE_ERROR_UNSUPPORTED_FEATURE, "a device's configuration is set when it is created");
  });
}

Qnn_ErrorHandle_t device_get_info(Qnn_DeviceHandle_t handle, const QnnDevice_PlatformInfo_t** platform_info) {
  return guarded("QnnDevice_getInfo", no_logger, [&] {
    const auto device = device_of(handle);
    *required(platform_info, QNN_DEVICE_ERROR_INVALID_ARGUMENT, "platformInfo") = device->info();
  });
}

Qnn_ErrorHandle_t device_free(Qnn_DeviceHandle_t handle) {
  return guarded("QnnDevice_free", no_logger, [&] {
    const auto device = device_of(handle);
    if (device->contexts > 0)
      throw Failure(QNN_DEVICE_ERROR_ASSOCIATED_TO_CONTEXT, "contexts of the device are not freed yet");
    Handles::all().take<Device>(handle);
  });
}

}  // namespace hexforge::capi
