// SPDX-License-Identifier: Apache-2.0
// This program as a process on the simulated device that HEXFORGE_DEVICE names. What happens there is decided by
// src/hexforge/addons/device alone: the messages are those of qnn_api/calls.csv, which Python programs send, too.
#pragma once
#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "capi/simulated/connection.h"

namespace hexforge::capi {

class SimulatedProcess {
 public:
  // The process of this program, in a signed process domain or not; null where HEXFORGE_DEVICE is not set.
  static std::shared_ptr<SimulatedProcess> attached(bool is_signed = false);
  // Every process of this program ends: its last backend is freed.
  static void end_all();

  explicit SimulatedProcess(const std::string& address, bool is_signed);

  std::uint32_t soc_model() const;
  bool has_signed_image() const;
  const std::string& soc() const;

  // A message that is answered at once; `invalid` is the code for fields that the device cannot read.
  hexforge::Json ask(const DeviceMessage& message, Qnn_ErrorHandle_t invalid);
  // A message whose call takes time of the device: its number, and what it gives when it is over.
  std::int64_t begin(const DeviceMessage& message, Qnn_ErrorHandle_t invalid);
  hexforge::Json wait(std::int64_t call, Qnn_ErrorHandle_t invalid);
  // The same for a call that was begun for later: time passes when the program asks for nothing else, one at a time.
  hexforge::Json wait_when_quiet(std::int64_t call, Qnn_ErrorHandle_t invalid);
  hexforge::Json whole(const DeviceMessage& message, Qnn_ErrorHandle_t invalid);
  void abort(std::int64_t call);

 private:
  bool is_of_this_program() const;

  const int owner_;
  DeviceConnection connection_;
  std::mutex quiet_mutex_;
  std::atomic<std::int64_t> asked_ms_{0};
};

}  // namespace hexforge::capi
