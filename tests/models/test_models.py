# SPDX-License-Identifier: Apache-2.0
"""Real models out of PyPI wheels, float and QDQ: they load, place, run, and match onnxruntime's CPU EP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import hexforge
from hexforge.model.declarations import fix_shapes
from tests.digits import held_out
from tests.models.fetch import FILES, stored
from tests.models.quantize import TYPES, quantized
from tests.models.unitwise import plain_float32, unit_agreements

pytestmark = pytest.mark.models

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Real:
    """A model and the shapes its inputs are fixed to."""

    file: str
    shapes: Mapping[str, tuple[int, ...]]
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    """What a picture of 0..1 is lessened by, and divided by `std`: the model's own preprocessing."""
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    quantizable: bool = True


MODELS = {
    "nudenet": Real("320n.onnx", {"images": (1, 3, 320, 320)}, mean=(0, 0, 0), std=(1, 1, 1)),
    "ocr_det": Real(
        "ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 320, 320)}, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)
    ),
    "ocr_rec": Real("ch_PP-OCRv4_rec_infer.onnx", {"x": (1, 3, 48, 320)}),
    "ocr_cls": Real("ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (1, 3, 48, 192)}),
    "magika": Real("model.onnx", {"bytes": (1, 2048)}),
    "silero_openvino": Real("silero_vad_openvino_16k.onnx", {"input": (1, 576), "state": (2, 1, 128)}),
    "silero_op15": Real("silero_vad_16k_op15.onnx", {"input": (1, 576), "state": (2, 1, 128)}),
    "silero": Real("silero_vad.onnx", {"input": (1, 576), "state": (2, 1, 128)}, quantizable=False),
}


@pytest.fixture(scope="session")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Gives the path of a model with static shapes, by name."""
    folder = tmp_path_factory.mktemp("models")

    def path(name: str) -> Path:
        model = MODELS[name]
        found = [stored(f) for files in FILES.values() for f in files if f.endswith(f"/{model.file}")]
        assert found[0].exists(), f"{found[0].name} is not there; fetch it with `make models`"
        target = folder / f"{name}.onnx"
        if not target.exists():
            fix_shapes(found[0], target, model.shapes, must_load=name != "silero")  # whose other branch does not fit
        return target

    return path


def page(generator: np.random.Generator, height: int, width: int) -> Array:
    """Lines of handwritten digits, light on dark or dark on light, 0..1: something a picture model responds to."""
    digits = held_out()[0][:, 0, 0].repeat(3, 1).repeat(3, 2) / 16  # 24 x 24 pixels each
    canvas = np.zeros((height, width), np.float32)
    for top in range(height % 48 // 2, height - 23, 48):
        for left in range(4, width - 27, 26):
            canvas[top : top + 24, left : left + 24] = generator.choice(digits)
    canvas = canvas if generator.random() < 0.5 else 1 - canvas
    return np.clip(canvas + generator.normal(0, 0.01, (1, 3, height, width)), 0, 1)


def sample(name: str, path: Path, seed: int) -> dict[str, Array]:
    """An input of the kind the model is made for: a picture, bytes, sound."""
    mean, std = (np.reshape(x, (1, 3, 1, 1)) for x in (MODELS[name].mean, MODELS[name].std))
    generator = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for value in onnx.load(path, load_external_data=False).graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        if value.name == "sr":
            feeds["sr"] = np.array(16000, np.int64)
        elif value.type.tensor_type.elem_type == onnx.TensorProto.INT32:
            feeds[value.name] = generator.integers(0, 256, shape).astype(np.int32)
        elif len(shape) == 4:
            feeds[value.name] = ((page(generator, *shape[2:]) - mean) / std).astype(np.float32)
        else:
            feeds[value.name] = (0.2 * generator.standard_normal(shape)).astype(np.float32)
    return feeds


def ours(path: Path) -> hexforge.InferenceSession:
    qnn = {"backend_type": "cpu", "offload_graph_io_quantization": "0"}
    providers = [("QNNExecutionProvider", qnn), "CPUExecutionProvider"]
    return hexforge.InferenceSession(str(path), providers=providers)


def theirs(path: Path, feeds: Mapping[str, Array]) -> list[Array]:
    """onnxruntime's CPU EP without its rewrites, which would fuse QDQ groups into kernels that round differently."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    outputs: list[Array] = session.run(None, dict(feeds))
    return outputs


def placed(session: hexforge.InferenceSession, name: str) -> float:
    """The share of nodes on QNN; printed, for `pytest -s` and for the message of a failure."""
    rows = session.placements
    taken = sum(row.reason is None for row in rows)
    print(f"{name}: {taken} of {len(rows)} nodes placed")
    for row in rows:
        if row.reason is not None:
            print(f"  {row.op_type} {row.node}: {row.reason}")
    return taken / max(len(rows), 1)


@pytest.mark.parametrize("name", MODELS)
def test_float(name: str, fixed: Any) -> None:
    path = fixed(name)
    session = ours(path)
    share = placed(session, name)
    feeds = sample(name, path, seed=1)
    for got, expected in zip(session.run(None, feeds), theirs(path, feeds), strict=True):
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape
        error = float(np.abs(got - expected).max() / np.abs(expected).max())
        print(f"  largest output {np.abs(expected).max():.3g}, relative error {error:.1e}")
        assert error <= 1e-4
    assert share == 1.0 or not MODELS[name].quantizable


@pytest.fixture(scope="session")
def quantized_model(fixed: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Gives the path of a QDQ model, by name and types; calibrated on other samples than the tests run."""
    folder = tmp_path_factory.mktemp("qdq")

    def path(name: str, types: str) -> Path:
        target = folder / f"{name}_{types}.onnx"
        if not target.exists():
            source = fixed(name)
            quantized(source, target, types, [sample(name, source, seed) for seed in range(2, 5)])
        return target

    return path


SAMPLES = (1, 5, 6, 7, 8, 9)
QDQ = [(name, types) for name, model in MODELS.items() if model.quantizable for types in TYPES]


@pytest.mark.parametrize(("name", "types"), QDQ)
def test_qdq(name: str, types: str, fixed: Any, quantized_model: Any) -> None:
    """End to end: 99 % of the outputs within 1 LSB, or as many as float32 arithmetic in another order gets.

    One element that is off by 1 LSB grows through a deep model, and sums in another order make such elements. So where
    fewer outputs agree, the control is the same nodes one by one in plain float32, which is how onnxruntime runs them.
    """
    path = quantized_model(name, types)
    session = ours(path)
    assert placed(session, f"{name} {types}") == 1.0
    steps = output_steps(path)
    samples = [sample(name, fixed(name), seed) for seed in SAMPLES]
    expected = [dict(zip(steps, theirs(path, feeds), strict=True)) for feeds in samples]
    got = [dict(zip(steps, session.run(None, feeds), strict=True)) for feeds in samples]
    for output, step in steps.items():
        near = agreement(output, step, got, expected)
        print(f"  {output}: {near:.3%} within 1 LSB over {len(samples)} samples")
        if near < 0.99:
            control = agreement(output, step, [plain_float32(path, feeds) for feeds in samples], expected)
            print(f"    control in plain float32: {control:.3%}")
            few = 1 / np.sqrt(len(samples) * expected[0][output].size)  # two outputs are no percentage
            assert near >= control - 0.02 - few


def agreement(output: str, step: float, got: list[dict[str, Array]], expected: list[dict[str, Array]]) -> float:
    """The share of an output's elements, over all samples, within 1 LSB."""
    shares = []
    for mine, other in zip(got, expected, strict=True):
        assert mine[output].dtype == other[output].dtype
        assert mine[output].shape == other[output].shape
        apart = np.abs(mine[output].astype(np.float64) - other[output]) / step
        shares.append(float((apart <= 1.001).mean()))
    return sum(shares) / len(shares)


@pytest.mark.parametrize(("name", "types"), QDQ)
def test_qdq_units(name: str, types: str, fixed: Any, quantized_model: Any) -> None:
    """Each unit by itself, on the tensors onnxruntime feeds it: no difference can build up."""
    agreements = unit_agreements(quantized_model(name, types), sample(name, fixed(name), seed=1))
    total = sum(size for _, _, size in agreements)
    near = sum(share * size for _, share, size in agreements) / total
    worst = min(agreements, key=lambda a: a[1])
    print(f"{name} {types}: {len(agreements)} tensors, {near:.4%} within 1 LSB; worst {worst[0]} {worst[1]:.3%}")
    assert near >= 0.999
    assert worst[1] >= 0.99


def output_steps(path: Path) -> dict[str, float]:
    """The scale of each output's encoding: of the DequantizeLinear that writes it."""
    graph = onnx.load(path).graph
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    writers = {name: node for node in graph.node for name in node.output}
    steps = {}
    for value in graph.output:
        node = writers[value.name]
        assert node.op_type == "DequantizeLinear", f"output {value.name} is not quantized"
        steps[value.name] = float(constants[node.input[1]])
    return steps
