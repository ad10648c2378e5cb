// SPDX-License-Identifier: Apache-2.0
// QnnProfile: what calls took here, and what graphs take on the chip that they were prepared for.
#include <cmath>
#include <cstdlib>
#include <unordered_map>

#include "capi/functions.h"
#include "capi/simulated/context.h"

namespace hexforge::capi {
namespace {

// Events are asked for by their id alone: which profile has one.
class Events {
 public:
  static Events& all() {
    static Events* events = new Events;
    return *events;
  }
  QnnProfile_EventId_t add(const std::weak_ptr<Profile>& profile, std::size_t at) {
    std::lock_guard lock(mutex_);
    places_.emplace(++last_, Place{profile, at});
    return last_;
  }
  void forget(const std::vector<QnnProfile_EventId_t>& ids) {
    std::lock_guard lock(mutex_);
    for (const QnnProfile_EventId_t id : ids) places_.erase(id);
  }
  std::pair<std::shared_ptr<Profile>, std::size_t> find(QnnProfile_EventId_t id) {
    std::lock_guard lock(mutex_);
    const auto found = places_.find(id);
    if (found == places_.end()) return {nullptr, 0};
    return {found->second.profile.lock(), found->second.at};
  }

 private:
  struct Place {
    std::weak_ptr<Profile> profile;
    std::size_t at;
  };
  std::mutex mutex_;
  std::unordered_map<QnnProfile_EventId_t, Place> places_;
  QnnProfile_EventId_t last_ = 0;
};

std::shared_ptr<Profile> profile_of(Qnn_ProfileHandle_t handle) {
  auto profile = Handles::all().find<Profile>(handle);
  if (!profile)
    throw Failure(QNN_PROFILE_ERROR_INVALID_HANDLE, "there is no such profile: it was freed, or never created");
  return profile;
}

// A copy of an event; the texts of what is asked for live in the profile.
std::pair<std::shared_ptr<Profile>, const Profile::Event*> event_of(QnnProfile_EventId_t id) {
  const auto [profile, at] = Events::all().find(id);
  const Profile::Event* event = profile ? profile->event(at) : nullptr;
  if (!event) throw Failure(QNN_PROFILE_ERROR_INVALID_ARGUMENT, "there is no event " + std::to_string(id));
  return {profile, event};
}

std::uint64_t rounded(double value) { return value > 0 ? static_cast<std::uint64_t>(std::llround(value)) : 0; }

}  // namespace

void Profile::clear() {
  std::lock_guard lock(mutex);
  Events::all().forget(ids_);
  ids_.clear();
  roots.clear();
  events_.clear();
}

QnnProfile_EventId_t Profile::add(const std::shared_ptr<Profile>& self, Event event, QnnProfile_EventId_t parent) {
  std::lock_guard lock(self->mutex);
  const std::size_t at = self->events_.size();
  if (self->most_events && at >= self->most_events) return 0;
  self->events_.push_back(std::move(event));
  const QnnProfile_EventId_t id = Events::all().add(self, at);
  self->ids_.push_back(id);
  if (parent) {
    self->events_[Events::all().find(parent).second].subs.push_back(id);
  } else {
    self->roots.push_back(id);
  }
  return id;
}

const Profile::Event* Profile::event(std::size_t at) const {
  std::lock_guard lock(mutex);
  return at < events_.size() ? &events_[at] : nullptr;
}

void profile_call(Qnn_ProfileHandle_t handle, QnnProfile_EventType_t type, std::uint64_t began_us, const char* what,
                  const GraphTimeline* timeline, const ExecutionFacts& facts) {
  if (!handle) return;
  const auto profile = profile_of(handle);
  profile->clear();
  const std::uint64_t now = now_us();
  const std::uint64_t took = timeline ? rounded(timeline->latency_us) : now - began_us;
  const QnnProfile_EventId_t root =
      Profile::add(profile, {type, QNN_PROFILE_EVENTUNIT_MICROSEC, took, now, what, {}}, 0);
  if (!timeline) return;
  std::int64_t cycles = 0;
  for (const GraphTimeline::Row& row : timeline->rows) cycles += row.cycles;
  const auto add = [&](QnnProfile_EventType_t kind, QnnProfile_EventUnit_t unit, std::uint64_t value,
                       const char* name) { return Profile::add(profile, {kind, unit, value, now, name, {}}, root); };
  // The rows of Qualcomm's library, by their names and in their order.
  constexpr auto backend = QNN_PROFILE_EVENTTYPE_BACKEND;
  const std::uint64_t accelerator = rounded(timeline->accelerator_us);
  add(backend, QNN_PROFILE_EVENTUNIT_COUNT, facts.hvx_threads, "Number of HVX threads used");
  add(backend, QNN_PROFILE_EVENTUNIT_MICROSEC, took, "RPC (execute) time");
  add(backend, QNN_PROFILE_EVENTUNIT_MICROSEC, accelerator, "QNN accelerator (execute) time");
  add(backend, QNN_PROFILE_EVENTUNIT_COUNT, facts.yields, "Num times yield occured");
  add(backend, QNN_PROFILE_EVENTUNIT_MICROSEC, facts.vtcm_us, "Time for initial VTCM acquire");
  add(backend, QNN_PROFILE_EVENTUNIT_MICROSEC, facts.power_us, "Time for HVX + HMX power on and acquire");
  add(backend, QNN_PROFILE_EVENTUNIT_CYCLES, static_cast<std::uint64_t>(cycles), "Accelerator (execute) time (cycles)");
  const QnnProfile_EventId_t device = add(QNN_PROFILE_EVENTTYPE_EXECUTE_DEVICE, QNN_PROFILE_EVENTUNIT_MICROSEC,
                                          accelerator, "Accelerator (execute) time");
  if (profile->level < QNN_PROFILE_LEVEL_DETAILED) return;
  for (const GraphTimeline::Row& row : timeline->rows)
    Profile::add(profile,
                 {QNN_PROFILE_EVENTTYPE_NODE,
                  QNN_PROFILE_EVENTUNIT_CYCLES,
                  static_cast<std::uint64_t>(row.cycles),
                  now,
                  row.name,
                  {}},
                 device);
}

void profile_execution(Qnn_ProfileHandle_t profile, std::uint64_t began_us, const Graph& graph,
                       const hexforge::Json* took) {
  ExecutionFacts facts;
  if (profile) {
    const auto context = context_of(graph);
    const auto asked = graph.options.find("num_hvx_threads");
    facts.hvx_threads = asked == graph.options.end() ? hvx_threads_of(context->all_options({}))
                                                     : std::strtoul(asked->second.c_str(), nullptr, 10);
  }
  if (!profile || !took) {
    profile_call(profile, QNN_PROFILE_EVENTTYPE_EXECUTE, began_us, graph.name.c_str(), graph.timeline.get(), facts);
    return;
  }
  GraphTimeline timeline = graph.timeline ? *graph.timeline : GraphTimeline{};
  timeline.latency_us = (*took)["latency_us"].real();
  timeline.accelerator_us = (*took)["accelerator_us"].real();
  facts.yields = static_cast<std::uint64_t>((*took)["yields"].integer());
  facts.vtcm_us = rounded((*took)["moved_us"].real());
  facts.power_us = rounded((*took)["wake_us"].real());
  profile_call(profile, QNN_PROFILE_EVENTTYPE_EXECUTE, began_us, graph.name.c_str(), &timeline, facts);
}

void profile_heap(Qnn_ProfileHandle_t handle, const std::vector<HeapEvent>& events) {
  if (!handle || events.empty()) return;
  const auto profile = profile_of(handle);
  for (const HeapEvent& each : events)
    Profile::add(profile,
                 {QNN_PROFILE_EVENTTYPE_BACKEND,
                  QNN_PROFILE_EVENTUNIT_BYTES,
                  static_cast<std::uint64_t>(each.bytes),
                  now_us(),
                  each.name,
                  {}},
                 profile->roots.empty() ? 0 : profile->roots.front());
}

Qnn_ErrorHandle_t profile_create(Qnn_BackendHandle_t backend, QnnProfile_Level_t level, Qnn_ProfileHandle_t* out) {
  return guarded("QnnProfile_create", no_logger, [&] {
    required(out, QNN_PROFILE_ERROR_INVALID_ARGUMENT, "profile");
    const auto owner = backend_of(backend);
    if (level != QNN_PROFILE_LEVEL_BASIC && level != QNN_PROFILE_LEVEL_DETAILED)
      throw Failure(QNN_PROFILE_ERROR_UNSUPPORTED,
                    "profile level " + std::to_string(level) + " is not known; 1 and 2 are");
    *out = Handles::all().add(std::make_shared<Profile>(owner, level));
  });
}

Qnn_ErrorHandle_t profile_set_config(Qnn_ProfileHandle_t handle, const QnnProfile_Config_t** config) {
  return guarded("QnnProfile_setConfig", no_logger, [&] {
    const auto profile = profile_of(handle);
    for (; config && *config; ++config) switch (static_cast<std::uint32_t>((*config)->option)) {
        case QNN_PROFILE_CONFIG_OPTION_ENABLE_OPTRACE: break;  // every execution has its rows: nothing more is recorded
        case QNN_PROFILE_CONFIG_OPTION_MAX_EVENTS: profile->most_events = (*config)->numMaxEvents; break;
        default:
          throw Failure(QNN_PROFILE_ERROR_UNSUPPORTED,
                        "profile option " + std::to_string((*config)->option) + " is not known");
      }
  });
}

Qnn_ErrorHandle_t profile_get_events(Qnn_ProfileHandle_t handle, const QnnProfile_EventId_t** ids,
                                     std::uint32_t* count) {
  return guarded("QnnProfile_getEvents", no_logger, [&] {
    const auto profile = profile_of(handle);
    required(ids, QNN_PROFILE_ERROR_INVALID_ARGUMENT, "profileEventIds");
    required(count, QNN_PROFILE_ERROR_INVALID_ARGUMENT, "numEvents");
    std::lock_guard lock(profile->mutex);
    *ids = profile->roots.data();
    *count = static_cast<std::uint32_t>(profile->roots.size());
  });
}

Qnn_ErrorHandle_t profile_get_sub_events(QnnProfile_EventId_t id, const QnnProfile_EventId_t** ids,
                                         std::uint32_t* count) {
  return guarded("QnnProfile_getSubEvents", no_logger, [&] {
    required(ids, QNN_PROFILE_ERROR_INVALID_ARGUMENT, "subEventIds");
    required(count, QNN_PROFILE_ERROR_INVALID_ARGUMENT, "numSubEvents");
    const auto [profile, event] = event_of(id);
    *ids = event->subs.data();
    *count = static_cast<std::uint32_t>(event->subs.size());
  });
}

Qnn_ErrorHandle_t profile_get_event_data(QnnProfile_EventId_t id, QnnProfile_EventData_t* data) {
  return guarded("QnnProfile_getEventData", no_logger, [&] {
    required(data, QNN_PROFILE_ERROR_INVALID_ARGUMENT, "eventData");
    const auto [profile, event] = event_of(id);
    *data = {event->type, event->unit, event->value, event->identifier.c_str()};
  });
}

Qnn_ErrorHandle_t profile_get_extended_event_data(QnnProfile_EventId_t id, QnnProfile_ExtendedEventData_t* data) {
  return guarded("QnnProfile_getExtendedEventData", no_logger, [&] {
    required(data, QNN_PROFILE_ERROR_INVALID_ARGUMENT, "eventData");
    const auto [profile, event] = event_of(id);
    *data = {};
    data->version = QNN_PROFILE_DATA_VERSION_1;
    data->v1.type = event->type;
    data->v1.unit = event->unit;
    data->v1.value.dataType = QNN_DATATYPE_UINT_64;
    data->v1.value.uint64Value = event->value;
    data->v1.timestamp = event->timestamp;
    data->v1.identifier = event->identifier.c_str();
  });
}

Qnn_ErrorHandle_t profile_free(Qnn_ProfileHandle_t handle) {
  return guarded("QnnProfile_free", no_logger, [&] {
    const auto profile = Handles::all().take<Profile>(handle);
    if (!profile) throw Failure(QNN_PROFILE_ERROR_INVALID_HANDLE, "there is no such profile");
    profile->clear();
  });
}

}  // namespace hexforge::capi
