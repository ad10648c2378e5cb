// SPDX-License-Identifier: Apache-2.0
#include "context/compiled_context.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <set>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

#include "context/digest.h"
#include "context/loaded_program.h"

namespace hexforge {
namespace {

constexpr std::size_t kMostGraphs = 64;

std::map<std::string, std::string> texts(const Json& given) {
  std::map<std::string, std::string> made;
  for (const auto& [key, value] : given.object()) made[key] = value.text();
  return made;
}

std::int64_t size(const Json& given) {
  const std::int64_t value = given.integer();
  if (value > kMostSize) malformed("something is no size");
  return value;
}

std::vector<std::string> names(const Json& given) {
  std::vector<std::string> made;
  for (const Json& item : given.list()) made.push_back(item.text());
  return made;
}

std::vector<TensorInfo> tensors(const Json& rows, std::uint32_t& last_id) {
  std::vector<TensorInfo> made;
  std::set<std::string> seen;
  for (const Json& row : rows.list()) {
    const Json::List& fields = row.list(2);
    made.push_back(parse_tensor_type(fields[1].text()));
    made.back().name = fields[0].text();
    made.back().id = ++last_id;
    if (!seen.insert(made.back().name).second) malformed("two tensors of a graph have one name");
  }
  return made;
}

GraphInfo graph_info(const Json& row, std::uint32_t& last_id) {
  GraphInfo made;
  made.name = row["name"].text();
  made.inputs = tensors(row["inputs"], last_id);
  made.outputs = tensors(row["outputs"], last_id);
  made.program = row["program"].text();
  made.arena_bytes = size(row["arena_bytes"]);
  made.spill_fill_bytes = size(row["spill_fill_bytes"]);
  for (const auto& [key, value] : row["settings"].object()) made.settings[key] = size(value);
  made.updatable = names(row["updatable"]);
  if (const Json* bytes = row.find("updatable_bytes")) made.updatable_bytes = size(*bytes);
  return made;
}

TargetInfo target_info(const Json& row) {
  TargetInfo made{row["soc"].text(), row["label"].text(), {}};
  for (const auto& [key, value] : row.object()) {
    if (key != "soc" && key != "label") made.facts[key] = size(value);
  }
  return made;
}

// What metadata say of the inputs and outputs of graphs, as JSON in a text: graph, tensor, number.
std::map<std::string, std::map<std::string, std::int64_t>> by_tensor(const std::map<std::string, std::string>& metadata,
                                                                     const std::string& key) {
  std::map<std::string, std::map<std::string, std::int64_t>> made;
  const auto found = metadata.find(key);
  if (found == metadata.end()) return made;
  const Json data = Json::parse(found->second, "metadata " + key, 0);
  for (const auto& [graph, tensors] : data.object()) {
    for (const auto& [tensor, number] : tensors.object()) made[graph][tensor] = number.integer();
  }
  return made;
}

// A native cache takes new tokens up to a place (runtime/contexts/native_kv.py).
void require_early(const GraphInfo& info, std::span<const Buffer> inputs) {
  for (std::size_t i = 0; i < info.inputs.size(); ++i) {
    const TensorInfo& tensor = info.inputs[i];
    const auto last = info.last_indices.find(tensor.name);
    if (last == info.last_indices.end() || inputs[i].bytes == 0) continue;
    const auto least = [&]<class T>(T) {
      std::int64_t found = std::numeric_limits<std::int64_t>::max();
      const char* at = static_cast<const char*>(inputs[i].data);
      for (std::int64_t byte = 0; byte < inputs[i].bytes; byte += static_cast<std::int64_t>(sizeof(T))) {
        T value;
        std::memcpy(&value, at + byte, sizeof(T));
        found = std::min(found, static_cast<std::int64_t>(value));
      }
      return found;
    };
    std::int64_t first = 0;
    if (tensor.dtype == DType::int32) first = least(std::int32_t{});
    if (tensor.dtype == DType::uint32) first = least(std::uint32_t{});
    if (tensor.dtype == DType::int64) first = least(std::int64_t{});
    if (first > last->second) {
      throw ContextError(ContextError::Kind::call,
                         "input '" + tensor.name + "': puts new tokens at " + std::to_string(first) +
                             ", and a native cache takes them up to " + std::to_string(last->second));
    }
  }
}

int processors() {
#if defined(__linux__)
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) == 0) return CPU_COUNT(&usable);
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

CompiledGraph::CompiledGraph(const GraphInfo& info, std::shared_ptr<const LoadedProgram> program)
    : info_(info), base_(program), program_(std::move(program)) {}

std::shared_ptr<const LoadedProgram> CompiledGraph::current() const {
  const std::lock_guard lock(mutex_);
  return program_;
}

void CompiledGraph::run(std::span<const Buffer> inputs, std::span<const Buffer> outputs,
                        const RunOptions& options) const {
  const auto refuse = [&](const std::string& why) {
    throw ContextError(ContextError::Kind::call, "graph '" + info_.name + "': " + why);
  };
  if (inputs.size() != info_.inputs.size() || outputs.size() != info_.outputs.size()) {
    refuse("has " + std::to_string(info_.inputs.size()) + " inputs and " + std::to_string(info_.outputs.size()) +
           " outputs, and was given " + std::to_string(inputs.size()) + " and " + std::to_string(outputs.size()));
  }
  std::int64_t batch = 0;
  const auto require = [&](const Buffer& buffer, const TensorInfo& tensor, const char* what) {
    const std::int64_t runs = tensor.bytes > 0 && buffer.bytes % tensor.bytes == 0 ? buffer.bytes / tensor.bytes : 0;
    const bool fits = tensor.bytes == 0 ? buffer.bytes == 0 : runs > 0 && (batch == 0 || runs == batch);
    if (!fits || (buffer.bytes > 0 && !buffer.data)) {
      refuse(std::string(what) + " '" + tensor.name + "' has " + std::to_string(buffer.bytes) + " bytes, it must be " +
             std::to_string(tensor.bytes) + ", or all tensors a whole number of times as much");
    }
    if (runs > 0) batch = runs;
  };
  for (std::size_t i = 0; i < inputs.size(); ++i) require(inputs[i], info_.inputs[i], "input");
  for (std::size_t i = 0; i < outputs.size(); ++i) require(outputs[i], info_.outputs[i], "output");
  require_early(info_, inputs);
  std::function<void()> pause;
  if (options.cancelled) {
    pause = [&] {
      if (options.cancelled()) throw ContextError(ContextError::Kind::cancelled, "the run was cancelled");
    };
  }
  const std::shared_ptr<const LoadedProgram> program = current();
  const int threads = options.threads > 0 ? options.threads : processors();
  try {
    for (std::int64_t at = 0; at < std::max<std::int64_t>(batch, 1); ++at) {
      if (pause) pause();
      program->run(inputs, outputs, at, threads, pause);
    }
  } catch (const std::out_of_range& error) {  // a Gather or Scatter met an index outside its axis
    refuse(error.what());
  } catch (const std::bad_alloc&) {
    throw ContextError(ContextError::Kind::memory, "graph '" + info_.name + "': a run needs " +
                                                       std::to_string(info_.arena_bytes) +
                                                       " bytes of working memory, which cannot be had");
  }
}

bool CompiledGraph::overflowed() const { return current()->overflowed(); }

std::shared_ptr<CompiledContext> CompiledContext::open_file(const std::string& path, const OpenOptions& options) {
  return std::make_shared<CompiledContext>(FileBytes::map(path), path, options);
}

std::shared_ptr<CompiledContext> CompiledContext::open_memory(Bytes bytes, std::shared_ptr<const void> owner,
                                                              const OpenOptions& options) {
  return std::make_shared<CompiledContext>(FileBytes::in_memory(bytes, std::move(owner)), "context", options);
}

CompiledContext::CompiledContext(std::shared_ptr<const FileBytes> file, std::string where, const OpenOptions& options)
    : container_(std::move(file), std::move(where)) {
  if (container_.find("adapter", "")) {
    malformed(this->where() + ": is an adapter; open the context it was made for, and apply it to that");
  }
  if (options.verify) {
    for (const Container::Section& section : container_.sections()) container_.verify(section);
  }
  const Json data = container_.json("info", "");
  weights_ = container_.bytes(container_.section("weights", ""));
  try {
    producer_ = data["producer"].text();
    backend_ = data["backend"].text();
    options_ = texts(data["options"]);
    metadata_ = texts(data["metadata"]);
    weight_sharing_ = data["weight_sharing"].is_true();
    for (const Json& row : data["targets"].list()) targets_.push_back(target_info(row));
    std::uint32_t last_id = 0;
    std::set<std::string> seen;
    for (const Json& row : data["graphs"].list()) {
      graphs_.push_back(graph_info(row, last_id));
      if (!seen.insert(graphs_.back().name).second) malformed("two graphs have one name");
    }
    if (graphs_.empty() || graphs_.size() > kMostGraphs) malformed("a context has 1 to 64 graphs");
    const auto tiles = by_tensor(metadata_, "data_formats");
    const auto last = by_tensor(metadata_, "last_scatter_indices");
    for (GraphInfo& graph : graphs_) {
      const auto found = tiles.find(graph.name);
      if (found == tiles.end() || found->second.empty()) continue;
      for (auto* side : {&graph.inputs, &graph.outputs}) {
        for (TensorInfo& tensor : *side) {
          const auto tile = found->second.find(tensor.name);
          if (tile == found->second.end()) continue;
          if (tile->second != 256 && tile->second != 64) malformed("a data format has tiles of other columns");
          tensor.tile = static_cast<int>(tile->second);
        }
      }
      if (const auto indices = last.find(graph.name); indices != last.end()) graph.last_indices = indices->second;
    }
  } catch (const ContextError& error) {
    malformed(this->where() + ": the table of graphs is malformed: " + error.what(),
              container_.section("info", "").offset);
  }
  if (options.enable_graphs.empty()) return;
  for (const std::string& name : options.enable_graphs) info(name);
  std::erase_if(graphs_, [&](const GraphInfo& graph) {
    const bool enabled = std::find(options.enable_graphs.begin(), options.enable_graphs.end(), graph.name) !=
                         options.enable_graphs.end();
    if (!enabled) disabled_.push_back(graph.name);
    return !enabled;
  });
}

bool CompiledContext::has_graph(const std::string& name) const {
  return std::find(disabled_.begin(), disabled_.end(), name) != disabled_.end() ||
         std::any_of(graphs_.begin(), graphs_.end(), [&](const GraphInfo& graph) { return graph.name == name; });
}

const GraphInfo& CompiledContext::info(const std::string& graph) const {
  std::string have;
  for (const GraphInfo& row : graphs_) {
    if (row.name == graph) return row;
    have.append(have.empty() ? "" : ", ").append(row.name);
  }
  throw ContextError(ContextError::Kind::call, where() + ": has no graph '" + graph + "'; it has " + have);
}

KeptBytes CompiledContext::weights(std::int64_t offset, std::int64_t bytes) const {
  const std::int64_t all = weights_bytes() - Container::kSlack;  // kernels may read a little past
  if (offset < 0 || bytes < 0 || offset > all || bytes > all - offset) {
    malformed(where() + ": a program refers to bytes " + std::to_string(offset) + " and " + std::to_string(bytes) +
              " more of the weights, which are " + std::to_string(weights_bytes()));
  }
  return {weights_.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(bytes)), Container::kSlack,
          container_.shared_file()};
}

