// SPDX-License-Identifier: Apache-2.0
// Steps of detectors: "select_boxes" (non-maximum suppression) and "roi_align_*" (bilinear samples averaged by bins).
#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <type_traits>

#include "core/parallel.h"
#include "core/round_and_clamp.h"
#include "kernels/loops.h"
#include "steps/fields.h"
#include "steps/steps.h"

namespace hexforge {
namespace {

struct Box {
  float y1, x1, y2, x2, area;
  explicit Box(const float* corners)
      : y1(std::min(corners[0], corners[2])),
        x1(std::min(corners[1], corners[3])),
        y2(std::max(corners[0], corners[2])),
        x2(std::max(corners[1], corners[3])),
        area((y2 - y1) * (x2 - x1)) {}
};

// Intersection over union, in the order of operations of the op's definition; 0 where either is empty.
float overlap(const Box& a, const Box& b) {
  const float high = std::min(a.y2, b.y2) - std::max(a.y1, b.y1), wide = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
  if (!(high > 0) || !(wide > 0)) return 0;  // most boxes lie apart, and a division takes longer than all the rest
  const float shared = high * wide, whole = a.area + b.area - shared;
  return a.area > 0 && b.area > 0 && whole > 0 ? shared / whole : 0;
}

// What a score and its index are worth: larger scores first, of equal ones the lower index. Neither may be NaN.
std::uint64_t worth(float score, std::int64_t index) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(score + 0.0f);  // -0 is 0
  const std::uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return std::uint64_t{ordered} << 32 | static_cast<std::uint32_t>(~index);
}

// Indices of the boxes that are kept of one class, the best first.
void keep_best(const std::vector<Box>& boxes, const float* scores, float least, float iou, std::int64_t most,
               std::vector<std::int32_t>& kept) {
  std::vector<std::uint64_t> heap;
  heap.reserve(boxes.size());
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    if (scores[i] > least) heap.push_back(worth(scores[i], static_cast<std::int64_t>(i)));
  }
  std::make_heap(heap.begin(), heap.end());
  std::vector<Box> taken;
  while (!heap.empty() && static_cast<std::int64_t>(kept.size()) < most) {
    std::pop_heap(heap.begin(), heap.end());
    const std::uint32_t index = ~static_cast<std::uint32_t>(heap.back());
    heap.pop_back();
    const Box& box = boxes[index];
    if (!std::all_of(taken.begin(), taken.end(), [&](const Box& other) { return overlap(other, box) <= iou; }))
      continue;
    taken.push_back(box);
    kept.push_back(static_cast<std::int32_t>(index));
  }
}

// Attributes: batch, classes, boxes, most (for each class), rows; reals iou, least (scores above it count). Inputs:
// float corners [batch][boxes][4] and scores [batch][classes][boxes]. Outputs: int32 rows [batch, class, box], those
// not used -1, and how many are used, of all or of each batch; without that their number must be exact.
Run select_boxes(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const std::int64_t batch = at.integer("batch"), classes = at.integer("classes"), count = at.integer("boxes");
  const std::int64_t most = at.integer("most"), rows = at.integer("rows");
  require(ins.size() == 2 && (outs.size() == 1 || outs.size() == 2), "select boxes: bad operands");
  require(batch >= 1 && classes >= 1 && count >= 1 && most >= 0 && rows >= 0 && count <= INT32_MAX,
          "select boxes: bad shape");
  const bool counted = outs.size() == 2;
  require_bytes(ins[0], times({batch, count, 4, 4}), "select boxes input");
  require_bytes(ins[1], times({batch, classes, count, 4}), "select boxes scores");
  require_bytes(outs[0], times({rows, 3, 4}), "select boxes output");
  const bool each = counted && batch > 1 && outs[1].bytes != 4;
  if (counted) require_bytes(outs[1], each ? times({batch, 4}) : 4, "select boxes output");
  const float iou = static_cast<float>(at.real("iou")), least = static_cast<float>(at.real("least"));
  return [=](const Operands& o) {
    std::vector<std::vector<Box>> boxes(static_cast<std::size_t>(batch));
    for (std::int64_t n = 0; n < batch; ++n) {
      boxes[static_cast<std::size_t>(n)].reserve(static_cast<std::size_t>(count));
      for (std::int64_t i = 0; i < count; ++i)
        boxes[static_cast<std::size_t>(n)].emplace_back(o.in<float>() + (n * count + i) * 4);
    }
    std::vector<std::vector<std::int32_t>> kept(static_cast<std::size_t>(batch * classes));
    parallel_for(o.threads(), batch * classes, std::max<std::int64_t>(1, 1024 / count),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                     keep_best(boxes[static_cast<std::size_t>(i / classes)], o.in<float>(1) + i * count, least, iou,
                               most, kept[static_cast<std::size_t>(i)]);
                   }
                 });
    std::int64_t selected = 0;
    for (const auto& each : kept) selected += static_cast<std::int64_t>(each.size());
    if (!counted && selected != rows) {
      throw std::out_of_range("NonMaxSuppression: " + std::to_string(selected) +
                              " boxes are selected, the output is declared with " + std::to_string(rows) + " rows");
    }
    std::int32_t* y = o.out<std::int32_t>();
    std::fill(y, y + rows * 3, -1);
    std::int64_t row = 0;
    if (each) std::fill_n(o.out<std::int32_t>(1), batch, 0);
    for (std::int64_t i = 0; i < batch * classes; ++i) {
      for (std::int32_t box : kept[static_cast<std::size_t>(i)]) {
        if (row == rows) break;
        if (each) ++o.out<std::int32_t>(1)[i / classes];
        y[row * 3] = static_cast<std::int32_t>(i / classes);
        y[row * 3 + 1] = static_cast<std::int32_t>(i % classes);
        y[row++ * 3 + 2] = box;
      }
    }
    if (counted && !each) *o.out<std::int32_t>(1) = static_cast<std::int32_t>(row);
  };
}

