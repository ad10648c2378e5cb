// SPDX-License-Identifier: Apache-2.0
// Elementwise steps that are not plain fixed-point arithmetic: "compare_*", "logical", "select", "integer_*", "cast",
// "prelu_*", "squared_difference_*". Operands broadcast by strides, of which the innermost is 0 or 1.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "core/parallel.h"
#include "core/round_and_clamp.h"
#include "kernels/loops.h"
#include "steps/fields.h"
#include "steps/steps.h"

namespace hexforge {
namespace {

struct Nest {
  std::vector<std::int64_t> dims, strides;  // strides: operand by operand
  std::int64_t rows = 1, inner = 1;
};

// Attributes: dims, strides (operand after operand). `bytes` are the element sizes of the operands, then of the result.
Nest nest(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs,
          std::initializer_list<std::size_t> bytes, const char* what) {
  Nest n;
  n.dims = at.list("dims");
  const std::size_t rank = n.dims.size();
  require_operands(ins, bytes.size() - 1, outs, 1, what);
  n.strides = at.list("strides", rank * ins.size());
  require(rank >= 1 && rank <= 32, "elementwise: bad shape");
  std::int64_t size = 1;
  for (std::int64_t dim : n.dims) {
    require(dim >= 1, "elementwise: bad shape");
    size = times({size, dim});
  }
  for (std::size_t k = 0; k < ins.size(); ++k) {
    std::int64_t last = 0;
    for (std::size_t i = 0; i < rank; ++i) {
      require(n.strides[k * rank + i] >= 0, "elementwise: bad strides");
      last += times({n.dims[i] - 1, n.strides[k * rank + i]});
    }
    require(n.strides[(k + 1) * rank - 1] <= 1, "elementwise: innermost strides are 0 or 1");
    require_bytes(ins[k], times({last + 1, static_cast<std::int64_t>(bytes.begin()[k])}), what);
  }
  require_bytes(outs[0], times({size, static_cast<std::int64_t>(bytes.end()[-1])}), what);
  n.inner = n.dims.back();
  n.rows = size / n.inner;
  return n;
}

// row(places of the operands, steps of the operands, place of the result, count) for every innermost row.
template <std::size_t Operands_, class Row>
void each_row(const Nest& n, const Operands& o, Row row) {
  const std::size_t rank = n.dims.size();
  parallel_for(o.threads(), n.rows, std::max<std::int64_t>(1, 16384 / n.inner),
               [&](std::int64_t begin, std::int64_t end) {
                 std::int64_t steps[Operands_];
                 for (std::size_t k = 0; k < Operands_; ++k) steps[k] = n.strides[(k + 1) * rank - 1];
                 for (std::int64_t r = begin; r < end; ++r) {
                   std::int64_t rest = r, places[Operands_] = {};
                   for (std::size_t i = rank - 1; i-- > 0;) {
                     const std::int64_t index = rest % n.dims[i];
                     rest /= n.dims[i];
                     for (std::size_t k = 0; k < Operands_; ++k) places[k] += index * n.strides[k * rank + i];
                   }
                   row(places, steps, r * n.inner);
                 }
               });
}

template <class A, class B, class Y, class Operation>
Run binary_run(const Nest& n, Operation operation) {
  return [=](const Operands& o) {
    each_row<2>(n, o, [&](const std::int64_t* places, const std::int64_t* steps, std::int64_t to) {
      const A* a = o.in<A>(0) + places[0];
      const B* b = o.in<B>(1) + places[1];
      Y* y = o.out<Y>() + to;
      if (steps[0] && steps[1]) {
        for (std::int64_t i = 0; i < n.inner; ++i) y[i] = operation(a[i], b[i]);
      } else if (steps[0]) {
        const B second = b[0];  // read once: as far as the compiler knows, y may lie over it
        for (std::int64_t i = 0; i < n.inner; ++i) y[i] = operation(a[i], second);
      } else if (steps[1]) {
        const A first = a[0];
        for (std::int64_t i = 0; i < n.inner; ++i) y[i] = operation(first, b[i]);
      } else {
        std::fill_n(y, n.inner, static_cast<Y>(operation(a[0], b[0])));
      }
    });
  };
}

// Attributes: operation (0 equal, 1 not equal, 2 greater, 3 greater or equal, 4 less, 5 less or equal); for fixed point
// zero_a, zero_b and the reals scale_a, scale_b: the numbers compared are (q - zero) * scale in float64.
template <class T, bool Fixed>
Run compare_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const Nest n = nest(at, ins, outs, {sizeof(T), sizeof(T), 1}, "compare");
  std::int64_t zero_a = 0, zero_b = 0;
  double scale_a = 1, scale_b = 1;
  if constexpr (Fixed) {
    zero_a = at.small("zero_a");
    zero_b = at.small("zero_b");
    scale_a = at.real("scale_a");
    scale_b = at.real("scale_b");
  }
  const auto with = [&](auto test) {
    return binary_run<T, T, std::uint8_t>(n, [=](T a, T b) -> std::uint8_t {
      if constexpr (Fixed) {
        return test(static_cast<double>(a - zero_a) * scale_a, static_cast<double>(b - zero_b) * scale_b);
      } else {
        return test(a, b);
      }
    });
  };
  switch (at.integer("operation")) {
    case 0: return with([](auto a, auto b) { return a == b; });
    case 1: return with([](auto a, auto b) { return a != b; });
    case 2: return with([](auto a, auto b) { return a > b; });
    case 3: return with([](auto a, auto b) { return a >= b; });
    case 4: return with([](auto a, auto b) { return a < b; });
    case 5: return with([](auto a, auto b) { return a <= b; });
    default: throw std::invalid_argument("compare: bad operation");
  }
}

// Attributes: operation (0 and, 1 or, 2 xor, 3 not the first). Bytes that are 0 or 1.
Run logical_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const Nest n = nest(at, ins, outs, {1, 1, 1}, "logical");
  const auto with = [&](auto operation) { return binary_run<std::uint8_t, std::uint8_t, std::uint8_t>(n, operation); };
  using Bool = std::uint8_t;
  switch (at.integer("operation")) {
    case 0: return with([](Bool a, Bool b) -> Bool { return a != 0 && b != 0; });
    case 1: return with([](Bool a, Bool b) -> Bool { return a != 0 || b != 0; });
    case 2: return with([](Bool a, Bool b) -> Bool { return (a != 0) != (b != 0); });
    case 3: return with([](Bool a, Bool) -> Bool { return a == 0; });
    default: throw std::invalid_argument("logical: bad operation");
  }
}

