// SPDX-License-Identifier: Apache-2.0
#include "context/loaded_program.h"

#include <algorithm>
#include <cstring>

#include "context/error.h"
#include "kernels/halves.h"
#include "steps/steps.h"

namespace hexforge {
namespace {

constexpr std::int64_t kLine = 64;

std::int64_t whole_lines(std::int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// The op of a node in the text of a graph, "?" where it is not seen.
std::string op_of(const std::string& graph, const std::string& node) {
  for (const std::string& start : {"\n  " + node + ": ", "\n  \"" + node + "\": "}) {
    const std::size_t line = graph.find(start);
    if (line == std::string::npos) continue;
    const std::size_t name = graph.find(" = ", line), end = graph.find('(', name);
    if (end != std::string::npos) return graph.substr(name + 3, end - name - 3);
  }
  return "?";
}

bool apart(const Buffer& a, const Buffer& b) {
  const auto first = reinterpret_cast<std::uintptr_t>(a.data), second = reinterpret_cast<std::uintptr_t>(b.data);
  return first + static_cast<std::uintptr_t>(a.bytes) <= second ||
         second + static_cast<std::uintptr_t>(b.bytes) <= first;
}

template <class T>
void flip(const void* from, void* to, std::int64_t bytes) {
  constexpr T kSign = T{1} << (8 * sizeof(T) - 1);
  const char* source = static_cast<const char*>(from);
  char* target = static_cast<char*>(to);
  for (std::int64_t i = 0; i < bytes; i += static_cast<std::int64_t>(sizeof(T))) {  // clients' buffers lie anywhere
    T value;
    std::memcpy(&value, source + i, sizeof(T));
    value = static_cast<T>(value ^ kSign);
    std::memcpy(target + i, &value, sizeof(T));
  }
}

}  // namespace

LoadedProgram::Slot LoadedProgram::stored(const TensorInfo& tensor) {
  const std::int64_t count = tensor.elements();
  if (tensor.encoding.kind == Encoding::Kind::scale_offset) {
    if (tensor.dtype == DType::uint8 || tensor.dtype == DType::int8) return {count, {'u', 1}};
    if (tensor.dtype == DType::uint16 || tensor.dtype == DType::int16) return {times({count, 2}), {'i', 2}};
  }
  if (tensor.encoding.kind == Encoding::Kind::none &&
      (tensor.dtype == DType::float16 || tensor.dtype == DType::float32)) {
    return {times({count, 4}), {'f', 4}};
  }
  const int bits = element_bits(tensor.dtype);
  if (bits == 4 || tensor.dtype == DType::bfloat16) {
    throw ContextError(ContextError::Kind::unsupported, "tensor '" + tensor.name + "' is " + name(tensor.dtype) +
                                                            ", which only Python's road computes with");
  }
  const bool floating = tensor.dtype == DType::float16 || tensor.dtype == DType::float32;
  const char kind = floating                                                        ? 'f'
                    : tensor.dtype == DType::boolean                                ? 'b'
                    : tensor.dtype >= DType::uint4 && tensor.dtype <= DType::uint64 ? 'u'
                                                                                    : 'i';
  return {times({count, bits / 8}), {kind, bits / 8}};
}

LoadedProgram::Port LoadedProgram::port(const TensorInfo& tensor, std::size_t slot) {
  const bool fixed = tensor.encoding.kind == Encoding::Kind::scale_offset;
  Conversion conversion = Conversion::none;
  if (fixed && tensor.dtype == DType::int8) conversion = Conversion::flip_8;
  if (fixed && tensor.dtype == DType::uint16) conversion = Conversion::flip_16;
  if (tensor.encoding.kind == Encoding::Kind::none && tensor.dtype == DType::float16) conversion = Conversion::half;
  return {slot, conversion, tensor.bytes};
}

std::size_t LoadedProgram::add(Slot slot) {
  slots_.push_back(slot);
  return slots_.size() - 1;
}

LoadedProgram::LoadedProgram(const GraphInfo& info, const Json& program, const ReadBytes& read, ArrayCache& arrays)
    : name_(info.name) {
  register_steps();
  try {
    const Json::List& stages = program["stages"].list();
    for (const Json& stage : stages) {
      if (const Json* node = stage.find("node")) {
        throw ContextError(ContextError::Kind::unsupported, "graph '" + name_ + "': node '" + node->text() + "' (" +
                                                                op_of(program["graph"].text(), node->text()) +
                                                                ") has no native kernel: only Python's road runs it");
      }
    }
    if (const Json* cast = program.find("bfloat16"); cast && !cast->list().empty()) {
      throw ContextError(ContextError::Kind::unsupported,
                         "graph '" + name_ + "': computes in bfloat16, which only Python's road does");
    }
    Known known;
    for (const TensorInfo& tensor : info.inputs) {
      const std::size_t slot = add(stored(tensor));
      inputs_.push_back(port(tensor, slot));
      known[tensor.name] = slot;
    }
    for (const Json& segment : stages) stages_.push_back(stage(segment, read, arrays, known));
    for (const TensorInfo& tensor : info.outputs) {
      const auto found = known.find(tensor.name);
      const Slot wanted = stored(tensor);
      if (found == known.end() || slots_[found->second].bytes != wanted.bytes ||
          slots_[found->second].type != wanted.type) {
        malformed("does not write all its outputs");
      }
      outputs_.push_back(port(tensor, found->second));
    }
    std::int64_t all = 0;
    for (const Slot& slot : slots_)
      all = times({all + whole_lines(slot.bytes + kRoom)});  // throws where it is too much
  } catch (const ContextError& error) {
    if (error.kind != ContextError::Kind::format) throw;
    const std::string subject = "program '" + name_ + "': ";
    if (std::string_view(error.what()).starts_with(subject)) throw;
    malformed(subject + "its steps are malformed: " + error.what(), error.offset);
  } catch (const std::logic_error& error) {  // sizes that no memory has
    malformed("program '" + name_ + "': its steps are malformed: " + error.what());
  }
}

LoadedProgram::Stage LoadedProgram::stage(const Json& described, const ReadBytes& read, ArrayCache& arrays,
                                          Known& known) {
  Stage made{load_segment(name_, described, read, arrays), {}, {}};
  for (const LoadedSegment::Read& tensor : made.segment.reads) {
    const auto found = known.find(tensor.name);
    if (found == known.end() || slots_[found->second].bytes != tensor.bytes) {
      malformed("a stage reads tensor '" + tensor.name + "', which is not there, or not of that size");
    }
    made.reads.push_back(found->second);
    ++slots_[found->second].readers;
  }
  for (const LoadedSegment::Write& tensor : made.segment.writes) {
    made.writes.push_back(add({tensor.bytes, tensor.type, tensor.room, true}));
    known[tensor.name] = made.writes.back();
  }
  for (const auto& [output, input] : made.segment.program->states()) {
    slots_[made.writes[static_cast<std::size_t>(output)]].state_of = made.reads[static_cast<std::size_t>(input)];
  }
  return made;
}

void LoadedProgram::run(std::span<const Buffer> inputs, std::span<const Buffer> outputs, std::int64_t at, int threads,
                        const std::function<void()>& pause) const {
  std::vector<void*> places(slots_.size(), nullptr);
  const auto part = [at](const Buffer& buffer, const Port& port) {
    return Buffer{static_cast<char*>(buffer.data) + at * port.bytes, port.bytes};
  };
  const auto aligned = [](const Buffer& buffer, const Slot& slot) {
    return reinterpret_cast<std::uintptr_t>(buffer.data) % static_cast<std::uintptr_t>(slot.type.bytes) == 0;
  };
  // Clients' buffers are used as they are where they can be: they hold what a stage reads or writes, at an address that
  // it may have, and of an output nobody else's bytes.
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Port& port = inputs_[i];
    const Buffer own = part(inputs[i], port);
    if (port.conversion == Conversion::none && aligned(own, slots_[port.slot])) places[port.slot] = own.data;
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Port& port = outputs_[i];
    const Slot& slot = slots_[port.slot];
    if (port.conversion != Conversion::none || slot.room || !slot.written || places[port.slot]) continue;
    // not of floats: rows that stay would keep what rounding to halves takes off them
    const bool state = slot.state_of && slots_[*slot.state_of].readers == 1 && slot.type.kind != 'f';
    const auto elsewhere = [&](const Buffer& other) {
      if (&other == &outputs[i] || apart(other, outputs[i])) return true;
      if (!state || &other < inputs.data() || &other >= inputs.data() + inputs.size()) return false;
      const Port& source = inputs_[static_cast<std::size_t>(&other - inputs.data())];
      return source.slot == *slot.state_of && places[source.slot] && other.data == outputs[i].data &&
             other.bytes == outputs[i].bytes;
    };
    if (aligned(part(outputs[i], port), slot) && std::all_of(inputs.begin(), inputs.end(), elsewhere) &&
        std::all_of(outputs.begin(), outputs.end(), elsewhere)) {
      places[port.slot] = part(outputs[i], port).data;
    }
  }
  std::int64_t needed = 0;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!places[i]) needed += whole_lines(slots_[i].bytes + kRoom);
  }
  Arenas::Arena memory;
  if (needed > 0) {
    memory = arenas_->take(needed + kLine);
    const auto start = reinterpret_cast<std::uintptr_t>(memory.memory.get());
    char* free = memory.memory.get() + (kLine - start % kLine) % kLine;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (places[i]) continue;
      places[i] = free;
      free += whole_lines(slots_[i].bytes + kRoom);
    }
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Port& port = inputs_[i];
    const Buffer from = part(inputs[i], port);
    void* to = places[port.slot];
    if (from.data == to || port.bytes == 0) continue;
    switch (port.conversion) {
      case Conversion::none: std::memcpy(to, from.data, static_cast<std::size_t>(from.bytes)); break;
      case Conversion::flip_8: flip<std::uint8_t>(from.data, to, from.bytes); break;
      case Conversion::flip_16: flip<std::uint16_t>(from.data, to, from.bytes); break;
      case Conversion::half: {
        const auto count = static_cast<std::size_t>(from.bytes / 2);
        if (reinterpret_cast<std::uintptr_t>(from.data) % 2 == 0) {
          widen_halves(static_cast<const std::uint16_t*>(from.data), static_cast<float*>(to), count);
        } else {
          std::vector<std::uint16_t> halves(count);
          std::memcpy(halves.data(), from.data, static_cast<std::size_t>(from.bytes));
          widen_halves(halves.data(), static_cast<float*>(to), count);
        }
      }
    }
  }
  std::vector<const void*> reads;
  std::vector<void*> writes;
  for (const Stage& stage : stages_) {
    reads.clear();
    writes.clear();
    for (std::size_t slot : stage.reads) reads.push_back(places[slot]);
    for (std::size_t slot : stage.writes) writes.push_back(places[slot]);
    stage.segment.program->run(reads, writes, threads, Spinning{}, pause);
  }
  for (const Stage& stage : stages_) {
    for (int mapping : stage.segment.mappings) require_whole(mapping);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Port& port = outputs_[i];
    const Buffer to = part(outputs[i], port);
    const void* from = places[port.slot];
    if (from == to.data || port.bytes == 0) continue;
    switch (port.conversion) {
      case Conversion::none: std::memmove(to.data, from, static_cast<std::size_t>(to.bytes)); break;
      case Conversion::flip_8: flip<std::uint8_t>(from, to.data, to.bytes); break;
      case Conversion::flip_16: flip<std::uint16_t>(from, to.data, to.bytes); break;
      case Conversion::half: {
        const auto count = static_cast<std::size_t>(to.bytes / 2);
        if (reinterpret_cast<std::uintptr_t>(to.data) % 2 == 0) {
          narrow_halves(static_cast<const float*>(from), static_cast<std::uint16_t*>(to.data), count);
        } else {
          std::vector<std::uint16_t> halves(count);
          narrow_halves(static_cast<const float*>(from), halves.data(), count);
          std::memcpy(to.data, halves.data(), static_cast<std::size_t>(to.bytes));
        }
      }
    }
  }
  if (needed > 0) arenas_->give(std::move(memory));
}

bool LoadedProgram::overflowed() const {
  return std::any_of(stages_.begin(), stages_.end(),
                     [](const Stage& stage) { return stage.segment.program->overflowed(); });
}

}  // namespace hexforge
