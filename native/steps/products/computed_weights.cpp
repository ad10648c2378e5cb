// SPDX-License-Identifier: Apache-2.0
#include "steps/products/computed_weights.h"

#include <algorithm>
#include <cstring>

#include "core/level.h"
#include "core/parallel.h"
#include "steps/products/packing.h"

namespace hexforge {

void Stationary::give(ConvArgs& a, std::int64_t group) const {
  const auto of = [&](const auto* values) { return values ? values + group * padded : nullptr; };
  a.weights = weights + group * weight_bytes;
  a.weights8 = weights8 ? weights8 + group * weight8_bytes : nullptr;
  a.weight_sums = of(weight_sums);
  a.bias = of(bias);
  a.multiplier = of(multiplier);
  a.bias_f32 = of(bias_f32);
  a.multiplier32 = of(multiplier32);
  a.bias32 = of(bias32);
}

ComputedWeights::ComputedWeights(const Attributes& at, const Tensor& tensor, ConvArgs& a, std::int64_t groups, int bits,
                                 bool depthwise)
    : start_(at.integer("weight_start", 0)), groups_(groups), bits_(bits), depthwise_(depthwise) {
  const auto& strides = at.list("weight_strides", 5);
  std::copy(strides.begin(), strides.end(), strides_);
  const std::int64_t outputs = times({groups, a.out_channels});
  const std::int64_t counts[5] = {a.kernel[0], a.kernel[1], a.kernel[2], depthwise ? 1 : a.channels, outputs};
  std::int64_t first = start_, last = start_;
  if (start_ < 0) throw std::invalid_argument("conv: weights begin before their tensor");
  times({start_});
  for (int i = 0; i < 5; ++i) {
    if (strides_[i] < -INT32_MAX || strides_[i] > INT32_MAX) throw std::invalid_argument("conv: bad weight strides");
    (strides_[i] < 0 ? first : last) += (strides_[i] < 0 ? -1 : 1) * times({counts[i] - 1, std::abs(strides_[i])});
  }
  if (depthwise && groups != 1) throw std::invalid_argument("conv: depthwise weights that are computed have no groups");
  if (first < 0) throw std::invalid_argument("conv: weights begin before their tensor");
  if (a.row_taps && strides_[2] != a.channels * strides_[3])
    throw std::invalid_argument("conv: a kernel row of weights is not contiguous");
  require_bytes(tensor, times({last + 1, bits / 8}), "conv weights");
  if (bits != 32) {
    zero_a_ = at.small("zero_a");
    zero_b_ = at.small("zero_b");
    const std::int64_t least = bits == 8 ? 0 : -32768, most = bits == 8 ? 255 : 32767;
    if (zero_a_ < least || zero_a_ > most || zero_b_ < least || zero_b_ > most)
      throw std::invalid_argument("conv: bad zero point");
  }
  const std::int64_t positions = times({a.kernel[0], a.kernel[1], a.kernel[2]}),
                     terms = depthwise ? positions : times({positions, a.channels});
  if (bits == 8 && terms > 33025)
    throw std::invalid_argument("conv: sums of more than 33025 products could leave 32 bits");
  if (bits == 16 && terms > (depthwise ? 255 : 1 << 21))
    throw std::invalid_argument("conv: sums of so many products are not exact");
  if (bits == 16) {
    a.planes = 2;
    a.flush = kRunTimeFlush;
  }
  if (bits == 8 && !depthwise) a.weight_offset = static_cast<std::int32_t>(128 - zero_b_);
  padded_ = (a.out_channels + kBlock - 1) / kBlock * kBlock;
  bytes_ = times({a.planes, a.taps, depthwise ? 1 : a.steps, padded_, 4});
  times({groups, bytes_ + kWeightSlack});
  const auto size = static_cast<std::size_t>(times({groups, padded_}));
  if (bits == 32) {
    bias_f32_.resize(size);
    const float* added = at.has("added") ? at.constant<float>("added", outputs) : nullptr;
    for (std::int64_t i = 0; added && i < outputs; ++i)
      bias_f32_[static_cast<std::size_t>(i / a.out_channels * padded_ + i % a.out_channels)] = added[i];
  } else if (bits == 8) {
    multiplier32_.assign(size, static_cast<float>(at.real("scale")));
    if (at.has("added")) added32_ = at.constant<std::int32_t>("added", outputs);
  } else {
    multiplier_.assign(size, at.real("scale"));
    if (at.has("added")) added_ = exact_bias(at, "added", outputs);
  }
}

// A block of 64 outputs of a group, tap by tap, and what its sums begin with.
template <class T>
void ComputedWeights::pack(const T* weights, Room& room, const ConvArgs& a, std::int64_t group,
                           std::int64_t block) const {
  const Matrix m{a.run, a.out_channels, strides_[3], strides_[4]};
  const std::int64_t lanes = lanes_of(m, block), step = a.steps * lanes * 4, at = group * padded_ + block * kBlock;
  char* to = room.packed.get() + group * bytes_ + block * a.planes * a.taps * a.steps * kBlock * 4;
  const T* from = weights + start_ + group * a.out_channels * strides_[4];
  const std::int64_t count = std::min<std::int64_t>(kBlock, a.out_channels - block * kBlock),
                     first = group * a.out_channels + block * kBlock;
  std::int32_t sums32[kBlock] = {};
  std::int64_t sums[kBlock] = {};
  const std::int64_t across = a.row_taps ? 1 : a.kernel[2];
  for (std::int64_t tap = 0; tap < a.taps; ++tap) {
    const T* x = from + tap / across / a.kernel[1] * strides_[0] + tap / across % a.kernel[1] * strides_[1] +
                 tap % across * strides_[2];
    if constexpr (std::is_same_v<T, float>) pack_block(m, x, block, reinterpret_cast<float*>(to + tap * step));
    if constexpr (std::is_same_v<T, std::uint8_t>)
      pack_block(m, x, block, reinterpret_cast<std::int8_t*>(to + tap * step), sums32);
    if constexpr (std::is_same_v<T, std::int16_t>) {
      pack_block(m, x, static_cast<std::int32_t>(zero_b_), block, reinterpret_cast<std::int16_t*>(to + tap * step),
                 reinterpret_cast<std::int16_t*>(to + (a.taps + tap) * step), sums);
    }
  }
  if constexpr (std::is_same_v<T, std::uint8_t>) {
    const std::int64_t whole = a.taps * a.run * (zero_b_ - 128);
    for (std::int64_t i = 0; i < count; ++i) {
      room.bias32[static_cast<std::size_t>(at + i)] =
          static_cast<std::int32_t>(zero_a_ * (whole - sums32[i]) + (added32_ ? added32_[first + i] : 0));
    }
  }
  if constexpr (std::is_same_v<T, std::int16_t>) {
    for (std::int64_t i = 0; i < count; ++i)
      room.bias[static_cast<std::size_t>(at + i)] = (added_ ? added_[first + i] : 0) - zero_a_ * sums[i];
  }
}

// Depthwise: a row of 32 bits for every tap (and plane), of which integers use the lower 16.
template <class T>
void ComputedWeights::pack_channels(const T* weights, Room& room, const ConvArgs& a) const {
  const std::int64_t channels = a.out_channels, stride = strides_[4];
  std::fill(room.packed.get(), room.packed.get() + bytes_, '\0');
  std::vector<std::int64_t> sums(static_cast<std::size_t>(channels));
  for (std::int64_t tap = 0; tap < a.taps; ++tap) {
    const T* x = weights + start_ + tap / a.kernel[2] / a.kernel[1] * strides_[0] +
                 tap / a.kernel[2] % a.kernel[1] * strides_[1] + tap % a.kernel[2] * strides_[2];
    std::int32_t* row = reinterpret_cast<std::int32_t*>(room.packed.get()) + tap * padded_;
    if constexpr (std::is_same_v<T, float>) {
      for (std::int64_t i = 0; i < channels; ++i) std::memcpy(row + i, x + i * stride, 4);
      continue;
    }
    std::int32_t* low = row + a.taps * padded_;
    for (std::int64_t i = 0; i < channels; ++i) {
      const std::int32_t w = static_cast<std::int32_t>(x[i * stride]) - static_cast<std::int32_t>(zero_b_);
      sums[static_cast<std::size_t>(i)] += w;
      if constexpr (std::is_same_v<T, std::uint8_t>) {
        row[i] = w & 0xffff;
      } else {
        const std::int32_t rest = ((w + 128) & 255) - 128;
        row[i] = (w - rest) >> 8 & 0xffff;
        low[i] = rest & 0xffff;
      }
    }
  }
  for (std::int64_t i = 0; i < channels; ++i) {
    const std::int64_t bias = -zero_a_ * sums[static_cast<std::size_t>(i)] + (added32_ ? added32_[i]
                                                                              : added_ ? added_[i]
                                                                                       : 0);
    if constexpr (std::is_same_v<T, std::uint8_t>)
      room.bias32[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(bias);
    if constexpr (std::is_same_v<T, std::int16_t>) room.bias[static_cast<std::size_t>(i)] = bias;
  }
}

Stationary ComputedWeights::packed(const void* weights, Room& room, ConvArgs& a, int threads) const {
  const std::int64_t blocks = padded_ / kBlock;
  room.packed.reset(new char[static_cast<std::size_t>(groups_ * bytes_ + kWeightSlack)]);
  if (bits_ == 8) room.bias32.resize(static_cast<std::size_t>(groups_ * padded_));
  if (bits_ == 16) room.bias.resize(static_cast<std::size_t>(groups_ * padded_));
  const auto of = [&]<class T>(const T* from) {
    if (depthwise_) return pack_channels(from, room, a);
    const std::int64_t grain =
        std::max<std::int64_t>(1, 4096 / (a.taps * a.run * std::min<std::int64_t>(kBlock, a.out_channels)));
    parallel_for(threads, groups_ * blocks, grain, [&](std::int64_t begin, std::int64_t end) {
      for (; begin < end; ++begin) pack(from, room, a, begin / blocks, begin % blocks);
    });
  };
  if (bits_ == 8) of(static_cast<const std::uint8_t*>(weights));
  if (bits_ == 16) of(static_cast<const std::int16_t*>(weights));
  if (bits_ == 32) of(static_cast<const float*>(weights));
  Stationary s;
  s.weights = room.packed.get();
  s.weight_bytes = bytes_;
  s.padded = padded_;
  if (bits_ == 8) {
    s.bias32 = room.bias32.data();
    s.multiplier32 = multiplier32_.data();
    if (depthwise_ && current_level() >= Level::avx512) {
      room.depthwise = pack_depthwise(a, reinterpret_cast<const std::int32_t*>(s.weights), s.bias32, s.multiplier32);
      use_depthwise_packing(a, room.depthwise);
    }
  }
  if (bits_ == 16) {
    s.bias = room.bias.data();
    s.multiplier = multiplier_.data();
  }
  if (bits_ == 32) s.bias_f32 = bias_f32_.data();
  return s;
}

}  // namespace hexforge