template <class T>
Run select_of(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const Nest n = nest(at, ins, outs, {1, sizeof(T), sizeof(T), sizeof(T)}, "select");
  return [=](const Operands& o) {
    each_row<3>(n, o, [&](const std::int64_t* places, const std::int64_t* steps, std::int64_t to) {
      const std::uint8_t* condition = o.in<std::uint8_t>(0) + places[0];
      const T* a = o.in<T>(1) + places[1];
      const T* b = o.in<T>(2) + places[2];
      T* y = o.out<T>() + to;
      for (std::int64_t i = 0; i < n.inner; ++i) y[i] = condition[i * steps[0]] ? a[i * steps[1]] : b[i * steps[2]];
    });
  };
}

// Attributes: element_bytes. Inputs: condition (bytes), the value where it is not 0, the value elsewhere.
Run select_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  switch (at.integer("element_bytes")) {
    case 1: return select_of<std::uint8_t>(at, ins, outs);
    case 2: return select_of<std::uint16_t>(at, ins, outs);
    case 4: return select_of<std::uint32_t>(at, ins, outs);
    case 8: return select_of<std::uint64_t>(at, ins, outs);
    default: throw std::invalid_argument("select: elements of 1, 2, 4 or 8 bytes");
  }
}

// Attributes: operation (0 add, 1 subtract, 2 multiply, 3 divide towards zero, 4 maximum, 5 minimum, 6 divide down,
// 7 remainder with the divisor's sign, 8 remainder with the dividend's sign). Integers wrap; division by 0 gives 0.
template <class T>
Run integer_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  using U = std::make_unsigned_t<T>;
  const Nest n = nest(at, ins, outs, {sizeof(T), sizeof(T), sizeof(T)}, "integer");
  const auto with = [&](auto operation) { return binary_run<T, T, T>(n, operation); };
  switch (at.integer("operation")) {
    case 0: return with([](T a, T b) { return static_cast<T>(static_cast<U>(a) + static_cast<U>(b)); });
    case 1: return with([](T a, T b) { return static_cast<T>(static_cast<U>(a) - static_cast<U>(b)); });
    case 2: return with([](T a, T b) { return static_cast<T>(static_cast<U>(a) * static_cast<U>(b)); });
    // The smallest integer over -1 does not fit: it wraps to itself.
    case 3:
      return with([](T a, T b) -> T {
        return b == 0 ? T{0} : b == -1 ? static_cast<T>(U{0} - static_cast<U>(a)) : a / b;
      });
    case 4: return with([](T a, T b) { return a > b ? a : b; });
    case 5: return with([](T a, T b) { return a < b ? a : b; });
    case 6:
      return with([](T a, T b) -> T {
        if (b == 0) return 0;
        if (b == -1) return static_cast<T>(U{0} - static_cast<U>(a));
        return static_cast<T>(a / b - (a % b != 0 && (a < 0) != (b < 0)));
      });
    case 7:
      return with([](T a, T b) -> T {
        if (b == 0 || b == -1) return 0;
        const T r = a % b;
        return r != 0 && (r < 0) != (b < 0) ? static_cast<T>(r + b) : r;
      });
    case 8: return with([](T a, T b) -> T { return b == 0 || b == -1 ? T{0} : static_cast<T>(a % b); });
    default: throw std::invalid_argument("integer: bad operation");
  }
}

