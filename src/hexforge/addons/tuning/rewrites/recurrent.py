# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers whose sequences have constant lengths: QNN's ops know none, so inputs are cut and results padded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from onnx_ir import Node, Value

from hexforge.addons.tuning.rewrites.rule import Place, Rewrite, RewriteRule
from hexforge.patterns.input_numbers import RECURRENT, SEQUENCE_LENS
from hexforge.patterns.language import op
from hexforge.patterns.nodes import attributes, data, integer, operand, shape

TIME, BATCH = 0, 1
"""Axes of what such a layer reads, with layout 0."""
STATES = (5, 6)
"""Inputs with a state for each sequence: of the layer, and of an LSTM's cell."""
BATCH_OF = (2, 1, 1)
"""Where the sequences are in each output: all steps, the last state, the cell's."""
PADS_SINCE = 11
"""The opset from which on Pad reads its pads."""
MOST_LENGTHS = 4


def _lengths(node: Node) -> tuple[int, ...] | None:
    """The constant lengths of the sequences; None where they are not there, computed, or out of range."""
    given = data(operand(node, SEQUENCE_LENS))
    x = operand(node, 0)
    if given is None or len(shape(x)) != 3 or integer(node, "layout", 0):
        return None
    lengths = tuple(int(length) for length in given.ravel())
    steps, batch = shape(x)[TIME], shape(x)[BATCH]
    return lengths if len(lengths) == batch and all(1 <= length <= steps for length in lengths) else None


def _constant_lengths(place: Place) -> Rewrite | None:
    node, lengths = place.node, _lengths(place.node)
    if lengths is None or place.editor.opset < PADS_SINCE:
        return None
    steps = shape(operand(node, 0))[TIME]
    counts = Counter(lengths)
    if len(counts) > MOST_LENGTHS:
        return None
    if set(lengths) == {steps}:
        what = f"{node.op_type} whose sequences all have {steps} steps, given as lengths"
    else:
        what = f"{node.op_type} of {steps} steps with the lengths {', '.join(str(n) for n in sorted(counts))}"
    return place.change(what, lambda: _write(place, lengths), lengths)


def _write(place: Place, lengths: Sequence[int]) -> None:
    """The layer once for each length, on the sequences that have it; their results put together again."""
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    groups = [[i for i in order if lengths[i] == length] for length in sorted(set(lengths))]
    outputs = [index for index, value in enumerate(place.node.outputs) if value.uses() or value.is_graph_output()]
    results = [_of_one_length(place, lengths[group[0]], group, len(groups) == 1, outputs) for group in groups]
    back = np.argsort(np.array([i for group in groups for i in group]))
    for index in outputs:
        parts, axis = [result[index] for result in results], BATCH_OF[index]
        whole = parts[0] if len(parts) == 1 else place.add("Concat", *parts, axis=axis)
        if not np.array_equal(back, np.arange(len(back))):
            whole = _picked(place, whole, back.tolist(), axis)
        place.editor.replace(place.node.outputs[index], whole)


def _of_one_length(
    place: Place, length: int, group: Sequence[int], everything: bool, outputs: Sequence[int]
) -> dict[int, Value]:
    node = place.node
    x = node.inputs[0]
    assert x is not None
    steps = shape(x)[TIME]
    inputs: list[Value | None] = list(node.inputs)
    inputs[SEQUENCE_LENS] = None
    if not everything:
        x = _picked(place, x, group, BATCH)
        for index in STATES:
            state = operand(node, index)
            if state is not None:
                inputs[index] = _picked(place, state, group, BATCH)
    if length < steps:
        x = place.add("Slice", x, *(place.constant([end], "cut") for end in (0, length, TIME)))
    inputs[0] = x
    while inputs and inputs[-1] is None:
        inputs.pop()
    made = place.editor.add(node.op_type, inputs, node, len(node.outputs), node.domain, **attributes(node))
    written = {index: made[index] for index in outputs}
    if length < steps and 0 in written:
        pads = np.zeros(8, np.int64)
        pads[4 + TIME] = steps - length
        written[0] = place.add("Pad", written[0], place.constant(pads, "pads"))
    return written


def _picked(place: Place, value: Value, indices: Sequence[int], axis: int) -> Value:
    return place.add("Gather", value, place.constant(indices, "sequences"), axis=axis)


RULES = (
    RewriteRule(
        "constant-sequence-lengths", "Recurrent layers with constant lengths of sequences do without them",
        "QNN's LSTM and GRU know no lengths: each sequence becomes an op of its own where they are given, and "
        "onnxruntime's QNN execution provider refuses lengths that differ.",
        "onnxruntime's QNN execution provider: its op builders of LSTM and GRU",
        "Leave sequence_lens out where all sequences are full; else cut the input off before the layer and pad its "
        "result.", True,
        op(" ".join(RECURRENT)), _constant_lengths,
    ),
)  # fmt: skip
