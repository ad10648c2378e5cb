# SPDX-License-Identifier: Apache-2.0
"""Sessions that write and open context models, for their tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import hexforge
from hexforge.ir import Array
from tests.ort.models import model, node

QNN, CPU = "QNNExecutionProvider", "CPUExecutionProvider"
FLOAT = TensorProto.FLOAT


def session(
    source: bytes | str | os.PathLike[str], options: dict[str, str] | None = None, **entries: Any
) -> hexforge.InferenceSession:
    """A session on htp; `entries` are session config keys with `__` for the dot."""
    chosen = hexforge.SessionOptions()
    for key, value in entries.items():
        chosen.add_session_config_entry(key.replace("__", "."), str(value))
    return hexforge.InferenceSession(source, chosen, providers=[(QNN, options or {}), CPU])


def written(
    path: Path, source: bytes, options: dict[str, str] | None = None, **entries: Any
) -> tuple[hexforge.InferenceSession, Path]:
    """A session that writes the context model of a model, and that model's path."""
    path.write_bytes(source)
    made = session(path, options, ep__context_enable="1", **entries)
    return made, path.with_name(f"{path.stem}_ctx.onnx")


def compiler(
    source: Any, options: dict[str, str] | None = None, entries: dict[str, str] | None = None, **more: Any
) -> hexforge.ModelCompiler:
    """A ModelCompiler for QNNExecutionProvider."""
    chosen = hexforge.SessionOptions()
    for key, value in (entries or {}).items():
        chosen.add_session_config_entry(key, value)
    chosen.add_provider(QNN, options or {})
    return hexforge.ModelCompiler(chosen, source, **more)


def feeds(made: hexforge.InferenceSession, seed: int = 0) -> dict[str, Array]:
    """Random inputs."""
    rng = np.random.default_rng(seed)
    found = {}
    for arg in made.get_inputs():
        shape = [d if isinstance(d, int) else 1 for d in arg.shape]
        assert arg.dtype is not None
        if arg.dtype.kind == "f":
            found[arg.name] = rng.standard_normal(shape).astype(arg.dtype)
        else:
            found[arg.name] = rng.integers(0, 2, shape).astype(arg.dtype)
    return found


def assert_same_bits(made: hexforge.InferenceSession, other: hexforge.InferenceSession) -> None:
    """Both give the same bits for the same inputs, and say the same of inputs and outputs."""
    for ours, theirs in ((made.get_inputs(), other.get_inputs()), (made.get_outputs(), other.get_outputs())):
        assert ours == theirs
    given = feeds(made)
    for mine, its in zip(made.run(None, given), other.run(None, given), strict=True):
        assert mine.dtype == its.dtype
        np.testing.assert_array_equal(mine, its)


def dense(width: int = 8, rows: int = 4, seed: int = 0) -> bytes:
    """MatMul and Relu, then Det on the CPU with a constant after it, then Neg."""
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((width, width)).astype(np.float32)
    added = rng.standard_normal((1, rows, rows)).astype(np.float32)
    nodes = [
        node("MatMul", ["x", "w"], ["a"], name="mul"),
        node("Relu", ["a"], ["b"], name="relu"),
        node("Slice", ["b", "zero", "four", "axis"], ["c"], name="slice"),
        node("Det", ["c"], ["d"], name="det"),
        node("Compress", ["c", "keep"], ["e"], name="compress", axis=0),
        node("Add", ["e", "added"], ["f"], name="add"),
        node("Neg", ["d"], ["y"], name="neg"),
        node("Abs", ["f"], ["z"], name="abs"),
    ]
    constants = {
        "w": weight, "added": added, "keep": np.array([True]), "zero": np.array([0], np.int64),
        "four": np.array([rows], np.int64), "axis": np.array([2], np.int64),
    }  # fmt: skip
    outputs: dict[str, Any] = {"y": (FLOAT, [1]), "z": (FLOAT, None)}
    return model(nodes, {"x": (FLOAT, [1, rows, width])}, outputs, constants)


def shared(rows: int, width: int = 256, seed: int = 0) -> bytes:
    """A MatMul and a Relu; models of different `rows` have one weight."""
    weight = np.random.default_rng(seed).standard_normal((width, width)).astype(np.float32)
    nodes = [node("MatMul", ["x", "w"], ["a"], name="mul"), node("Relu", ["a"], ["y"], name="relu")]
    return model(nodes, {"x": (FLOAT, [rows, width])}, {"y": (FLOAT, [rows, width])}, {"w": weight})


def ep_context(**attributes: Any) -> bytes:
    """A model of one EPContext node made by someone else."""
    given = {"source": "QNN", "main_context": 1, "embed_mode": 1, "ep_cache_context": b"\x00\x01blob", **attributes}
    made = helper.make_node("EPContext", ["x"], ["y"], name="ctx", domain="com.microsoft")
    made.attribute.extend(helper.make_attribute(k, v) for k, v in given.items() if v is not None)
    return model([made], {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])}, domains=["com.microsoft"])


def edited(path: Path, **attributes: Any) -> None:
    """Change attributes of the first EPContext node of a file; None removes one."""
    proto = onnx.load(path)
    found = next(n for n in proto.graph.node if n.op_type == "EPContext")
    kept = [a for a in found.attribute if a.name not in attributes]
    del found.attribute[:]
    found.attribute.extend(kept)
    found.attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items() if v is not None)
    path.write_bytes(proto.SerializeToString())
