// SPDX-License-Identifier: Apache-2.0
// Python bindings of Program: arrays given as constants are kept alive as long as the program.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "context/error.h"
#include "context/large_pages.h"
#include "context/segment.h"
#include "core/level.h"
#include "core/mapping.h"
#include "core/program.h"
#include "steps/steps.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace nb = nanobind;

namespace hexforge {
namespace {

using Constant = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Writable = nb::ndarray<nb::c_contig, nb::device::cpu>;

std::int64_t bytes_of(const auto& array) { return static_cast<std::int64_t>(array.nbytes()); }

// The object whose memory an array lies in: of views the last one that has no base.
nb::object owner_of(nb::handle array) {
  nb::object owner = nb::borrow(array);
  for (nb::object base = owner; !base.is_none(); base = nb::getattr(base, "base", nb::none())) owner = base;
  return owner;
}

// What a memoryview shows, by the attribute that Python's stable ABI leaves to ask; any other object itself.
nb::object shown_by(const nb::object& owner) {
  if (!PyMemoryView_Check(owner.ptr())) return owner;
  nb::object shown = nb::getattr(owner, "obj", nb::none());
  return shown.is_none() ? owner : shown;
}

// How many bytes of the same memory lie behind an array.
std::int64_t room_behind(nb::handle array) {
  const auto given = nb::cast<Constant>(array);
  const nb::object owner = shown_by(owner_of(array));
  Py_buffer whole;
  if (PyObject_GetBuffer(owner.ptr(), &whole, PyBUF_SIMPLE) != 0) {
    PyErr_Clear();
    return 0;
  }
  const auto start = reinterpret_cast<std::uintptr_t>(whole.buf), end = start + static_cast<std::size_t>(whole.len),
             first = reinterpret_cast<std::uintptr_t>(given.data()), last = first + given.nbytes();
  PyBuffer_Release(&whole);
  return first >= start && last <= end ? static_cast<std::int64_t>(end - last) : 0;
}

class PyProgram {
 public:
  explicit PyProgram(std::int64_t arena_bytes) : program_(std::make_unique<Program>(arena_bytes)) {}
  explicit PyProgram(LoadedSegment segment)
      : loaded_(std::move(segment.kept)),
        constants_(std::move(segment.constants)),
        program_(std::move(segment.program)),
        mappings_(std::move(segment.mappings)) {
    for (const LoadedSegment::Read& read : segment.reads) inputs_.push_back({read.bytes, 0});
    for (const LoadedSegment::Write& write : segment.writes) outputs_.push_back({write.bytes, write.room ? kRoom : 0});
  }

  int arena_tensor(std::int64_t offset, std::int64_t bytes) {
    return program_->tensor({Tensor::Place::arena, offset, bytes, nullptr});
  }
  int constant_tensor(nb::handle given) {
    const auto array = nb::cast<Constant>(given);
    keep(given);
    return program_->tensor({Tensor::Place::constant, 0, bytes_of(array), array.data(), room_behind(given)});
  }
  int input_tensor(std::int64_t bytes, std::int64_t room) { return border(Tensor::Place::input, bytes, room, inputs_); }
  int output_tensor(std::int64_t bytes, std::int64_t room) {
    return border(Tensor::Place::output, bytes, room, outputs_);
  }

  void step(const std::string& kind, std::vector<int> ins, std::vector<int> outs, nb::dict attributes) {
    Attributes at;
    for (auto [key, value] : attributes) {
      const auto name = nb::cast<std::string>(key);
      if (nb::isinstance<nb::bool_>(value) || nb::isinstance<nb::int_>(value)) {
        at.integers[name] = {nb::cast<std::int64_t>(nb::int_(value))};
      } else if (nb::isinstance<nb::float_>(value)) {
        at.reals[name] = {nb::cast<double>(value)};
      } else if (nb::isinstance<nb::tuple>(value) || nb::isinstance<nb::list>(value)) {
        at.integers[name] = nb::cast<std::vector<std::int64_t>>(value);
      } else {
        const auto array = nb::cast<Constant>(value);
        keep(value);
        at.constants[name] = {array.data(), bytes_of(array)};
      }
    }
    program_->step(kind, std::move(ins), std::move(outs), at);
  }

