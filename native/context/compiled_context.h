// SPDX-License-Identifier: Apache-2.0
// A context that hexforge compiled, opened and run without Python. Everything here may be called by several threads.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "context/arrays.h"
#include "context/container.h"
#include "context/error.h"
#include "context/tensor_type.h"

namespace hexforge {

struct GraphInfo {
  std::string name;
  std::vector<TensorInfo> inputs, outputs;
  std::int64_t arena_bytes = 0;                      // working memory of one run on this computer
  std::int64_t spill_fill_bytes = 0;                 // on the chip
  std::map<std::string, std::int64_t> settings;      // num_hvx_threads, vtcm_mb, optimization
  std::vector<std::string> updatable;                // constants that adapters may change
  std::int64_t updatable_bytes = 0;                  // what these take on the chip
  std::string program;                               // name of the section
  std::map<std::string, std::int64_t> last_indices;  // of inputs that say where new tokens go, the last that there is
};

struct TargetInfo {
  std::string soc, label;
  std::map<std::string, std::int64_t> facts;  // htp_arch, soc_model, vtcm_mb
};

// How long a graph takes on a chip, task by task, as it was prepared.
struct GraphTimeline {
  struct Row {
    std::string name, op;
    double start_us, us;
    std::int64_t cycles;
    std::string bound;  // what held it up: HMX, HVX, DMA, …
    std::int64_t weight_bytes, spill_bytes;
    std::vector<std::string> nodes;
  };
  std::string soc;
  double core_mhz, accelerator_us, latency_us;
  std::int64_t dram_bytes, vtcm_peak_bytes;
  std::vector<Row> rows;
};

// A client's memory.
struct Buffer {
  void* data;
  std::int64_t bytes;
};

struct RunOptions {
  int threads = 0;                  // 0: as many as this process has processors
  std::function<bool()> cancelled;  // asked every now and then between two steps; true ends the run
};

class LoadedProgram;

// A graph of a context, ready to run.
class CompiledGraph {
 public:
  CompiledGraph(const GraphInfo& info, std::shared_ptr<const LoadedProgram> program);
  const GraphInfo& info() const { return info_; }
  // Buffers in the order of the info's inputs and outputs, in the tensors' own data types. Each has the tensor's bytes,
  // or all so many times as much: a batch of so many runs. Throws ContextError.
  void run(std::span<const Buffer> inputs, std::span<const Buffer> outputs, const RunOptions& options = {}) const;
  bool overflowed() const;  // true once a run had a number past what float16 holds

 private:
  friend class CompiledContext;
  std::shared_ptr<const LoadedProgram> current() const;
  const GraphInfo info_;
  mutable std::mutex mutex_;
  std::shared_ptr<const LoadedProgram> base_, program_;  // without an adapter, and what runs now
};

struct OpenOptions {
  bool verify = true;                      // every section's checksum; else those that are used, but for the arrays'
  std::vector<std::string> enable_graphs;  // of the graphs only these; empty: all
};

class CompiledContext : public std::enable_shared_from_this<CompiledContext> {
 public:
  // The file stays mapped as long as the context or a graph of it lives. All throw ContextError.
  static std::shared_ptr<CompiledContext> open_file(const std::string& path, const OpenOptions& options = {});
  // The bytes stay where they are as long as `owner` lives; without one, or where they do not begin at a multiple of
  // 64, they are copied.
  static std::shared_ptr<CompiledContext> open_memory(Bytes bytes, std::shared_ptr<const void> owner = nullptr,
                                                      const OpenOptions& options = {});
  static bool recognises(Bytes bytes) { return Container::recognises(bytes); }

  const std::string& where() const { return container_.where(); }
  const std::string& producer() const { return producer_; }
  const std::string& backend() const { return backend_; }
  const std::vector<TargetInfo>& targets() const { return targets_; }
  const std::map<std::string, std::string>& options() const { return options_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool weight_sharing() const { return weight_sharing_; }
  const std::vector<GraphInfo>& graphs() const { return graphs_; }
  const GraphInfo& info(const std::string& graph) const;
  bool has_graph(const std::string& name) const;  // in the file, enabled or not
  std::int64_t bytes() const { return static_cast<std::int64_t>(container_.file().bytes().size()); }
  std::int64_t weights_bytes() const { return static_cast<std::int64_t>(weights_.size()); }

  // The graph, ready to run: made when it is first asked for.
  std::shared_ptr<CompiledGraph> graph(const std::string& name);
  // Its time on a chip of the file (the first unless named); null where the file does not say.
  std::shared_ptr<const GraphTimeline> timeline(const std::string& graph, const std::string& soc = "") const;

  // Puts an adapter on a graph, or on all that it is for; a run that has begun keeps the old one. After an error
  // nothing has changed.
  void apply_adapter(Bytes bytes, std::shared_ptr<const void> owner, const std::string& graph = "", bool verify = true);
  void apply_adapter_file(const std::string& path, const std::string& graph = "", bool verify = true);
  void remove_adapters(const std::string& graph = "");

  CompiledContext(std::shared_ptr<const FileBytes> file, std::string where, const OpenOptions& options);

 private:
  KeptBytes weights(std::int64_t offset, std::int64_t bytes) const;
  std::string identity(const GraphInfo& graph) const;
  void apply(const std::shared_ptr<const Container>& adapter, const std::string& graph, bool verify);
  std::shared_ptr<CompiledGraph> made(const std::string& name);

  Container container_;
  Bytes weights_;
  std::string producer_, backend_;
  std::vector<TargetInfo> targets_;
  std::map<std::string, std::string> options_, metadata_;
  std::vector<GraphInfo> graphs_;
  std::vector<std::string> disabled_;
  bool weight_sharing_ = false;
  ArrayCache arrays_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<CompiledGraph>> made_;
};

}  // namespace hexforge
