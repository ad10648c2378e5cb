# SPDX-License-Identifier: Apache-2.0
"""From QNN graph to steps: chains become tables, nodes their native steps, the rest the op's reference."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from hexforge.backends.htp.activations import CONVOLUTIONS
from hexforge.backends.htp.numbers.float_results import passes_float16
from hexforge.backends.htp.numbers.halves import LARGEST_FLOAT16, MATRIX_LIMIT
from hexforge.backends.htp.numbers.lower import pointwise
from hexforge.backends.htp.numbers.lower.native_steps import LOWERINGS, Lowering, NativeStep, ReferenceStep
from hexforge.backends.htp.numbers.lower.tiled_layout import hold_inputs
from hexforge.backends.htp.numbers.tables import Chain, chain_key, chains, table
from hexforge.chips.soc import DEFAULT_ARCH
from hexforge.ir import Array, DType, Graph, Node, Role

_TAKE_TABLES = {f"{step}_{kind}": kind for step in ("conv", "depthwise") for kind in ("u8", "s16", "f32")}
"""Steps that look up what they store, and the kind of table it is."""
_SUMS = {("conv_u8", "binary_u8"), ("conv_s16", "binary_s16"), ("conv_f32", "binary_f32")}
"""Convolutions that can add what an addition adds."""
_TAKE_BOUNDS = {"conv_f32", "depthwise_f32", "binary_f32"}


def lower(
    graph: Graph,
    level: int = 2,
    fold_activation: bool = True,
    *,
    clamp_overflow: bool = False,
    arch: int = DEFAULT_ARCH,
) -> Lowering:
    """The steps of a graph. Level 1 runs node by node, 2 and 3 fuse chains into tables, and those into convolutions."""
    lowering = Lowering(graph, arch=arch)
    lowering.round_inputs()
    hold_inputs(lowering)
    every_chain = chains(graph) if level >= 2 else []
    by_last: dict[Node, Chain] = {c.nodes[-1]: c for c in every_chain if c.nodes and _worthwhile(lowering, c)}
    absorbed = {n for c in by_last.values() for n in c.nodes[:-1]}
    for node in graph:
        lowering.node = node
        if node in absorbed:
            continue
        chain = by_last.get(node)
        if chain is not None:
            _table(lowering, chain, fold_activation)
        elif not _native(lowering, node):
            lowering.steps.append(ReferenceStep(node))
        elif clamp_overflow and node.op.name in CONVOLUTIONS:
            _clamp(lowering, node)
        elif level >= 2 and node.op.name == "ElementWiseAdd":
            _residual(lowering, node)
    if level >= 2:
        _round_in_reader(lowering)
    return lowering


def _round_in_reader(lowering: Lowering) -> None:
    """Let a copy or a table that alone reads a rounded input, and all of it, round on the way."""
    reads = Counter(name for step in lowering.steps if isinstance(step, NativeStep) for name in step.ins)
    for step in lowering.steps:
        if isinstance(step, ReferenceStep):
            reads.update(lowering.read_by(step.node, v) for v in step.node.inputs if v is not None)
    rounded = set(lowering.alias.values())
    rounding = {
        step.outs[0]: step
        for step in lowering.steps
        if isinstance(step, NativeStep) and step.kind == "round_half" and step.outs[0] in rounded
    }
    gone: set[int] = set()
    for index, step in enumerate(lowering.steps):
        if not isinstance(step, NativeStep) or not step.ins or reads[step.ins[0]] > 1 or step.ins[0] not in rounding:
            continue
        before = rounding[step.ins[0]]
        match step.kind:
            case "copy" if math.prod(step.attributes["dims"]) == before.attributes["count"]:
                lowering.steps[index] = replace(step, ins=before.ins, attributes={**step.attributes, "half": 1})
            case "table_f32":  # which rounds what it looks up
                lowering.steps[index] = replace(step, ins=before.ins)
            case _:
                continue
        gone.add(id(before))
    lowering.steps = [step for step in lowering.steps if id(step) not in gone]


def _clamp(lowering: Lowering, node: Node) -> None:
    """Let the steps of a float convolution store nothing beyond the largest float16."""
    for index, step in enumerate(lowering.steps):
        if isinstance(step, NativeStep) and step.node is node and step.kind in ("conv_f32", "depthwise_f32"):
            lowering.steps[index] = replace(
                step, attributes={**step.attributes, "low": -LARGEST_FLOAT16, "high": LARGEST_FLOAT16}
            )


def _worthwhile(lowering: Lowering, chain: Chain) -> bool:
    # A table of 65536 entries costs as much as so many elements.
    return lowering.storage(chain.source).kind == "u8" or chain.output.type.size >= 1024


def _native(lowering: Lowering, node: Node) -> bool:
    function = LOWERINGS.get(node.op.name)
    if function is None or any(0 in v.shape for v in (*node.inputs, *node.outputs) if v is not None):
        return False
    if any(v.dtype is DType.BFLOAT16 for v in (*node.inputs, *node.outputs) if v is not None):
        return False  # the float kernels round to float16
    before = len(lowering.steps)
    if function(lowering, node):
        return True
    del lowering.steps[before:]
    return False


def _bounds(chain: Chain) -> tuple[float, float] | None:
    """The range a chain of one node clamps float16 values to, where that is all it does."""
    if len(chain.nodes) != 1:
        return None
    node = chain.nodes[0]
    match node.op.name:
        case "Relu":
            return 0.0, MATRIX_LIMIT
        case "Relu6":
            return 0.0, 6.0
        case "ReluMinMax":
            low, high = float(node.params["min_value"]), float(node.params["max_value"])
            exact = all(float(np.float16(v)) == v for v in (low, high))
            return (max(low, -MATRIX_LIMIT), min(high, MATRIX_LIMIT)) if exact and low <= high else None
        case _:
            return None


def _unbounded(step: NativeStep) -> bool:
    """True for a float step that clamps nothing yet."""
    low, high = step.attributes.get("low", -math.inf), step.attributes.get("high", math.inf)
    return step.kind in _TAKE_BOUNDS and (low, high) == (-math.inf, math.inf) and "table" not in step.attributes


def _residual(lowering: Lowering, node: Node) -> None:
    """Let the convolution just before an addition add the other operand as it stores, to the same bits."""
    if len(lowering.steps) < 2:
        return
    conv, add = lowering.steps[-2:]
    if not (isinstance(conv, NativeStep) and isinstance(add, NativeStep)):
        return
    if (conv.kind, add.kind) not in _SUMS:
        return
    made = next((v for v in node.inputs if v is not None and (lowering.name(v),) == conv.outs), None)
    dense = add.attributes["strides_a"] == add.attributes["strides_b"] == (1,)
    if made is None or made.role is not Role.NATIVE or made.users != {node: 1} or not dense:
        return
    plain = "table" not in conv.attributes and len(conv.ins) == 1 and conv.attributes.get("groups", 1) == 1
    whole = conv.attributes["y_stride"] == conv.attributes["out_channels"]
    first = add.ins[0] == conv.outs[0]
    other = add.ins[1] if first else add.ins[0]
    if not plain or not whole or other in lowering.constants or other == conv.outs[0]:
        return
    if conv.kind == "conv_f32":
        if _unbounded(conv) and add.attributes["half"] == 2:  # rounded as the convolution is
            sum_of = {**conv.attributes, "residual": 1}
            lowering.steps[-2:] = [replace(conv, ins=(*conv.ins, other), outs=add.outs, attributes=sum_of)]
        return
    own, side = ("a", "b") if first else ("b", "a")
    fused = {
        **conv.attributes,
        "own_scale": add.attributes[f"scale_{own}"],
        "residual_scale": add.attributes[f"scale_{side}"],
        "residual_zero": add.attributes[f"zero_{side}"],
        "sum_zero": add.attributes["zero_point"],
        "sum_low": add.attributes["low"],
        "sum_high": add.attributes["high"],
    }
    lowering.steps[-2:] = [replace(conv, ins=(*conv.ins, other), outs=add.outs, attributes=fused)]


def _table(lowering: Lowering, chain: Chain, fold: bool) -> None:
    conv = _convolution_before(lowering, chain) if fold else None
    if conv is not None and _unbounded(conv) and (bounds := _bounds(chain)) is not None:
        _absorb(lowering, conv, chain, low=bounds[0], high=bounds[1])
        return
    function = chain_key(chain)
    entries = lowering.tables.get(function)
    if entries is None:
        entries = lowering.tables[function] = lowering.shared(table(chain, lowering.arch))
    free = conv is not None and conv.kind in _TAKE_TABLES and "table" not in conv.attributes
    same = lowering.storage(chain.output).kind == lowering.storage(chain.source).kind
    if conv is not None and free and same and not _makes_overflow(entries):
        if entries.dtype == np.int16:  # a kernel reads two entries at once
            entries = lowering.shared(np.append(entries, entries[-1:]))
        _absorb(lowering, conv, chain, table=entries)
        return
    pointwise.table(lowering, chain.source, chain.output, entries)


def _makes_overflow(entries: Array) -> bool:
    """True for a table that makes halves past 65504 of others, as an exponential does: only table steps notice them."""
    return entries.dtype == np.float32 and passes_float16(np.delete(entries.reshape(2, -1), np.s_[0x7C00:], 1))


def _convolution_before(lowering: Lowering, chain: Chain) -> NativeStep | None:
    """The step just written, if it is a convolution whose result only this chain reads."""
    last = lowering.steps[-1] if lowering.steps else None
    if not isinstance(last, NativeStep) or last.kind not in _TAKE_TABLES.keys() | _TAKE_BOUNDS:
        return None
    source = chain.source
    private = source.role is Role.NATIVE and all(user in chain.nodes for user in source.users)
    if "y_offset" in last.attributes:  # it writes its part of what a Concat joins: the table is for all parts
        return None
    return last if private and last.outs == (lowering.name(source),) else None


def _absorb(lowering: Lowering, conv: NativeStep, chain: Chain, **attributes: Any) -> None:
    """Let the convolution just written do what the chain does as it stores."""
    done = replace(conv, outs=(lowering.name(chain.output),), attributes={**conv.attributes, **attributes})
    lowering.steps[-1] = done
