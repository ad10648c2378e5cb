// SPDX-License-Identifier: Apache-2.0
// Handles: numbers that look like pointers to a client. A handle that was freed, or never given, finds nothing: every
// place in the table counts how often it was used, and a handle says which time it is for.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

namespace hexforge::capi {

enum class Kind : std::uint8_t { none, logger, backend, device, context, graph, profile, memory, signal, system };

class Object {
 public:
  explicit Object(Kind kind) : kind(kind) {}
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  const Kind kind;
  void* handle = nullptr;  // what a client has of it
};

class Handles {
 public:
  static Handles& all() {
    static Handles* table = new Handles;  // never destroyed: clients free things while a process ends
    return *table;
  }

  void* add(std::shared_ptr<Object> object) {
    std::unique_lock lock(mutex_);
    std::uint64_t index;
    if (free_.empty()) {
      index = places_.size();
      places_.emplace_back();
    } else {
      index = free_.back();
      free_.pop_back();
    }
    Place& place = places_[index];
    object->handle = pack(index, place.times, object->kind);
    void* handle = object->handle;
    place.object = std::move(object);
    return handle;
  }

  template <class T>
  std::shared_ptr<T> find(const void* handle) const {
    std::shared_lock lock(mutex_);
    const Place* place = at(handle);
    if (!place || place->object->kind != T::kind_of) return nullptr;
    return std::static_pointer_cast<T>(place->object);
  }

  // Takes an object out: whoever still works with it keeps it alive.
  template <class T>
  std::shared_ptr<T> take(const void* handle) {
    std::unique_lock lock(mutex_);
    Place* place = const_cast<Place*>(at(handle));
    if (!place || place->object->kind != T::kind_of) return nullptr;
    auto object = std::static_pointer_cast<T>(std::move(place->object));
    place->object = nullptr;
    place->times = (place->times + 1) & kTimes;
    free_.push_back(static_cast<std::uint64_t>(place - places_.data()));
    return object;
  }

  // What a handle says of itself; Kind::none where it has not the form of one.
  struct Parts {
    Kind kind = Kind::none;
    std::uint64_t place = 0, times = 0;
  };
  static Parts parts(const void* handle) {
    const auto number = reinterpret_cast<std::uint64_t>(handle);
    if (number >> 48 != 0x48 || !(number & 1)) return {};
    return {static_cast<Kind>(number >> 44 & 0xF), (number & 0xFFFFFFF) >> 1, number >> 28 & kTimes};
  }
  // True for a handle that was given once, and freed since.
  bool was_freed(const void* handle) const {
    const Parts own = parts(handle);
    std::shared_lock lock(mutex_);
    return own.kind != Kind::none && own.place < places_.size() && !at(handle) && own.times < places_[own.place].times;
  }
  Kind kind_of(const void* handle) const {
    std::shared_lock lock(mutex_);
    const Place* place = at(handle);
    return place ? place->object->kind : Kind::none;
  }
  std::vector<std::shared_ptr<Object>> living() const {
    std::shared_lock lock(mutex_);
    std::vector<std::shared_ptr<Object>> all;
    for (const Place& each : places_)
      if (each.object) all.push_back(each.object);
    return all;
  }

  std::size_t count() const {
    std::shared_lock lock(mutex_);
    return places_.size() - free_.size();
  }

 private:
  struct Place {
    std::shared_ptr<Object> object;
    std::uint32_t times = 0;
  };
  static constexpr std::uint32_t kTimes = 0xFFFF;

  // 0x48 (an H), the kind, how often the place was used, and the place; never a multiple of 2, so no pointer.
  static void* pack(std::uint64_t index, std::uint32_t times, Kind kind) {
    const std::uint64_t number = 0x48ull << 48 | static_cast<std::uint64_t>(kind) << 44 |
                                 static_cast<std::uint64_t>(times) << 28 | index << 1 | 1;
    return reinterpret_cast<void*>(number);
  }
  const Place* at(const void* handle) const {
    const auto number = reinterpret_cast<std::uint64_t>(handle);
    if (number >> 48 != 0x48 || !(number & 1)) return nullptr;
    const std::uint64_t index = (number & 0xFFFFFFF) >> 1;
    if (index >= places_.size()) return nullptr;
    const Place& place = places_[index];
    return place.object && place.times == (number >> 28 & kTimes) ? &place : nullptr;
  }

  mutable std::shared_mutex mutex_;
  std::vector<Place> places_;
  std::vector<std::uint64_t> free_;
};

}  // namespace hexforge::capi
