// SPDX-License-Identifier: Apache-2.0
// Steps "pool_max_*", "pool_mean_*" over NHWC windows, and "softmax_*", "normalize_*" over rows.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "loops.h"
#include "parallel.h"
#include "program.h"
#include "steps.h"

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
  if (ins.size() != 1 || outs.size() != 1 || w.batch < 0 || w.channels < 1) throw std::invalid_argument("pool: bad operands");
  for (int i = 0; i < 3; ++i) {
    if (w.in[i] < 1 || w.out[i] < 0 || w.kernel[i] < 1 || w.stride[i] < 1 || w.dilation[i] < 1) {
      throw std::invalid_argument("pool: bad geometry");
    }
    for (std::int64_t size : {w.in[i], w.out[i], w.kernel[i], w.stride[i], w.dilation[i], w.pad[i], w.pad_after[i]}) {
      if (size < -INT32_MAX || size > INT32_MAX) throw std::invalid_argument("pool: bad geometry");
    }
  }
  if (times({w.kernel[0], w.kernel[1], w.kernel[2]}) > 1 << 24) throw std::invalid_argument("pool: the window is too large");
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
  const std::int64_t lines = w.out[0] * w.out[1], pixels = w.batch * lines * w.out[2], taps = w.kernel[0] * w.kernel[1] * w.kernel[2];
  const std::int64_t wanted = o.threads() == 1 || pixels >= 4 * o.threads() ? 1 : (w.channels + 127) / 128;
  const std::int64_t width = std::min(w.channels, ((w.channels + wanted - 1) / wanted + 63) / 64 * 64), pieces = (w.channels + width - 1) / width;
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / (width * taps));
  parallel_for(o.threads(), pieces * pixels, grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<const T*> rows(static_cast<std::size_t>(taps));
    while (begin < end) {
      const std::int64_t channel = begin / pixels * width, channels = std::min(width, w.channels - channel);
      const std::int64_t line = begin % pixels / w.out[2], from = begin % w.out[2], to = std::min(w.out[2], from + end - begin);
      const Span deep(w, 0, line / w.out[1] % w.out[0]), high(w, 1, line % w.out[1]);
      const T* plane = o.in<T>() + line / lines * w.in[0] * w.in[1] * w.in[2] * w.channels + channel;
      for (std::int64_t at = from; at < to; ++at, ++begin) {
        const Span wide(w, 2, at);
        std::int64_t count = 0;
        for (std::int64_t kd = deep.first; kd < deep.last; ++kd) {
          for (std::int64_t kh = high.first; kh < high.last; ++kh) {
            const std::int64_t row = (deep.start + kd * w.dilation[0]) * w.in[1] + high.start + kh * w.dilation[1];
            const T* x = plane + (row * w.in[2] + wide.start) * w.channels;
            for (std::int64_t kw = wide.first; kw < wide.last; ++kw) rows[static_cast<std::size_t>(count++)] = x + kw * w.dilation[2] * w.channels;
          }
        }
        pixel(rows.data(), count, deep.covered * high.covered * wide.covered, channels, o.out<T>() + begin % pixels * w.channels + channel);
      }
    }
  });
}

template <class T>
Factory max_step(void (*Loops::*loop)(const T* const*, std::int64_t, std::int64_t, T*)) {
  return [loop](const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) -> Run {
    const Window w = window(at, ins, outs, sizeof(T));
    const T lowest = std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity()
                                                 : static_cast<T>(at.integer("lowest", 0));  // of a window that lies wholly in the padding
    return [=](const Operands& o) {
      each_pixel<T>(w, o, [&](const T* const* rows, std::int64_t count, std::int64_t, std::int64_t channels, T* y) {
        if (count == 0) {
          std::fill(y, y + channels, lowest);
        } else {
          (loops(current_level()).*loop)(rows, count, channels, y);
        }
      });
    };
  };
}

Affine output_of(const Attributes& at) {
  Affine k;
  k.zero = at.small("zero_point");
  k.low = at.small("low");
  k.high = at.small("high");
  k.zero_a = at.small("zero_a", 0);
  return k;
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
      each_pixel<Q>(w, o, [&](const Q* const* rows, std::int64_t count, std::int64_t covered, std::int64_t channels, Q* y) {
        Affine k = base;
        const std::int64_t divisor = w.count_pad ? covered : count;
        k.a = divisor ? scale / static_cast<double>(divisor) : 0.0;
        (loops(current_level()).*loop)(rows, count, channels, k, y);
      });
    };
  };
}

