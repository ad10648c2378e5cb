// SPDX-License-Identifier: Apache-2.0
// Python bindings of hexforge._native.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <stdexcept>

#include "core/checksum.h"
#include "kernels/halves.h"
#include "kernels/peak.h"
#include "kernels/requantize.h"

namespace nb = nanobind;

namespace hexforge {
void bind_compiled_context(nb::module_& module);
void bind_program(nb::module_& module);
void bind_observe(nb::module_& module);
}  // namespace hexforge

namespace {

using Accumulators = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Multipliers = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename Out>
void requantize_into(Accumulators accumulators, Multipliers multipliers,
                     nb::ndarray<Out, nb::ndim<2>, nb::c_contig, nb::device::cpu> out, std::int64_t zero_point,
                     std::int64_t low, std::int64_t high) {
  const std::size_t rows = accumulators.shape(0), channels = accumulators.shape(1);
  if (multipliers.shape(0) != channels || out.shape(0) != rows || out.shape(1) != channels) {
    throw std::invalid_argument("requantize: shapes of accumulators, multipliers and out do not agree");
  }
  nb::gil_scoped_release release;
  hexforge::requantize<Out>(accumulators.data(), multipliers.data(), out.data(), rows, channels, zero_point, low, high);
}

}  // namespace

NB_MODULE(_native, module) {
  module.doc() = "Native kernels of hexforge.";
  const char* doc = "out[r, c] = clamp(round_half_even(accumulators[r, c] * multipliers[c]) + zero_point, low, high)";
  module.def("requantize", &requantize_into<std::uint8_t>, nb::arg("accumulators"), nb::arg("multipliers"),
             nb::arg("out"), nb::arg("zero_point"), nb::arg("low"), nb::arg("high"), doc);
  module.def("requantize", &requantize_into<std::int8_t>, nb::arg("accumulators"), nb::arg("multipliers"),
             nb::arg("out"), nb::arg("zero_point"), nb::arg("low"), nb::arg("high"), doc);
  module.def("requantize", &requantize_into<std::uint16_t>, nb::arg("accumulators"), nb::arg("multipliers"),
             nb::arg("out"), nb::arg("zero_point"), nb::arg("low"), nb::arg("high"), doc);
  module.def("requantize", &requantize_into<std::int16_t>, nb::arg("accumulators"), nb::arg("multipliers"),
             nb::arg("out"), nb::arg("zero_point"), nb::arg("low"), nb::arg("high"), doc);
  module.def(
      "peak_macs",
      [](const std::string& kind) {
        nb::gil_scoped_release release;
        return hexforge::peak_macs(kind);
      },
      nb::arg("kind"),
      "Multiply-accumulates per second of a loop that only touches registers, for u8, s16 or f32: the kernels' floor.");
  module.def(
      "crc32c",
      [](nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> data, std::uint32_t before,
         int threads, std::size_t least_part) {
        nb::gil_scoped_release release;
        return hexforge::crc32c(data.data(), data.size(), before, threads, least_part);
      },
      nb::arg("data"), nb::arg("before") = 0, nb::arg("threads") = 1, nb::arg("least_part") = std::size_t{4} << 20,
      "CRC-32C of bytes that follow data with the checksum `before`; of many bytes each thread computes a part.");
  module.def(
      "widen_halves",
      [](nb::ndarray<const std::uint16_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> halves,
         nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu> wide) {
        if (halves.size() != wide.size()) throw std::invalid_argument("widen_halves: sizes do not agree");
        nb::gil_scoped_release release;
        hexforge::widen_halves(halves.data(), wide.data(), halves.size());
      },
      nb::arg("halves"), nb::arg("wide"), "Write halves, given by their bits, as float32.");
  module.def(
      "narrow_halves",
      [](nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu> wide,
         nb::ndarray<std::uint16_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> halves) {
        if (halves.size() != wide.size()) throw std::invalid_argument("narrow_halves: sizes do not agree");
        nb::gil_scoped_release release;
        hexforge::narrow_halves(wide.data(), halves.data(), wide.size());
      },
      nb::arg("wide"), nb::arg("halves"), "Write the bits of float32 numbers rounded as the vector unit does.");
  module.def(
      "narrow_matrix_halves",
      [](nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu> wide,
         nb::ndarray<std::uint16_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> halves) {
        if (halves.size() != wide.size()) throw std::invalid_argument("narrow_matrix_halves: sizes do not agree");
        nb::gil_scoped_release release;
        hexforge::narrow_matrix_halves(wide.data(), halves.data(), wide.size());
      },
      nb::arg("wide"), nb::arg("halves"), "Write the bits of float32 numbers rounded as the matrix unit does.");
  module.def(
      "winograd_cells",
      [](nb::ndarray<const std::uint16_t, nb::ndim<4>, nb::c_contig, nb::device::cpu> halves,
         nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu> cells) {
        const std::size_t channels = halves.shape(2), outputs = halves.shape(3), blocks = (outputs + 63) / 64;
        if (halves.shape(0) != 3 || halves.shape(1) != 3 || cells.size() < blocks * 16 * channels * 64) {
          throw std::invalid_argument("winograd_cells: sizes do not agree");
        }
        nb::gil_scoped_release release;
        hexforge::winograd_cells(halves.data(), cells.data(), channels, outputs, 0, blocks);
      },
      nb::arg("halves"), nb::arg("cells"),
      "Write the cells of [3, 3, in, out] weights, given by their bits in float16, as the kernels read them.");
  hexforge::bind_program(module);
  hexforge::bind_compiled_context(module);
  hexforge::bind_observe(module);
}
