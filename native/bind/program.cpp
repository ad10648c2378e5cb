// SPDX-License-Identifier: Apache-2.0
// Python bindings of Program: arrays given as constants are kept alive as long as the program.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

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
  explicit PyProgram(std::int64_t arena_bytes) : program_(arena_bytes) {}

  int arena_tensor(std::int64_t offset, std::int64_t bytes) {
    return program_.tensor({Tensor::Place::arena, offset, bytes, nullptr});
  }
  int constant_tensor(nb::handle given) {
    const auto array = nb::cast<Constant>(given);
    keep(given);
    return program_.tensor({Tensor::Place::constant, 0, bytes_of(array), array.data(), room_behind(given)});
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
    program_.step(kind, std::move(ins), std::move(outs), at);
  }

  void require_assigned() { program_.require_assigned(); }

  void run(const std::vector<Constant>& inputs, const std::vector<Writable>& outputs, int threads, std::int32_t spin_us,
           std::int32_t spin_after_us, nb::object check, std::size_t count) const {
    const auto [in, out] = checked(inputs, outputs);
    const auto pause = [&check] {
      nb::gil_scoped_acquire acquire;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (!check.is_none()) check();
    };
    nb::gil_scoped_release release;
    program_.run(in, out, threads, {std::max(0, spin_us), std::max(0, spin_after_us)}, pause, count);
    for (int mapping : mappings_) {
      if (mapping_lost(mapping)) throw std::runtime_error("a file that holds its constants was truncated");
    }
  }

  std::vector<std::tuple<double, double, int>> time_steps(const std::vector<Constant>& inputs,
                                                          const std::vector<Writable>& outputs, int threads) const {
    const auto [in, out] = checked(inputs, outputs);
    std::vector<std::tuple<double, double, int>> found;
    for (const Program::StepTime& step : program_.time_steps(in, out, threads))
      found.emplace_back(step.alone, step.shared, step.loops);
    return found;
  }

  bool overflowed() const { return program_.overflowed(); }

 private:
  // A tensor that is an array of the caller's: given so many bytes, and `room` more where that is not 0.
  struct Border {
    std::int64_t bytes, room;
    bool fits(const auto& array) const { return bytes_of(array) - room == bytes; }
  };
  int border(Tensor::Place place, std::int64_t bytes, std::int64_t room, std::vector<Border>& all) {
    const auto index = static_cast<std::int64_t>(all.size());
    const int tensor = program_.tensor({place, index, bytes, nullptr, room});
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

  std::map<PyObject*, nb::object> kept_;  // longer than what points there
  Program program_;
  std::set<int> mappings_;  // files that constants lie in, which are kept and so stay what they are
  std::vector<Border> inputs_, outputs_;
};

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
      .def_prop_ro("overflowed", &PyProgram::overflowed,
                   "True once a run had a number past what float16 holds, but 65536.");
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
