// SPDX-License-Identifier: Apache-2.0
// Steps "resize_*" (weighted taps per axis) and "resize_nearest" (one index per axis) over [batch][d][h][w][channels].
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/parallel.h"
#include "core/round_and_clamp.h"
#include "kernels/loops.h"
#include "steps/fields.h"
#include "steps/steps.h"

namespace hexforge {
namespace {

struct Shape {
  std::int64_t batch, channels, in[3], out[3];
};

Shape shape(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs, std::int64_t bytes) {
  Shape s;
  s.batch = at.integer("batch");
  s.channels = at.integer("channels");
  std::copy_n(at.list("in", 3).begin(), 3, s.in);
  std::copy_n(at.list("out", 3).begin(), 3, s.out);
  require_operands(ins, 1, outs, 1, "resize");
  require(s.batch >= 0 && s.channels >= 1, "resize: bad shape");
  for (int i = 0; i < 3; ++i) require(s.in[i] >= 1 && s.out[i] >= 1, "resize: bad shape");
  require_bytes(ins[0], times({s.batch, s.in[0], s.in[1], s.in[2], s.channels, bytes}), "resize input");
  require_bytes(outs[0], times({s.batch, s.out[0], s.out[1], s.out[2], s.channels, bytes}), "resize output");
  return s;
}

const std::int32_t* indices(const Attributes& at, const char* name, std::int64_t count, std::int64_t size) {
  const std::int32_t* index = at.constant<std::int32_t>(name, count);
  for (std::int64_t i = 0; i < count; ++i) require(index[i] >= 0 && index[i] < size, "resize: an index is outside");
  return index;
}

// Which input elements an output position blends, and how much of each.
template <class Real>
struct Axis {
  std::int64_t taps;
  const std::int32_t* index;
  const Real* weight;
};

template <class Real>
Axis<Real> axis(const Attributes& at, const Shape& s, int i) {
  const std::string number = std::to_string(i);
  const std::int64_t taps = at.list("taps", 3)[static_cast<std::size_t>(i)];
  require(taps >= 1, "resize: bad taps");
  return {taps, indices(at, ("index" + number).c_str(), times({s.out[i], taps}), s.in[i]),
          at.constant<Real>("weight" + number, times({s.out[i], taps}))};
}

const auto& resize_loops(const std::uint8_t*) { return loops().resize_u8; }
const auto& resize_loops(const std::int16_t*) { return loops().resize_s16; }
const auto& resize_loops(const float*) { return loops().resize_f32; }

// Each output row: the input rows it blends are added up in order (depth outermost), then the columns in order.
// Attributes: batch, channels, in, out, taps; constants index0..2 (int32), weight0..2 (Real); fixed point: zero_a,
// zero_point, low, high and the real `scale` (input scale / output scale).
template <class T, class Real>
Run linear_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  constexpr bool fixed = !std::is_same_v<T, float>;
  const Shape s = shape(at, ins, outs, sizeof(T));
  const Axis<Real> depth = axis<Real>(at, s, 0), height = axis<Real>(at, s, 1), width = axis<Real>(at, s, 2);
  Target target;
  Real scale = 1, zero = 0;
  if constexpr (fixed) {
    target = Target(at);
    scale = static_cast<Real>(at.real("scale"));
    zero = static_cast<Real>(at.small("zero_a"));
  }
  const std::int64_t c = s.channels, row = s.in[2] * c, out_row = s.out[2] * c;
  // Few channels: taps element by element instead of pixel by pixel.
  const bool narrow = c < 16 && row <= INT32_MAX;
  std::vector<std::int32_t> index;
  std::vector<Real> weight;
  for (std::int64_t t = 0; narrow && t < width.taps; ++t) {
    for (std::int64_t i = 0; i < out_row; ++i) {
      index.push_back(static_cast<std::int32_t>(width.index[i / c * width.taps + t] * c + i % c));
      weight.push_back(width.weight[i / c * width.taps + t]);
    }
  }
  return [=](const Operands& o) {
    const ResizeLoops<T, Real>& own = resize_loops(static_cast<const T*>(nullptr));
    const std::int64_t rows = s.batch * s.out[0] * s.out[1];
    parallel_for(
        o.threads(), rows, std::max<std::int64_t>(1, 16384 / out_row), [&](std::int64_t begin, std::int64_t end) {
          std::vector<Real> line(static_cast<std::size_t>(row)), result(static_cast<std::size_t>(out_row));
          for (std::int64_t r = begin; r < end; ++r) {
            const std::int64_t h = r % s.out[1], d = r / s.out[1] % s.out[0], n = r / (s.out[1] * s.out[0]);
            bool first = true;
            for (std::int64_t i = 0; i < depth.taps; ++i) {
              for (std::int64_t j = 0; j < height.taps; ++j) {
                const std::int64_t at_d = depth.index[d * depth.taps + i], at_h = height.index[h * height.taps + j];
                own.blend(o.in<T>() + ((n * s.in[0] + at_d) * s.in[1] + at_h) * row, zero,
                          depth.weight[d * depth.taps + i] * height.weight[h * height.taps + j], first, line.data(),
                          row);
                first = false;
              }
            }
            T* y = o.out<T>() + r * out_row;
            if (narrow) {
              own.across(line.data(), index.data(), weight.data(), width.taps, result.data(), out_row);
            } else {
              for (std::int64_t w = 0; w < s.out[2]; ++w) {
                for (std::int64_t k = 0; k < width.taps; ++k) {
                  own.blend_line(line.data() + width.index[w * width.taps + k] * c, Real{0},
                                 width.weight[w * width.taps + k], k == 0, result.data() + w * c, c);
                }
              }
            }
            if constexpr (fixed) {
              own.round_row(result.data(), scale, static_cast<Real>(target.low), static_cast<Real>(target.high),
                            target.zero, y, out_row);
            } else {
              loops().round_half(result.data(), y, out_row);
            }
          }
        });
  };
}

template <class Unit>
void pick(const char* line, const std::int32_t* index, std::int64_t n, char* y) {
  for (std::int64_t i = 0; i < n; ++i)
    std::memcpy(y + i * static_cast<std::int64_t>(sizeof(Unit)),
                line + index[i] * static_cast<std::int64_t>(sizeof(Unit)), sizeof(Unit));
}

// Attributes: batch, channels (bytes of a pixel), in, out; constants index0..2 (int32).
Run nearest_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const Shape s = shape(at, ins, outs, 1);
  const std::int32_t* depth = indices(at, "index0", s.out[0], s.in[0]);
  const std::int32_t* height = indices(at, "index1", s.out[1], s.in[1]);
  const std::int32_t* width = indices(at, "index2", s.out[2], s.in[2]);
  return [=](const Operands& o) {
    const std::int64_t c = s.channels, rows = s.batch * s.out[0] * s.out[1];
    parallel_for(o.threads(), rows, std::max<std::int64_t>(1, 32768 / (s.out[2] * c)),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t r = begin; r < end; ++r) {
                     const std::int64_t h = height[r % s.out[1]], d = depth[r / s.out[1] % s.out[0]],
                                        n = r / (s.out[1] * s.out[0]);
                     const char* line = o.in<char>() + ((n * s.in[0] + d) * s.in[1] + h) * s.in[2] * c;
                     char* y = o.out<char>() + r * s.out[2] * c;
                     if (r > begin && r % s.out[1] != 0 && height[r % s.out[1] - 1] == h) {
                       std::memcpy(y, y - s.out[2] * c, static_cast<std::size_t>(s.out[2] * c));  // the row above again
                       continue;
                     }
                     switch (c) {
                       case 1: pick<std::uint8_t>(line, width, s.out[2], y); break;
                       case 2: pick<std::uint16_t>(line, width, s.out[2], y); break;
                       case 4: pick<std::uint32_t>(line, width, s.out[2], y); break;
                       default:
                         for (std::int64_t w = 0; w < s.out[2]; ++w)
                           std::memcpy(y + w * c, line + width[w] * c, static_cast<std::size_t>(c));
                     }
                   }
                 });
  };
}

const Fields kNearest = {integer("batch"), integer("channels"), integers("in", 3), integers("out", 3),
                         array("index0"),  array("index1"),     array("index2")};
const Fields kLinear = kNearest + Fields{integers("taps", 3), array("weight0"), array("weight1"), array("weight2")};

}  // namespace

void register_resize_steps() {
  register_step("resize_u8", {1, 1, kLinear + kFixed}, linear_step<std::uint8_t, float>);
  register_step("resize_s16", {1, 1, kLinear + kFixed}, linear_step<std::int16_t, double>);
  register_step("resize_f32", {1, 1, kLinear}, linear_step<float, float>);
  register_step("resize_nearest", {1, 1, kNearest}, nearest_step);
}

}  // namespace hexforge