  void require_assigned() { program_->require_assigned(); }

  void run(const std::vector<Constant>& inputs, const std::vector<Writable>& outputs, int threads, std::int32_t spin_us,
           std::int32_t spin_after_us, nb::object check, std::size_t count) const {
    const auto [in, out] = checked(inputs, outputs);
    const auto pause = [&check] {
      nb::gil_scoped_acquire acquire;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (!check.is_none()) check();
    };
    nb::gil_scoped_release release;
    program_->run(in, out, threads, {std::max(0, spin_us), std::max(0, spin_after_us)}, pause, count);
    for (int mapping : mappings_) {
      if (mapping_lost(mapping)) throw std::runtime_error("a file that holds its constants was truncated");
    }
  }

  std::vector<std::tuple<double, double, int>> time_steps(const std::vector<Constant>& inputs,
                                                          const std::vector<Writable>& outputs, int threads) const {
    const auto [in, out] = checked(inputs, outputs);
    std::vector<std::tuple<double, double, int>> found;
    for (const Program::StepTime& step : program_->time_steps(in, out, threads))
      found.emplace_back(step.alone, step.shared, step.loops);
    return found;
  }

  bool overflowed() const { return program_->overflowed(); }
  const Program& program() const { return *program_; }
  // The addresses of the arrays of a loaded program: step, name, address.
  std::vector<std::tuple<std::size_t, std::string, std::uintptr_t>> constants() const {
    std::vector<std::tuple<std::size_t, std::string, std::uintptr_t>> all;
    all.reserve(constants_.size());
    for (const LoadedSegment::Constant& constant : constants_)
      all.emplace_back(constant.step, constant.name, reinterpret_cast<std::uintptr_t>(constant.data));
    return all;
  }

 private:
  // A tensor that is an array of the caller's: given so many bytes, and `room` more where that is not 0.
  struct Border {
    std::int64_t bytes, room;
    bool fits(const auto& array) const { return bytes_of(array) - room == bytes; }
  };
  int border(Tensor::Place place, std::int64_t bytes, std::int64_t room, std::vector<Border>& all) {
    const auto index = static_cast<std::int64_t>(all.size());
    const int tensor = program_->tensor({place, index, bytes, nullptr, room});
    all.push_back({bytes, room});
    return tensor;
  }

  std::pair<std::vector<const void*>, std::vector<void*>> checked(const std::vector<Constant>& inputs,
                                                                  const std::vector<Writable>& outputs) const {
    if (inputs.size() != inputs_.size() || outputs.size() != outputs_.size()) {
      throw std::invalid_argument("run: wrong number of inputs or outputs");
    }
    std::vector<const void*> in(inputs.size());
    std::vector<void*> out(outputs.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (!inputs_[i].fits(inputs[i])) throw std::invalid_argument("run: an input has the wrong size");
      in[i] = inputs[i].data();
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (!outputs_[i].fits(outputs[i])) throw std::invalid_argument("run: an output has the wrong size");
      out[i] = outputs[i].data();
    }
    return {std::move(in), std::move(out)};
  }

  // Keeps an array's memory: of views into one buffer (a mapped file's, mostly) the first stands for all.
  void keep(nb::handle array) {
    if (const int mapping = mapping_of(nb::cast<Constant>(array).data()); mapping >= 0) mappings_.insert(mapping);
    const nb::object owner = owner_of(array);
    kept_.try_emplace(shown_by(owner).ptr(), owner);
  }

  std::map<PyObject*, nb::object> kept_;          // longer than what points there
  std::set<std::shared_ptr<const void>> loaded_;  // likewise, of a program from a file
  std::vector<LoadedSegment::Constant> constants_;
  std::unique_ptr<Program> program_;
  std::set<int> mappings_;  // files that constants lie in, which are kept and so stay what they are
  std::vector<Border> inputs_, outputs_;
};

// An object that threads without the interpreter's lock may let go.
struct HeldObject {
  explicit HeldObject(nb::object object) : object(std::move(object)) {}
  HeldObject(const HeldObject&) = delete;
  HeldObject& operator=(const HeldObject&) = delete;
  ~HeldObject() {
    const nb::gil_scoped_acquire acquire;
    object.reset();
  }
  nb::object object;
};

// Bytes that a Python function gives as memoryviews, of which each whole buffer is kept once.
class PyBytes {
 public:
  explicit PyBytes(nb::object get) : get_(std::move(get)) {}
  PyBytes(const PyBytes&) = delete;
  PyBytes& operator=(const PyBytes&) = delete;

