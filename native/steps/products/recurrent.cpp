// SPDX-License-Identifier: Apache-2.0
// Steps "lstm_f32" and "gru_f32": whole sequences, weights [inputs][gates * units], gates from tables over float16.
// Sums are float32, in order: bias, then the inputs, then the state. The state is rounded to float16 after every time
// step, so a sequence gives the same numbers whether it is run at once or step by step.
//
// The inputs of many steps are one product; what comes from the state follows step by step, its units in slices that
// threads share. Weights are halves, and so are inputs and states: their products are exact, fused or not.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/parallel.h"
#include "core/round_and_clamp.h"
#include "kernels/half.h"
#include "kernels/loops.h"
#include "steps/fields.h"
#include "steps/steps.h"

namespace hexforge {
namespace {

std::int64_t slices_of(std::int64_t units) { return (units + kSlice - 1) / kSlice; }

// The columns [inputs][gates * units] of a matrix, or a vector of them, with the gates of 16 units side by side.
struct Arrangement {
  std::int64_t units, gates, first, count;  // so many of the gates, from `first` on
  std::int64_t slices() const { return slices_of(units) * count; }
  // lane(slice, lane, column) for every column there is.
  template <class Lane>
  void each(const Lane& lane) const {
    for (std::int64_t u = 0; u < units; ++u) {
      for (std::int64_t g = 0; g < count; ++g) lane(u / kSlice * count + g, u % kSlice, (first + g) * units + u);
    }
  }
};

std::vector<std::uint16_t> arranged(const float* matrix, std::int64_t inputs, const Arrangement& to) {
  std::vector<std::uint16_t> packed(static_cast<std::size_t>(times({to.slices(), inputs, kSlice})));
  to.each([&](std::int64_t slice, std::int64_t lane, std::int64_t column) {
    for (std::int64_t k = 0; k < inputs; ++k) {
      const float weight = matrix[k * to.gates * to.units + column];
      require(std::fabs(weight) <= 65504.0f, "recurrent: a weight is past float16");
      packed[static_cast<std::size_t>((slice * inputs + k) * kSlice + lane)] = half_bits(weight);
    }
  });
  return packed;
}

std::vector<float> arranged(const float* values, const Arrangement& to) {
  std::vector<float> all(static_cast<std::size_t>(to.slices() * kSlice));
  to.each([&](std::int64_t slice, std::int64_t lane, std::int64_t column) {
    all[static_cast<std::size_t>(slice * kSlice + lane)] = values[column];
  });
  return all;
}

// Memory that a thread keeps: fresh pages for every run would cost more than a short sequence.
float* working_memory(std::int64_t floats) {
  static thread_local std::vector<float> memory;
  if (memory.size() < static_cast<std::size_t>(floats)) memory.resize(static_cast<std::size_t>(floats));
  return memory.data();
}

struct Sequence {
  std::int64_t time, batch, features, units;
  bool reverse, time_major, has_h;
  const float *wx, *wh, *sigmoid, *tanh;

  Sequence(const Attributes& at, std::int64_t gates, std::int64_t state)
      : time(at.integer("time")),
        batch(at.integer("batch")),
        features(at.integer("features")),
        units(at.integer("units")),
        reverse(at.integer("reverse") != 0),
        time_major(at.integer("time_major") != 0),
        has_h(at.integer("has_h") != 0) {
    require(time >= 1 && batch >= 1 && features >= 1 && units >= 1 && state >= 1, "recurrent: bad shape");
    wx = at.constant<float>("wx", times({features, gates, units}));
    wh = at.constant<float>("wh", times({state, gates, units}));
    sigmoid = at.constant<float>("sigmoid", 65536);
    tanh = at.constant<float>("tanh", 65536);
  }
  // Which row of [time][batch] or [batch][time] the step t of batch b is.
  std::int64_t row(std::int64_t t, std::int64_t b) const { return time_major ? t * batch + b : b * time + t; }
  std::int64_t at_step(std::int64_t step) const { return reverse ? time - 1 - step : step; }
  // Steps whose input products are made at once, so that they stay in a cache.
  std::int64_t together(std::int64_t width) const {
    constexpr std::int64_t kCached = 1 << 16;
    return std::clamp<std::int64_t>(kCached / (batch * width), std::min<std::int64_t>(time, 8), time);
  }
  // Slices of units worth a thread, of so many gates and terms.
  std::int64_t grain(std::int64_t gates, std::int64_t terms) const {
    constexpr std::int64_t kWorth = 65536;
    return std::max<std::int64_t>(1, kWorth / (kSlice * gates * terms * batch));
  }

