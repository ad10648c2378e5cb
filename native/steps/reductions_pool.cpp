// SPDX-License-Identifier: Apache-2.0
// Steps "pool_max_*" and "pool_mean_*" over NHWC windows.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "core/parallel.h"
#include "core/program.h"
#include "kernels/loops.h"
#include "steps/fields.h"
#include "steps/rows.h"
#include "steps/steps.h"

namespace hexforge {
namespace {

struct Window {
  std::int64_t batch, in[3], out[3], kernel[3], stride[3], pad[3], pad_after[3], dilation[3], channels;
  bool count_pad;
};

// Attributes: batch, in, out, kernel, stride, pad, pad_after, dilation (three each), channels, count_pad.
Window window(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs, std::int64_t bytes) {
  Window w;
  w.batch = at.integer("batch");
  copy3(at, "in", w.in);
  copy3(at, "out", w.out);
  copy3(at, "kernel", w.kernel);
  copy3(at, "stride", w.stride);
  copy3(at, "pad", w.pad);
  copy3(at, "pad_after", w.pad_after);
  copy3(at, "dilation", w.dilation);
  w.channels = at.integer("channels");
  w.count_pad = at.integer("count_pad", 0) != 0;
  if (ins.size() != 1 || outs.size() != 1 || w.batch < 0 || w.channels < 1)
    throw std::invalid_argument("pool: bad operands");
  for (int i = 0; i < 3; ++i) {
    if (w.in[i] < 1 || w.out[i] < 0 || w.kernel[i] < 1 || w.stride[i] < 1 || w.dilation[i] < 1) {
      throw std::invalid_argument("pool: bad geometry");
    }
    for (std::int64_t size : {w.in[i], w.out[i], w.kernel[i], w.stride[i], w.dilation[i], w.pad[i], w.pad_after[i]}) {
      if (size < -INT32_MAX || size > INT32_MAX) throw std::invalid_argument("pool: bad geometry");
    }
  }
  if (times({w.kernel[0], w.kernel[1], w.kernel[2]}) > 1 << 24)
    throw std::invalid_argument("pool: the window is too large");
  times({w.channels, w.kernel[0], w.kernel[1], w.kernel[2]});
  require_bytes(ins[0], times({w.batch, w.in[0], w.in[1], w.in[2], w.channels, bytes}), "pool input");
  require_bytes(outs[0], times({w.batch, w.out[0], w.out[1], w.out[2], w.channels, bytes}), "pool output");
  return w;
}

// What a window covers of one axis: kernel positions [first, last) lie inside the image, and `covered` of them count.
struct Span {
  std::int64_t start, first, last, covered;
  Span(const Window& w, int axis, std::int64_t at) : start(at * w.stride[axis] - w.pad[axis]) {
    const std::int64_t step = w.dilation[axis];
    const auto until = [&](std::int64_t end) {  // positions before `end`
      if (start + (w.kernel[axis] - 1) * step < end) return w.kernel[axis];
      return start < end ? (end - start + step - 1) / step : 0;
    };
    first = start < 0 ? std::min(w.kernel[axis], (step - 1 - start) / step) : 0;
    last = std::max(first, until(w.in[axis]));
    covered = until(w.in[axis] + w.pad_after[axis]);
  }
};

// Calls pixel(rows, count, covered, channels, y) for every output pixel: rows inside the image, positions that count.
// Where there are few pixels, as of a mean over the whole image, the channels are split too.
template <class T, class Pixel>
void each_pixel(const Window& w, const Operands& o, Pixel pixel) {
  const std::int64_t lines = w.out[0] * w.out[1], pixels = w.batch * lines * w.out[2],
                     taps = w.kernel[0] * w.kernel[1] * w.kernel[2];
  const std::int64_t wanted = o.threads() == 1 || pixels >= 4 * o.threads() ? 1 : (w.channels + 127) / 128;
  const std::int64_t width = std::min(w.channels, ((w.channels + wanted - 1) / wanted + 63) / 64 * 64),
                     pieces = (w.channels + width - 1) / width;
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / (width * taps));
  parallel_for(o.threads(), pieces * pixels, grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<const T*> rows(static_cast<std::size_t>(taps));
    while (begin < end) {
      const std::int64_t channel = begin / pixels * width, channels = std::min(width, w.channels - channel);
      const std::int64_t line = begin % pixels / w.out[2], from = begin % w.out[2],
                         to = std::min(w.out[2], from + end - begin);
      const Span deep(w, 0, line / w.out[1] % w.out[0]), high(w, 1, line % w.out[1]);
      const T* plane = o.in<T>() + line / lines * w.in[0] * w.in[1] * w.in[2] * w.channels + channel;
      for (std::int64_t at = from; at < to;) {
        const Span wide(w, 2, at);
        // Pixels side by side whose windows lie inside, one column further each, are as one pixel of more channels.
        const std::int64_t reach = wide.start + (w.kernel[2] - 1) * w.dilation[2];
        const bool inside = w.stride[2] == 1 && channels == w.channels && wide.start >= 0 && reach < w.in[2];
        const std::int64_t together = inside ? std::min(to - at, w.in[2] - reach) : 1;
        std::int64_t count = 0;
        for (std::int64_t kd = deep.first; kd < deep.last; ++kd) {
          for (std::int64_t kh = high.first; kh < high.last; ++kh) {
            const std::int64_t row = (deep.start + kd * w.dilation[0]) * w.in[1] + high.start + kh * w.dilation[1];
            const T* x = plane + (row * w.in[2] + wide.start) * w.channels;
            for (std::int64_t kw = wide.first; kw < wide.last; ++kw)
              rows[static_cast<std::size_t>(count++)] = x + kw * w.dilation[2] * w.channels;
          }
        }
        pixel(rows.data(), count, deep.covered * high.covered * wide.covered, channels * together,
              o.out<T>() + begin % pixels * w.channels + channel);
        at += together;
        begin += together;
      }
    }
  });
}

