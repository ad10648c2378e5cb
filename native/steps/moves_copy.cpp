// SPDX-License-Identifier: Apache-2.0
// Steps that move bytes: "copy" (any strided box), "fill".
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "core/parallel.h"
#include "core/program.h"
#include "kernels/half.h"
#include "kernels/loops.h"
#include "steps/fields.h"
#include "steps/steps.h"

namespace hexforge {
namespace {

// Elements [0, n) of one row, with strides in elements.
template <class T>
void copy_row(const T* x, std::int64_t step_x, T* y, std::int64_t step_y, std::int64_t n) {
  if (step_x == 1 && step_y == 1) {
    std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(T));
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i * step_y] = x[i * step_x];
  }
}

#if defined(__SSE2__)
template <class T>
constexpr bool kHasSquares = sizeof(T) <= 2;
template <class T>
constexpr int kSide = 16 / sizeof(T);  // elements of 16 bytes

// Elements of two rows in turn: those of their first, or of their second halves.
template <class T>
inline __m128i interleaved(__m128i a, __m128i b, bool second) {
  if constexpr (sizeof(T) == 1) return second ? _mm_unpackhi_epi8(a, b) : _mm_unpacklo_epi8(a, b);
  return second ? _mm_unpackhi_epi16(a, b) : _mm_unpacklo_epi16(a, b);
}

// y[r][c] = x[c][r] for rows of 16 bytes: rounds of interleaving each row with the one half a square below it.
template <class T>
inline void transpose_square(const T* x, std::int64_t stride_x, T* y, std::int64_t stride_y) {
  constexpr int kRows = kSide<T>;
  __m128i a[kRows], b[kRows];
  for (int i = 0; i < kRows; ++i) a[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i * stride_x));
#pragma GCC unroll 4
  for (int round = 1; round < kRows; round *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows / 2; ++i) {
      b[2 * i] = interleaved<T>(a[i], a[i + kRows / 2], false);
      b[2 * i + 1] = interleaved<T>(a[i], a[i + kRows / 2], true);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) a[i] = b[i];
  }
  for (int i = 0; i < kRows; ++i) _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i * stride_y), a[i]);
}

// Whole squares of a plane whose rows lie side by side in x and whose columns do in y; gives the rows and columns done.
template <class T>
inline std::pair<std::int64_t, std::int64_t> transpose_squares(const T* x, std::int64_t inner_x, T* y,
                                                               std::int64_t outer_y, std::int64_t rows,
                                                               std::int64_t columns) {
  const std::int64_t whole_rows = rows / kSide<T> * kSide<T>, whole_columns = columns / kSide<T> * kSide<T>;
  // along the longer lines of what is written, for some rows that stay in the cache
  for (std::int64_t r0 = 0; r0 < whole_rows; r0 += 16) {
    for (std::int64_t c = 0; c < whole_columns; c += kSide<T>) {
      for (std::int64_t r = r0; r < std::min(whole_rows, r0 + 16); r += kSide<T>) {
        transpose_square(x + c * inner_x + r, inner_x, y + r * outer_y + c, outer_y);
      }
    }
  }
  return {whole_rows, whole_columns};
}
#endif

// Floats of a plane, rounded to halves on the way; false for a plane that is left to a pass of its own.
bool round_plane(const float* x, std::int64_t outer_x, std::int64_t inner_x, float* y, std::int64_t outer_y,
                 std::int64_t inner_y, std::int64_t rows, std::int64_t columns) {
  if (outer_x == 1 && inner_y == 1) {
    loops().transpose_f32(x, inner_x, y, outer_y, rows, columns, true);
  } else if (inner_x == 1 && outer_y == 1) {
    loops().transpose_f32(x, outer_x, y, inner_y, columns, rows, true);
  } else if (inner_x == 1 && inner_y == 1) {
    for (std::int64_t r = 0; r < rows; ++r) loops().round_half(x + r * outer_x, y + r * outer_y, columns);
  } else {
    return false;
  }
  return true;
}