  // The sums of bias and inputs for steps [first, first + count), to [step][batch][slices * 16].
  void input_sums(const Operands& o, const std::vector<std::uint16_t>& weights, const std::vector<float>& bias,
                  std::int64_t first, std::int64_t count, float* sums) const {
    const auto width = static_cast<std::int64_t>(bias.size()), slices = width / kSlice;
    const auto add = loops().add_slices_exact;
    constexpr std::int64_t kColumns = 16;  // slices of a piece
    const std::int64_t pieces = (slices + kColumns - 1) / kColumns;
    const std::int64_t grain = std::max<std::int64_t>(1, 65536 / (count * batch * features * kColumns * kSlice));
    parallel_for(o.threads(), pieces, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t piece = begin; piece < end; ++piece) {
        const std::int64_t from = piece * kColumns, some = std::min(kColumns, slices - from);
        const std::uint16_t* w = weights.data() + from * features * kSlice;
        float* y = sums + from * kSlice;
        for (std::int64_t i = 0; i < count * batch; ++i) {
          std::copy_n(bias.data() + from * kSlice, some * kSlice, y + i * width);
        }
        // Rows that lie one after the other are multiplied as one matrix.
        const bool dense = !reverse && (time_major || batch == 1);
        const std::int64_t runs = dense ? 1 : count * batch, rows = dense ? count * batch : 1;
        for (std::int64_t i = 0; i < runs; ++i) {
          const std::int64_t from_row = row(at_step(first + i / batch), i % batch);
          add(o.in<float>() + from_row * features, features, rows, w, features, some, y + i * width, width);
        }
      }
    });
  }
};

// Two copies of the states of all units in whole slices: one is read while the other is written.
struct States {
  float *now, *next;
  std::int64_t stride;
  void swap() { std::swap(now, next); }
};

