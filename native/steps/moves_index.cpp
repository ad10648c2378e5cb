// SPDX-License-Identifier: Apache-2.0
// Steps that read or write where indices say: "take", "take_at", "scatter_*", "one_hot", "top_k_*".
// Indices are int32 or int64, negative ones count from the end; one outside its axis ends the run with
// std::out_of_range.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "core/parallel.h"
#include "core/round_and_clamp.h"
#include "kernels/loops.h"
#include "steps/fields.h"
#include "steps/steps.h"

namespace hexforge {
namespace {

// The index at `i` of a tensor of indices, within an axis of `size`.
std::int64_t index_at(const void* indices, std::int64_t bytes, std::int64_t i, std::int64_t size) {
  const std::int64_t raw =
      bytes == 4 ? static_cast<const std::int32_t*>(indices)[i] : static_cast<const std::int64_t*>(indices)[i];
  const std::int64_t index = raw < 0 ? raw + size : raw;
  if (index < 0 || index >= size) {
    throw std::out_of_range("index " + std::to_string(raw) + " is outside an axis of " + std::to_string(size) +
                            " elements");
  }
  return index;
}

std::int64_t index_bytes(const Attributes& at) {
  const std::int64_t bytes = at.integer("index_bytes");
  require(bytes == 4 || bytes == 8, "indices have 4 or 8 bytes");
  return bytes;
}

// Throws where it would be too large, as `times` does.
std::int64_t product(const std::vector<std::int64_t>& values) {
  std::int64_t size = 1, all = 1;
  for (std::int64_t value : values) {
    size = times({size, std::max<std::int64_t>(1, value)});
    all *= value;
  }
  return all;
}

void copy_slices(const char* x, const std::vector<std::int64_t>& places, std::int64_t begin, std::int64_t end,
                 std::int64_t bytes, char* y) {
  const auto each = [&]<class T>(T) {
    constexpr std::int64_t size = sizeof(T);
    for (std::int64_t i = begin; i < end; ++i) {
      std::memcpy(y + i * size, x + places[static_cast<std::size_t>(i)] * size, sizeof(T));
    }
  };
  switch (bytes) {
    case 1: each(std::uint8_t{}); break;
    case 2: each(std::uint16_t{}); break;
    case 4: each(std::uint32_t{}); break;
    case 8: each(std::uint64_t{}); break;
    default:
      for (std::int64_t i = begin; i < end; ++i) {
        std::memcpy(y + i * bytes, x + places[static_cast<std::size_t>(i)] * bytes, static_cast<std::size_t>(bytes));
      }
  }
}

// Attributes: outer, axis, inner_bytes, indices (count), index_bytes. y[o][i] = x[o][index[i]].
Run take_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const std::int64_t outer = at.integer("outer"), axis = at.integer("axis"), inner = at.integer("inner_bytes"),
                     n = at.integer("indices"), bytes = index_bytes(at);
  require_operands(ins, 2, outs, 1, "take");
  require(outer >= 0 && axis >= 1 && inner >= 1 && n >= 0, "take: bad shape");
  require_bytes(ins[0], times({outer, axis, inner}), "take input");
  require_bytes(ins[1], times({n, bytes}), "take indices");
  require_bytes(outs[0], times({outer, n, inner}), "take output");
  return [=](const Operands& o) {
    std::vector<std::int64_t> places(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) places[static_cast<std::size_t>(i)] = index_at(o.in<char>(1), bytes, i, axis);
    const std::int64_t grain = std::max<std::int64_t>(1, 65536 / (inner * std::max<std::int64_t>(1, n)));
    const std::int64_t parts = outer == 1 ? n : outer;
    parallel_for(o.threads(), parts, outer == 1 ? std::max<std::int64_t>(1, 65536 / inner) : grain,
                 [&](std::int64_t begin, std::int64_t end) {
                   if (outer == 1) return copy_slices(o.in<char>(), places, begin, end, inner, o.out<char>());
                   for (std::int64_t r = begin; r < end; ++r) {
                     copy_slices(o.in<char>() + r * axis * inner, places, 0, n, inner, o.out<char>() + r * n * inner);
                   }
                 });
  };
}

// Which element of `data` every index means: its own place, but along `axis` the index. Elements in units of one. With
// `row`, whose indices are the same, the first one of each row.
std::vector<std::int64_t> element_places(const void* indices, std::int64_t bytes, std::vector<std::int64_t> dims,
                                         const std::vector<std::int64_t>& data, std::size_t axis,
                                         std::int64_t row = 1) {
  const std::size_t rank = dims.size();
  std::vector<std::int64_t> strides(rank, 1), at(rank, 0);
  for (std::size_t i = rank; i-- > 1;) strides[i - 1] = strides[i] * data[i];
  if (row > 1) dims.back() = 1;
  std::vector<std::int64_t> places(static_cast<std::size_t>(product(dims)));
  for (std::size_t i = 0; i < places.size(); ++i) {
    std::int64_t place = index_at(indices, bytes, static_cast<std::int64_t>(i) * row, data[axis]) * strides[axis];
    for (std::size_t k = 0; k < rank; ++k) place += k == axis ? 0 : at[k] * strides[k];
    places[i] = place;
    for (std::size_t k = rank; k-- > 0;) {
      if (++at[k] < dims[k]) break;
      at[k] = 0;
    }
  }
  return places;
}

// Whether the indices of every row are the same, as those of tokens' numbers are that go into a cache.
bool rows_have_one_index(const char* indices, std::int64_t bytes, std::int64_t count, std::int64_t row) {
  for (std::int64_t i = 0; i < count; i += row, indices += row * bytes) {
    if (std::memcmp(indices, indices + bytes, static_cast<std::size_t>((row - 1) * bytes)) != 0) return false;
  }
  return true;
}

// Which slice every index tuple means, in units of slices; `data` holds the sizes of the axes that a tuple names, after
// `batch` groups that each have their own part of the input.
std::vector<std::int64_t> tuple_places(const void* indices, std::int64_t bytes, const std::vector<std::int64_t>& data,
                                       std::int64_t batch, std::int64_t tuples) {
  std::vector<std::int64_t> places(static_cast<std::size_t>(batch * tuples));
  const auto width = static_cast<std::int64_t>(data.size());
  const std::int64_t whole = product(data);
  for (std::int64_t i = 0; i < batch * tuples; ++i) {
    std::int64_t place = 0;
    for (std::int64_t k = 0; k < width; ++k) {
      const std::int64_t size = data[static_cast<std::size_t>(k)];
      place = place * size + index_at(indices, bytes, i * width + k, size);
    }
    places[static_cast<std::size_t>(i)] = i / tuples * whole + place;
  }
  return places;
}

struct Addressed {
  std::function<std::vector<std::int64_t>(const void*)> places;
  std::int64_t count, slice_bytes, data_bytes;
};

// Attributes: index_bytes, slice (elements of a slice), data (sizes) and either dims (of the indices) and axis, or
// batch and tuples.
Addressed addressed(const Attributes& at, const Tensor& indices, std::int64_t element) {
  const std::int64_t bytes = index_bytes(at), slice = at.integer("slice", 1);
  const auto data = at.list("data");
  for (std::int64_t size : data) require(size >= 1, "indices: bad shape");
  require(slice >= 1 && !data.empty(), "indices: bad shape");
  if (at.integers.contains("dims")) {
    const auto dims = at.list("dims", data.size());
    const auto axis = static_cast<std::size_t>(at.integer("axis"));
    require(axis < dims.size() && slice == 1, "indices: bad axis");
    for (std::size_t i = 0; i < dims.size(); ++i) {
      require(dims[i] >= 0 && (i == axis || dims[i] <= data[i]), "indices: larger than the data");
    }
    require_bytes(indices, times({product(dims), bytes}), "indices");
    return {[=](const void* given) { return element_places(given, bytes, dims, data, axis); }, product(dims), element,
            times({product(data), element})};
  }
  const std::int64_t batch = at.integer("batch"), tuples = at.integer("tuples");
  require(batch >= 1 && tuples >= 1, "indices: bad shape");
  require_bytes(indices, times({batch, tuples, static_cast<std::int64_t>(data.size()), bytes}), "indices");
  return {[=](const void* given) { return tuple_places(given, bytes, data, batch, tuples); }, times({batch, tuples}),
          times({slice, element}), times({batch, product(data), slice, element})};
}

Run take_at_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  require_operands(ins, 2, outs, 1, "take_at");
  const std::int64_t element = at.integer("element_bytes");
  require(element >= 1, "take_at: bad element");
  const Addressed a = addressed(at, ins[1], element);
  require_bytes(ins[0], a.data_bytes, "take_at input");
  require_bytes(outs[0], times({a.count, a.slice_bytes}), "take_at output");
  return [=](const Operands& o) {
    const auto places = a.places(o.in<char>(1));
    parallel_for(o.threads(), a.count, std::max<std::int64_t>(1, 65536 / a.slice_bytes),
                 [&](std::int64_t begin, std::int64_t end) {
                   copy_slices(o.in<char>(), places, begin, end, a.slice_bytes, o.out<char>());
                 });
  };
}

