# SPDX-License-Identifier: Apache-2.0
"""Tiny models for the session's tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import hexforge

FLOAT = TensorProto.FLOAT
CPU_BACKEND = [("QNNExecutionProvider", {"backend_type": "cpu"})]


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, tuple[int, Sequence[Any] | None]],
    outputs: dict[str, tuple[int, Sequence[Any] | None]],
    constants: dict[str, NDArray[Any]] | None = None,
    domains: Sequence[str] = (),
    opset: int = 17,
    between: dict[str, tuple[int, Sequence[Any] | None]] | None = None,
) -> bytes:
    """A model's bytes."""
    graph = helper.make_graph(
        list(nodes),
        "tiny",
        [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()],
        [helper.make_tensor_value_info(name, *kind) for name, kind in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
        value_info=[helper.make_tensor_value_info(name, *kind) for name, kind in (between or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    made: bytes = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    return made


node = helper.make_node


def mixed(batch: Any = 2) -> bytes:
    """Relu -> (NonZero -> Cast on the CPU) and Neg: two parts."""
    nodes = [
        node("Relu", ["x"], ["a"], name="relu"),
        node("NonZero", ["a"], ["n"], name="nonzero"),
        node("Neg", ["a"], ["y"], name="neg"),
        node("Cast", ["n"], ["m"], name="cast", to=FLOAT),
    ]
    return model(nodes, {"x": (FLOAT, [batch, 3])}, {"y": (FLOAT, [batch, 3]), "m": (FLOAT, None)})


def sandwich() -> bytes:
    """Relu, a CPU-only op, Neg: three parts."""
    nodes = [
        node("Relu", ["x"], ["a"], name="relu"),
        node("Det", ["a"], ["b"], name="det"),
        node("Neg", ["b"], ["y"], name="neg"),
    ]
    return model(nodes, {"x": (FLOAT, [2, 3, 3])}, {"y": (FLOAT, [2])})


def quantized(scale: float = 0.1, zero_point: NDArray[Any] | None = None) -> bytes:
    """Q -> DQ -> Relu -> Q -> DQ."""
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["xq"], name="q_in"),
        node("DequantizeLinear", ["xq", "s", "z"], ["xd"], name="dq_in"),
        node("Sigmoid", ["xd"], ["r"], name="sigmoid"),
        node("QuantizeLinear", ["r", "t", "z"], ["rq"], name="q_out"),
        node("DequantizeLinear", ["rq", "t", "z"], ["y"], name="dq_out"),
    ]
    zero = np.array(128, np.uint8) if zero_point is None else zero_point
    constants = {"s": np.array(scale, np.float32), "t": np.array(1 / 128, np.float32), "z": zero}
    return model(nodes, {"x": (FLOAT, [1, 8])}, {"y": (FLOAT, [1, 8])}, constants)


def ahead() -> bytes:
    """Convolutions that compute, then a product that waits for its weights unless they were fetched meanwhile."""
    weights = {f"w{i}": np.full((32, 32, 3, 3), 0.01, np.float32) for i in range(4)}
    names = ["x", "m0", "m1", "m2", "m3"]
    nodes = [node("Conv", [names[i], f"w{i}"], [names[i + 1]], name=f"n{i}", pads=[1, 1, 1, 1]) for i in range(4)]
    nodes += [node("GlobalAveragePool", ["m3"], ["p"], name="p"), node("Flatten", ["p"], ["f"], name="f")]
    nodes += [node("MatMul", ["f", "head"], ["y"], name="y")]
    weights["head"] = np.full((32, 1 << 17), 0.01, np.float32)
    return model(nodes, {"x": (FLOAT, [1, 32, 112, 112])}, {"y": (FLOAT, [1, 1 << 17])}, weights)


def session(
    source: bytes, options: dict[str, str] | None = None, sess_options: Any = None, **entries: str
) -> hexforge.InferenceSession:
    """A session on the cpu backend; `entries` are session config keys with `__` for the dot."""
    chosen = sess_options if sess_options is not None else hexforge.SessionOptions()
    for key, value in entries.items():
        chosen.add_session_config_entry(key.replace("__", "."), value)
    provider = ("QNNExecutionProvider", {"backend_type": "cpu", **(options or {})})
    return hexforge.InferenceSession(source, chosen, providers=[provider, "CPUExecutionProvider"])
