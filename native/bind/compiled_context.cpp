// SPDX-License-Identifier: Apache-2.0
// Python bindings of CompiledContext: the road of programs in C, seen from Python's tests and benchmarks.
#include "context/compiled_context.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <exception>
#include <thread>

namespace nb = nanobind;

namespace hexforge {
namespace {

using Given = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Writable = nb::ndarray<nb::c_contig, nb::device::cpu>;
using Raw = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// The bytes of an array, and what keeps them.
std::pair<Bytes, std::shared_ptr<const void>> kept(const Raw& array) {
  auto owner = std::make_shared<Raw>(array);
  return {std::as_bytes(std::span(array.data(), array.size())),
          std::shared_ptr<const void>(owner.get(), [owner](const void*) mutable {
            nb::gil_scoped_acquire acquire;
            owner.reset();
          })};
}

std::vector<Buffer> buffers(const std::vector<Given>& arrays) {
  std::vector<Buffer> made;
  made.reserve(arrays.size());
  for (const Given& array : arrays)
    made.push_back({const_cast<void*>(array.data()), static_cast<std::int64_t>(array.nbytes())});
  return made;
}

std::vector<Buffer> buffers(const std::vector<Writable>& arrays) {
  std::vector<Buffer> made;
  made.reserve(arrays.size());
  for (const Writable& array : arrays) made.push_back({array.data(), static_cast<std::int64_t>(array.nbytes())});
  return made;
}

// Name, id, data type, dimensions, bytes, tile; scales, offsets and bit width of the encoding.
using TensorRow = std::tuple<std::string, std::uint32_t, std::string, std::vector<std::int64_t>, std::int64_t, int,
                             std::vector<double>, std::vector<std::int64_t>, std::int64_t>;

std::vector<TensorRow> rows(const std::vector<TensorInfo>& tensors) {
  std::vector<TensorRow> made;
  made.reserve(tensors.size());
  for (const TensorInfo& t : tensors) {
    made.emplace_back(t.name, t.id, name(t.dtype), t.dims, t.bytes, t.tile, t.encoding.scales, t.encoding.offsets,
                      t.encoding.bitwidth);
  }
  return made;
}

const char* class_of(ContextError::Kind kind) {
  switch (kind) {
    case ContextError::Kind::format: return "FormatError";
    case ContextError::Kind::unsupported: return "UnsupportedError";
    case ContextError::Kind::memory: return "CapacityError";
    default: return "CallError";
  }
}

}  // namespace

void bind_compiled_context(nb::module_& module) {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const ContextError& error) {
      nb::object type = nb::module_::import_("hexforge.errors").attr(class_of(error.kind));
      const nb::object code = error.code ? nb::cast(error.code) : nb::none();
      nb::object made = error.kind == ContextError::Kind::format && error.offset >= 0
                            ? type(error.what(), error.offset, nb::arg("code") = code)
                            : type(error.what(), nb::arg("code") = code);
      PyErr_SetObject(type.ptr(), made.ptr());
    }
  });
  module.def(
      "read_sections",
      [](const Raw& data, const std::string& where) {
        const Bytes all = std::as_bytes(std::span(data.data(), data.size()));
        std::vector<std::tuple<std::string, std::string, std::int64_t, std::int64_t, std::uint32_t>> rows;
        for (const Container::Section& section : Container::read_table(all, where))
          rows.emplace_back(section.kind, section.name, section.offset, section.bytes, section.crc32c);
        return rows;
      },
      nb::arg("data"), nb::arg("where"),
      "The table of a container's sections: kind, name, offset, bytes and checksum of each.");
  nb::class_<CompiledGraph>(module, "CompiledGraph", "A graph of a context, ready to run without Python.")
      .def_prop_ro("inputs", [](const CompiledGraph& graph) { return rows(graph.info().inputs); })
      .def_prop_ro("outputs", [](const CompiledGraph& graph) { return rows(graph.info().outputs); })
      .def_prop_ro("overflowed", &CompiledGraph::overflowed, "True once a run had a number past what float16 holds.")
      .def(
          "run",
          [](const CompiledGraph& graph, const std::vector<Given>& inputs, const std::vector<Writable>& outputs,
             int threads) {
            const std::vector<Buffer> in = buffers(inputs), out = buffers(outputs);
            nb::gil_scoped_release release;
            graph.run(in, out, {threads, {}});
          },
          nb::arg("inputs"), nb::arg("outputs"), nb::arg("threads") = 0, "Run on arrays in the order of the tensors.");
  nb::class_<CompiledContext>(module, "CompiledContext", "A compiled context, opened as programs in C open it.")
      .def_static(
          "open_file",
          [](const std::string& path, bool verify) { return CompiledContext::open_file(path, {verify, {}}); },
          nb::arg("path"), nb::arg("verify") = true)
      .def_static(
          "open_memory",
          [](const Raw& data, bool verify) {
            auto [bytes, owner] = kept(data);
            return CompiledContext::open_memory(bytes, std::move(owner), {verify, {}});
          },
          nb::arg("data"), nb::arg("verify") = true)
      .def_prop_ro("backend", &CompiledContext::backend)
      .def_prop_ro("producer", &CompiledContext::producer)
      .def_prop_ro("options", &CompiledContext::options)
      .def_prop_ro("metadata", &CompiledContext::metadata)
      .def_prop_ro("targets",
                   [](const CompiledContext& context) {
                     std::vector<std::tuple<std::string, std::string, std::map<std::string, std::int64_t>>> all;
                     for (const TargetInfo& target : context.targets())
                       all.emplace_back(target.soc, target.label, target.facts);
                     return all;
                   })
      .def_prop_ro("graphs",
                   [](const CompiledContext& context) {
                     std::vector<std::string> all;
                     for (const GraphInfo& graph : context.graphs()) all.push_back(graph.name);
                     return all;
                   })
      .def(
          "settings",
          [](const CompiledContext& context, const std::string& name) { return context.info(name).settings; },
          nb::arg("graph"))
      .def("graph", &CompiledContext::graph, nb::arg("name"), nb::call_guard<nb::gil_scoped_release>())
      .def(
          "timeline",
          [](const CompiledContext& context, const std::string& graph, const std::string& soc) {
            std::vector<std::tuple<std::string, std::string, double, double, std::int64_t>> all;
            if (const auto line = context.timeline(graph, soc)) {
              for (const GraphTimeline::Row& row : line->rows)
                all.emplace_back(row.name, row.op, row.start_us, row.us, row.cycles);
            }
            return all;
          },
          nb::arg("graph"), nb::arg("soc") = "", "Name, op, start, microseconds and cycles of each task.")
      .def(
          "apply_adapter",
          [](CompiledContext& context, const Raw& data, const std::string& graph, bool verify) {
            auto [bytes, owner] = kept(data);
            context.apply_adapter(bytes, std::move(owner), graph, verify);
          },
          nb::arg("data"), nb::arg("graph") = "", nb::arg("verify") = true)
      .def("remove_adapters", &CompiledContext::remove_adapters, nb::arg("graph") = "");
}

}  // namespace hexforge