template <class T>
T combined(std::int64_t reduction, T a, T b) {
  const auto wrapped = [](auto x) { return static_cast<T>(x); };
  switch (reduction) {
    case 1:
      if constexpr (std::is_integral_v<T>)
        return wrapped(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
      return wrapped(a + b);
    case 2:
      if constexpr (std::is_integral_v<T>)
        return wrapped(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
      return wrapped(a * b);
    case 3: return a != a || a > b ? a : b;
    case 4: return a != a || a < b ? a : b;
    default: return b;
  }
}

// Where an element of matrices that lie row by row is in the HMX weight layout, in pieces of `tile` columns.
std::int64_t hmx_place(std::int64_t place, std::int64_t rows, std::int64_t columns, std::int64_t tile) {
  const std::int64_t matrix = place / (rows * columns), row = place / columns % rows, column = place % columns;
  const std::int64_t block = row / kHmxBlock * (tile / kHmxBlock) + column % tile / kHmxBlock;
  const std::int64_t inside = row % kHmxBlock / kHmxTogether * kHmxBlock + column % kHmxBlock;
  return matrix * rows * columns + column / tile * tile * rows + block * (kHmxBlock * kHmxBlock) +
         inside * kHmxTogether + row % kHmxTogether;
}

// Attributes: as take_at, reduction (0 put, 1 add, 2 multiply, 3 maximum, 4 minimum). Inputs: data, indices, updates.
// Updates are put in one after the other; floats are rounded to float16 at the end. With `tile` data and output lie in
// the HMX weight layout, in pieces of so many columns.
template <class T>
Run scatter_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  require_operands(ins, 3, outs, 1, "scatter");
  const std::int64_t reduction = at.integer("reduction");
  require(reduction >= 0 && reduction <= 4, "scatter: bad reduction");
  const Addressed a = addressed(at, ins[1], sizeof(T));
  require_bytes(ins[0], a.data_bytes, "scatter input");
  require_bytes(ins[2], times({a.count, a.slice_bytes}), "scatter updates");
  require_bytes(outs[0], a.data_bytes, "scatter output");
  const std::int64_t slice = a.slice_bytes / static_cast<std::int64_t>(sizeof(T)), tile = at.integer("tile", 0);
  const auto shape = at.list("data");
  if (tile) {
    require(slice == 1 && at.integers.contains("dims") && shape.size() >= 2 && tile >= kHmxBlock &&
                tile % kHmxBlock == 0 && shape[shape.size() - 2] % kHmxBlock == 0 && shape.back() % tile == 0,
            "scatter: bad tiles");
  }
  const bool elements = at.integers.contains("dims");
  const auto dims = elements ? at.list("dims", shape.size()) : shape;
  const auto axis = static_cast<std::size_t>(elements ? at.integer("axis") : 0);
  const std::int64_t bytes = index_bytes(at);
  const std::int64_t row = elements && !tile && !reduction && axis + 1 < dims.size() ? dims.back() : 1;
  return [=](const Operands& o) {
    const bool rows = row > 1 && rows_have_one_index(o.in<char>(1), bytes, a.count, row);
    auto places = rows ? element_places(o.in<char>(1), bytes, dims, shape, axis, row) : a.places(o.in<char>(1));
    if (tile) {
      for (std::int64_t& place : places) place = hmx_place(place, shape[shape.size() - 2], shape.back(), tile);
    }
    T* y = o.out<T>();
    const bool in_place = y == o.in<T>();  // a state of the program: what is there was stored by it, or by its maker
    if (!in_place) std::memcpy(y, o.in<T>(), static_cast<std::size_t>(a.data_bytes));
    const T* updates = o.in<T>(2);
    for (std::size_t i = 0; rows && i < places.size(); ++i)
      std::copy_n(updates + static_cast<std::int64_t>(i) * row, row, y + places[i]);
    for (std::int64_t i = 0; !rows && i < a.count; ++i) {
      T* to = y + places[static_cast<std::size_t>(i)] * slice;
      for (std::int64_t k = 0; k < slice; ++k) to[k] = combined<T>(reduction, to[k], updates[i * slice + k]);
    }
    if constexpr (std::is_same_v<T, float>) {
      if (!in_place || reduction) loops().round_half(y, y, a.data_bytes / 4);
    }
  };
}

// Attributes: outer, inner, depth, index_bytes, element_bytes. Constants on, off. y[o][d][i] = on where d is the index.
// An index outside the depth (either way) is nowhere.
Run one_hot_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  require_operands(ins, 1, outs, 1, "one_hot");
  const std::int64_t outer = at.integer("outer"), inner = at.integer("inner"), depth = at.integer("depth"),
                     bytes = index_bytes(at), element = at.integer("element_bytes");
  require(outer >= 0 && inner >= 1 && depth >= 0 && element >= 1 && element <= 8, "one_hot: bad shape");
  require_bytes(ins[0], times({outer, inner, bytes}), "one_hot input");
  require_bytes(outs[0], times({outer, inner, depth, element}), "one_hot output");
  const char* on = at.constant<char>("on", element);
  const char* off = at.constant<char>("off", element);
  return [=](const Operands& o) {
    char* y = o.out<char>();
    const auto size = static_cast<std::size_t>(element);
    for (std::int64_t i = 0; i < outer * inner * depth; ++i) std::memcpy(y + i * element, off, size);
    for (std::int64_t i = 0; i < outer * inner; ++i) {
      std::int64_t index = bytes == 4 ? o.in<std::int32_t>()[i] : o.in<std::int64_t>()[i];
      index = index < 0 ? index + depth : index;
      if (index < 0 || index >= depth) continue;
      std::memcpy(y + ((i / inner * depth + index) * inner + i % inner) * element, on, size);
    }
  };
}

