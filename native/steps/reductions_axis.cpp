// SPDX-License-Identifier: Apache-2.0
// Steps "reduce_*", "cumulative_*" and "arg_*" along one axis of [outer][n][inner].
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "core/parallel.h"
#include "core/round_and_clamp.h"
#include "steps/fields.h"
#include "steps/steps.h"

namespace hexforge {
namespace {

enum class Fold { sum, mean, max, min, sum_square, length };  // length: the root of the sum of squares

template <class T>
constexpr bool kIsFixed = std::is_same_v<T, std::uint8_t> || std::is_same_v<T, std::int16_t>;

// What a fold adds up in: exact for integers; float64 holds any sum of up to 2^13 float16 values exactly.
template <class T>
using Total = std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>;

struct View {
  std::int64_t outer, n, inner;
};

View view(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs, std::int64_t bytes,
          const char* what) {
  const View v{at.integer("outer"), at.integer("n"), at.integer("inner")};
  require_operands(ins, 1, outs, 1, what);
  require(v.outer >= 0 && v.n >= 1 && v.inner >= 1, "reduce: bad shape");
  require_bytes(ins[0], times({v.outer, v.n, v.inner, bytes}), what);
  return v;
}

template <class A>
A wrapping_add(A a, A b) {
  if constexpr (std::is_integral_v<A>) {
    return static_cast<A>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  } else {
    return a + b;
  }
}

template <Fold F, class T, class A>
A fold_one(A total, T value, A zero) {
  if constexpr (F == Fold::max) {
    const A v = static_cast<A>(value);
    return v > total || v != v ? v : total;  // a NaN stays
  } else if constexpr (F == Fold::min) {
    const A v = static_cast<A>(value);
    return v < total || v != v ? v : total;
  } else if constexpr (F == Fold::sum_square || F == Fold::length) {
    const A v = static_cast<A>(value) - zero;
    if constexpr (std::is_integral_v<A>) {
      const auto wide = static_cast<std::uint64_t>(v);
      return wrapping_add(total, static_cast<A>(wide * wide));
    } else {
      return total + v * v;
    }
  } else {
    return wrapping_add(total, static_cast<A>(value));
  }
}

// As `fold_rows` of squares of bytes less a byte, in int32, emptied before 2^15 of them could overflow it.
void fold_squares(const std::uint8_t* x, std::int64_t rows, std::int64_t stride, std::int64_t columns,
                  std::int32_t zero, std::int64_t* totals) {
  constexpr std::int64_t kRows = 32768, kColumns = 64;
  std::int32_t part[kColumns];
  for (std::int64_t c0 = 0; c0 < columns; c0 += kColumns) {
    const std::int64_t width = std::min(kColumns, columns - c0);
    for (std::int64_t r0 = 0; r0 < rows; r0 += kRows) {
      std::fill(part, part + width, 0);
      for (std::int64_t r = r0; r < std::min(rows, r0 + kRows); ++r) {
        const std::uint8_t* row = x + r * stride + c0;
        for (std::int64_t c = 0; c < width; ++c) part[c] += (row[c] - zero) * (row[c] - zero);
      }
      for (std::int64_t c = 0; c < width; ++c) totals[c0 + c] += part[c];
    }
  }
}

// totals[c] over `rows` rows of `columns` elements, `stride` apart.
template <Fold F, class T, class A>
void fold_rows(const T* x, std::int64_t rows, std::int64_t stride, std::int64_t columns, A zero, A* totals) {
  if constexpr (kIsFixed<T> && (F == Fold::sum || F == Fold::mean)) {
    // int32 sums, emptied before 2^15 values of 16 bits could overflow them.
    constexpr std::int64_t kRows = 32768, kColumns = 64;
    std::int32_t part[kColumns];
    for (std::int64_t c0 = 0; c0 < columns; c0 += kColumns) {
      const std::int64_t width = std::min(kColumns, columns - c0);
      for (std::int64_t r0 = 0; r0 < rows; r0 += kRows) {
        const std::int64_t last = std::min(rows, r0 + kRows);
        std::fill(part, part + width, 0);
        for (std::int64_t r = r0; r < last; ++r) {
          const T* row = x + r * stride + c0;
          for (std::int64_t c = 0; c < width; ++c) part[c] += row[c];
        }
        for (std::int64_t c = 0; c < width; ++c) totals[c0 + c] += part[c];
      }
    }
  } else {
    if constexpr (std::is_same_v<T, std::uint8_t> && (F == Fold::sum_square || F == Fold::length)) {
      if (zero >= 0 && zero <= 255)
        return fold_squares(x, rows, stride, columns, static_cast<std::int32_t>(zero), totals);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* row = x + r * stride;
      for (std::int64_t c = 0; c < columns; ++c) totals[c] = fold_one<F, T, A>(totals[c], row[c], zero);
    }
  }
}

template <Fold F, class A>
A merge(A a, A b) {
  if constexpr (F == Fold::max || F == Fold::min) return fold_one<F, A, A>(a, b, A{});
  return wrapping_add(a, b);
}

template <Fold F, class A>
A start() {
  if constexpr (F == Fold::max) {
    return std::is_floating_point_v<A> ? -std::numeric_limits<A>::infinity() : std::numeric_limits<A>::lowest();
  } else if constexpr (F == Fold::min) {
    return std::is_floating_point_v<A> ? std::numeric_limits<A>::infinity() : std::numeric_limits<A>::max();
  } else {
    return A{};
  }
}

// Element i of a row goes to total i mod 8; the eight are then added as ((0+4)+(2+6))+((1+5)+(3+7)).
template <Fold F, class T, class A>
A fold_row(const T* x, std::int64_t n, A zero) {
  constexpr std::int64_t kLanes = 8;
  A lanes[kLanes];
  std::fill(lanes, lanes + kLanes, start<F, A>());
  const std::int64_t rows = n / kLanes;
  fold_rows<F, T, A>(x, rows, kLanes, kLanes, zero, lanes);
  fold_rows<F, T, A>(x + rows * kLanes, 1, 0, n - rows * kLanes, zero, lanes);
  for (int step = 4; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) lanes[i] = merge<F, A>(lanes[i], lanes[i + step]);
  }
  return lanes[0];
}

// y = round_and_clamp((total - shift) * scale) for fixed point; the mean of integers is cut towards zero.
template <Fold F, class T>
struct Finish {
  Target target;
  double scale = 1.0;
  std::int64_t shift = 0, n = 1;

