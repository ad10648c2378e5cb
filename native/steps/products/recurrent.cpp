// SPDX-License-Identifier: Apache-2.0
// Steps "lstm_f32" and "gru_f32": whole sequences, weights [inputs][gates * units], gates from tables over float16.
// Sums are float32, in order: bias, then the inputs, then the state. The state is rounded to float16 after every time
// step, so a sequence gives the same numbers whether it is run at once or step by step.
#include <algorithm>
#include <vector>

#include "core/parallel.h"
#include "core/round_and_clamp.h"
#include "kernels/loops.h"
#include "steps/fields.h"
#include "steps/steps.h"

namespace hexforge {
namespace {

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
};

float clip(float value, float limit) { return limit > 0 ? std::clamp(value, -limit, limit) : value; }

// Attributes: time, batch, features, units, size (of the hidden state), gates (3: the input gate is 1 - forget; 4),
// reverse, time_major, has_h, has_c. Reals: cell_clip, output_clip. Gates in the order (input,) forget, cell, output.
// Constants: wx, wh, bias; peephole (three times units: input, forget, output) and projection [units][size],
// projection_bias where there are any; tables sigmoid and tanh. Inputs: x, then h and c as given. Outputs: all h, c, h.
Run lstm_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const std::int64_t size = at.integer("size"), gates = at.integer("gates");
  require(gates == 3 || gates == 4, "lstm: 3 or 4 gates");
  const Sequence s(at, gates, size);
  const bool has_c = at.integer("has_c") != 0, projected = at.has("projection");
  const std::int64_t units = s.units, width = times({gates, units});
  require(projected || size == units, "lstm: the state has as many elements as there are units");
  require_operands(ins, 1 + static_cast<std::size_t>(s.has_h) + static_cast<std::size_t>(has_c), outs, 3, "lstm");
  require_bytes(ins[0], times({s.time, s.batch, s.features, 4}), "lstm input");
  if (s.has_h) require_bytes(ins[1], times({s.batch, size, 4}), "lstm state");
  if (has_c) require_bytes(ins.back(), times({s.batch, units, 4}), "lstm state");
  require_bytes(outs[0], times({s.time, s.batch, size, 4}), "lstm output");
  require_bytes(outs[1], times({s.batch, units, 4}), "lstm output");
  require_bytes(outs[2], times({s.batch, size, 4}), "lstm output");
  const float* bias = at.constant<float>("bias", width);
  const float* peephole = at.has("peephole") ? at.constant<float>("peephole", times({3, units})) : nullptr;
  const float* projection = projected ? at.constant<float>("projection", times({units, size})) : nullptr;
  const float* projection_bias = projected ? at.constant<float>("projection_bias", size) : nullptr;
  const float cell_clip = static_cast<float>(at.real("cell_clip")),
              output_clip = static_cast<float>(at.real("output_clip"));
  const std::size_t c_index = s.has_h ? 2 : 1;
  return [=](const Operands& o) {
    const auto add = loops().accumulate;
    parallel_for(o.threads(), s.batch, 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> gate(static_cast<std::size_t>(width)), h(static_cast<std::size_t>(size)),
          c(static_cast<std::size_t>(units)), wide(static_cast<std::size_t>(units));
      for (std::int64_t b = begin; b < end; ++b) {
        std::fill(h.begin(), h.end(), 0.0f);
        std::fill(c.begin(), c.end(), 0.0f);
        if (s.has_h) std::copy_n(o.in<float>(1) + b * size, size, h.begin());
        if (has_c) std::copy_n(o.in<float>(c_index) + b * units, units, c.begin());
        for (std::int64_t step = 0; step < s.time; ++step) {
          const std::int64_t t = s.row(s.reverse ? s.time - 1 - step : step, b);
          std::copy_n(bias, width, gate.begin());
          add(o.in<float>() + t * s.features, s.features, s.wx, width, width, gate.data());
          add(h.data(), size, s.wh, width, width, gate.data());
          const float *gi = gate.data(), *gf = gate.data() + (gates - 3) * units, *gc = gf + units, *go = gc + units;
          for (std::int64_t u = 0; u < units; ++u) {
            float& cell = c[static_cast<std::size_t>(u)];
            const float forget = s.sigmoid[half_bits(peephole ? gf[u] + peephole[units + u] * cell : gf[u])];
            const float admit =
                gates == 3 ? 1.0f - forget : s.sigmoid[half_bits(peephole ? gi[u] + peephole[u] * cell : gi[u])];
            cell = to_half(clip(forget * cell + admit * s.tanh[half_bits(gc[u])], cell_clip));
            const float open = s.sigmoid[half_bits(peephole ? go[u] + peephole[2 * units + u] * cell : go[u])];
            wide[static_cast<std::size_t>(u)] = open * s.tanh[half_bits(cell)];
          }
          if (projected) {
            std::copy_n(projection_bias, size, h.begin());
            add(wide.data(), units, projection, size, size, h.data());
            for (float& value : h) value = to_half(clip(value, output_clip));
          } else {
            for (std::int64_t u = 0; u < units; ++u)
              h[static_cast<std::size_t>(u)] = to_half(wide[static_cast<std::size_t>(u)]);
          }
          std::copy_n(h.begin(), size, o.out<float>(0) + t * size);
        }
        std::copy_n(c.begin(), units, o.out<float>(1) + b * units);
        std::copy_n(h.begin(), size, o.out<float>(2) + b * size);
      }
    });
  };
}