// The two innermost axes, in squares that stay in the cache whichever of them is contiguous.
template <class T>
void copy_plane(const T* x, std::int64_t outer_x, std::int64_t inner_x, T* y, std::int64_t outer_y,
                std::int64_t inner_y, std::int64_t rows, std::int64_t columns) {
  if (inner_x == 1 && inner_y == 1) {
    const std::int64_t bytes = columns * static_cast<std::int64_t>(sizeof(T));
    if (bytes % 16 == 0 && bytes <= 256) {  // a few channels of many pixels: too short for a call of memcpy each
      for (std::int64_t r = 0; r < rows; ++r) {
        const char* from = reinterpret_cast<const char*>(x + r * outer_x);
        char* to = reinterpret_cast<char*>(y + r * outer_y);
        for (std::int64_t i = 0; i < bytes; i += 16) std::memcpy(to + i, from + i, 16);
      }
      return;
    }
    for (std::int64_t r = 0; r < rows; ++r) copy_row(x + r * outer_x, 1, y + r * outer_y, 1, columns);
    return;
  }
  if (rows <= 4 && inner_x == 1 && outer_y == 1 && inner_y == rows) {  // planes of a picture to its pixels
    if (const auto interleave = loops().interleave3; interleave && rows == 3 && sizeof(T) <= 4) {
      const void* planes[3] = {x, x + outer_x, x + 2 * outer_x};
      return interleave(planes, y, columns, sizeof(T));
    }
    for (std::int64_t c = 0; c < columns; ++c) {
      for (std::int64_t r = 0; r < rows; ++r) y[c * rows + r] = x[r * outer_x + c];
    }
    return;
  }
  if constexpr (sizeof(T) == 4) {
    if ((outer_x == 1 && inner_y == 1) || (inner_x == 1 && outer_y == 1)) {
      const bool down = outer_x == 1 && inner_y == 1;
      const auto* from = reinterpret_cast<const float*>(x);
      auto* to = reinterpret_cast<float*>(y);
      down ? loops().transpose_f32(from, inner_x, to, outer_y, rows, columns, false)
           : loops().transpose_f32(from, outer_x, to, inner_y, columns, rows, false);
      return;
    }
  }
#if defined(__SSE2__)
  if constexpr (kHasSquares<T>) {
    if (outer_x == 1 && inner_y == 1 && rows >= kSide<T> && columns >= kSide<T>) {
      const auto [done_rows, done_columns] = transpose_squares(x, inner_x, y, outer_y, rows, columns);
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t from = r < done_rows ? done_columns : 0;
        copy_row(x + r + from * inner_x, inner_x, y + r * outer_y + from, 1, columns - from);
      }
      return;
    }
  }
#endif
  constexpr std::int64_t kSquare = 32;
  for (std::int64_t r0 = 0; r0 < rows; r0 += kSquare) {
    for (std::int64_t c0 = 0; c0 < columns; c0 += kSquare) {
      const std::int64_t r1 = std::min(rows, r0 + kSquare), c1 = std::min(columns, c0 + kSquare);
      for (std::int64_t r = r0; r < r1; ++r) {
        copy_row(x + r * outer_x + c0 * inner_x, inner_x, y + r * outer_y + c0 * inner_y, inner_y, c1 - c0);
      }
    }
  }
}

// Smallest and largest element a strided box touches.
std::pair<std::int64_t, std::int64_t> extent(const std::vector<std::int64_t>& dims,
                                             const std::vector<std::int64_t>& strides, std::int64_t offset) {
  std::int64_t low = offset, high = offset;
  for (std::size_t i = 0; i < dims.size(); ++i) { (strides[i] < 0 ? low : high) += times({dims[i] - 1, strides[i]}); }
  return {low, high};
}

// True unless every axis of the box steps over all that the axes below it write.
bool writes_twice(const WrittenBox& box) {
  std::vector<std::pair<std::int64_t, std::int64_t>> axes;  // stride, size
  for (const WrittenBox::Axis& axis : box.axes) {
    if (axis.size > 1) axes.emplace_back(std::abs(axis.stride), axis.size);
  }
  std::sort(axes.begin(), axes.end());
  std::int64_t reach = box.run;
  for (const auto& [stride, size] : axes) {
    if (stride < reach) return true;
    reach += (size - 1) * stride;
  }
  return false;
}