std::shared_ptr<CompiledGraph> CompiledContext::graph(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return made(name);
}

std::shared_ptr<CompiledGraph> CompiledContext::made(const std::string& name) {
  if (const auto found = made_.find(name); found != made_.end()) return found->second;
  const GraphInfo& row = info(name);
  if (backend_ != "htp") {
    throw ContextError(ContextError::Kind::unsupported, where() + ": was made for the " + backend_ +
                                                            " backend; only contexts of htp run without Python");
  }
  try {
    const Json program = container_.json("program", row.program);
    auto loaded = std::make_shared<const LoadedProgram>(
        row, program, [this](std::int64_t offset, std::int64_t bytes) { return weights(offset, bytes); }, arrays_);
    return made_[name] = std::make_shared<CompiledGraph>(row, std::move(loaded));
  } catch (const ContextError& error) {
    if (std::string_view(error.what()).starts_with(where())) throw;
    throw ContextError(error.kind, where() + ": " + error.what(), error.offset, error.code);
  }
}

std::shared_ptr<const GraphTimeline> CompiledContext::timeline(const std::string& graph, const std::string& soc) const {
  info(graph);
  const std::string chip = !soc.empty() ? soc : targets_.empty() ? "" : targets_[0].soc;
  const std::string key = chip + "/" + graph;
  if (!container_.find("schematic", key)) return nullptr;
  const Json data = container_.json("schematic", key);
  try {
    auto made = std::make_shared<GraphTimeline>();
    made->soc = data["soc"].text();
    made->core_mhz = data["core_mhz"].real();
    made->accelerator_us = data["accelerator_us"].real();
    made->latency_us = data["latency_us"].real();
    made->dram_bytes = data["dram_bytes"].integer();
    made->vtcm_peak_bytes = data["vtcm_peak_bytes"].integer();
    const std::vector<std::string> columns{"name",  "op",           "start_us",    "us",   "cycles",
                                           "bound", "weight_bytes", "spill_bytes", "nodes"};
    if (names(data["columns"]) != columns) malformed("its columns are others");
    for (const Json& row : data["rows"].list()) {
      const Json::List& f = row.list(columns.size());
      made->rows.push_back({f[0].text(), f[1].text(), f[2].real(), f[3].real(), f[4].integer(), f[5].text(),
                            f[6].integer(), f[7].integer(), names(f[8])});
    }
    return made;
  } catch (const ContextError& error) {
    malformed(where() + ": a schematic is malformed: " + error.what(), container_.section("schematic", key).offset);
  }
}