template <class Out, class In>
Out cast_one(In value) {
  if constexpr (std::is_same_v<Out, bool>) {
    return value != In{0};
  } else if constexpr (std::is_same_v<Out, float>) {
    return static_cast<float>(value);
  } else if constexpr (std::is_same_v<In, float>) {
    // Cut towards zero and saturated to 32 or 64 bits, from there to fewer by wrapping; NaN is 0.
    using Wide = std::conditional_t<(sizeof(Out) < 4), std::int32_t, Out>;
    if (!(value == value)) return 0;
    constexpr double low = static_cast<double>(std::numeric_limits<Wide>::lowest());
    constexpr double above = 2.0 * static_cast<double>(Wide{1} + std::numeric_limits<Wide>::max() / 2);
    const double whole = std::trunc(static_cast<double>(value));
    const Wide wide = whole < low      ? std::numeric_limits<Wide>::lowest()
                      : whole >= above ? std::numeric_limits<Wide>::max()
                                       : static_cast<Wide>(whole);
    return static_cast<Out>(wide);
  } else {
    return static_cast<Out>(value);
  }
}

template <class In, class Out>
Run cast_run(std::int64_t n, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  require_bytes(ins[0], times({n, static_cast<std::int64_t>(sizeof(In))}), "cast input");
  require_bytes(outs[0], times({n, static_cast<std::int64_t>(sizeof(Out))}), "cast output");
  return [=](const Operands& o) {
    parallel_for(o.threads(), n, 16384, [&](std::int64_t begin, std::int64_t end) {
      const In* x = o.in<In>();
      Out* y = o.out<Out>();
      for (std::int64_t i = begin; i < end; ++i) y[i] = cast_one<Out, In>(x[i]);
      // 8 bits fit float16 as they are
      if constexpr (std::is_same_v<Out, float> && sizeof(In) > 1) loops().round_half(y + begin, y + begin, end - begin);
    });
  };
}

// Types by number: 0 bool, 1 uint8, 2 int8, 3 uint16, 4 int16, 5 uint32, 6 int32, 7 int64, 8 float32.
template <class Use>
Run with_type(std::int64_t type, Use use) {
  switch (type) {
    case 0: return use(bool{});
    case 1: return use(std::uint8_t{});
    case 2: return use(std::int8_t{});
    case 3: return use(std::uint16_t{});
    case 4: return use(std::int16_t{});
    case 5: return use(std::uint32_t{});
    case 6: return use(std::int32_t{});
    case 7: return use(std::int64_t{});
    case 8: return use(float{});
    default: throw std::invalid_argument("cast: bad type");
  }
}