// Attributes: rows, n, zero_point, low, high; real scale (1 / output scale); constant table (uint32 per distance).
template <class Q>
Factory softmax_step(void (*Loops::*loop)(const Q*, std::int64_t, const std::uint32_t*, double, std::int32_t,
                                          std::int32_t, std::int32_t, Q*)) {
  return [loop](const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) -> Run {
    const std::int64_t rows = at.integer("rows"), n = at.integer("n");
    if (ins.size() != 1 || outs.size() != 1 || rows < 0 || n < 1) throw std::invalid_argument("softmax: bad operands");
    require_bytes(ins[0], times({rows, n, sizeof(Q)}), "softmax input");
    require_bytes(outs[0], times({rows, n, sizeof(Q)}), "softmax output");
    const Affine k = output_of(at);
    const double scale = at.real("scale");
    const std::uint32_t* table = at.constant<std::uint32_t>("table", std::int64_t{1} << (8 * sizeof(Q)));
    return [=](const Operands& o) {
      parallel_for(o.threads(), rows, std::max<std::int64_t>(1, 8192 / n), [&](std::int64_t begin, std::int64_t end) {
        const Loops& here = loops(current_level());
        if constexpr (sizeof(Q) == 1) {
          if (n == 16 && here.softmax_u8_rows16) {
            return here.softmax_u8_rows16(o.in<Q>() + begin * n, end - begin, table, scale, k.zero, k.low, k.high, o.out<Q>() + begin * n);
          }
        }
        for (std::int64_t r = begin; r < end; ++r) {
          (here.*loop)(o.in<Q>() + r * n, n, table, scale, k.zero, k.low, k.high, o.out<Q>() + r * n);
        }
      });
    };
  };
}

template <class Q>
struct NormLoops {
  void (*Loops::*moments)(const Q*, std::int64_t, std::int64_t*, std::int64_t*);
  void (*Loops::*channel_moments)(const Q*, std::int64_t, std::int64_t*, std::int64_t*);
  void (*Loops::*normalize)(const Q*, std::int64_t, const double*, const double*, int, const double*, const double*,
                            const Affine&, Q*);
};

// The tensor is [outer][spatial][groups][channels]; statistics are taken per (outer, group).
// Attributes: outer, spatial, groups, channels, kind (0: subtract the mean, divide by the deviation; 1: divide by the
// root mean square; 2: divide by the root of the sum of squares, at least epsilon), zero_a, zero_point, low, high.
// Reals: scale_x, epsilon. Constants gamma, beta: float64 per channel of all groups, already over the output scale.
template <class Q>
Factory normalize_step(NormLoops<Q> own) {
  return [own](const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) -> Run {
    const std::int64_t outer = at.integer("outer"), spatial = at.integer("spatial"), groups = at.integer("groups"),
                       channels = at.integer("channels"), kind = at.integer("kind");
    const std::int64_t width = times({groups, channels});
    if (ins.size() != 1 || outs.size() != 1 || outer < 0 || spatial < 1 || groups < 1 || channels < 1 || kind < 0 || kind > 2) {
      throw std::invalid_argument("normalize: bad operands");
    }
    require_bytes(ins[0], times({outer, spatial, width, sizeof(Q)}), "normalize input");
    require_bytes(outs[0], times({outer, spatial, width, sizeof(Q)}), "normalize output");
    times({spatial, width});
    const Affine k = output_of(at);
    const double scale = at.real("scale_x"), epsilon = at.real("epsilon");
    const double* gamma = at.constant<double>("gamma", width);
    const double* beta = at.constant<double>("beta", width);
    return [=](const Operands& o) {
      const Loops& l = loops(current_level());
      parallel_for(o.threads(), outer, std::max<std::int64_t>(1, 8192 / (spatial * width)), [&](std::int64_t begin, std::int64_t end) {
        std::vector<std::int64_t> sum(static_cast<std::size_t>(width)), squares(sum.size());
        std::vector<double> mean(sum.size()), factor(sum.size());
        for (std::int64_t r = begin; r < end; ++r) {
          const Q* x = o.in<Q>() + r * spatial * width;
          Q* y = o.out<Q>() + r * spatial * width;
          std::fill(sum.begin(), sum.end(), 0);
          std::fill(squares.begin(), squares.end(), 0);
          if (groups == 1) {
            (l.*own.moments)(x, spatial * width, sum.data(), squares.data());
          } else {
            for (std::int64_t s = 0; s < spatial; ++s) (l.*own.channel_moments)(x + s * width, width, sum.data(), squares.data());
          }
          const std::int64_t step = groups == 1 ? width : channels;
          for (std::int64_t g = 0; g < groups; ++g) {
            std::int64_t s = 0, q = 0;
            for (std::int64_t c = g * step; c < (groups == 1 ? 1 : (g + 1) * step); ++c) {
              s += sum[static_cast<std::size_t>(c)];
              q += squares[static_cast<std::size_t>(c)];
            }
            const double n = static_cast<double>(spatial * channels), zero = k.zero_a;
            double center = zero, spread;
            if (kind == 0) {
              center = static_cast<double>(s) / n;
              // n * sum of squares minus the squared sum is an exact integer difference in 128 bits.
              const __int128 exact = static_cast<__int128>(q) * (spatial * channels) - static_cast<__int128>(s) * s;
              spread = static_cast<double>(exact) / (n * n);
            } else {
              const __int128 exact = static_cast<__int128>(q) - 2 * static_cast<__int128>(s) * k.zero_a +
                                     static_cast<__int128>(spatial * channels) * k.zero_a * k.zero_a;
              spread = static_cast<double>(exact) / (kind == 1 ? n : 1.0);
            }
            const double power = spread * scale * scale;
            const double divisor = kind == 2 ? std::max(std::sqrt(power), epsilon) : std::sqrt(power + epsilon);
            const double f = divisor > 0 ? scale / divisor : 0.0;  // nothing to scale: the result is beta
            for (std::int64_t c = g * channels; c < (g + 1) * channels; ++c) {
              mean[static_cast<std::size_t>(c)] = center;
              factor[static_cast<std::size_t>(c)] = f;
            }
          }
          for (std::int64_t s = 0; s < spatial; ++s) {
            (l.*own.normalize)(x + s * width, width, mean.data(), factor.data(), groups == 1 ? 0 : 1, gamma, beta, k, y + s * width);
          }
        }
      });
    };
  };
}

