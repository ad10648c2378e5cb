# SPDX-License-Identifier: Apache-2.0
"""Compare: a .tflite in LiteRT's reference kernels and its ONNX model in onnxruntime, over the same random inputs."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import onnxruntime

from hexforge.addons.tflite.bundle import model_bytes
from hexforge.addons.tflite.convert import BEGINS
from hexforge.errors import ModelError
from hexforge.ir import Array

JUDGE = "ai_edge_litert"
LEAST_LARGEST = 1e-2
"""What counts as the largest number where all are smaller, as those of a sigmoid far to the left are."""
MOST_INDEX = 4
"""Integers that may be indices are drawn below this."""


def compare_file(data: bytes, where: str, member: str, made: bytes, tolerance: float) -> str:
    """How far the model of a file and its ONNX model are apart, in words; ModelError where that is too far."""
    if find_spec(JUDGE) is None:
        return "not compared; `pip install ai-edge-litert`, and both models are run"
    inputs, wanted = run_litert(bytes(model_bytes(data, where, member)[0]))
    got = run_onnx(made, inputs)
    worst = max((difference(w, g) for w, g in zip(wanted, got, strict=False)), default=0.0)
    if not worst <= tolerance:
        raise ModelError(
            f"its ONNX model differs from LiteRT's reference by {worst:.2g} of the largest; please report it"
        )
    return f"both models were run, and differ by {worst:.2g} of the largest number at most"


def difference(wanted: Array, got: Array) -> float:
    """The largest difference, in parts of the largest number; of integers what is beyond one step."""
    if wanted.shape != got.shape or wanted.dtype != got.dtype:
        return float("inf")
    if not wanted.size:
        return 0.0
    if wanted.dtype.kind == "b":
        return float((wanted != got).mean())
    same = (wanted == got) | ((wanted != wanted) & (got != got))
    apart = np.where(same, 0, np.abs(wanted.astype(np.float64) - got.astype(np.float64)))
    if wanted.dtype.kind in "iu":
        return float(max(apart.max() - 1, 0))
    finite = np.abs(wanted[np.isfinite(wanted)])
    return float(apart.max() / max(float(finite.max(initial=0)), LEAST_LARGEST))


def run_litert(
    tflite: bytes, feeds: list[Array] | None = None, reference: bool = True
) -> tuple[list[Array], list[Array]]:
    """Inputs, random ones where none are given, and what LiteRT makes of them by its reference or usual kernels."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    def interpreter(kernels: OpResolverType) -> Interpreter:
        return Interpreter(model_content=tflite, experimental_op_resolver_type=kernels, num_threads=1)

    try:
        judge = interpreter(OpResolverType.BUILTIN_REF if reference else OpResolverType.AUTO)
        judge.allocate_tensors()
    except (RuntimeError, ValueError):  # a few operators have no reference kernel
        judge = interpreter(OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
        judge.allocate_tensors()
    random = np.random.default_rng(0)
    details = judge.get_input_details()
    inputs = feeds or [_random(random, tuple(d["shape"]), np.dtype(d["dtype"])) for d in details]
    for detail, values in zip(details, inputs, strict=True):
        judge.set_tensor(detail["index"], values)
    judge.invoke()
    return inputs, [judge.get_tensor(detail["index"]) for detail in judge.get_output_details()]


def _random(random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    values: Array
    if dtype.kind == "f":
        values = random.random(shape, np.float32).astype(dtype)
    elif dtype.kind == "b":
        values = np.asarray(random.random(shape) > 0.5)
    elif dtype.itemsize == 1:
        limits = np.iinfo(dtype)
        values = random.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    else:
        values = random.integers(0, MOST_INDEX, shape).astype(dtype)
    return values


def run_onnx(made: bytes, inputs: list[Array]) -> list[Array]:
    """What onnxruntime's CPU makes of the inputs, in their order."""
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    outputs: list[Array] = session.run(None, feeds_of(session, inputs))
    return outputs


def feeds_of(session: onnxruntime.InferenceSession, inputs: list[Array]) -> dict[str, Array]:
    """Inputs by name, and variables behind them as they begin."""
    wanted = session.get_inputs()
    feeds = {value.name: values for value, values in zip(wanted, inputs, strict=False)}
    texts = session.get_modelmeta().custom_metadata_map
    for state in wanted[len(inputs) :]:
        word = state.type.removeprefix("tensor(").removesuffix(")")
        dtype = np.dtype("float32" if word == "float" else word)
        feeds[state.name] = np.full(state.shape, float(texts[f"{BEGINS}{state.name}"]), dtype)
    return feeds