// Attributes: rows, n, k, largest, index_bytes. Outputs: values, indices. Of equals the first; a NaN is the largest.
template <class T>
Run top_k_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  require_operands(ins, 1, outs, 2, "top_k");
  const std::int64_t rows = at.integer("rows"), n = at.integer("n"), k = at.integer("k"), bytes = index_bytes(at);
  const bool largest = at.integer("largest") != 0;
  require(rows >= 0 && n >= 1 && n <= INT32_MAX && k >= 0 && k <= n, "top_k: bad shape");
  require_bytes(ins[0], times({rows, n, static_cast<std::int64_t>(sizeof(T))}), "top_k input");
  require_bytes(outs[0], times({rows, k, static_cast<std::int64_t>(sizeof(T))}), "top_k values");
  require_bytes(outs[1], times({rows, k, bytes}), "top_k indices");
  return [=](const Operands& o) {
    parallel_for(o.threads(), rows, std::max<std::int64_t>(1, 4096 / n), [&](std::int64_t begin, std::int64_t end) {
      std::vector<std::int32_t> order(static_cast<std::size_t>(n));
      for (std::int64_t r = begin; r < end; ++r) {
        const T* x = o.in<T>() + r * n;
        std::iota(order.begin(), order.end(), 0);
        const auto before = [&](std::int32_t a, std::int32_t b) {
          const T p = x[a], q = x[b];
          const bool p_nan = p != p, q_nan = q != q;
          if (p_nan != q_nan) return largest ? p_nan : q_nan;
          if (p != q && !p_nan) return largest ? p > q : p < q;
          return a < b;
        };
        std::partial_sort(order.begin(), order.begin() + k, order.end(), before);
        for (std::int64_t i = 0; i < k; ++i) {
          const std::int32_t index = order[static_cast<std::size_t>(i)];
          o.out<T>(0)[r * k + i] = x[index];
          if (bytes == 4) {
            o.out<std::int32_t>(1)[r * k + i] = index;
          } else {
            o.out<std::int64_t>(1)[r * k + i] = index;
          }
        }
      }
    });
  };
}