Run mean_f32_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const Window w = window(at, ins, outs, 4);
  return [=](const Operands& o) {
    each_pixel<float>(w, o, [&](const float* const* rows, std::int64_t count, std::int64_t covered, std::int64_t channels, float* y) {
      const std::int64_t divisor = w.count_pad ? covered : count;
      loops(current_level()).mean_f32(rows, count, channels, divisor ? static_cast<float>(divisor) : 1.0f, y);
    });
  };
}

Run softmax_f32_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const std::int64_t rows = at.integer("rows"), n = at.integer("n");
  if (ins.size() != 1 || outs.size() != 1 || rows < 0 || n < 1) throw std::invalid_argument("softmax: bad operands");
  require_bytes(ins[0], times({rows, n, 4}), "softmax input");
  require_bytes(outs[0], times({rows, n, 4}), "softmax output");
  const float* table = at.constant<float>("table", 65536);
  return [=](const Operands& o) {
    parallel_for(o.threads(), rows, std::max<std::int64_t>(1, 8192 / n), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        loops(current_level()).softmax_f32(o.in<float>() + r * n, n, table, o.out<float>() + r * n);
      }
    });
  };
}

// Rows of n values; kind as in normalize_step. Constants gamma, beta: float32 per value of a row.
Run normalize_f32_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const std::int64_t rows = at.integer("rows"), n = at.integer("n"), kind = at.integer("kind");
  if (ins.size() != 1 || outs.size() != 1 || rows < 0 || n < 1 || kind < 0 || kind > 2) throw std::invalid_argument("normalize: bad operands");
  require_bytes(ins[0], times({rows, n, 4}), "normalize input");
  require_bytes(outs[0], times({rows, n, 4}), "normalize output");
  const double epsilon = at.real("epsilon");
  const float* gamma = at.constant<float>("gamma", n);
  const float* beta = at.constant<float>("beta", n);
  return [=](const Operands& o) {
    parallel_for(o.threads(), rows, std::max<std::int64_t>(1, 8192 / n), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const float* x = o.in<float>() + r * n;
        double mean = 0, power = 0;
        if (kind == 0) {
          for (std::int64_t i = 0; i < n; ++i) mean += x[i];
          mean /= static_cast<double>(n);
        }
        for (std::int64_t i = 0; i < n; ++i) power += (x[i] - mean) * (x[i] - mean);
        if (kind != 2) power /= static_cast<double>(n);
        const double divisor = kind == 2 ? std::max(std::sqrt(power), epsilon) : std::sqrt(power + epsilon);
        loops(current_level()).normalize_f32(x, n, mean, 1.0 / divisor, gamma, beta, o.out<float>() + r * n);
      }
    });
  };
}

}  // namespace

void register_pool_steps() {
  register_step("pool_mean_f32", mean_f32_step);
  register_step("pool_max_u8", max_step<std::uint8_t>(&Loops::max_u8));
  register_step("pool_max_s16", max_step<std::int16_t>(&Loops::max_s16));
  register_step("pool_max_f32", max_step<float>(&Loops::max_f32));
  register_step("pool_mean_u8", mean_step<std::uint8_t>(&Loops::mean_u8));
  register_step("pool_mean_s16", mean_step<std::int16_t>(&Loops::mean_s16));
}

void register_norm_steps() {
  register_step("softmax_f32", softmax_f32_step);
  register_step("normalize_f32", normalize_f32_step);
  register_step("softmax_u8", softmax_step<std::uint8_t>(&Loops::softmax_u8));
  register_step("softmax_s16", softmax_step<std::int16_t>(&Loops::softmax_s16));
  register_step("normalize_u8", normalize_step<std::uint8_t>({&Loops::moments_u8, &Loops::channel_moments_u8, &Loops::normalize_u8}));
  register_step("normalize_s16", normalize_step<std::int16_t>({&Loops::moments_s16, &Loops::channel_moments_s16, &Loops::normalize_s16}));
}

}  // namespace hexforge