  KeptBytes operator()(std::int64_t offset, std::int64_t bytes) {
    const nb::gil_scoped_acquire acquire;
    const nb::object view = get_(offset, bytes);
    const std::span<const std::byte> given = shown(view);
    const nb::object buffer = shown_by(owner_of(view));
    Kept& kept = kept_[buffer.ptr()];
    if (!kept.owner) {
      kept.whole = shown(buffer);
      kept.owner = std::make_shared<const HeldObject>(buffer);
    }
    const std::byte *end = given.data() + given.size(), *last = kept.whole.data() + kept.whole.size();
    const bool inside = given.data() >= kept.whole.data() && end <= last;
    return {given, inside ? last - end : 0, kept.owner};
  }

 private:
  struct Kept {
    std::shared_ptr<const void> owner;
    std::span<const std::byte> whole;
  };
  static std::span<const std::byte> shown(const nb::object& object) {
    Py_buffer buffer;
    if (PyObject_GetBuffer(object.ptr(), &buffer, PyBUF_SIMPLE) != 0) throw nb::python_error();
    const std::span all(static_cast<const std::byte*>(buffer.buf), static_cast<std::size_t>(buffer.len));
    PyBuffer_Release(&buffer);
    return all;
  }
  nb::object get_;
  std::map<PyObject*, Kept> kept_;
};

// Arrays that were made whole, of all programs.
ArrayCache& whole_arrays() {
  static ArrayCache cache;
  return cache;
}

// numpy's code of a data type.
std::string code(StoredType type) {
  std::string text(type.bytes == 1 ? "|" : "<");
  text.push_back(type.kind);
  return text.append(std::to_string(type.bytes));
}

nb::tuple segment(const std::string& program, const Json& described, PyBytes& bytes) {
  LoadedSegment made;
  {
    const nb::gil_scoped_release release;
    made = load_segment(program, described, std::ref(bytes), whole_arrays());
  }
  nb::list reads, writes;
  for (const LoadedSegment::Read& read : made.reads) reads.append(nb::make_tuple(read.name, read.bytes));
  for (const LoadedSegment::Write& write : made.writes)
    writes.append(nb::make_tuple(write.name, code(write.type), write.dims, write.room));
  const std::int64_t arena_bytes = made.arena_bytes;
  return nb::make_tuple(nb::cast(new PyProgram(std::move(made)), nb::rv_policy::take_ownership), arena_bytes, reads,
                        writes);
}

// A node that Python runs: its name, and what it reads and writes.
nb::tuple reference(const Json& described) {
  const auto names = [](const Json& given) {
    nb::list all;
    for (const Json& name : given.list()) all.append(name.is_null() ? nb::none() : nb::cast(name.text()));
    return all;
  };
  return nb::make_tuple(described["node"].text(), names(described["ins"]), names(described["outs"]));
}

// What the JSON of a program says: its stages, and the tensors that are bfloat16 to the model, where it says that.
nb::tuple load_program(const std::string& name, const nb::bytes& text, nb::object get) {
  PyBytes bytes(std::move(get));
  nb::list stages;
  nb::object narrow = nb::none();
  Json data;
  {
    const std::string_view given(text.c_str(), text.size());
    const nb::gil_scoped_release release;
    data = Json::parse(given, "program '" + name + "'", 0);
  }
  const std::string subject = "program '" + name + "'";
  try {
    data["graph"].text();
    for (const Json& stage : data["stages"].list())
      stages.append(stage.find("node") ? reference(stage) : segment(name, stage, bytes));
    if (const Json* cast = data.find("bfloat16")) {
      nb::list tensors;
      for (const Json& tensor : cast->list()) tensors.append(tensor.text());
      narrow = std::move(tensors);
    }
  } catch (const ContextError& error) {
    if (std::string_view(error.what()).starts_with(subject)) throw;
    malformed(subject + ": is malformed: " + error.what(), error.offset);
  }
  return nb::make_tuple(stages, narrow);
}

using Shown = nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>>;

Shown shown(const StoredArray& array) {
  const nb::capsule keeper(new std::shared_ptr<const void>(array.owner),
                           [](void* held) noexcept { delete static_cast<std::shared_ptr<const void>*>(held); });
  return Shown(array.data, {static_cast<std::size_t>(array.bytes)}, keeper);
}

}  // namespace

void bind_program(nb::module_& module) {
  register_steps();
  nb::class_<PyProgram>(module, "Program", "Steps over an arena, run in one call with the GIL released.")
      .def(nb::init<std::int64_t>(), nb::arg("arena_bytes"))
      .def("arena_tensor", &PyProgram::arena_tensor, nb::arg("offset"), nb::arg("bytes"))
      .def("constant_tensor", &PyProgram::constant_tensor, nb::arg("array"))
      .def("input_tensor", &PyProgram::input_tensor, nb::arg("bytes"), nb::arg("room") = 0,
           "An input. With `room` the array that a run is given has so many bytes more, which steps may read, not use.")
      .def(
          "output_tensor", &PyProgram::output_tensor, nb::arg("bytes"), nb::arg("room") = 0,
          "An output. With `room` the array that a run is given has so many bytes more, which steps may read, not use.")
      .def("step", &PyProgram::step, nb::arg("kind"), nb::arg("ins"), nb::arg("outs"), nb::arg("attributes"))
      .def("require_assigned", &PyProgram::require_assigned,
           "ValueError where a step reads what no step before it wrote, or an output is not written whole.")
      .def(
          "run", &PyProgram::run, nb::arg("inputs"), nb::arg("outputs"), nb::arg("threads"),
          nb::arg("spin_us") = Spinning{}.during_us, nb::arg("spin_after_us") = Spinning{}.after_us,
          nb::arg("check") = nb::none(), nb::arg("count") = SIZE_MAX,
          "Run the steps, or the first `count` of them. Workers that wait stay awake for so many microseconds, during "
          "the run and after it. `check` is called every now and then between two steps, and may raise to end the run; "
          "so may signals.")
      .def("time_steps", &PyProgram::time_steps, nb::arg("inputs"), nb::arg("outputs"), nb::arg("threads"),
           "Run the steps on one thread; of each the seconds, those it would take at least on so many threads with a "
           "core "
           "each, and how many of its loops would be split.")
      .def_prop_ro(
          "states", [](const PyProgram& program) { return program.program().states(); },
          "Outputs that are an input with something put in, where no other step reads that input.")
      .def_prop_ro(
          "last_steps", [](const PyProgram& program) { return program.program().last_steps(); },
          "Of each output the number of steps after which it is whole.")
      .def_prop_ro(
          "kinds", [](const PyProgram& program) { return program.program().kinds_of_steps(); }, "Of its steps.")
      .def_prop_ro("constants", &PyProgram::constants,
                   "Of a program from a file, where the arrays of its steps lie: step, name, address.")
      .def_prop_ro("overflowed", &PyProgram::overflowed,
                   "True once a run had a number past what float16 holds, but 65536.");
  module.def(
      "load_program", &load_program, nb::arg("name"), nb::arg("text"), nb::arg("get"),
      "The stages that a program's JSON in a context describes, and which tensors are bfloat16 to the model, or None. "
      "A stage is a program, its bytes of working memory, names and bytes of what it reads, names, data types, "
      "shapes of what it writes and whether bytes must lie behind; or a node, what it reads and writes.");
  module.def(
      "read_array",
      [](const nb::bytes& text, nb::object get) {
        PyBytes bytes(std::move(get));
        const Json described = Json::parse({text.c_str(), text.size()}, "array", 0);
        return shown(whole_arrays().read(described, std::ref(bytes)));
      },
      nb::arg("text"), nb::arg("get"), "The bytes of an array that a program's JSON describes.");
  module.def(
      "move_to_large_pages",
      [](const std::vector<nb::object>& packed, const std::vector<nb::object>& others) {
        std::vector<StoredArray> arrays;
        for (const auto* side : {&packed, &others}) {
          for (const nb::object& given : *side) {
            const auto array = nb::cast<Constant>(given);
            const auto* data = reinterpret_cast<const std::byte*>(array.data());
            arrays.push_back({data, bytes_of(array), 0, std::make_shared<Constant>(array), {'u', 1}, mapping_of(data)});
          }
        }
        std::vector<StoredArray*> all;
        all.reserve(arrays.size());
        for (StoredArray& array : arrays) all.push_back(&array);
        move_to_large_pages(std::span(all).first(packed.size()), std::span(all).subspan(packed.size()));
        std::vector<std::optional<Shown>> moved;
        for (std::size_t i = 0; i < arrays.size(); ++i) {
          const nb::object& given = i < packed.size() ? packed[i] : others[i - packed.size()];
          const bool same = arrays[i].data == static_cast<const std::byte*>(nb::cast<Constant>(given).data());
          moved.push_back(same ? std::nullopt : std::optional(shown(arrays[i])));
        }
        return moved;
      },
      nb::arg("packed"), nb::arg("others"),
      "Copies of arrays of a mapped file that programs share, None of what stays where it is: for tests.");
  module.def(
      "release_free_memory",
      [] {
#if defined(__GLIBC__)
        malloc_trim(0);
#endif
      },
      "Give memory that was freed back to the system, which the C library would keep for later.");
  module.def(
      "step_fields",
      [] {
        std::map<std::string, std::map<std::string, std::string>> all;
        for (const auto& [kind, step] : step_kinds()) {
          for (const Field& field : step.schema.fields) {
            all[kind][field.name] = name(field.type) + (field.optional ? ", or nothing" : "");
          }
        }
        return all;
      },
      "The attributes of every kind of step, each with what it is.");
  module.def(
      "step_rooms",
      [] {
        std::map<std::string, std::int64_t> all;
        for (const auto& [kind, step] : step_kinds()) all[kind] = step.schema.room;
        return all;
      },
      "The bytes behind each of its tensors that a kind of step may read, and never uses.");
  module.def(
      "step_exact_from",
      [] {
        std::map<std::string, int> all;
        for (const auto& [kind, step] : step_kinds()) all[kind] = step.schema.room ? step.schema.exact_from : 0;
        return all;
      },
      "Of every kind of step the first input from which on it reads nothing behind its tensors.");
  module.def("split_everything", &split_everything, nb::arg("wanted"),
             "Split every loop over the threads, however small it is: for tests.");
  module.def(
      "guard_mapping",
      [](nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> data, int file) {
        return guard_mapping(data.data(), data.size(), file);
      },
      nb::arg("data"), nb::arg("file"),
      "Let a mapped file be truncated without ending the process; the number to ask with, or -1.");
  module.def("unguard_mapping", &unguard_mapping, nb::arg("number"), "End that, before the mapping ends.");
  module.def(
      "mapping_of", [](std::uintptr_t address) { return mapping_of(reinterpret_cast<const void*>(address)); },
      nb::arg("address"), "The number of the guarded mapping that an address lies in, or -1.");
  module.def("mapping_lost", &mapping_lost, nb::arg("number"), "True where its file was truncated.");
  module.def("level", [] { return name(current_level()); }, "The instruction set in use.");
  module.def(
      "levels",
      [] {
        std::vector<std::string> all;
        for (Level level : kLevels) {
          if (has_level(level)) all.push_back(name(level));
        }
        return all;
      },
      "The instruction sets this CPU has, slowest first.");
  module.def(
      "set_level",
      [](const std::string& wanted) {
        for (Level level : kLevels) {
          if (name(level) == wanted) return set_level(level);
        }
        throw std::invalid_argument("no instruction set is named " + wanted);
      },
      nb::arg("level"), "Use a lower instruction set than the CPU has: for tests.");
}

}  // namespace hexforge