// Indices along an axis of dims, or tuples of them that name a slice.
const Fields kPlaces = {integers("data"),          integer("index_bytes"),     optional(integers("dims")),
                        optional(integer("axis")), optional(integer("batch")), optional(integer("tuples")),
                        optional(integer("slice"))};
const Schema kTake{
    2, 1, {integer("outer"), integer("axis"), integer("inner_bytes"), integer("indices"), integer("index_bytes")}};
const Schema kOneHot{1,
                     1,
                     {integer("outer"), integer("inner"), integer("depth"), integer("element_bytes"),
                      integer("index_bytes"), array("on"), array("off")}};

template <class T>
void register_for(const std::string& kind) {
  register_step("scatter_" + kind,
                Schema(3, 1, kPlaces + Fields{integer("reduction"), optional(integer("tile"))}).exact(),
                scatter_step<T>);
  register_step("top_k_" + kind,
                {1, 2, {integer("rows"), integer("n"), integer("k"), integer("largest"), integer("index_bytes")}},
                top_k_step<T>);
}

}  // namespace

void register_index_steps() {
  register_step("take", kTake, take_step);
  register_step("take_at", {2, 1, kPlaces + Fields{integer("element_bytes")}}, take_at_step);
  register_step("one_hot", kOneHot, one_hot_step);
  register_for<std::uint8_t>("u8");
  register_for<std::int16_t>("s16");
  register_for<float>("f32");
  register_for<std::int32_t>("int32");
  register_for<std::int64_t>("int64");
}

}  // namespace hexforge