  T operator()(Total<T> total) const {
    if constexpr (kIsFixed<T> && F == Fold::length) {
      return target.round_and_clamp<T>(std::sqrt(static_cast<double>(total)) * scale);
    } else if constexpr (kIsFixed<T>) {
      return target.round_and_clamp<T>(static_cast<double>(total - shift) * scale);
    } else if constexpr (std::is_floating_point_v<T>) {
      return narrow_to_half(F == Fold::mean ? total / static_cast<double>(n) : total);
    } else {
      return static_cast<T>(F == Fold::mean ? total / n : total);
    }
  }
};

// Attributes: outer, n, inner; for fixed point zero_a, zero_point, low, high and the real `scale`, what one step of the
// exact total is worth in steps of the output.
template <Fold F, class T>
Run reduce_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  using A = Total<T>;
  const View v = view(at, ins, outs, sizeof(T), "reduce input");
  require_bytes(outs[0], times({v.outer, v.inner, static_cast<std::int64_t>(sizeof(T))}), "reduce output");
  Finish<F, T> finish;
  finish.n = v.n;
  A zero{};
  if constexpr (kIsFixed<T>) {
    finish.target = Target(at);
    finish.scale = at.real("scale");
    const std::int64_t zero_a = at.small("zero_a");
    finish.shift = F == Fold::sum_square || F == Fold::length ? 0
                   : F == Fold::max || F == Fold::min         ? zero_a
                                                              : zero_a * v.n;
    zero = static_cast<A>(zero_a);
  }
  constexpr std::int64_t kColumns = 256;
  const std::int64_t chunks = (v.inner + kColumns - 1) / kColumns;
  return [=](const Operands& o) {
    const std::int64_t grain = std::max<std::int64_t>(1, 16384 / (v.n * std::min(v.inner, kColumns)));
    parallel_for(o.threads(), v.outer * chunks, grain, [&](std::int64_t begin, std::int64_t end) {
      A totals[kColumns];
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t r = i / chunks, c0 = i % chunks * kColumns;
        const T* x = o.in<T>() + r * v.n * v.inner + c0;
        T* y = o.out<T>() + r * v.inner + c0;
        if (v.inner == 1) {
          *y = finish(fold_row<F, T, A>(x, v.n, zero));
          continue;
        }
        const std::int64_t width = std::min(kColumns, v.inner - c0);
        std::fill(totals, totals + width, start<F, A>());
        fold_rows<F, T, A>(x, v.n, v.inner, width, zero, totals);
        for (std::int64_t c = 0; c < width; ++c) y[c] = finish(totals[c]);
      }
    });
  };
}

