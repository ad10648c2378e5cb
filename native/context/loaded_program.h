// SPDX-License-Identifier: Apache-2.0
// The native program of a graph in a context: made of what the file says, over the file's own arrays.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "context/arrays.h"
#include "context/compiled_context.h"
#include "context/json.h"
#include "context/segment.h"
#include "core/program.h"

namespace hexforge {

class LoadedProgram {
 public:
  // Throws ContextError.
  LoadedProgram(const GraphInfo& info, const Json& program, const ReadBytes& read, ArrayCache& arrays);
  // One run over buffers of the sizes that the info says, each `at` times that far into a batch.
  void run(std::span<const Buffer> inputs, std::span<const Buffer> outputs, std::int64_t at, int threads,
           const std::function<void()>& pause) const;
  bool overflowed() const;

 private:
  // How a tensor of the model becomes a stored one, or the other way round.
  enum class Conversion { none, flip_8, flip_16, half };
  // A tensor that a stage reads or writes: a client's buffer, or memory of the run.
  struct Slot {
    std::int64_t bytes;
    StoredType type;
    bool room = false;     // a step reads it again, and may read a little behind it
    bool written = false;  // by a stage
    int readers = 0;       // stages that read it
    // The slot that it is the next state of, as a cache with new rows put in: both may be one buffer.
    std::optional<std::size_t> state_of = std::nullopt;
  };
  struct Port {
    std::size_t slot;
    Conversion conversion;
    std::int64_t bytes;  // of the client's buffer
  };
  struct Stage {
    LoadedSegment segment;
    std::vector<std::size_t> reads, writes;  // slots
  };
  using Known = std::map<std::string, std::size_t>;

  static Port port(const TensorInfo& tensor, std::size_t slot);
  static Slot stored(const TensorInfo& tensor);
  std::size_t add(Slot slot);
  Stage stage(const Json& described, const ReadBytes& read, ArrayCache& arrays, Known& known);

  std::string name_;
  std::vector<Slot> slots_;
  std::vector<Port> inputs_, outputs_;
  std::vector<Stage> stages_;
  std::shared_ptr<Arenas> arenas_ = Arenas::shared();
};

}  // namespace hexforge