// Attributes: count, from, to.
Run cast_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  require_operands(ins, 1, outs, 1, "cast");
  const std::int64_t n = at.integer("count"), to = at.integer("to");
  require(n >= 0, "cast: bad count");
  return with_type(at.integer("from"), [&](auto in) {
    return with_type(to, [&](auto out) { return cast_run<decltype(in), decltype(out)>(n, ins, outs); });
  });
}

// y = x where not negative, else coefficient * x. Inputs: x, coefficients (float32; for fixed point float64).
// Fixed point: zero_a, zero_point, low, high and the real `scale` (input scale / output scale).
template <class Q>
Run prelu_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const Nest n = nest(at, ins, outs, {sizeof(Q), 8, sizeof(Q)}, "prelu");
  const Target target(at);
  const double scale = at.real("scale");
  const auto zero = at.small("zero_a");
  return binary_run<Q, double, Q>(n, [=](Q q, double coefficient) {
    const double steps = static_cast<double>(q - zero) * scale;
    return target.round_and_clamp<Q>(steps >= 0 ? steps : coefficient * steps);
  });
}

Run prelu_f32_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const Nest n = nest(at, ins, outs, {4, 4, 4}, "prelu");
  return binary_run<float, float, float>(n, [](float x, float c) { return x >= 0 ? x : to_half(c * x); });
}

// (a * scale_a - b * scale_b)^2 * scale, a and b less their zero points, in float64.
template <class Q>
Run squared_difference_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const Nest n = nest(at, ins, outs, {sizeof(Q), sizeof(Q), sizeof(Q)}, "squared difference");
  const Target target(at);
  const double scale_a = at.real("scale_a"), scale_b = at.real("scale_b"), scale = at.real("scale");
  const auto zero_a = at.small("zero_a"), zero_b = at.small("zero_b");
  return binary_run<Q, Q, Q>(n, [=](Q a, Q b) {
    const double d = static_cast<double>(a - zero_a) * scale_a - static_cast<double>(b - zero_b) * scale_b;
    return target.round_and_clamp<Q>(d * d * scale);
  });
}

Run squared_difference_f32_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const Nest n = nest(at, ins, outs, {4, 4, 4}, "squared difference");
  return binary_run<float, float, float>(n, [](float a, float b) { return to_half((a - b) * (a - b)); });
}

const Fields kNest = {integers("dims"), integers("strides")};
const Schema kOperation{2, 1, kNest + Fields{integer("operation")}};
const Schema kCompareFixed{
    2, 1, kNest + Fields{integer("operation"), real("scale_a"), real("scale_b"), integer("zero_a"), integer("zero_b")}};
const Schema kDifference{2, 1, kNest + kFixed + Fields{real("scale_a"), real("scale_b"), integer("zero_b")}};

}  // namespace

void register_logic_steps() {
  register_step("compare_u8", kCompareFixed, compare_step<std::uint8_t, true>);
  register_step("compare_s16", kCompareFixed, compare_step<std::int16_t, true>);
  register_step("compare_f32", kOperation, compare_step<float, false>);
  register_step("compare_bool", kOperation, compare_step<std::uint8_t, false>);
  register_step("compare_int32", kOperation, compare_step<std::int32_t, false>);
  register_step("compare_int64", kOperation, compare_step<std::int64_t, false>);
  register_step("logical", kOperation, logical_step);
  register_step("select", {3, 1, kNest + Fields{integer("element_bytes")}}, select_step);
  register_step("integer_int32", kOperation, integer_step<std::int32_t>);
  register_step("integer_int64", kOperation, integer_step<std::int64_t>);
  register_step("cast", Schema(1, 1, {integer("count"), integer("from"), integer("to")}).exact(), cast_step);
  register_step("prelu_u8", {2, 1, kNest + kFixed}, prelu_step<std::uint8_t>);
  register_step("prelu_s16", {2, 1, kNest + kFixed}, prelu_step<std::int16_t>);
  register_step("prelu_f32", {2, 1, kNest}, prelu_f32_step);
  register_step("squared_difference_u8", kDifference, squared_difference_step<std::uint8_t>);
  register_step("squared_difference_s16", kDifference, squared_difference_step<std::int16_t>);
  register_step("squared_difference_f32", {2, 1, kNest}, squared_difference_f32_step);
}

}  // namespace hexforge
