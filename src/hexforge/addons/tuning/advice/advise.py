# SPDX-License-Identifier: Apache-2.0
"""Advise: what would make a model faster on a chip, each idea tried by rewriting the model and simulating it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hexforge.addons.tuning.advice.mixed_precision import PRECISION_RULES, PrecisionRule, with_masked_softmax
from hexforge.addons.tuning.advice.placement_advice import PlacementTrial, pin_advice, refused_advice
from hexforge.addons.tuning.advice.result import Advice, AdviceResult
from hexforge.addons.tuning.advice.rewrite_trial import AllRewrites, RewriteTrial, TriedRewrite
from hexforge.addons.tuning.advice.whole_cost import IMPOSSIBLE, WholeCost, whole_cost
from hexforge.addons.tuning.rewrites import NORMALIZATIONS, ONTO_THE_NPU, PLACING, RULES, apply
from hexforge.analysis.estimate import Estimate, estimate
from hexforge.analysis.timed_graphs import FLOAT, HAS_CODES, TimedGraphs, TimedSource, timed_graphs
from hexforge.chips.deployment import AS_IS, Deployment
from hexforge.errors import CallError, CapacityError, UnsupportedError
from hexforge.model.reader import Model, read
from hexforge.quant.compare import is_quantized
from hexforge.quant.float_source import as_float
from hexforge.runtime.registry import timed_backend

if TYPE_CHECKING:
    from hexforge.model.source import ModelSource

MIN_GAIN = 0.01
RECOMMENDED = ("w8a8", "w8a16")
"""Precisions that advice on a float model recommends."""
CALLED_WITH = 8
"""Samples of a call, where the host's share is spread over several."""
HOST_SHARE = 0.4
"""The part of an inference from which on the host's share is worth advice."""
Observe = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class AdviceRequest:
    """What advice is looked for, and how surely."""

    min_gain: float = MIN_GAIN
    """The least part of the whole that an idea must gain."""
    verify: bool = True
    """Compare the outputs of rewritten models with the original's."""
    cpu_part: bool = True
    """Measure on this computer what the NPU leaves to the CPU; without it, fewer nodes there count as a gain."""

    def __post_init__(self) -> None:
        if not 0 <= self.min_gain < 1:
            raise CallError(f"min_gain {self.min_gain}: it is a part of the whole, from 0 to below 1 (0.01 for 1 %)")