// What a bin takes of the elements from `first` on, its samples averaged.
struct Share {
  std::int64_t first = 0;
  std::vector<double> weights;
};

Share share_of(double start, double extent, std::int64_t bins, std::int64_t bin, std::int64_t samples,
               std::int64_t size) {
  constexpr double kMost = 1 << 24;
  Share share;
  const double wanted = samples > 0 ? static_cast<double>(samples) : std::ceil(extent / static_cast<double>(bins));
  if (!(wanted >= 1) || !std::isfinite(start) || !std::isfinite(extent)) return share;
  if (wanted > kMost) throw std::out_of_range("RoiAlign: a region is larger than could be sampled");
  const auto count = static_cast<std::int64_t>(wanted);
  for (std::int64_t s = 0; s < count; ++s) {
    const double offset =
        (static_cast<double>(bin) + (static_cast<double>(s) + 0.5) / wanted) * (extent / static_cast<double>(bins));
    double at = start + offset;
    if (!(at >= -1 && at <= static_cast<double>(size))) continue;
    at = std::clamp(at, 0.0, static_cast<double>(size - 1));
    const auto low = static_cast<std::int64_t>(at);
    const double rest = at - static_cast<double>(low);
    if (share.weights.empty()) share.first = low;
    if (low < share.first) {  // of a region whose end lies before its start
      share.weights.insert(share.weights.begin(), static_cast<std::size_t>(share.first - low), 0.0);
      share.first = low;
    }
    const auto place = static_cast<std::size_t>(low - share.first),
               next = static_cast<std::size_t>(std::min(low + 1, size - 1) - share.first);
    if (share.weights.size() <= next) share.weights.resize(next + 1);
    share.weights[place] += (1 - rest) / wanted;
    share.weights[next] += rest / wanted;
  }
  return share;
}

// sums += (x - zero) * weight of fixed point in float64, of floats in float32.
auto blend_of(const std::uint8_t*) { return loops().blend_u8_f64; }
auto blend_of(const std::int16_t*) { return loops().resize_s16.blend; }
auto blend_of(const double*) { return loops().resize_s16.blend_line; }
auto blend_of(const float*) { return loops().resize_f32.blend; }

