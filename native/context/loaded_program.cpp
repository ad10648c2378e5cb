// SPDX-License-Identifier: Apache-2.0
#include "context/loaded_program.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>

#include "context/error.h"
#include "kernels/halves.h"
#include "steps/steps.h"

namespace hexforge {
namespace {

constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kLine = 64;

std::int64_t whole_lines(std::int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// A real number with every bit of it, as Python's float.hex writes it: "0x1.8p+3", "-inf".
double real(const Json& text) {
  std::string_view left = text.text();
  const bool negative = left.starts_with('-');
  if (negative) left.remove_prefix(1);
  double value = 0;
  if (left == "inf" || left == "nan") {
    value = left == "inf" ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else {
    if (!left.starts_with("0x")) malformed("something is no real number");
    left.remove_prefix(2);
    const auto [end, error] = std::from_chars(left.data(), left.data() + left.size(), value, std::chars_format::hex);
    if (error != std::errc() || end != left.data() + left.size()) malformed("something is no real number");
  }
  return negative ? -value : value;
}

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

LoadedProgram::LoadedProgram(const GraphInfo& info, const Json& program, const ReadBytes& read, ArrayCache& arrays,
                             std::vector<std::shared_ptr<const FileBytes>> files)
    : name_(info.name), files_(std::move(files)) {
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
    malformed("program '" + name_ + "': its steps are malformed: " + error.what(), error.offset);
  } catch (const std::bad_alloc&) {
    throw ContextError(ContextError::Kind::memory, "program '" + name_ + "' cannot be held in memory");
  } catch (const std::logic_error& error) {  // what steps refuse
    malformed("program '" + name_ + "': its steps are malformed: " + error.what());
  }
  for (const auto& file : files_) file->require_whole();
}

StoredArray LoadedProgram::array(const Json& described, const ReadBytes& read, ArrayCache& arrays) {
  StoredArray array = arrays.read(described, read);
  if (array.owner) kept_.push_back(array.owner);
  return array;
}

Attributes LoadedProgram::attributes(const Json& given, const ReadBytes& read, ArrayCache& arrays) {
  Attributes made;
  for (const auto& [name, value] : given.object()) {
    if (value.is_integer()) {
      made.integers[name] = {value.integer(kLowest)};
    } else if (value.is_list()) {
      made.integers[name] = value.integers(kLowest);
    } else if (const Json* number = value.find("real")) {
      made.reals[name] = {real(*number)};
    } else {
      const StoredArray constant = array(value, read, arrays);
      made.constants[name] = {constant.data, constant.bytes};
    }
  }
  return made;
}

LoadedProgram::Stage LoadedProgram::stage(const Json& segment, const ReadBytes& read, ArrayCache& arrays,
                                          Known& known) {
  Stage made;
  for (const Json& name : segment["reads"].list()) {
    const auto found = known.find(name.text());
    if (found == known.end()) malformed("a stage reads tensor '" + name.text() + "', which is not there");
    made.reads.push_back(found->second);
    ++slots_[found->second].readers;
  }
  Known written;
  for (const Json& row : segment["writes"].list()) {
    const Json::List& fields = row.list(3);
    const StoredType type = stored_type(fields[1].text());
    std::int64_t bytes = type.bytes;
    for (std::int64_t dim : fields[2].integers()) bytes = times({bytes, dim});
    made.writes.push_back(add({bytes, type, false, true}));
    if (!written.try_emplace(fields[0].text(), made.writes.back()).second) malformed("a stage writes a tensor twice");
  }
  wire(segment, read, arrays, made);
  for (const auto& [name, slot] : written) known[name] = slot;
  return made;
}

// The tensors by their numbers, and the steps over them.
void LoadedProgram::wire(const Json& segment, const ReadBytes& read, ArrayCache& arrays, Stage& stage) {
  stage.program = std::make_unique<Program>(segment["arena_bytes"].integer());
  const Json::List& tensors = segment["tensors"].list();
  const Json::List& steps = segment["steps"].list();
  const auto numbers = [&](const Json& given) {
    std::vector<int> made;
    for (std::int64_t number : given.integers()) {
      if (number >= static_cast<std::int64_t>(tensors.size())) malformed("a step has a tensor that is not there");
      made.push_back(static_cast<int>(number));
    }
    return made;
  };
  // an output that a step reads again has bytes behind its end; inputs have none, so steps that need them refuse
  std::vector<bool> again(tensors.size());
  for (const Json& step : steps) {
    const auto kind = step_kinds().find(step.list(4)[0].text());
    const int exact = kind == step_kinds().end() ? INT_MAX
                      : kind->second.schema.room ? kind->second.schema.exact_from
                                                 : 0;
    int position = 0;
    for (int tensor : numbers(step.list(4)[1])) {
      if (position++ < exact) again[static_cast<std::size_t>(tensor)] = true;
    }
  }
  std::map<int, std::size_t> inputs, outputs;  // slots by the numbers of their tensors
  std::size_t reads = 0, writes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].is_object()) {
      const StoredArray constant = array(tensors[i], read, arrays);
      stage.program->tensor({Tensor::Place::constant, 0, constant.bytes, constant.data, constant.room});
      continue;
    }
    const Json::List& fields = tensors[i].list(3);
    const std::string& place = fields[0].text();
    const std::int64_t offset = fields[1].integer(), bytes = fields[2].integer();
    if (place == "arena") {
      stage.program->tensor({Tensor::Place::arena, offset, bytes, nullptr});
    } else if (place == "input") {
      if (reads == stage.reads.size() || slots_[stage.reads[reads]].bytes != bytes) {
        malformed("a stage reads a tensor that is not there, or not of that size");
      }
      inputs[static_cast<int>(i)] = stage.reads[reads];
      stage.program->tensor({Tensor::Place::input, static_cast<std::int64_t>(reads++), bytes, nullptr, 0});
    } else if (place == "output") {
      if (writes == stage.writes.size() || slots_[stage.writes[writes]].bytes != bytes) {
        malformed("a stage writes a tensor that is not there, or not of that size");
      }
      slots_[stage.writes[writes]].room = again[i];
      outputs[static_cast<int>(i)] = stage.writes[writes];
      const std::int64_t room = again[i] ? kRoom : 0;
      stage.program->tensor({Tensor::Place::output, static_cast<std::int64_t>(writes++), bytes, nullptr, room});
    } else {
      malformed("no place is named '" + place + "'");
    }
  }
  if (reads != stage.reads.size() || writes != stage.writes.size()) {
    malformed("a stage has not as many tensors as it reads and writes");
  }
  for (const Json& step : steps) {
    const Json::List& fields = step.list(4);
    stage.program->step(fields[0].text(), numbers(fields[1]), numbers(fields[2]), attributes(fields[3], read, arrays));
  }
  stage.program->require_assigned();
  note_states(steps, inputs, outputs);
}

// Outputs that are an input with something put in, where no other step reads that input.
void LoadedProgram::note_states(const Json::List& steps, const std::map<int, std::size_t>& inputs,
                                const std::map<int, std::size_t>& outputs) {
  std::map<std::int64_t, int> reads;
  for (const Json& step : steps) {
    for (const Json& tensor : step.list(4)[1].list()) ++reads[tensor.integer()];
  }
  for (const Json& step : steps) {
    const Json::List& fields = step.list(4);
    if (!fields[0].text().starts_with("scatter_") || fields[1].list().empty() || fields[2].list().empty()) continue;
    const std::int64_t source = fields[1].list()[0].integer(), target = fields[2].list()[0].integer();
    const auto input = inputs.find(static_cast<int>(source)), output = outputs.find(static_cast<int>(target));
    if (input == inputs.end() || output == outputs.end() || reads[source] != 1) continue;
    slots_[output->second].state_of = input->second;
  }
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
    stage.program->run(reads, writes, threads, Spinning{}, pause);
  }
  for (const auto& file : files_) file->require_whole();
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
  return std::any_of(stages_.begin(), stages_.end(), [](const Stage& stage) { return stage.program->overflowed(); });
}

}  // namespace hexforge
