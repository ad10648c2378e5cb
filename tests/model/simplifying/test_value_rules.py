# SPDX-License-Identifier: Apache-2.0
"""What is known of values without computing them: models in, the ops that are left out."""

from __future__ import annotations

import subprocess
import sys

import onnx
import pytest

from hexforge.model.reader import read

CASES = {
    "the numbers of a shape": ("""
        i = Constant<value = int64[1] {0}>()
        one = Constant<value = int64[1] {1}>()
        s = Shape(x)
        g = Gather<axis = 0>(s, i)
        a = Add(g, one)
        c = Concat<axis = 0>(a, one)
        flat = Constant<value = int64[2] {3, 2}>()
        r = Reshape(x, flat)
        c2 = Cast<to = 1>(c)
        y = Add(r, c2)
     """, ["Reshape", "Add"]),
    "a reshape to the same shape": ("s = Shape(x)\n r = Reshape(x, s)\n y = Relu(r)", ["Relu"]),
    "an expand to the same shape": ("s = Shape(x)\n r = Expand(x, s)\n y = Relu(r)", ["Relu"]),
    "a cast to the same type": ("r = Cast<to = 1>(x)\n y = Relu(r)", ["Relu"]),
    "a cast like the same type": ("r = CastLike(x, x)\n y = Relu(r)", ["Relu"]),
    "a dropout that does not train": ("r, m = Dropout(x)\n y = Relu(r)", ["Relu"]),
    "one input": ("r = Concat<axis = 0>(x)\n y = Relu(r)", ["Relu"]),
    "an item of a sequence": (
        "z = Constant<value = int64 {1}>()\n n = Neg(x)\n s = SequenceConstruct(x, n)\n y = SequenceAt(s, z)",
        ["Neg"],
    ),
    "a sequence joined": (
        "n = Neg(x)\n s = SequenceConstruct(x, n)\n y = ConcatFromSequence<axis = 1>(s)", ["Neg", "Concat"],
    ),
    "a sequence stacked": (
        "n = Neg(x)\n s = SequenceConstruct(x, n)\n y = ConcatFromSequence<axis = 0, new_axis = 1>(s)",
        ["Neg", "Unsqueeze", "Unsqueeze", "Concat"],
    ),
    "a split into a sequence": (
        "two = Constant<value = int64 {2}>()\n z = Constant<value = int64 {1}>()\n"
        "s = SplitToSequence<axis = 1>(x, two)\n a = SequenceAt(s, z)\n y = Relu(a)", ["Split", "Relu"],
    ),
    "the branch that is taken": (
        "c = Constant<value = bool {1}>()\n"
        "b = If(c)<then_branch = t () => (float[2, 3] p) {p = Neg(x)}, "
        "else_branch = e () => (float[2, 3] q) {q = Exp(x)}>\n"
        "y = Relu(b)", ["Neg", "Relu"],
    ),
}  # fmt: skip


def model(body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 18]> agraph (float[2, 3] x) => (float y) {{ {body} }}'
    )


@pytest.mark.parametrize("name", CASES)
def test_what_is_left(name: str) -> None:
    body, expected = CASES[name]
    made = model(body)
    made.graph.output[0].type.tensor_type.ClearField("shape")
    assert sorted(node.op_type for node in read(made).ir.graph) == sorted(expected)


def test_nothing_of_onnxscript_is_imported() -> None:
    code = "import sys, hexforge.model.reader; print([m for m in sys.modules if m.startswith('onnxscript')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