struct Box {
  std::vector<std::int64_t> dims, x, y;  // at least two axes; strides in elements
  std::int64_t offset_x = 0, offset_y = 0, planes = 1;
  bool half = false;  // floats are rounded
};

constexpr std::int64_t kWorth = 32768;  // elements worth a thread

template <class T>
Run copy_run(const Box& box) {
  return [=](const Operands& o) {
    const std::size_t rank = box.dims.size();
    const std::int64_t rows = box.dims[rank - 2], columns = box.dims[rank - 1];
    // A few large planes are cut along their longer side.
    const bool by_rows = rows >= columns;
    const std::int64_t side = by_rows ? rows : columns, other = std::max<std::int64_t>(1, by_rows ? columns : rows);
    const std::int64_t most = std::max<std::int64_t>(1, side * other / kWorth);
    const std::int64_t pieces = o.threads() == 1 || box.planes >= 64 ? 1 : std::min<std::int64_t>(64, most);
    const std::int64_t length = (side + pieces - 1) / pieces;
    const std::int64_t grain = std::max<std::int64_t>(1, kWorth / std::max<std::int64_t>(1, length * other));
    parallel_for(o.threads(), box.planes * pieces, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        std::int64_t rest = task / pieces, at_x = box.offset_x, at_y = box.offset_y;
        for (std::size_t i = rank - 2; i-- > 0;) {
          const std::int64_t index = rest % box.dims[i];
          rest /= box.dims[i];
          at_x += index * box.x[i];
          at_y += index * box.y[i];
        }
        const std::int64_t first = task % pieces * length, count = std::min(length, side - first);
        if (count <= 0) continue;
        const std::size_t axis = by_rows ? rank - 2 : rank - 1;
        const T* x = o.in<T>() + at_x + first * box.x[axis];
        T* y = o.out<T>() + at_y + first * box.y[axis];
        const std::int64_t outer_x = box.x[rank - 2], inner_x = box.x[rank - 1], outer_y = box.y[rank - 2],
                           inner_y = box.y[rank - 1], some_rows = by_rows ? count : rows,
                           some_columns = by_rows ? columns : count;
        if constexpr (std::is_same_v<T, float>) {
          if (box.half && round_plane(x, outer_x, inner_x, y, outer_y, inner_y, some_rows, some_columns)) continue;
        }
        copy_plane(x, outer_x, inner_x, y, outer_y, inner_y, some_rows, some_columns);
        if constexpr (std::is_same_v<T, float>) {
          for (std::int64_t r = 0; box.half && r < some_rows; ++r) {
            for (std::int64_t c = 0; c < some_columns; ++c)
              y[r * outer_y + c * inner_y] = to_half(y[r * outer_y + c * inner_y]);
          }
        }
      }
    });
  };
}

