// SPDX-License-Identifier: Apache-2.0
// A program's side of the messages with the device that HEXFORGE_DEVICE names (src/hexforge/addons/device/shared has
// the other): a length of four bytes, then one JSON object. Any number of threads may ask at once.
#pragma once
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "QnnCommon.h"
#include "capi/compiler.h"
#include "capi/system_calls/system_calls.h"
#include "context/json.h"

namespace hexforge::capi {

// A message to the device: its fields follow.
class DeviceMessage {
 public:
  explicit DeviceMessage(std::string_view message) { json_.key("do").text(message); }
  Json& key(std::string_view name) { return json_.key(name); }
  Json& object() { return json_; }  // that goes on where the last value ended
  const std::string& fields() const { return json_.done(); }

 private:
  Json json_;
};

class DeviceConnection {
 public:
  // Says who this is; throws Failure where no device answers, or it lets nobody in.
  DeviceConnection(const std::string& address, const std::string& about);
  ~DeviceConnection();
  DeviceConnection(const DeviceConnection&) = delete;
  DeviceConnection& operator=(const DeviceConnection&) = delete;

  // What the device answers; its error is a Failure, one about the message itself with the code `invalid`.
  hexforge::Json ask(const DeviceMessage& message, Qnn_ErrorHandle_t invalid);
  const hexforge::Json& welcome() const { return welcome_; }
  bool is_open() const;

 private:
  std::string read_token(const std::string& address) const;
  hexforge::Json next_message();
  void read_answers();

  LocalSocket socket_;
  hexforge::Json welcome_;
  mutable std::mutex mutex_;
  std::mutex send_mutex_;
  std::condition_variable came_;
  std::map<std::int64_t, hexforge::Json> answers_;
  std::int64_t last_ = 0;
  bool over_ = false;
  std::thread reader_;
};

}  // namespace hexforge::capi