template <class T>
Factory max_step(void (*Loops::*loop)(const T* const*, std::int64_t, std::int64_t, T*)) {
  return [loop](const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) -> Run {
    const Window w = window(at, ins, outs, sizeof(T));
    const T lowest = std::is_floating_point_v<T>
                         ? -std::numeric_limits<T>::infinity()
                         : static_cast<T>(at.integer("lowest", 0));  // of a window that lies wholly in the padding
    return [=](const Operands& o) {
      each_pixel<T>(w, o, [&](const T* const* rows, std::int64_t count, std::int64_t, std::int64_t channels, T* y) {
        if (count == 0) {
          std::fill(y, y + channels, lowest);
        } else {
          (loops().*loop)(rows, count, channels, y);
        }
      });
    };
  };
}

template <class Q>
Factory mean_step(void (*Loops::*loop)(const Q* const*, std::int64_t, std::int64_t, const Affine&, Q*)) {
  return [loop](const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) -> Run {
    const Window w = window(at, ins, outs, sizeof(Q));
    const Affine base = output_of(at);
    const double scale = at.real("scale");  // input scale / output scale
    const std::int64_t most = (sizeof(Q) == 1 ? 255 : 32768) + std::abs(std::int64_t{base.zero_a});
    if (times({w.kernel[0], w.kernel[1], w.kernel[2], most}) > INT32_MAX) {
      throw std::invalid_argument("pool: the window is too large, sums could leave 32 bits");
    }
    return [=](const Operands& o) {
      each_pixel<Q>(w, o,
                    [&](const Q* const* rows, std::int64_t count, std::int64_t covered, std::int64_t channels, Q* y) {
                      Affine k = base;
                      const std::int64_t divisor = w.count_pad ? covered : count;
                      k.a = divisor ? scale / static_cast<double>(divisor) : 0.0;
                      (loops().*loop)(rows, count, channels, k, y);
                    });
    };
  };
}

Run mean_f32_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const Window w = window(at, ins, outs, 4);
  return [=](const Operands& o) {
    each_pixel<float>(
        w, o, [&](const float* const* rows, std::int64_t count, std::int64_t covered, std::int64_t channels, float* y) {
          const std::int64_t divisor = w.count_pad ? covered : count;
          loops().mean_f32(rows, count, channels, divisor ? static_cast<float>(divisor) : 1.0f, y);
        });
  };
}

const Fields kPool = kWindow + Fields{integers("pad_after", 3), optional(integer("count_pad"))};

}  // namespace

void register_pool_steps() {
  register_step("pool_mean_f32", {1, 1, kPool}, mean_f32_step);
  register_step("pool_max_u8", {1, 1, kPool + Fields{optional(integer("lowest"))}},
                max_step<std::uint8_t>(&Loops::max_u8));
  register_step("pool_max_s16", {1, 1, kPool + Fields{optional(integer("lowest"))}},
                max_step<std::int16_t>(&Loops::max_s16));
  register_step("pool_max_f32", {1, 1, kPool + Fields{optional(integer("lowest"))}}, max_step<float>(&Loops::max_f32));
  register_step("pool_mean_u8", {1, 1, kPool + kFixed}, mean_step<std::uint8_t>(&Loops::mean_u8));
  register_step("pool_mean_s16", {1, 1, kPool + kFixed}, mean_step<std::int16_t>(&Loops::mean_s16));
}

}  // namespace hexforge
