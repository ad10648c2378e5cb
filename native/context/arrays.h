// SPDX-License-Identifier: Apache-2.0
// Arrays of programs in a context: as they lie in the file, or made whole of a form that takes less room
// (backends/htp/numbers/file_arrays.py writes them), once for all graphs that share one.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "context/container.h"
#include "context/json.h"

namespace hexforge {

// A data type of stored tensors: numpy's kind ('b', 'i', 'u', 'f') and the bytes of an element.
struct StoredType {
  char kind;
  int bytes;
  bool operator==(const StoredType&) const = default;
};
StoredType stored_type(std::string_view name);  // by either of numpy's names; throws ContextError

// Bytes of a file or in memory, how many more of the same memory lie behind them, and what keeps them.
struct KeptBytes {
  Bytes bytes;
  std::int64_t room;
  std::shared_ptr<const void> owner;
};

// Where arrays lie: a section of a file, or of a context and an adapter together.
using ReadBytes = std::function<KeptBytes(std::int64_t offset, std::int64_t bytes)>;

// An array of a program, likewise.
struct StoredArray {
  const std::byte* data;
  std::int64_t bytes, room;
  std::shared_ptr<const void> owner;
  StoredType type;
  int mapping;  // of the file that it lies in, where it is mapped and the array was not made whole; or -1
};

class ArrayCache {
 public:
  // The array that an object of a program's JSON describes; throws ContextError where it describes none.
  StoredArray read(const Json& described, const ReadBytes& read);

 private:
  using Key =
      std::tuple<const std::byte*, std::size_t, char, int, std::int64_t, std::string, std::vector<std::int64_t>>;
  std::mutex mutex_;
  std::map<Key, std::weak_ptr<const std::byte>> whole_;
  std::size_t most_ = 64;  // arrays from which on those that nobody has any more are forgotten
};

}  // namespace hexforge
