// SPDX-License-Identifier: Apache-2.0
#include "context/segment.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <limits>
#include <new>
#include <stdexcept>

#include "context/error.h"
#include "context/large_pages.h"

namespace hexforge {
namespace {

constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();

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

// A step before its program has it: arrays may still move to other memory.
struct Step {
  std::string kind;
  std::vector<int> ins, outs;
  Attributes attributes;
  std::vector<std::pair<std::string, StoredArray>> arrays;
};

class Loader {
 public:
  Loader(const Json& described, const ReadBytes& read, ArrayCache& arrays)
      : described_(described), read_(read), arrays_(arrays) {}

  LoadedSegment load() {
    made_.arena_bytes = described_["arena_bytes"].integer();
    made_.program = std::make_unique<Program>(made_.arena_bytes);
    borders();
    steps();
    tensors();
    std::vector<StoredArray*> packed, others;
    for (Step& step : steps_) {
      for (auto& [name, array] : step.arrays) (step.kind.starts_with("packed_") ? packed : others).push_back(&array);
    }
    move_to_large_pages(packed, others);
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      Step& step = steps_[i];
      for (const auto& [name, array] : step.arrays) {
        keep(array);
        step.attributes.constants[name] = {array.data, array.bytes};
        made_.constants.push_back({i, name, array.data});
      }
      made_.program->step(step.kind, std::move(step.ins), std::move(step.outs), step.attributes);
    }
    made_.program->require_assigned();
    for (int mapping : made_.mappings) require_whole(mapping);
    return std::move(made_);
  }

 private:
  void keep(const StoredArray& array) {
    if (array.owner) made_.kept.insert(array.owner);
    if (array.mapping >= 0) made_.mappings.insert(array.mapping);
  }

  // The names of what it reads and writes, of which `tensors` says the sizes.
  void borders() {
    for (const Json& name : described_["reads"].list()) made_.reads.push_back({name.text(), 0});
    for (const Json& row : described_["writes"].list()) {
      const Json::List& fields = row.list(3);
      LoadedSegment::Write write{fields[0].text(), stored_type(fields[1].text()), fields[2].integers(), 0};
      write.bytes = write.type.bytes;
      for (std::int64_t dim : write.dims) write.bytes = times({write.bytes, dim});
      for (const LoadedSegment::Write& other : made_.writes) {
        if (other.name == write.name) malformed("a stage writes a tensor twice");
      }
      made_.writes.push_back(std::move(write));
    }
  }

  void steps() {
    const std::size_t count = described_["tensors"].list().size();
    const auto numbers = [count](const Json& given) {
      std::vector<int> made;
      for (std::int64_t number : given.integers()) {
        if (number >= static_cast<std::int64_t>(count)) malformed("a step has a tensor that is not there");
        made.push_back(static_cast<int>(number));
      }
      return made;
    };
    for (const Json& row : described_["steps"].list()) {
      const Json::List& fields = row.list(4);
      steps_.push_back({fields[0].text(), numbers(fields[1]), numbers(fields[2]), {}, {}});
      for (const auto& [name, value] : fields[3].object()) attribute(name, value, steps_.back());
    }
  }

  void attribute(const std::string& name, const Json& value, Step& step) {
    if (value.is_integer()) {
      step.attributes.integers[name] = {value.integer(kLowest)};
    } else if (value.is_list()) {
      step.attributes.integers[name] = value.integers(kLowest);
    } else if (const Json* number = value.find("real")) {
      step.attributes.reals[name] = {real(*number)};
    } else {
      step.arrays.emplace_back(name, arrays_.read(value, read_));
    }
  }

  void tensors() {
    const Json::List& rows = described_["tensors"].list();
    // an output that a step reads again has bytes behind its end; inputs have none, so steps that need them refuse
    std::vector<bool> again(rows.size());
    for (const Step& step : steps_) {
      const auto kind = step_kinds().find(step.kind);
      const int exact = kind == step_kinds().end() ? INT_MAX
                        : kind->second.schema.room ? kind->second.schema.exact_from
                                                   : 0;
      for (std::size_t i = 0; i < step.ins.size() && static_cast<int>(i) < exact; ++i) {
        again[static_cast<std::size_t>(step.ins[i])] = true;
      }
    }
    std::size_t reads = 0, writes = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].is_object()) {
        const StoredArray constant = arrays_.read(rows[i], read_);
        keep(constant);
        made_.program->tensor({Tensor::Place::constant, 0, constant.bytes, constant.data, constant.room});
        continue;
      }
      const Json::List& fields = rows[i].list(3);
      const std::string& place = fields[0].text();
      const std::int64_t offset = fields[1].integer(), bytes = fields[2].integer();
      if (place == "arena") {
        made_.program->tensor({Tensor::Place::arena, offset, bytes, nullptr});
      } else if (place == "input") {
        if (reads == made_.reads.size()) malformed("a stage has more inputs than it reads tensors");
        made_.reads[reads].bytes = bytes;
        made_.program->tensor({Tensor::Place::input, static_cast<std::int64_t>(reads++), bytes, nullptr, 0});
      } else if (place == "output") {
        if (writes == made_.writes.size() || made_.writes[writes].bytes != bytes) {
          malformed("a stage writes a tensor that is not there, or not of that size");
        }
        made_.writes[writes].room = again[i];
        const std::int64_t room = again[i] ? kRoom : 0;
        made_.program->tensor({Tensor::Place::output, static_cast<std::int64_t>(writes++), bytes, nullptr, room});
      } else {
        malformed("no place is named '" + place + "'");
      }
    }
    if (reads != made_.reads.size() || writes != made_.writes.size()) {
      malformed("a stage has not as many tensors as it reads and writes");
    }
  }

  const Json& described_;
  const ReadBytes& read_;
  ArrayCache& arrays_;
  LoadedSegment made_;
  std::vector<Step> steps_;
};

}  // namespace

LoadedSegment load_segment(const std::string& program, const Json& described, const ReadBytes& read,
                           ArrayCache& arrays) {
  const std::string subject = "program '" + program + "'";
  try {
    return Loader(described, read, arrays).load();
  } catch (const ContextError& error) {
    if (error.kind != ContextError::Kind::format) throw;
    malformed(subject + ": its steps are malformed: " + error.what(), error.offset);
  } catch (const std::bad_alloc&) {
    throw ContextError(ContextError::Kind::memory, subject + " cannot be held in memory");
  } catch (const std::logic_error& error) {  // what steps refuse
    malformed(subject + ": its steps are malformed: " + error.what());
  }
}

}  // namespace hexforge