// Attributes: time, batch, features, units, size (of the hidden state), gates (3: the input gate is 1 - forget; 4),
// reverse, time_major, has_h, has_c. Reals: cell_clip, output_clip. Gates in the order (input,) forget, cell, output.
// Constants: wx, wh, bias; peephole (three times units: input, forget, output) and projection [units][size],
// projection_bias where there are any; tables sigmoid and tanh. Inputs: x, then h and c as given. Outputs: all h, c, h.
Run lstm_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const std::int64_t size = at.integer("size"), gates = at.integer("gates");
  require(gates == 3 || gates == 4, "lstm: 3 or 4 gates");
  const Sequence s(at, gates, size);
  const bool has_c = at.integer("has_c") != 0, projected = at.has("projection"), has_peephole = at.has("peephole");
  const std::int64_t units = s.units;
  require(projected || size == units, "lstm: the state has as many elements as there are units");
  require_operands(ins, 1 + static_cast<std::size_t>(s.has_h) + static_cast<std::size_t>(has_c), outs, 3, "lstm");
  require_bytes(ins[0], times({s.time, s.batch, s.features, 4}), "lstm input");
  if (s.has_h) require_bytes(ins[1], times({s.batch, size, 4}), "lstm state");
  if (has_c) require_bytes(ins.back(), times({s.batch, units, 4}), "lstm state");
  require_bytes(outs[0], times({s.time, s.batch, size, 4}), "lstm output");
  require_bytes(outs[1], times({s.batch, units, 4}), "lstm output");
  require_bytes(outs[2], times({s.batch, size, 4}), "lstm output");
  const Arrangement by_gates{units, gates, 0, gates}, three{units, 3, 0, 3};
  const auto wx = arranged(s.wx, s.features, by_gates), wh = arranged(s.wh, size, by_gates);
  const auto bias = arranged(at.constant<float>("bias", times({gates, units})), by_gates);
  const auto peephole =
      has_peephole ? arranged(at.constant<float>("peephole", times({3, units})), three) : std::vector<float>();
  const Arrangement outputs{size, 1, 0, 1};
  const auto projection = projected ? arranged(at.constant<float>("projection", times({units, size})), units, outputs)
                                    : std::vector<std::uint16_t>();
  const auto projection_bias =
      projected ? arranged(at.constant<float>("projection_bias", size), outputs) : std::vector<float>();
  const float output_clip = static_cast<float>(at.real("output_clip"));
  const LstmCells cells{s.sigmoid, s.tanh, static_cast<int>(gates), static_cast<float>(at.real("cell_clip"))};
  const std::size_t c_index = s.has_h ? 2 : 1;
  return [=](const Operands& o) {
    const Loops& l = loops();
    const std::int64_t slices = slices_of(units), padded = slices * kSlice, state = slices_of(size) * kSlice,
                       width = padded * gates, together = s.together(width);
    float* memory = working_memory(s.batch * (width * together + 2 * padded + 2 * state));
    float *sums = memory, *c = sums + s.batch * width * together, *wide = c + s.batch * padded;
    States h{wide + s.batch * padded, wide + s.batch * (padded + state), state};
    std::fill(c, h.now + 2 * s.batch * state, 0.0f);
    for (std::int64_t b = 0; b < s.batch; ++b) {
      if (s.has_h) std::copy_n(o.in<float>(1) + b * size, size, h.now + b * state);
      if (has_c) std::copy_n(o.in<float>(c_index) + b * units, units, c + b * padded);
    }
    for (std::int64_t step = 0; step < s.time; ++step) {
      if (step % together == 0) s.input_sums(o, wx, bias, step, std::min(together, s.time - step), sums);
      float* gate = sums + step % together * s.batch * width;
      const std::int64_t t = s.at_step(step);
      const auto put = [&](std::int64_t b, std::int64_t from, const float* values, std::int64_t count) {
        std::copy_n(values, count, o.out<float>(0) + s.row(t, b) * size + from);
      };
      parallel_for(o.threads(), slices, s.grain(gates, size), [&](std::int64_t begin, std::int64_t end) {
        l.add_slices_exact(h.now, state, s.batch, wh.data() + begin * gates * size * kSlice, size,
                           (end - begin) * gates, gate + begin * gates * kSlice, width);
        for (std::int64_t b = 0; b < s.batch; ++b) {
          for (std::int64_t i = begin; i < end; ++i) {
            float* y = wide + b * padded + i * kSlice;
            l.lstm_cells(cells, gate + b * width + i * gates * kSlice,
                         has_peephole ? peephole.data() + i * 3 * kSlice : nullptr, c + b * padded + i * kSlice, y);
            if (projected) continue;
            float* next = h.next + b * state + i * kSlice;
            l.round_half(y, next, kSlice);
            put(b, i * kSlice, next, std::min<std::int64_t>(kSlice, units - i * kSlice));
          }
        }
      });
      if (projected) {
        parallel_for(o.threads(), state / kSlice, s.grain(1, units), [&](std::int64_t begin, std::int64_t end) {
          const std::int64_t from = begin * kSlice, count = std::min(end * kSlice, size) - from;
          for (std::int64_t b = 0; b < s.batch; ++b) {
            std::copy_n(projection_bias.data() + from, (end - begin) * kSlice, h.next + b * state + from);
          }
          l.add_slices(wide, padded, s.batch, projection.data() + from * units, units, end - begin, h.next + from,
                       state);
          for (std::int64_t b = 0; b < s.batch; ++b) {
            float* next = h.next + b * state + from;
            if (output_clip > 0) {
              for (std::int64_t i = 0; i < count; ++i) next[i] = std::clamp(next[i], -output_clip, output_clip);
            }
            l.round_half(next, next, count);
            put(b, from, next, count);
          }
        });
      }
      h.swap();
    }
    for (std::int64_t b = 0; b < s.batch; ++b) {
      std::copy_n(c + b * padded, units, o.out<float>(1) + b * units);
      std::copy_n(h.now + b * state, size, o.out<float>(2) + b * size);
    }
  };
}

