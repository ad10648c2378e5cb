// SPDX-License-Identifier: Apache-2.0
#include "capi/simulated/process.h"

#include <atomic>
#include <cstdlib>

#include "capi/failure.h"
#include "hexforge_device.h"

namespace hexforge::capi {
namespace {

constexpr std::int64_t kQuietMs = 5;  // real time without a question, after which a program waits for what it began

std::mutex processes_mutex;
std::shared_ptr<SimulatedProcess>& process_of(bool is_signed) {
  static auto* processes = new std::shared_ptr<SimulatedProcess>[2];
  return processes[is_signed ? 1 : 0];
}

std::int64_t now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

// Who this is: HEXFORGE_PROCESS names the process, HEXFORGE_PRIVILEGED=1 gives it what apps of a phone's vendor may do.
std::string about_this_program(bool is_signed) {
  const char* name = std::getenv("HEXFORGE_PROCESS");
  const char* privileged = std::getenv("HEXFORGE_PRIVILEGED");
  const std::string number = std::to_string(process_number());
  std::string own = name && *name ? name : "program " + number;
  if (is_signed) own += " (signed)";
  Json json;
  json.key("name").text(own).key("signed").boolean(is_signed);
  json.key("privileged").boolean(privileged && *privileged == '1');
  json.key("program").text("c " + number).key("pid").number(process_number());
  return json.done();
}

}  // namespace

SimulatedProcess::SimulatedProcess(const std::string& address, bool is_signed)
    : owner_(process_number()), connection_(address, about_this_program(is_signed)) {}

std::shared_ptr<SimulatedProcess> SimulatedProcess::attached(bool is_signed) {
  const char* address = std::getenv("HEXFORGE_DEVICE");
  if (!address || !*address) return nullptr;
  std::lock_guard lock(processes_mutex);
  auto& process = process_of(is_signed);
  if (process && !process->is_of_this_program()) {
    // A fork: the connection and its thread are the other program's.
    new std::shared_ptr<SimulatedProcess>(std::move(process));
    process = nullptr;
  }
  if (!process || !process->connection_.is_open()) process = std::make_shared<SimulatedProcess>(address, is_signed);
  return process;
}

bool SimulatedProcess::is_of_this_program() const { return owner_ == process_number(); }

void SimulatedProcess::end_all() {
  std::lock_guard lock(processes_mutex);
  for (const bool is_signed : {false, true}) {
    auto ended = std::move(process_of(is_signed));
    process_of(is_signed) = nullptr;
    if (!ended || !ended->is_of_this_program() || !ended->connection_.is_open()) continue;
    try {
      ended->ask(DeviceMessage("close"), QNN_COMMON_ERROR_SYSTEM_COMMUNICATION);
    } catch (const Failure&) {
      continue;  // it is gone already
    }
  }
}

std::uint32_t SimulatedProcess::soc_model() const {
  return static_cast<std::uint32_t>(connection_.welcome()["soc_model"].integer());
}
bool SimulatedProcess::has_signed_image() const { return connection_.welcome()["signed_image"].is_true(); }
const std::string& SimulatedProcess::soc() const { return connection_.welcome()["soc"].text(); }

hexforge::Json SimulatedProcess::ask(const DeviceMessage& message, Qnn_ErrorHandle_t invalid) {
  asked_ms_ = now_ms();
  hexforge::Json answer = connection_.ask(message, invalid);
  asked_ms_ = now_ms();
  return answer;
}

std::int64_t SimulatedProcess::begin(const DeviceMessage& message, Qnn_ErrorHandle_t invalid) {
  return ask(message, invalid)["call"].integer();
}

hexforge::Json SimulatedProcess::wait(std::int64_t call, Qnn_ErrorHandle_t invalid) {
  DeviceMessage message("wait");
  message.key("call").number(call);
  return ask(message, invalid);
}

hexforge::Json SimulatedProcess::wait_when_quiet(std::int64_t call, Qnn_ErrorHandle_t invalid) {
  std::lock_guard turn(quiet_mutex_);
  while (now_ms() - asked_ms_ < kQuietMs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return wait(call, invalid);
}

hexforge::Json SimulatedProcess::whole(const DeviceMessage& message, Qnn_ErrorHandle_t invalid) {
  return wait(begin(message, invalid), invalid);
}

void SimulatedProcess::abort(std::int64_t call) {
  DeviceMessage message("abort");
  message.key("call").number(call);
  ask(message, QNN_COMMON_ERROR_INVALID_ARGUMENT);
}

}  // namespace hexforge::capi

extern "C" QNN_API Qnn_ErrorHandle_t hexforge_device_call(const char* message, const char* fields) {
  using namespace hexforge::capi;
  return guarded(
      "hexforge_device_call", [] { return std::shared_ptr<Logger>(); },
      [&] {
        const auto process = SimulatedProcess::attached();
        if (!process) throw Failure(QNN_COMMON_ERROR_NOT_SUPPORTED, "HEXFORGE_DEVICE names no device");
        constexpr auto invalid = static_cast<Qnn_ErrorHandle_t>(QNN_COMMON_ERROR_INVALID_ARGUMENT);
        DeviceMessage asked(required(message, invalid, "message"));
        if (fields && *fields) asked.object().written(fields);
        const hexforge::Json made = process->ask(asked, invalid);
        if (const hexforge::Json* call = made.is_object() ? made.find("call") : nullptr)
          process->wait(call->integer(), invalid);
      });
}
