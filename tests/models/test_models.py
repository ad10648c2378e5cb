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
from hexforge.frontends.onnx import fix_shapes
from tests.models.fetch import FILES, stored
from tests.models.quantize import quantized

pytestmark = pytest.mark.models

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Real:
    """A model and the shapes its inputs are fixed to."""

    file: str
    shapes: Mapping[str, tuple[int, ...]]
    quantizable: bool = True


MODELS = {
    "nudenet": Real("320n.onnx", {"images": (1, 3, 320, 320)}),
    "ocr_det": Real("ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 320, 320)}),
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
            fix_shapes(found[0], target, model.shapes)
        return target

    return path


def sample(path: Path, seed: int) -> dict[str, Array]:
    """A random input of the kind the model is made for: pixels, bytes, sound."""
    generator = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for value in onnx.load(path, load_external_data=False).graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        if value.name == "sr":
            feeds["sr"] = np.array(16000, np.int64)
        elif value.type.tensor_type.elem_type == onnx.TensorProto.INT32:
            feeds[value.name] = generator.integers(0, 256, shape).astype(np.int32)
        elif len(shape) == 4:
            feeds[value.name] = generator.random(shape, np.float32)
        else:
            feeds[value.name] = (0.2 * generator.standard_normal(shape)).astype(np.float32)
    return feeds


def ours(path: Path) -> hexforge.InferenceSession:
    providers = [("QNNExecutionProvider", {"backend_type": "cpu"}), "CPUExecutionProvider"]
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
    feeds = sample(path, seed=1)
    for got, expected in zip(session.run(None, feeds), theirs(path, feeds), strict=True):
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape
        scale = np.abs(expected).max()
        assert np.abs(got - expected).max() <= 1e-4 * scale
    assert share == 1.0 or not MODELS[name].quantizable


@pytest.mark.parametrize("types", ["a8w8", "a16w8"])
@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if model.quantizable])
def test_qdq(name: str, types: str, fixed: Any, tmp_path: Path) -> None:
    path = fixed(name)
    qdq = tmp_path / f"{name}_{types}.onnx"
    quantized(path, qdq, types, [sample(path, seed) for seed in range(2, 5)])
    session = ours(qdq)
    share = placed(session, f"{name} {types}")
    feeds = sample(path, seed=2)
    steps = output_steps(qdq)
    for value, got, expected in zip(session.get_outputs(), session.run(None, feeds), theirs(qdq, feeds), strict=True):
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape
        apart = np.abs(got.astype(np.float64) - expected) / steps[value.name]
        near = float((apart <= 1.001).mean())
        print(f"  {value.name}: {near:.3%} within 1 LSB, {float((apart <= 0.001).mean()):.3%} equal")
        assert near >= 0.99
    assert share == 1.0


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