// Attributes: time, batch, features, units, reverse, time_major, has_h, linear (reset after the product). Gates in the
// order update, reset, new. Constants: wx, wh, bias_x, bias_h, tables. Inputs: x, h where given. Outputs: all h, h.
Run gru_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const Sequence s(at, 3, at.integer("units"));
  const bool linear = at.integer("linear") != 0;
  const std::int64_t units = s.units;
  require_operands(ins, 1 + static_cast<std::size_t>(s.has_h), outs, 2, "gru");
  require_bytes(ins[0], times({s.time, s.batch, s.features, 4}), "gru input");
  if (s.has_h) require_bytes(ins[1], times({s.batch, units, 4}), "gru state");
  require_bytes(outs[0], times({s.time, s.batch, units, 4}), "gru output");
  require_bytes(outs[1], times({s.batch, units, 4}), "gru output");
  const float* given_bias = at.constant<float>("bias_h", times({3, units}));
  const Arrangement all{units, 3, 0, 3}, two{units, 3, 0, 2}, last{units, 3, 2, 1};
  const auto wx = arranged(s.wx, s.features, all), w_gates = arranged(s.wh, units, two),
             w_new = arranged(s.wh, units, last);
  const auto bias = arranged(at.constant<float>("bias_x", times({3, units})), all),
             bias_gates = arranged(given_bias, two), bias_new = arranged(given_bias, last);
  return [=](const Operands& o) {
    const Loops& l = loops();
    const std::int64_t slices = slices_of(units), padded = slices * kSlice, width = 3 * padded,
                       together = s.together(width);
    float* memory = working_memory(s.batch * (width * together + 7 * padded));
    float *sums = memory, *gates = sums + s.batch * width * together, *fresh = gates + 2 * s.batch * padded,
          *update = fresh + s.batch * padded, *reset = update + s.batch * padded;
    States h{reset + s.batch * padded, reset + 2 * s.batch * padded, padded};
    std::fill(h.now, h.now + 2 * s.batch * padded, 0.0f);
    for (std::int64_t b = 0; s.has_h && b < s.batch; ++b)
      std::copy_n(o.in<float>(1) + b * units, units, h.now + b * padded);
    for (std::int64_t step = 0; step < s.time; ++step) {
      if (step % together == 0) s.input_sums(o, wx, bias, step, std::min(together, s.time - step), sums);
      const float* from_x = sums + step % together * s.batch * width;
      const std::int64_t t = s.at_step(step);
      const auto begin_sums = [&](float* y, const std::vector<float>& values, std::int64_t count, std::int64_t begin,
                                  std::int64_t end) {
        for (std::int64_t b = 0; b < s.batch; ++b) {
          std::copy(values.data() + begin * count * kSlice, values.data() + end * count * kSlice,
                    y + (b * slices + begin) * count * kSlice);
        }
      };
      const auto set_gates = [&](std::int64_t begin, std::int64_t end) {
        begin_sums(gates, bias_gates, 2, begin, end);
        l.add_slices_exact(h.now, padded, s.batch, w_gates.data() + begin * 2 * units * kSlice, units,
                           (end - begin) * 2, gates + begin * 2 * kSlice, 2 * padded);
        for (std::int64_t b = 0; b < s.batch; ++b) {
          for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t place = b * padded + i * kSlice;
            l.gru_gates(s.sigmoid, from_x + b * width + i * 3 * kSlice, gates + 2 * place, update + place,
                        reset + place);
            for (int u = 0; !linear && u < kSlice; ++u) reset[place + u] *= h.now[place + u];
          }
        }
      };
      const auto set_states = [&](std::int64_t begin, std::int64_t end) {
        begin_sums(fresh, bias_new, 1, begin, end);
        (linear ? l.add_slices_exact : l.add_slices)(linear ? h.now : reset, padded, s.batch,
                                                     w_new.data() + begin * units * kSlice, units, end - begin,
                                                     fresh + begin * kSlice, padded);
        for (std::int64_t b = 0; b < s.batch; ++b) {
          for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t place = b * padded + i * kSlice;
            l.gru_states(s.tanh, from_x + b * width + i * 3 * kSlice + 2 * kSlice, fresh + place, update + place,
                         linear ? reset + place : nullptr, h.now + place, h.next + place);
            std::copy_n(h.next + place, std::min<std::int64_t>(kSlice, units - i * kSlice),
                        o.out<float>(0) + s.row(t, b) * units + i * kSlice);
          }
        }
      };
      if (linear) {
        parallel_for(o.threads(), slices, s.grain(3, units), [&](std::int64_t begin, std::int64_t end) {
          set_gates(begin, end);
          set_states(begin, end);
        });
      } else {  // the products of the new state need the reset gates of all units
        parallel_for(o.threads(), slices, s.grain(2, units), set_gates);
        parallel_for(o.threads(), slices, s.grain(1, units), set_states);
      }
      h.swap();
    }
    for (std::int64_t b = 0; b < s.batch; ++b) std::copy_n(h.now + b * padded, units, o.out<float>(1) + b * units);
  };
}

const Fields kSequence = {integer("time"),    integer("batch"),      integer("features"), integer("units"),
                          integer("reverse"), integer("time_major"), integer("has_h"),    array("wx"),
                          array("wh"),        array("sigmoid"),      array("tanh")};
const Schema kLstm{1, 3, 3, 3,
                   kSequence + Fields{integer("size"), integer("gates"), integer("has_c"), real("cell_clip"),
                                      real("output_clip"), array("bias"), optional(array("peephole")),
                                      optional(array("projection")), optional(array("projection_bias"))}};
const Schema kGru{1, 2, 2, 2, kSequence + Fields{integer("linear"), array("bias_x"), array("bias_h")}};

}  // namespace

void register_recurrent_steps() {
  register_step("lstm_f32", kLstm, lstm_step);
  register_step("gru_f32", kGru, gru_step);
}

}  // namespace hexforge