// Attributes: time, batch, features, units, reverse, time_major, has_h, linear (reset after the product). Gates in the
// order update, reset, new. Constants: wx, wh, bias_x, bias_h, tables. Inputs: x, h where given. Outputs: all h, h.
Run gru_step(const Attributes& at, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const Sequence s(at, 3, at.integer("units"));
  const bool linear = at.integer("linear") != 0;
  const std::int64_t units = s.units, width = 3 * units;
  require_operands(ins, 1 + static_cast<std::size_t>(s.has_h), outs, 2, "gru");
  require_bytes(ins[0], times({s.time, s.batch, s.features, 4}), "gru input");
  if (s.has_h) require_bytes(ins[1], times({s.batch, units, 4}), "gru state");
  require_bytes(outs[0], times({s.time, s.batch, units, 4}), "gru output");
  require_bytes(outs[1], times({s.batch, units, 4}), "gru output");
  const float* bias_x = at.constant<float>("bias_x", width);
  const float* bias_h = at.constant<float>("bias_h", width);
  return [=](const Operands& o) {
    const auto add = loops().accumulate;
    parallel_for(o.threads(), s.batch, 1, [&](std::int64_t begin, std::int64_t end) {
      const auto count = static_cast<std::size_t>(units);
      std::vector<float> from_x(3 * count), from_h(3 * count), h(count), reset(count);
      for (std::int64_t b = begin; b < end; ++b) {
        std::fill(h.begin(), h.end(), 0.0f);
        if (s.has_h) std::copy_n(o.in<float>(1) + b * units, units, h.begin());
        for (std::int64_t step = 0; step < s.time; ++step) {
          const std::int64_t t = s.row(s.reverse ? s.time - 1 - step : step, b);
          std::copy_n(bias_x, width, from_x.begin());
          std::copy_n(bias_h, width, from_h.begin());
          add(o.in<float>() + t * s.features, s.features, s.wx, width, width, from_x.data());
          add(h.data(), units, s.wh, width, linear ? width : 2 * units, from_h.data());
          for (std::size_t u = 0; u < count; ++u)
            reset[u] = s.sigmoid[half_bits(from_x[count + u] + from_h[count + u])];
          if (!linear) {
            for (std::size_t u = 0; u < count; ++u) reset[u] *= h[u];
            add(reset.data(), units, s.wh + 2 * units, width, units, from_h.data() + 2 * units);
          }
          for (std::size_t u = 0; u < count; ++u) {
            const float update = s.sigmoid[half_bits(from_x[u] + from_h[u])];
            const float state = linear ? reset[u] * from_h[2 * count + u] : from_h[2 * count + u];
            const float fresh = s.tanh[half_bits(from_x[2 * count + u] + state)];
            h[u] = to_half((1.0f - update) * fresh + update * h[u]);
          }
          std::copy_n(h.begin(), units, o.out<float>(0) + t * units);
        }
        std::copy_n(h.begin(), units, o.out<float>(1) + b * units);
      }
    });
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