// Attributes: element_bytes, dims, strides_x, strides_y, offset_x, offset_y (elements); half: of floats, rounded as the
// vector unit does.
Run copy_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  Box box;
  box.dims = at.list("dims");
  box.x = at.list("strides_x", box.dims.size());
  box.y = at.list("strides_y", box.dims.size());
  box.offset_x = at.integer("offset_x", 0);
  box.offset_y = at.integer("offset_y", 0);
  if (ins.size() != 1 || outs.size() != 1) throw std::invalid_argument("copy: one input and one output are needed");
  if (box.dims.size() > 32 || times({box.offset_x}) < 0 || times({box.offset_y}) < 0) {
    throw std::invalid_argument("copy: bad shape or offset");
  }
  for (std::int64_t dim : box.dims) {
    if (dim < 0) throw std::invalid_argument("copy: bad shape");
    if (dim == 0) return [](const Operands&) {};
  }
  // A long innermost axis is copied by a loop, a short one by as many calls: the order of axes does not matter. Of the
  // long ones the innermost is near what was written last.
  constexpr std::int64_t kLong = 8;
  if (!box.dims.empty() && box.dims.back() < kLong) {
    std::size_t chosen = box.dims.size() - 1;
    for (std::size_t i = chosen; i-- > 0 && box.dims[chosen] < kLong;) {
      if (box.dims[i] > box.dims[chosen]) chosen = i;
    }
    for (auto* axes : {&box.dims, &box.x, &box.y}) std::swap((*axes)[chosen], axes->back());
  }
  while (box.dims.size() < 2) {
    box.dims.insert(box.dims.begin(), 1);
    box.x.insert(box.x.begin(), 0);
    box.y.insert(box.y.begin(), 0);
  }
  const std::int64_t bytes = at.integer("element_bytes");
  box.half = at.integer("half", 0) != 0;
  if (box.half && bytes != 4) throw std::invalid_argument("copy: only floats are rounded");
  const auto [low_x, high_x] = extent(box.dims, box.x, box.offset_x);
  const auto [low_y, high_y] = extent(box.dims, box.y, box.offset_y);
  if (low_x < 0 || low_y < 0) throw std::invalid_argument("copy: the box starts before the tensor");
  require_bytes(ins[0], times({high_x + 1, bytes}), "copy input");
  require_bytes(outs[0], times({high_y + 1, bytes}), "copy output");
  for (std::size_t i = 0; i + 2 < box.dims.size(); ++i) box.planes = times({box.planes, box.dims[i]});
  times({box.dims[box.dims.size() - 2], box.dims.back()});
  WrittenBox written{box.offset_y * bytes, bytes, {}};
  for (std::size_t i = 0; i < box.dims.size(); ++i) written.axes.push_back({box.dims[i], box.y[i] * bytes});
  if (writes_twice(written)) throw std::invalid_argument("copy: places are written more than once");
  writes_part(outs[0], std::move(written));
  switch (bytes) {
    case 1: return copy_run<std::uint8_t>(box);
    case 2: return copy_run<std::uint16_t>(box);
    case 4: return box.half ? copy_run<float>(box) : copy_run<std::uint32_t>(box);
    case 8: return copy_run<std::uint64_t>(box);
    default: throw std::invalid_argument("copy: elements of 1, 2, 4 or 8 bytes");
  }
}

// Attributes: element_bytes, count. Constant: value.
Run fill_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const std::int64_t bytes = at.integer("element_bytes"), n = at.integer("count");
  if (!ins.empty() || outs.size() != 1 || n < 0 || bytes < 1 || bytes > 8)
    throw std::invalid_argument("fill: bad operands");
  require_bytes(outs[0], times({n, bytes}), "fill output");
  std::vector<char> value(at.constant<char>("value", bytes), at.constant<char>("value", bytes) + bytes);
  return [=](const Operands& o) {
    char* y = o.out<char>();
    if (bytes == 1) {
      std::memset(y, value[0], static_cast<std::size_t>(n));
    } else {
      // What is written is copied behind itself, twice as much each time, as far as a cache holds it.
      constexpr std::int64_t kMost = 4096;
      const std::int64_t all = n * bytes;
      std::int64_t done = std::min(bytes, all);
      std::memcpy(y, value.data(), static_cast<std::size_t>(done));
      while (done < all) {
        const std::int64_t piece = std::min({done, all - done, kMost * bytes});
        std::memcpy(y + done, y, static_cast<std::size_t>(piece));
        done += piece;
      }
    }
  };
}

const Schema kCopy{1,
                   1,
                   {integers("dims"), integers("strides_x"), integers("strides_y"), integer("element_bytes"),
                    optional(integer("offset_x")), optional(integer("offset_y")), optional(integer("half"))}};

}  // namespace

void register_move_steps() {
  register_step("copy", Schema(kCopy).exact(), copy_step);
  register_step("fill", {0, 1, {integer("count"), integer("element_bytes"), array("value")}}, fill_step);
}

}  // namespace hexforge