def advise(
    model: ModelSource,
    deployment: Deployment | str = Deployment(),  # noqa: B008 - it is frozen
    *,
    min_gain: float = MIN_GAIN,
    verify: bool = True,
    cpu_part: bool = True,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> list[Advice]:
    """What would make a model faster: first what brings nodes onto the NPU, then the rest, the largest gain first.

    `advise_and_rewrite` also gives the model rewritten. `constants` pins inputs; `cpu_part=False` measures nothing.
    """
    request = AdviceRequest(min_gain, verify, cpu_part)
    result = advise_and_rewrite(model, deployment, request, dims=dims, shapes=shapes, constants=constants)
    return list(result.advice)


def advise_and_rewrite(
    model: ModelSource,
    deployment: Deployment | str = Deployment(),  # noqa: B008 - it is frozen
    request: AdviceRequest = AdviceRequest(),  # noqa: B008 - it is frozen
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Any] | None = None,
    observe: Observe | None = None,
) -> AdviceResult:
    """All advice on a model and the model with what can be applied; `observe(done, of, rule)` hears how far it is."""
    chosen = Deployment.of(deployment)

    def read_pinned(values: Mapping[str, Any]) -> Model:
        return read(model, dims=dims, shapes=shapes, constants={**(constants or {}), **values})

    loaded = read_pinned({})
    loaded.require_static()
    loaded = _as_converted(loaded)
    trial = RewriteTrial(chosen, request.cpu_part)
    shared = TimedSource(loaded)
    graphs = timed_graphs(shared, chosen)
    timed = estimate(graphs, chosen, cpu_part=request.cpu_part)
    before = WholeCost.of(timed)
    trial.learn_node_times(graphs, timed, request.min_gain)
    rules = [rule for rule in RULES if not rule.runtimes or chosen.runtime in rule.runtimes]
    rules += [ONTO_THE_NPU] if before.cpu_nodes else []
    saw = observe or (lambda done, of, rule: None)
    tried: list[TriedRewrite] = []
    for n, rule in enumerate(rules):
        saw(n, len(rules) + 2, rule.name)
        if (result := trial(loaded, rule, before)) is not None and (result.gains(before) or result.brings(before)):
            tried.append(result)
    tried = _without_repetition(tried)
    saw(len(rules), len(rules) + 2, "precision")
    others = [_precision_advice(rule, graphs, chosen, before.us) for rule in PRECISION_RULES]
    others += [_quantize_advice(shared, loaded, chosen, before, request.cpu_part), _host_advice(graphs, chosen, timed)]
    others += [_attention_advice(graphs, chosen, before.us)]
    if before.cpu_nodes:
        placement = PlacementTrial(loaded, read_pinned, chosen, timed, before, request.cpu_part)
        solved = [t.advice(before) for t in tried] + pin_advice(placement)
        others += [a for a in solved if a.rule == "pin-input"]
        others += refused_advice(timed, before, [a for a in solved if a.brings])
    saw(len(rules) + 1, len(rules) + 2, "all together")
    keeping = [rule for rule in rules if rule.keeps_function]
    gaining = [t for t in tried if t.rule in keeping and t.gains(before)]
    together = AllRewrites(trial, keeping, loaded, before, gaining, request.verify)
    advice = [t.advice(before) for t in tried] + [a for a in others if a is not None]
    advice = [
        replace(a, error=together.errors.get(a.rule))
        for a in advice
        if a.accuracy or a.gain >= max(request.min_gain, 1e-9) or a.brings
    ]
    advice.sort(key=lambda a: (not a.brings, a.accuracy and a.gain < request.min_gain, -a.gain_us))
    return AdviceResult(
        loaded.name,
        timed.soc,
        timed.precision,
        timed.runtime,
        before.us,
        tuple(advice),
        together.cost.us,
        tuple(together.applied),
        tuple(together.dropped),
        together.model,
        together.error,
        timed,
        together.cost.cpu_nodes,
    )


def _without_repetition(tried: Sequence[TriedRewrite]) -> list[TriedRewrite]:
    """What was tried, all placing rules together left out where one of them alone does as much."""
    alone = [t for t in tried if t.rule is not ONTO_THE_NPU]
    best = min((t.cost for t in alone if t.rule in PLACING), default=IMPOSSIBLE)
    return [t for t in tried if t.rule is not ONTO_THE_NPU or t.cost < best]


def _as_converted(model: Model) -> Model:
    """The model with normalizations in the layers before them, where placing puts them: rules see what is timed."""
    if not any(node.op_type == "BatchNormalization" for node in model.ir.graph):
        return model
    converted = model.copied()
    apply(converted.ir, NORMALIZATIONS)
    return converted


def _precision_advice(rule: PrecisionRule, timed: TimedGraphs, deployment: Deployment, before: float) -> Advice | None:
    if len(timed.graphs) != 1 or timed.left_on_cpu:
        return None
    tried = rule.time_at_16_bits(timed.graphs[0], replace(deployment, precision=AS_IS) if timed.built else deployment)
    if tried is None:
        return None
    nodes, after = tried
    return Advice(
        rule.name, rule.title, nodes, (f"{len(nodes)} nodes",), rule.why, rule.source, rule.how, False, before, after
    )