// Attributes as reduce_step, exclusive, reverse. Every running total is exact (integers) or float64, written once.
template <class T>
Run cumulative_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  using A = Total<T>;
  const View v = view(at, ins, outs, sizeof(T), "cumulative input");
  require_bytes(outs[0], times({v.outer, v.n, v.inner, static_cast<std::int64_t>(sizeof(T))}), "cumulative output");
  const bool exclusive = at.integer("exclusive") != 0, reverse = at.integer("reverse") != 0;
  Finish<Fold::sum, T> finish;
  A zero{};
  if constexpr (kIsFixed<T>) {
    finish.target = Target(at);
    finish.scale = at.real("scale");
    zero = static_cast<A>(at.small("zero_a"));
  }
  return [=](const Operands& o) {
    constexpr std::int64_t kColumns = 64;  // running totals side by side
    const std::int64_t chunks = (v.inner + kColumns - 1) / kColumns;
    parallel_for(o.threads(), v.outer * chunks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t c0 = i % chunks * kColumns, width = std::min(kColumns, v.inner - c0);
        const std::int64_t base = i / chunks * v.n * v.inner + c0;
        A totals[kColumns] = {};
        for (std::int64_t k = 0; k < v.n; ++k) {
          const std::int64_t place = base + (reverse ? v.n - 1 - k : k) * v.inner;
          const T* x = o.in<T>() + place;
          T* y = o.out<T>() + place;
          for (std::int64_t c = 0; c < width; ++c) {
            const A after = wrapping_add<A>(totals[c], static_cast<A>(x[c]) - zero);
            y[c] = finish(exclusive ? totals[c] : after);
            totals[c] = after;
          }
        }
      }
    });
  };
}

// Attributes: outer, n, inner, index_bytes (4 or 8), largest. The first of equals; a NaN is larger and smaller than
// all.
template <class T>
Run arg_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const View v = view(at, ins, outs, sizeof(T), "arg input");
  const std::int64_t bytes = at.integer("index_bytes");
  const bool largest = at.integer("largest") != 0;
  require(bytes == 4 || bytes == 8, "arg: indices have 4 or 8 bytes");
  require(bytes == 8 || v.n <= INT32_MAX, "arg: an index does not fit 4 bytes");
  require_bytes(outs[0], times({v.outer, v.inner, bytes}), "arg output");
  return [=](const Operands& o) {
    const std::int64_t grain = std::max<std::int64_t>(1, 8192 / v.n);
    parallel_for(o.threads(), v.outer * v.inner, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const T* x = o.in<T>() + i / v.inner * v.n * v.inner + i % v.inner;
        std::int64_t best = 0;
        T value = x[0];
        for (std::int64_t k = 1; k < v.n && value == value; ++k) {
          const T next = x[k * v.inner];
          if (next != next || (largest ? next > value : next < value)) {
            value = next;
            best = k;
          }
        }
        if (bytes == 4) {
          o.out<std::int32_t>()[i] = static_cast<std::int32_t>(best);
        } else {
          o.out<std::int64_t>()[i] = best;
        }
      }
    });
  };
}

// [outer][n][inner], and how fixed point is read and written.
template <class T>
Fields along(const Fields& own = {}) {
  return Fields{integer("outer"), integer("n"), integer("inner")} + (kIsFixed<T> ? kFixed : Fields{}) + own;
}

template <class T>
void register_for(const std::string& kind) {
  register_step("reduce_sum_" + kind, {1, 1, along<T>()}, reduce_step<Fold::sum, T>);
  register_step("reduce_mean_" + kind, {1, 1, along<T>()}, reduce_step<Fold::mean, T>);
  register_step("reduce_max_" + kind, {1, 1, along<T>()}, reduce_step<Fold::max, T>);
  register_step("reduce_min_" + kind, {1, 1, along<T>()}, reduce_step<Fold::min, T>);
  register_step("reduce_sum_square_" + kind, {1, 1, along<T>()}, reduce_step<Fold::sum_square, T>);
  if constexpr (kIsFixed<T>) register_step("reduce_length_" + kind, {1, 1, along<T>()}, reduce_step<Fold::length, T>);
  register_step("cumulative_" + kind, {1, 1, along<T>({integer("exclusive"), integer("reverse")})}, cumulative_step<T>);
  register_step("arg_" + kind,
                {1, 1, {integer("outer"), integer("n"), integer("inner"), integer("largest"), integer("index_bytes")}},
                arg_step<T>);
}

}  // namespace

void register_reduce_steps() {
  register_for<std::uint8_t>("u8");
  register_for<std::int16_t>("s16");
  register_for<float>("f32");
  register_for<std::int32_t>("int32");
  register_for<std::int64_t>("int64");
}

}  // namespace hexforge