std::string CompiledContext::identity(const GraphInfo& graph) const {
  const Container::Section& weights = container_.section("weights", "");
  std::string rest("[");
  rest.append(std::to_string(weights.bytes)).append(",").append(std::to_string(weights.crc32c)).append("]");
  return blake2b_128(container_.bytes(container_.section("program", graph.program)),
                     std::as_bytes(std::span(rest.data(), rest.size())));
}

void CompiledContext::apply_adapter(Bytes bytes, std::shared_ptr<const void> owner, const std::string& graph,
                                    bool verify) {
  apply(std::make_shared<const Container>(FileBytes::in_memory(bytes, std::move(owner)), "adapter"), graph, verify);
}

void CompiledContext::apply_adapter_file(const std::string& path, const std::string& graph, bool verify) {
  apply(std::make_shared<const Container>(FileBytes::map(path), path), graph, verify);
}

void CompiledContext::apply(const std::shared_ptr<const Container>& adapter, const std::string& graph, bool verify) {
  const auto refuse = [&](const std::string& why) {
    throw ContextError(ContextError::Kind::call, adapter->where() + ": " + why);
  };
  if (!adapter->find("adapter", "")) malformed(adapter->where() + ": is no adapter, but a context");
  const Json table = adapter->json("adapter", "");
  const Container::Section& section = adapter->section("weights", "");
  if (verify) adapter->verify(section);
  const Bytes own = adapter->bytes(section);
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::shared_ptr<const LoadedProgram>> programs;
  try {
    if (table["backend"].text() != backend_) refuse("was made for another backend than " + backend_);
    if (table["graphs"].list().empty()) malformed("it has no graph");
    for (const Json& row : table["graphs"].list()) {
      const std::string& name = row["name"].text();
      if (!graph.empty() && name != graph) continue;
      const GraphInfo& known = info(name);
      if (known.updatable.empty()) refuse("graph '" + name + "' has no updatable tensors");
      const std::int64_t first = size(row["base_bytes"]);
      if (row["base"].text() != identity(known) || first != weights_bytes()) {
        refuse("was made for another base than " + where() + ", graph '" + name + "'; make it again for this one");
      }
      for (const std::string& tensor : names(row["tensors"])) {
        if (std::find(known.updatable.begin(), known.updatable.end(), tensor) == known.updatable.end()) {
          refuse("changes " + tensor + ", not updatable in graph '" + name + "'");
        }
      }
      Json program = container_.json("program", known.program);
      for (const Json& change : row["changes"].list()) {
        Json* place = &program;
        for (const Json& key : change.list(2)[0].list()) {
          place = place->place(key);
          if (!place) malformed("changes something of a program that is not there");
        }
        *place = change.list(2)[1];
      }
      const ReadBytes read = [&](std::int64_t offset, std::int64_t bytes) -> KeptBytes {
        if (offset < first) return weights(offset, bytes);
        const std::int64_t all = static_cast<std::int64_t>(own.size()) - Container::kSlack;
        if (bytes < 0 || offset - first > all || bytes > all - (offset - first)) {
          malformed("refers to bytes behind its arrays");
        }
        return {own.subspan(static_cast<std::size_t>(offset - first), static_cast<std::size_t>(bytes)),
                Container::kSlack, adapter->shared_file()};
      };
      made(name);
      programs[name] = std::make_shared<const LoadedProgram>(known, program, read, arrays_);
    }
  } catch (const ContextError& error) {
    if (error.kind != ContextError::Kind::format) throw;
    malformed(adapter->where() + ": the adapter is malformed: " + error.what(), error.offset);
  }
  if (programs.empty()) refuse("does nothing to graph '" + graph + "'");
  for (auto& [name, program] : programs) {
    CompiledGraph& changed = *made_.at(name);
    const std::lock_guard exchange(changed.mutex_);
    changed.program_ = std::move(program);
  }
}

void CompiledContext::remove_adapters(const std::string& graph) {
  const std::lock_guard lock(mutex_);
  for (auto& [name, changed] : made_) {
    if (!graph.empty() && name != graph) continue;
    const std::lock_guard exchange(changed->mutex_);
    changed->program_ = changed->base_;
  }
}

}  // namespace hexforge