def _attention_advice(timed: TimedGraphs, deployment: Deployment, before: float) -> Advice | None:
    """What an attention would gain whose Softmax is not fused with its mask, and why it is not."""
    backend = timed_backend(replace(deployment, precision=AS_IS) if timed.built else deployment)
    gain = 0.0
    reasons: dict[str, list[str]] = {}
    for graph in timed.graphs:
        remarks = {node.name: said for node in graph if (said := backend.remark(node)) is not None}
        for name, said in remarks.items():
            reasons.setdefault(said, []).append(name)
        if remarks:
            fused = with_masked_softmax(graph, remarks)
            us = [
                backend.timing(g, deployment.precision, deployment.runtime, power=deployment.power).timeline.latency_us
                for g in (graph, fused)
            ]
            gain += us[0] - us[1]
    if not reasons:
        return None
    nodes = tuple(name for names in reasons.values() for name in names)
    places = tuple(f"{names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)}: {r}" for r, names in reasons.items())
    return Advice(
        "masked-softmax",
        f"Let HTP fuse {len(nodes)} masked Softmax{'es' if len(nodes) > 1 else ''} into MaskedSoftmax",
        nodes,
        places,
        "One op reads scores and mask: masked entries are exactly 0, the rest loses nothing to the encoding of a sum "
        "with the mask, and the ops between are gone.",
        "QNN's HTP guide, MaskedSoftmax; the same graph with it, timed",
        "Export attention as Softmax(Where(condition, scores, Add(ReduceMin(scores), -20))) with uint8 or uint16 "
        "scores; the condition is Equal(mask, 0), NotEqual(mask, 0) or a uint8 mask.",
        False,
        before,
        before - gain,
        accuracy=True,
    )


def _quantize_advice(
    shared: TimedSource, model: Model, deployment: Deployment, before: WholeCost, cpu_part: bool
) -> Advice | None:
    """What quantizing a float model would gain, as `quantize` builds it."""
    has_codes = is_quantized(as_float(model).ir) or any(node.op_type in HAS_CODES for node in model.ir.graph)
    if deployment.precision not in (AS_IS, FLOAT) or has_codes:
        return None
    times: dict[str, float] = {}
    for precision in RECOMMENDED:
        cost = whole_cost(shared, replace(deployment, precision=precision), cpu_part, before, built=True)
        if cost < IMPOSSIBLE:
            times[precision] = cost.us
    if not times:
        return None
    best = min(times, key=lambda precision: times[precision])
    told = tuple(f"{precision}: {us / 1e3:.3f} ms" for precision, us in times.items())
    name = "MODEL" if model.path is None else model.path.name
    return Advice(
        "quantize",
        f"Quantize the float model to {best}",
        (),
        told,
        "The HTP multiplies integers several times faster than float16, and moves half or a quarter of the bytes.",
        "the estimate of the model that `hexforge quantize` would write, input and output conversions included",
        f"hexforge quantize {name} --data FOLDER --recipe {best}_channel, which says how much accuracy it costs.",
        False,
        before.us,
        times[best],
    )


def _host_advice(graphs: TimedGraphs, deployment: Deployment, timed: Estimate) -> Advice | None:
    """Several samples in a call, where calling takes as long as computing."""
    line, before = timed.timeline, timed.latency_ms * 1e3
    share = 1 - line.accelerator_us / before if before else 0.0
    if share < HOST_SHARE or timed.left_on_cpu:
        return None
    try:
        after = estimate(graphs, deployment, batch=CALLED_WITH, cpu_part=False).latency_ms * 1e3 / CALLED_WITH
    except (UnsupportedError, CapacityError):
        return None
    return Advice(
        "samples-per-call",
        f"Give the NPU {CALLED_WITH} samples a call: the host takes {100 * share:.0f} % of each",
        (),
        (f"the NPU computes for {line.accelerator_us / 1e3:.3f} ms of {before / 1e3:.3f} ms",),
        "A call crosses to the NPU and back whatever it computes; several samples share one crossing.",
        "the call's measured overhead; times are for each sample",
        "Export the model with a larger batch, or put it into one graph with what runs before and after it; shared "
        "memory for inputs and outputs and rpc_control_latency make the crossing itself cheaper.",
        False,
        before,
        after,
    )
