// SPDX-License-Identifier: Apache-2.0
// Steps "grid_sample_*": [batch][h][w][channels], or [batch][d][h][w][channels], read at coordinates that come with
// the data.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/parallel.h"
#include "core/round_and_clamp.h"
#include "steps/fields.h"
#include "steps/steps.h"

namespace hexforge {
namespace {

struct Grid {
  bool corners, nearest;
  std::int64_t padding;  // 0 zeros, 1 border, 2 reflection
};

// A coordinate folded back at both borders until it lies between them.
double reflect(double at, double low, double high) {
  const double span = high - low;
  if (span <= 0) return low;
  double rest = std::fmod(at - low, 2 * span);
  if (rest < 0) rest += 2 * span;
  return low + span - std::abs(rest - span);
}

double position(const Grid& grid, double normal, std::int64_t size) {
  const double n = static_cast<double>(size);
  double at = grid.corners ? (normal + 1) / 2 * (n - 1) : ((normal + 1) * n - 1) / 2;
  if (grid.padding == 2) at = grid.corners ? reflect(at, 0, n - 1) : reflect(at, -0.5, n - 0.5);
  if (grid.padding != 0) at = std::clamp(at, 0.0, n - 1);
  // Beyond this far every tap is outside; NaN lies nowhere.
  return at == at ? std::clamp(at, -2.0, n + 1) : -2.0;
}

struct Taps {
  int count;
  std::int64_t index[2];
  double weight[2];  // 0 outside
};

Taps taps(const Grid& grid, double at, std::int64_t size) {
  Taps t;
  t.count = grid.nearest ? 1 : 2;
  const double floor = std::floor(at);
  const double first = grid.nearest ? std::nearbyint(at) : floor;
  for (int i = 0; i < t.count; ++i) {
    const double index = first + i;
    const bool inside = index >= 0 && index <= static_cast<double>(size - 1);
    t.index[i] = inside ? static_cast<std::int64_t>(index) : 0;
    t.weight[i] = !inside ? 0.0 : grid.nearest ? 1.0 : i == 0 ? 1 - (at - floor) : at - floor;
  }
  return t;
}

// The axes of an image, or of a volume, as (d, h, w): an image is one layer.
std::vector<std::int64_t> volume(std::vector<std::int64_t> sizes) {
  require(sizes.size() == 2 || sizes.size() == 3, "grid sample: images and volumes only");
  if (sizes.size() == 2) sizes.insert(sizes.begin(), 1);
  return sizes;
}

// Attributes: batch, in (h, w) or (d, h, w), out likewise, channels, align_corners, nearest, padding; the grid's
// grid_zero and the real grid_scale where it is fixed point; for fixed-point data zero_a, zero_point, low, high, real
// scale. Sums run over the taps layer by layer, row by row in float64.
template <class T, class G>
Run sample_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  constexpr bool fixed = !std::is_same_v<T, float>;
  const std::int64_t batch = at.integer("batch"), channels = at.integer("channels");
  const auto axes = static_cast<std::int64_t>(at.list("in").size());
  const std::vector<std::int64_t> in = volume(at.list("in")),
                                  out = volume(at.list("out", static_cast<std::size_t>(axes)));
  require_operands(ins, 2, outs, 1, "grid sample");
  require(batch >= 0 && channels >= 1, "grid sample: bad shape");
  for (std::size_t i = 0; i < in.size(); ++i) require(in[i] >= 1 && out[i] >= 1, "grid sample: bad shape");
  const std::int64_t points = times({out[0], out[1], out[2]}), pixels = times({batch, points});
  const std::int64_t element = sizeof(T), layer = times({in[1], in[2], channels}), whole = times({in[0], layer});
  require_bytes(ins[0], times({batch, whole, element}), "grid sample input");
  require_bytes(ins[1], times({pixels, axes, static_cast<std::int64_t>(sizeof(G))}), "grid sample grid");
  require_bytes(outs[0], times({pixels, channels, element}), "grid sample output");
  const Grid grid{at.integer("align_corners") != 0, at.integer("nearest") != 0, at.integer("padding")};
  require(grid.padding >= 0 && grid.padding <= 2, "grid sample: bad padding");
  const double grid_scale = at.real("grid_scale", 1.0), grid_zero = static_cast<double>(at.integer("grid_zero", 0));
  Target target;
  double scale = 1, zero = 0;
  if constexpr (fixed) {
    target = Target(at);
    scale = at.real("scale");
    zero = static_cast<double>(at.small("zero_a"));
  }
  return [=](const Operands& o) {
    parallel_for(
        o.threads(), pixels, std::max<std::int64_t>(1, 4096 / channels), [&](std::int64_t begin, std::int64_t end) {
          std::vector<double> sum(static_cast<std::size_t>(channels));
          for (std::int64_t p = begin; p < end; ++p) {
            const G* place = o.in<G>(1) + p * axes;
            const auto along = [&](std::int64_t axis, std::int64_t size) {
              return taps(grid, position(grid, (static_cast<double>(place[axis]) - grid_zero) * grid_scale, size),
                          size);
            };
            const Taps columns = along(0, in[2]), rows = along(1, in[1]);
            const Taps layers = axes == 3 ? along(2, in[0]) : Taps{1, {0, 0}, {1.0, 0.0}};
            const T* image = o.in<T>() + p / points * whole;
            std::fill(sum.begin(), sum.end(), 0.0);
            for (int l = 0; l < layers.count; ++l) {
              for (int r = 0; r < rows.count; ++r) {
                for (int c = 0; c < columns.count; ++c) {
                  const double weight = layers.weight[l] * (rows.weight[r] * columns.weight[c]);
                  if (weight == 0) continue;
                  const T* pixel =
                      image + layers.index[l] * layer + (rows.index[r] * in[2] + columns.index[c]) * channels;
                  for (std::int64_t i = 0; i < channels; ++i) {
                    sum[static_cast<std::size_t>(i)] += (static_cast<double>(pixel[i]) - zero) * weight;
                  }
                }
              }
            }
            T* y = o.out<T>() + p * channels;
            for (std::int64_t i = 0; i < channels; ++i) {
              const double value = sum[static_cast<std::size_t>(i)];
              if constexpr (fixed) {
                y[i] = target.round_and_clamp<T>(value * scale);
              } else {
                y[i] = narrow_to_half(value);
              }
            }
          }
        });
  };
}

const Fields kGrid = {integer("batch"),         integer("channels"),          integers("in"),
                      integers("out"),          integer("nearest"),           integer("padding"),
                      integer("align_corners"), optional(real("grid_scale")), optional(integer("grid_zero"))};

}  // namespace

void register_sample_steps() {
  register_step("grid_sample_u8_u8", {2, 1, kGrid + kFixed}, sample_step<std::uint8_t, std::uint8_t>);
  register_step("grid_sample_u8_s16", {2, 1, kGrid + kFixed}, sample_step<std::uint8_t, std::int16_t>);
  register_step("grid_sample_u8_f32", {2, 1, kGrid + kFixed}, sample_step<std::uint8_t, float>);
  register_step("grid_sample_s16_s16", {2, 1, kGrid + kFixed}, sample_step<std::int16_t, std::int16_t>);
  register_step("grid_sample_s16_u8", {2, 1, kGrid + kFixed}, sample_step<std::int16_t, std::uint8_t>);
  register_step("grid_sample_s16_f32", {2, 1, kGrid + kFixed}, sample_step<std::int16_t, float>);
  register_step("grid_sample_f32_f32", {2, 1, kGrid}, sample_step<float, float>);
}

}  // namespace hexforge
