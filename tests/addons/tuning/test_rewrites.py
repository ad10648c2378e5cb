# SPDX-License-Identifier: Apache-2.0
"""Rewrites: every rule finds its pattern, changes it, and what keeps the function computes the same in onnxruntime."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from hexforge.addons.tuning.rewrites import RULES, RewriteRule, apply, find
from hexforge.model.extraction import model_bytes
from hexforge.model.reader import Model, read
from hexforge.patterns.input_numbers import index_range
from tests.ort.models import FLOAT, model, node

Built = tuple[bytes, str, str]
"""A model, the ops it has before and after, as `Op Op`."""
BY_NAME = {rule.name: rule for rule in RULES}
RANDOM = np.random.default_rng(3)
IMAGE = (1, 8, 6, 6)


def numbers(*sizes: int) -> np.ndarray:
    """Random constants."""
    return RANDOM.standard_normal(sizes).astype(np.float32)


def built(
    nodes: list[onnx.NodeProto], sizes: tuple[int, ...] = IMAGE, opset: int = 17, more: int = 0, **constants: Any
) -> bytes:
    """A model of nodes from x (and x1, x2 …) to y."""
    arrays = {name: np.asarray(value) for name, value in constants.items()}
    inputs = dict.fromkeys(("x", *(f"x{i + 1}" for i in range(more))), (FLOAT, sizes))
    return model(nodes, inputs, {"y": (FLOAT, None)}, arrays, opset=opset)  # type: ignore[arg-type]


def conv(x: str, y: str, w: str, *rest: str, name: str = "", **attributes: Any) -> onnx.NodeProto:
    """A Conv node."""
    return node("Conv", [x, w, *rest], [y], name=name or f"conv_{y}", **attributes)


def written_out_gelu(root: float) -> bytes:
    """x (1 + erf(x / root)) / 2."""
    nodes = [
        node("Div", ["x", "root"], ["d"]),
        node("Erf", ["d"], ["e"]),
        node("Add", ["e", "one"], ["a"]),
        node("Mul", ["x", "a"], ["m"]),
        node("Mul", ["m", "half"], ["y"]),
    ]
    return built(nodes, root=np.float32(root), one=np.float32(1), half=np.float32(0.5))


def ops(loaded: Model) -> Counter[str]:
    """How often each op comes."""
    return Counter(n.op_type for n in loaded.ir.graph)


def rewritten(data: bytes, rule: RewriteRule) -> tuple[Model, int]:
    """The model with a rule applied, and the number of changes."""
    loaded = read(data)
    before = ops(loaded)
    places = find(loaded.ir, rule)
    assert ops(loaded) == before, "finding changes nothing"
    made = dataclasses.replace(loaded, ir=loaded.ir.clone())
    changes = apply(made.ir, rule)
    assert bool(changes) == bool(places)
    return made, len(changes)


def outputs(data: bytes, seed: int = 0) -> list[np.ndarray]:
    """What onnxruntime computes from random inputs."""
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(seed)
    feeds = {v.name: random.standard_normal(v.shape).astype(np.float32) for v in session.get_inputs()}
    return list(session.run(None, feeds))


def same(before: bytes, after: bytes, tolerance: float = 1e-5) -> None:
    """Both compute the same, within a part of the largest number."""
    for a, b in zip(outputs(before), outputs(after), strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=tolerance * max(1.0, float(np.abs(a).max())))


CASES: dict[str, tuple[Callable[[], bytes], str]] = {
    "dynamic-quantization": (
        lambda: built(
            [
                node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
                node("Mul", ["s", "ws"], ["step"]),
                node("ConvInteger", ["q", "w", "z", "wz"], ["i"]),
                node("Cast", ["i"], ["f"], to=FLOAT),
                node("Mul", ["f", "step"], ["y"]),
            ],
            w=RANDOM.integers(0, 256, (4, 8, 3, 3)).astype(np.uint8),
            wz=np.uint8(120),
            ws=np.float32(0.01),
        ),
        "Conv",
    ),
    "div-by-constant": (lambda: built([node("Div", ["x", "c"], ["y"])], c=numbers(8, 1, 1)), "Mul"),
    "div-by-smaller": (
        lambda: built(
            [node("ReduceSum", ["p", "axes"], ["s"]), node("Exp", ["x"], ["p"]), node("Div", ["p", "s"], ["y"])][::1],
            axes=np.array([1], np.int64),
        ),
        "Exp ReduceSum Reciprocal Mul",
    ),
    "div-to-mul": (
        lambda: built(
            [conv("x", "a", "w"), node("Sigmoid", ["a"], ["b"]), node("Div", ["x", "b"], ["y"])], w=numbers(8, 8, 1, 1)
        ),
        "Conv Sigmoid Mul",
    ),
    "constants-meet": (
        lambda: built(
            [node("Sub", ["x", "a"], ["u"]), node("Add", ["u", "b"], ["y"])], a=numbers(8, 1, 1), b=numbers(8, 1, 1)
        ),
        "Add",
    ),
    "input-normalisation": (
        lambda: built(
            [node("Sub", ["x", "m"], ["u"]), node("Div", ["u", "s"], ["v"]), conv("v", "y", "w")],
            m=numbers(8, 1, 1),
            s=numbers(8, 1, 1),
            w=numbers(8, 8, 1, 1),
        ),
        "Conv",
    ),
    "reduction-written-out": (lambda: built([node("ReduceSumSquare", ["x"], ["y"], axes=[1])]), "Mul ReduceSum"),
    "pointwise-written-out": (lambda: built([node("Softsign", ["x"], ["y"])]), "Abs Add Div"),
    "triangle-as-mask": (lambda: built([node("Trilu", ["x"], ["y"])]), "Where"),
    "product-of-few": (
        lambda: built([node("ReduceProd", ["x"], ["y"], axes=[3], keepdims=0)]),
        "Split Mul Mul Mul Mul Mul Reshape",
    ),
    "constant-sequence-lengths": (
        lambda: built(
            [node("GRU", ["x", "w", "r", "", "lens"], ["y"], hidden_size=4)],
            (5, 2, 3),
            w=numbers(1, 12, 3),
            r=numbers(1, 12, 4),
            lens=np.array([3, 3], np.int32),
        ),
        "Slice GRU Pad",
    ),
    "merge-dimensions": (
        lambda: built(
            [
                node("Reshape", ["x", "windows"], ["u"]),
                node("Transpose", ["u"], ["v"], perm=[0, 1, 2, 4, 3, 5]),
                node("Reshape", ["v", "rows"], ["y"]),
            ],
            windows=np.array([1, 8, 2, 3, 3, 2]),
            rows=np.array([8, 6, 6]),
        ),
        "Reshape Transpose Reshape",
    ),
    "focus-into-conv": (
        lambda: built(
            [
                *(node("Slice", ["x", f"s{i}", "e", "a", "t"], [f"u{i}"]) for i in range(4)),
                node("Concat", [f"u{i}" for i in range(4)], ["c"], axis=1),
                conv("c", "y", "w", "b", pads=[1] * 4),
            ],
            s0=np.array([0, 0]),
            s1=np.array([1, 0]),
            s2=np.array([0, 1]),
            s3=np.array([1, 1]),
            e=np.array([9, 9]),
            a=np.array([2, 3]),
            t=np.array([2, 2]),
            w=numbers(4, 32, 3, 3),
            b=numbers(4),
        ),
        "Conv",
    ),
    "power": (lambda: built([node("Pow", ["x", "two"], ["y"])], two=np.float32(2)), "Mul"),
    "fold-after-conv": (
        lambda: built(
            [conv("x", "u", "w", "b", pads=[1] * 4), node("BatchNormalization", ["u", "s", "o", "m", "v"], ["y"])],
            w=numbers(4, 8, 3, 3),
            b=numbers(4),
            s=numbers(4),
            o=numbers(4),
            m=numbers(4),
            v=np.abs(numbers(4)) + 1,
        ),
        "Conv",
    ),
    "fold-before-conv": (
        lambda: built(
            [
                node("Sub", ["x", "m"], ["u"]),
                node("Div", ["u", "s"], ["v"]),
                conv("v", "y", "w", group=2, strides=[2, 2]),
            ],
            m=numbers(8, 1, 1),
            s=np.abs(numbers(8, 1, 1)) + 1,
            w=numbers(6, 4, 3, 3),
        ),
        "Conv",
    ),
    "fold-after-matmul": (
        lambda: built(
            [node("MatMul", ["x", "w"], ["u"]), node("Add", ["b", "u"], ["v"]), node("Div", ["v", "c"], ["y"])],
            (2, 5, 8),
            w=numbers(8, 4),
            b=numbers(4),
            c=np.float32(8),
        ),
        "MatMul Add",
    ),
    "conv-after-conv": (
        lambda: built(
            [conv("x", "u", "a", "ab", pads=[1] * 4), conv("u", "y", "b", "bb")],
            a=numbers(6, 8, 3, 3),
            ab=numbers(6),
            b=numbers(4, 6, 1, 1),
            bb=numbers(4),
        ),
        "Conv",
    ),
    "pad-before-conv": (
        lambda: built(
            [node("Pad", ["x", "p"], ["u"]), conv("u", "y", "w", pads=[1, 0, 0, 1])],
            p=np.array([0, 0, 1, 2, 0, 0, 0, 1], np.int64),
            w=numbers(4, 8, 3, 3),
        ),
        "Conv",
    ),
    "grouped-to-dense": (lambda: built([conv("x", "y", "w", group=4)], w=numbers(12, 2, 3, 3)), "Conv"),
    "dilation": (lambda: built([conv("x", "y", "w", dilations=[2, 2], pads=[2] * 4)], w=numbers(4, 8, 3, 3)), "Conv"),
    "sub-to-conv": (
        lambda: built(
            [
                conv("x", "a", "wa"),
                node("Relu", ["a"], ["ar"]),
                conv("ar", "c", "wc", "bc"),
                node("Relu", ["c"], ["cr"]),
                conv("x", "b", "wb"),
                node("Relu", ["b"], ["br"]),
                conv("br", "d", "wd"),
                node("Relu", ["d"], ["dr"]),
                node("Sub", ["cr", "dr"], ["y"]),
            ],
            wa=numbers(8, 8, 1, 1),
            wb=numbers(8, 8, 1, 1),
            wc=numbers(8, 8, 1, 1),
            wd=numbers(8, 8, 1, 1),
            bc=numbers(8),
        ),
        "Conv Relu Conv Relu Conv",
    ),
    "sum-of-convs": (
        lambda: built(
            [
                conv("x", "a", "wa", "ba", pads=[1] * 4),
                conv("x1", "b", "wb", pads=[1] * 4),
                node("Sub", ["a", "b"], ["y"]),
            ],
            more=1,
            wa=numbers(4, 8, 3, 3),
            wb=numbers(4, 8, 3, 3),
            ba=numbers(4),
        ),
        "Concat Conv",
    ),
    "sibling-convs": (
        lambda: built(
            [
                conv("x", "a", "wa", "ba"),
                conv("x", "b", "wb"),
                node("Relu", ["a"], ["c"]),
                node("Concat", ["b", "c"], ["y"], axis=1),
            ],
            wa=numbers(3, 8, 1, 1),
            wb=numbers(5, 8, 1, 1),
            ba=numbers(3),
        ),
        "Conv Split Relu Concat",
    ),
    "prelu-to-relu": (lambda: built([node("PRelu", ["x", "s"], ["y"])], s=numbers(8, 1, 1)), "Relu"),
    "zero-slopes": (lambda: built([node("LeakyRelu", ["x"], ["y"], alpha=0.0)]), "Relu"),
    "equal-slopes": (
        lambda: built([node("PRelu", ["x", "s"], ["y"])], s=np.full((8, 1, 1), 0.3, np.float32)),
        "LeakyRelu",
    ),
    "prelu-as-maximum": (
        lambda: built([node("PRelu", ["x", "s"], ["y"])], s=RANDOM.random((8, 1, 1)).astype(np.float32)),
        "Mul Max",
    ),
    "clamps-meet": (
        lambda: built(
            [node("Clip", ["x", "a", "b"], ["u"]), node("Clip", ["u", "c", "d"], ["y"])],
            a=np.float32(-1),
            b=np.float32(1),
            c=np.float32(-0.5),
            d=np.float32(6),
        ),
        "Clip",
    ),
    "hard-swish": (
        lambda: built(
            [
                node("Add", ["x", "three"], ["u"]),
                node("Clip", ["u", "zero", "six"], ["v"]),
                node("Mul", ["x", "v"], ["p"]),
                node("Div", ["p", "six"], ["y"]),
            ],
            three=np.float32(3),
            zero=np.float32(0),
            six=np.float32(6),
        ),
        "HardSwish",
    ),
    "gelu": (lambda: written_out_gelu(2**0.5), "Gelu"),
    "matmul-to-conv": (
        lambda: built(
            [node("MatMul", ["x", "w"], ["u"]), node("Add", ["u", "b"], ["y"])],
            (2, 5, 8),
            w=numbers(8, 6),
            b=numbers(6),
        ),
        "Reshape Transpose Conv Transpose Reshape",
    ),
    "sibling-matmuls": (
        lambda: built(
            [
                node("MatMul", ["x", "q"], ["a"]),
                node("Add", ["a", "b"], ["c"]),
                node("MatMul", ["x", "k"], ["d"]),
                node("Concat", ["d", "c"], ["y"], axis=-1),
            ],
            (2, 5, 8),
            q=numbers(8, 6),
            k=numbers(8, 3),
            b=numbers(6),
        ),
        "MatMul Add Split Concat",
    ),
    "transposes-meet": (
        lambda: built(
            [node("Transpose", ["x"], ["u"], perm=[0, 2, 3, 1]), node("Transpose", ["u"], ["y"], perm=[0, 3, 1, 2])]
        ),
        "Identity",
    ),
    "transpose-of-ones": (lambda: built([node("Transpose", ["x"], ["y"], perm=[1, 0, 2])], (1, 5, 8)), "Reshape"),
    "gather-to-slice": (
        lambda: built([node("Gather", ["x", "i"], ["y"], axis=1)], i=np.array([1, 3, 5], np.int64)),
        "Slice",
    ),
    "split-concat": (
        lambda: built(
            [
                node("Split", ["x", "s"], ["a", "b"], axis=1),
                node("Concat", ["a", "b"], ["u"], axis=1),
                node("Neg", ["u"], ["y"]),
            ],
            s=np.array([3, 5], np.int64),
        ),
        "Neg",
    ),
    "slices-to-split": (
        lambda: built(
            [
                node("Slice", ["x", "zero", "three", "one"], ["a"]),
                node("Slice", ["x", "three", "eight", "one"], ["b"]),
                node("Concat", ["b", "a"], ["y"], axis=1),
            ],
            zero=np.array([0]),
            three=np.array([3]),
            eight=np.array([8]),
            one=np.array([1]),
        ),
        "Split Concat",
    ),
    "broadcast": (
        lambda: built(
            [
                node("GlobalAveragePool", ["x"], ["g"]),
                node("Expand", ["g", "s"], ["e"]),
                node("Mul", ["x", "e"], ["y"]),
            ],
            s=np.array(IMAGE, np.int64),
        ),
        "GlobalAveragePool Mul",
    ),
    "mean-to-pool": (
        lambda: built([node("ReduceMean", ["x"], ["y"], axes=[2, 3], keepdims=0)]),
        "GlobalAveragePool Reshape",
    ),
    "duplicates": (
        lambda: built(
            [node("Add", ["x", "a"], ["u"]), node("Add", ["x", "b"], ["v"]), node("Mul", ["u", "v"], ["y"])],
            a=np.full((8, 1, 1), 2, np.float32),
            b=np.full((8, 1, 1), 2, np.float32),
        ),
        "Add Mul",
    ),
    "channel-last-input": (lambda: built([conv("x", "y", "w")], (1, 3, 6, 6), w=numbers(4, 3, 1, 1)), "Transpose Conv"),
    "channels-of-32": (
        lambda: built(
            [
                conv("x", "a", "wa", "ba"),
                node("PRelu", ["a", "s"], ["b"]),
                conv("b", "c", "wd", group=36, pads=[1] * 4),
                node("Add", ["b", "c"], ["d"]),
                conv("d", "y", "wy"),
            ],
            wa=numbers(36, 8, 1, 1),
            ba=numbers(36),
            s=numbers(36, 1, 1),
            wd=numbers(36, 1, 3, 3),
            wy=numbers(4, 36, 1, 1),
        ),
        "Conv PRelu Conv Add Conv",
    ),
    "symmetric-weights": (lambda: _uint8_weights(128), "QuantizeLinear DequantizeLinear DequantizeLinear Conv"),
    "asymmetric-weights": (lambda: _uint8_weights(100), "QuantizeLinear DequantizeLinear DequantizeLinear Conv"),
    "div-by-quantized": (
        lambda: built(
            [
                node("QuantizeLinear", ["x", "s", "z"], ["q"]),
                node("DequantizeLinear", ["q", "s", "z"], ["u"]),
                node("DequantizeLinear", ["c", "cs", "z0"], ["d"]),
                node("Div", ["u", "d"], ["v"]),
                node("QuantizeLinear", ["v", "s", "z"], ["w"]),
                node("DequantizeLinear", ["w", "s", "z"], ["y"]),
            ],
            s=np.float32(0.05),
            z=np.uint8(128),
            c=np.uint8(173),
            cs=np.float32(0.01),
            z0=np.uint8(0),
        ),
        "QuantizeLinear DequantizeLinear DequantizeLinear Mul QuantizeLinear DequantizeLinear",
    ),
}


def _uint8_weights(zero: int) -> bytes:
    codes = RANDOM.integers(0, 256, (4, 8, 3, 3)).astype(np.uint8)
    return built(
        [
            node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            node("DequantizeLinear", ["q", "s", "z"], ["u"]),
            node("DequantizeLinear", ["codes", "ws", "wz"], ["w"], axis=0),
            node("Conv", ["u", "w"], ["y"]),
        ],
        s=np.float32(0.05),
        z=np.uint8(128),
        codes=codes,
        ws=(np.abs(numbers(4)) + 0.01).astype(np.float32),
        wz=np.full(4, zero, np.uint8),
    )


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_changes_its_pattern(rule: RewriteRule) -> None:
    make, expected = CASES[rule.name]
    data = make()
    made, count = rewritten(data, rule)
    assert count >= 1
    assert ops(made) == Counter(expected.split())
    after = model_bytes(made)
    onnx.checker.check_model(onnx.load_from_string(after), full_check=True)
    if rule.keeps_function:
        same(data, after, max(1e-5, rule.tolerance))
    elif rule.name not in ("channel-last-input", "input-normalisation"):
        shapes = [[a.shape for a in outputs(d)] for d in (data, after)]
        assert shapes[0] == shapes[1]
    again = apply(made.ir, rule)
    assert not again, "a rule is done after once"


def test_every_rule_says_what_it_is() -> None:
    assert len(BY_NAME) == len(RULES)
    for rule in RULES:
        assert rule.title
        assert rule.why.endswith(".")
        assert rule.how.endswith(".")
        assert rule.source


@pytest.mark.parametrize(
    ("rule", "data"),
    [
        # a shift is not exact where the convolution is padded
        (
            "fold-before-conv",
            lambda: built(
                [node("Sub", ["x", "m"], ["u"]), conv("u", "y", "w", pads=[1] * 4)],
                m=numbers(8, 1, 1),
                w=numbers(4, 8, 3, 3),
            ),
        ),
        # another reader needs what the convolution gives
        (
            "fold-after-conv",
            lambda: built(
                [conv("x", "u", "w"), node("Mul", ["u", "c"], ["v"]), node("Add", ["u", "v"], ["y"])],
                w=numbers(8, 8, 1, 1),
                c=numbers(8, 1, 1),
            ),
        ),
        # the bias of the first would be missing in the padding of the second
        (
            "conv-after-conv",
            lambda: built(
                [conv("x", "u", "a", "b"), conv("u", "y", "w", pads=[1] * 4)],
                a=numbers(8, 8, 1, 1),
                b=numbers(8),
                w=numbers(4, 8, 3, 3),
            ),
        ),
        ("div-by-constant", lambda: built([node("Div", ["x", "c"], ["y"])], c=np.zeros((8, 1, 1), np.float32))),
        ("div-by-constant", lambda: built([node("Div", ["c", "x"], ["y"])], c=numbers(8, 1, 1))),
        ("prelu-as-maximum", lambda: built([node("PRelu", ["x", "s"], ["y"])], s=np.full((8, 1, 1), 2, np.float32))),
        ("zero-slopes", lambda: built([node("PRelu", ["x", "s"], ["y"])], s=numbers(8, 1, 1))),
        ("gather-to-slice", lambda: built([node("Gather", ["x", "i"], ["y"], axis=1)], i=np.array([1, 2, 5]))),
        ("transposes-meet", lambda: built([node("Transpose", ["x"], ["y"], perm=[0, 2, 3, 1])])),
        (
            "broadcast",
            lambda: built(
                [
                    node("GlobalAveragePool", ["x"], ["g"]),
                    node("Expand", ["g", "s"], ["e"]),
                    node("Mul", ["g", "e"], ["y"]),
                ],
                s=np.array(IMAGE, np.int64),
            ),
        ),
        (
            "hard-swish",
            lambda: built(
                [
                    node("Add", ["x", "two"], ["u"]),
                    node("Clip", ["u", "zero", "six"], ["v"]),
                    node("Mul", ["x", "v"], ["p"]),
                    node("Div", ["p", "six"], ["y"]),
                ],
                two=np.float32(2),
                zero=np.float32(0),
                six=np.float32(6),
            ),
        ),
        ("gelu", lambda: written_out_gelu(1.5)),
        (
            "pad-before-conv",
            lambda: built(
                [node("Pad", ["x", "p", "one"], ["u"]), conv("u", "y", "w")],
                p=np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64),
                one=np.float32(1),
                w=numbers(4, 8, 3, 3),
            ),
        ),
        # its pieces are not all of the picture
        (
            "focus-into-conv",
            lambda: built(
                [
                    node("Slice", ["x", "s", "e", "a", "t"], ["u"]),
                    node("Slice", ["x", "z", "e", "a", "t"], ["v"]),
                    node("Concat", ["u", "v"], ["c"], axis=1),
                    conv("c", "y", "w"),
                ],
                s=np.array([0, 0]),
                z=np.array([1, 1]),
                e=np.array([9, 9]),
                a=np.array([2, 3]),
                t=np.array([2, 2]),
                w=numbers(4, 16, 1, 1),
            ),
        ),
        # every axis goes elsewhere
        (
            "merge-dimensions",
            lambda: built(
                [
                    node("Reshape", ["x", "s"], ["u"]),
                    node("Transpose", ["u"], ["v"], perm=[5, 3, 1, 4, 2, 0]),
                    node("Reshape", ["v", "f"], ["y"]),
                ],
                s=np.array([4, 2, 2, 3, 2, 3]),
                f=np.array([288]),
            ),
        ),
        ("product-of-few", lambda: built([node("ReduceProd", ["x"], ["y"], axes=[2, 3])])),
        ("channels-of-32", lambda: built([conv("x", "y", "w")], w=numbers(36, 8, 1, 1))),  # they leave the graph
    ],
)
def test_what_is_not_the_pattern_stays(rule: str, data: Callable[[], bytes]) -> None:
    loaded = read(data())
    assert find(loaded.ir, BY_NAME[rule]) == []


def test_a_file_keeps_what_it_says_of_itself() -> None:
    proto = onnx.load_from_string(CASES["div-by-constant"][0]())
    proto.producer_name, proto.domain, proto.doc_string, proto.model_version = "maker", "here", "words", 7
    proto.graph.doc_string = "about the graph"
    proto.metadata_props.add(key="author", value="me")
    made, _ = rewritten(proto.SerializeToString(), BY_NAME["div-by-constant"])
    after = onnx.load_from_string(model_bytes(made))
    assert (after.producer_name, after.domain, after.doc_string, after.model_version) == ("maker", "here", "words", 7)
    assert after.graph.doc_string == "about the graph"
    assert [(p.key, p.value) for p in after.metadata_props] == [("author", "me")]
    assert [(o.domain, o.version) for o in after.opset_import] == [("", 17)]
    assert [v.name for v in after.graph.input] == ["x"]
    assert [v.name for v in after.graph.output] == ["y"]


def test_symmetric_weights_are_int8_with_zero_point_zero() -> None:
    made, _ = rewritten(_uint8_weights(128), BY_NAME["symmetric-weights"])
    proto = onnx.load_from_string(model_bytes(made))
    weights = [numpy_helper.to_array(t) for t in proto.graph.initializer if len(t.dims) == 4]
    assert [w.dtype for w in weights] == [np.int8]


def test_indices_stay_within_the_table_they_look_up() -> None:
    nodes = [
        node("Gather", ["table", "i"], ["e"]),
        node("Gather", ["other", "i"], ["f"]),
        node("Add", ["e", "f"], ["y"]),
    ]
    data = model(
        nodes,
        {"i": (onnx.TensorProto.INT64, [4])},
        {"y": (FLOAT, None)},
        {"table": numbers(50, 8), "other": numbers(20, 8)},
    )
    assert index_range(read(data).ir.graph.inputs[0]) == 20


def _between_codes(op: str, domain: str, code: type, **constants: Any) -> bytes:
    """A node of two operands, the second of which is a dequantized constant, between codes."""
    how = {"domain": domain} if domain else {}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], **how),
        node("DequantizeLinear", ["q", "s", "z"], ["u"], **how),
        node("DequantizeLinear", ["c", "cs", "zero"], ["d"], **how),
        node(op, ["u", "d"], ["v"]),
        node("QuantizeLinear", ["v", "s", "z"], ["w"], **how),
        node("DequantizeLinear", ["w", "s", "z"], ["y"], **how),
    ]
    arrays = {
        "s": np.float32(0.05),
        "z": code(128),
        "cs": np.float32(0.01),
        "zero": code(0),
        "c": code(173),
        **constants,
    }
    given = {name: np.asarray(value) for name, value in arrays.items()}
    return model(nodes, {"x": (FLOAT, IMAGE)}, {"y": (FLOAT, None)}, given, [domain] if domain else [])


def test_16_bit_codes_of_the_other_domain_stay_there() -> None:
    data = _between_codes("Div", "com.microsoft", np.uint16)
    made, count = rewritten(data, BY_NAME["div-by-quantized"])
    assert count == 1
    domains = {(n.op_type, n.domain) for n in made.ir.graph}
    assert domains == {(op, "com.microsoft") for op in ("QuantizeLinear", "DequantizeLinear")} | {("Mul", "")}
    same(data, model_bytes(made))


def test_prelu_between_codes_becomes_relu_and_the_group_stays() -> None:
    data = _between_codes("PRelu", "", np.uint8)
    made, count = rewritten(data, BY_NAME["prelu-to-relu"])
    assert count == 1
    assert ops(made) == Counter(["QuantizeLinear", "DequantizeLinear", "Relu", "QuantizeLinear", "DequantizeLinear"])
    relu = next(n for n in made.ir.graph if n.op_type == "Relu")
    assert [v.producer().op_type for v in relu.inputs if v is not None and v.producer() is not None] == [
        "DequantizeLinear"
    ]


def test_rules_for_floats_leave_groups_of_codes_alone() -> None:
    data = _between_codes("Div", "", np.uint8, c=np.full((1, 8, 1, 1), 173, np.uint8))
    loaded = read(data)
    changed = [rule.name for rule in RULES if find(loaded.ir, rule)]
    assert changed == []


@settings(max_examples=25)
@given(
    group=st.sampled_from([1, 2, 4]),
    kernel=st.integers(1, 3),
    pad=st.integers(0, 1),
    ahead=st.booleans(),
    behind=st.sampled_from(["Mul", "Add", "Sub", "Div"]),
    flipped=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_folding_constants_into_convolutions_is_exact(
    group: int, kernel: int, pad: int, ahead: bool, behind: str, flipped: bool, seed: int
) -> None:
    random = np.random.default_rng(seed)

    def drawn(*sizes: int) -> np.ndarray:
        return (random.random(sizes) + 0.5).astype(np.float32)

    operands = ["c", "u"] if flipped and behind != "Div" else ["u", "c"]
    nodes = [conv("v" if ahead else "x", "u", "w", "b", group=group, pads=[pad] * 4), node(behind, operands, ["y"])]
    if ahead:
        nodes.insert(0, node("Add", ["x", "a"], ["v"]))
    data = built(nodes, w=drawn(4, 8 // group, kernel, kernel), b=drawn(4), c=drawn(4, 1, 1), a=drawn(8, 1, 1))
    loaded = read(data)
    for name in ("fold-after-conv", "fold-before-conv"):
        apply(loaded.ir, BY_NAME[name])
    left = {"Add"} if ahead and pad else set()
    assert set(ops(loaded)) == {"Conv"} | left
    same(data, model_bytes(loaded))


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_rules_stand_shapes_that_nobody_knows(rule: RewriteRule) -> None:
    """What follows a NonZero or an If has no known shape: every op that rules look at, on such a tensor."""
    two = ("Add", "Mul", "Sub", "Div", "MatMul", "Concat", "Pow")
    ops = ("Transpose", "Relu", "Softmax", "ReduceMean", "Flatten", "Sqrt", "Gather", "Unsqueeze", "Reshape", *two)
    extra: dict[str, list[str]] = {"Gather": ["i"], "Unsqueeze": ["i"], "Reshape": ["i"], **{op: ["u"] for op in two}}
    given: dict[str, dict[str, Any]] = {"Transpose": {"perm": [2, 0, 1]}, "Concat": {"axis": 0}}
    nodes = [node("NonZero", ["x"], ["n"]), node("Cast", ["n"], ["f"], to=FLOAT), node("Squeeze", ["f"], ["u"])]
    for op in ops:
        nodes.append(node(op, ["u", *extra.get(op, [])], [f"y{op}"], **given.get(op, {})))
    held = [numpy_helper.from_array(np.array([0]), "i")]
    graph = onnx.helper.make_graph(
        nodes, "g", [onnx.helper.make_tensor_value_info("x", FLOAT, (2, 3))],
        [onnx.helper.make_tensor_value_info(f"y{op}", FLOAT, None) for op in ops], held,
    )  # fmt: skip
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    ir = read(made.SerializeToString()).ir
    for value in (v for n in ir.graph for v in n.outputs):
        value.shape = None
    for place in find(ir, rule):
        assert place is not None


def test_a_model_with_a_body_keeps_the_shapes_of_its_inputs() -> None:
    branch = []
    for op in ("Relu", "Neg"):
        result = onnx.helper.make_tensor_value_info(f"{op}_out", FLOAT, None)
        branch.append(onnx.helper.make_graph([node(op, ["x"], [f"{op}_out"])], op, [], [result]))
    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=branch[0], else_branch=branch[1]),
    ]
    inputs = [onnx.helper.make_tensor_value_info("x", FLOAT, ("batch", 4))]
    outputs = [onnx.helper.make_tensor_value_info("y", FLOAT, ("batch", 4))]
    graph = onnx.helper.make_graph(
        nodes, "g", inputs, outputs, [numpy_helper.from_array(np.array(0, np.float32), "zero")]
    )
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    written = model_bytes(read(made.SerializeToString(), dims={"batch": 1}))
    read(written).require_static()
    onnxruntime.InferenceSession(written, providers=["CPUExecutionProvider"])