// Attributes: batch, in (h, w), out (h, w), channels, regions, samples (y, x; 0: as many as a bin has elements),
// aligned; reals ratio_y, ratio_x; the regions' grid_zero and grid_scale where they are fixed point; for fixed-point
// data zero_a, zero_point, low, high, real scale. Inputs: data, regions [x1, y1, x2, y2], the image of each (int32).
template <class T, class G>
Run roi_align(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  constexpr bool fixed = !std::is_same_v<T, float>;
  using Real = std::conditional_t<fixed, double, float>;
  const std::int64_t batch = at.integer("batch"), channels = at.integer("channels"), regions = at.integer("regions");
  const std::vector<std::int64_t> in = at.list("in", 2), out = at.list("out", 2), samples = at.list("samples", 2);
  require_operands(ins, 3, outs, 1, "roi align");
  require(batch >= 1 && channels >= 1 && regions >= 1 && std::min({in[0], in[1], out[0], out[1]}) >= 1,
          "roi align: bad shape");
  for (std::int64_t size : {in[0], in[1], out[0], out[1], channels}) require(size <= INT32_MAX, "roi align: bad shape");
  require(std::max(samples[0], samples[1]) <= 1 << 20, "roi align: too many samples");
  require_bytes(ins[0], times({batch, in[0], in[1], channels, static_cast<std::int64_t>(sizeof(T))}),
                "roi align input");
  require_bytes(ins[1], times({regions, 4, static_cast<std::int64_t>(sizeof(G))}), "roi align regions");
  require_bytes(ins[2], times({regions, 4}), "roi align images");
  require_bytes(outs[0], times({regions, out[0], out[1], channels, static_cast<std::int64_t>(sizeof(T))}),
                "roi align output");
  const bool aligned = at.integer("aligned") != 0;
  const double ratio[2] = {at.real("ratio_y"), at.real("ratio_x")};
  const double grid_scale = at.real("grid_scale", 1.0), grid_zero = static_cast<double>(at.integer("grid_zero", 0));
  Target target;
  double scale = 1;
  Real zero = 0;
  if constexpr (fixed) {
    target = Target(at);
    scale = at.real("scale");
    zero = static_cast<Real>(at.small("zero_a"));
  }
  return [=](const Operands& o) {
    const auto add = blend_of(static_cast<const T*>(nullptr));
    const auto add_columns = blend_of(static_cast<const Real*>(nullptr));
    // One row of bins is a task: the image's rows are summed first, then its columns.
    parallel_for(
        o.threads(), regions * out[0], std::max<std::int64_t>(1, 4096 / (out[1] * channels)),
        [&](std::int64_t begin, std::int64_t end) {
          std::vector<Real> line, sum(static_cast<std::size_t>(channels));
          std::vector<Share> columns(static_cast<std::size_t>(out[1]));
          for (std::int64_t task = begin; task < end; ++task) {
            const std::int64_t region = task / out[0];
            double corner[4];
            for (int i = 0; i < 4; ++i) {
              corner[i] = (static_cast<double>(o.in<G>(1)[region * 4 + i]) - grid_zero) * grid_scale /
                              ratio[i % 2 == 0 ? 1 : 0] -
                          (aligned ? 0.5 : 0.0);
            }
            const double high = corner[3] - corner[1], wide = corner[2] - corner[0];
            const Share rows =
                share_of(corner[1], aligned ? high : std::max(high, 1.0), out[0], task % out[0], samples[0], in[0]);
            std::int64_t left = in[1], right = 0;
            for (std::int64_t bin = 0; bin < out[1]; ++bin) {
              const Share& share = columns[static_cast<std::size_t>(bin)] =
                  share_of(corner[0], aligned ? wide : std::max(wide, 1.0), out[1], bin, samples[1], in[1]);
              if (share.weights.empty()) continue;
              left = std::min(left, share.first);
              right = std::max(right, share.first + static_cast<std::int64_t>(share.weights.size()));
            }
            T* y = o.out<T>() + task * out[1] * channels;
            line.assign(static_cast<std::size_t>(std::max<std::int64_t>(0, right - left) * channels), Real{0});
            if (!rows.weights.empty() && left < right) {
              const std::int64_t image = o.in<std::int32_t>(2)[region];
              if (image < 0 || image >= batch) {
                throw std::out_of_range("RoiAlign: batch index " + std::to_string(image) + " is outside " +
                                        std::to_string(batch) + " images");
              }
              for (std::size_t r = 0; r < rows.weights.size(); ++r) {
                const T* x =
                    o.in<T>() + ((image * in[0] + rows.first + static_cast<std::int64_t>(r)) * in[1] + left) * channels;
                add(x, zero, static_cast<Real>(rows.weights[r]), false, line.data(), (right - left) * channels);
              }
            }
            for (std::int64_t bin = 0; bin < out[1]; ++bin, y += channels) {
              const Share& share = columns[static_cast<std::size_t>(bin)];
              std::fill(sum.begin(), sum.end(), Real{0});
              for (std::size_t c = 0; c < share.weights.size(); ++c) {
                add_columns(line.data() + (share.first - left + static_cast<std::int64_t>(c)) * channels, Real{0},
                            static_cast<Real>(share.weights[c]), false, sum.data(), channels);
              }
              for (std::int64_t i = 0; i < channels; ++i) {
                if constexpr (fixed) {
                  y[i] = target.round_and_clamp<T>(sum[static_cast<std::size_t>(i)] * scale);
                } else {
                  y[i] = narrow_to_half(sum[static_cast<std::size_t>(i)]);
                }
              }
            }
          }
        });
  };
}

const Schema kSelect{2,
                     2,
                     1,
                     2,
                     {integer("batch"), integer("classes"), integer("boxes"), integer("rows"), integer("most"),
                      real("least"), real("iou")}};
const Fields kRegions = {integer("batch"),
                         integer("channels"),
                         integer("regions"),
                         integers("in", 2),
                         integers("out", 2),
                         integers("samples", 2),
                         integer("aligned"),
                         real("ratio_y"),
                         real("ratio_x"),
                         optional(real("grid_scale")),
                         optional(integer("grid_zero"))};

}  // namespace

void register_detection_steps() {
  register_step("select_boxes", kSelect, select_boxes);
  register_step("roi_align_u8_u8", {3, 1, kRegions + kFixed}, roi_align<std::uint8_t, std::uint8_t>);
  register_step("roi_align_u8_s16", {3, 1, kRegions + kFixed}, roi_align<std::uint8_t, std::int16_t>);
  register_step("roi_align_u8_f32", {3, 1, kRegions + kFixed}, roi_align<std::uint8_t, float>);
  register_step("roi_align_s16_s16", {3, 1, kRegions + kFixed}, roi_align<std::int16_t, std::int16_t>);
  register_step("roi_align_s16_u8", {3, 1, kRegions + kFixed}, roi_align<std::int16_t, std::uint8_t>);
  register_step("roi_align_s16_f32", {3, 1, kRegions + kFixed}, roi_align<std::int16_t, float>);
  register_step("roi_align_f32_f32", {3, 1, kRegions}, roi_align<float, float>);
}

}  // namespace hexforge
