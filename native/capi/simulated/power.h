// SPDX-License-Identifier: Apache-2.0
// Power config ids, and what is voted for with them: on the simulated device, or checked alone where there is none.
#pragma once
#include <memory>
#include <mutex>
#include <unordered_map>

#include "HTP/QnnHtpDevice.h"
#include "capi/simulated/process.h"

namespace hexforge::capi {

class Votes {
 public:
  static Votes& all();
  std::uint32_t create(std::uint32_t device, std::uint32_t core, std::uint32_t cores);
  void destroy(std::uint32_t id);
  void set(std::uint32_t id, const QnnHtpPerfInfrastructure_PowerConfig_t** configs);

 private:
  struct Id {
    std::shared_ptr<SimulatedProcess> process;  // or null
    std::int64_t on_device = 0;
  };
  Id at(std::uint32_t id) const;

  mutable std::mutex mutex_;
  std::unordered_map<std::uint32_t, Id> ids_;
  std::uint32_t last_ = 0;
};

}  // namespace hexforge::capi
