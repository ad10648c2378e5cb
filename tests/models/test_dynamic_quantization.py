# SPDX-License-Identifier: Apache-2.0
"""Real models that onnxruntime quantized dynamically: taken as the float models they came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.quantization import QuantType, quantize_dynamic

import hexforge
from hexforge.addons.tuning.advice.advise import advise_and_rewrite
from hexforge.chips.deployment import Deployment
from hexforge.model.reader import read
from hexforge.model.save import to_bytes
from hexforge.model.simplifying.dynamic_quantization import is_dynamically_quantized
from hexforge.quant.float_source import as_float
from tests.models.test_models import fixed, sample  # noqa: F401 - a fixture

pytestmark = pytest.mark.models

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="session")
def dynamic(fixed: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:  # noqa: F811
    """Gives the path of a model as quantize_dynamic writes it, by name."""
    folder = tmp_path_factory.mktemp("dynamic")

    def path(name: str) -> Path:
        target = folder / f"{name}.onnx"
        if not target.exists():
            quantize_dynamic(fixed(name), target, weight_type=QuantType.QUInt8)
        return target

    return path


def _outputs(model: Path | bytes, feeds: Any) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    source = model if isinstance(model, bytes) else str(model)
    outputs: list[Array] = onnxruntime.InferenceSession(source, options).run(None, feeds)
    return outputs


@pytest.mark.parametrize("name", ["ocr_cls", "magika", "nudenet"])
def test_the_float_form_is_no_farther_from_the_original_than_the_dynamic_one(
    name: str, fixed: Any, dynamic: Any  # noqa: F811
) -> None:  # fmt: skip
    source, path = fixed(name), dynamic(name)
    assert is_dynamically_quantized(read(path).ir)
    unwrapped = as_float(read(path))
    ops = {node.op_type for node in unwrapped.ir.graph}
    assert not {op for op in ops if "Integer" in op or "Quantize" in op}
    feeds = sample(name, source, seed=1)
    exact, coarse, found = (_outputs(m, feeds) for m in (source, path, to_bytes(unwrapped.ir)))
    for a, b, c in zip(exact, coarse, found, strict=True):
        assert np.square(c - a).mean() <= np.square(b - a).mean()


@pytest.mark.parametrize("name", ["ocr_cls", "magika"])
def test_estimate_and_quantize_take_the_float_model(name: str, fixed: Any, dynamic: Any) -> None:  # noqa: F811
    source, path = fixed(name), dynamic(name)
    exact = hexforge.estimate(source, Deployment(precision="w8a8"), built=True)
    promised = hexforge.estimate(path, Deployment(precision="w8a8"), built=True)
    assert promised.latency_ms == pytest.approx(exact.latency_ms, rel=0.02)
    built = hexforge.quantize(path, [sample(name, source, seed=i) for i in range(2)])
    assert built.model is not None
    assert built.placed_whole, built.refused
    assert hexforge.estimate(built.model).latency_ms == pytest.approx(promised.latency_ms, rel=0.02)
    assert "DynamicQuantizeLinear" not in {node.op_type for node in onnx.load_from_string(built.model).graph.node}


def test_advise_writes_the_float_model(dynamic: Any) -> None:
    advised = advise_and_rewrite(dynamic("magika"))
    assert advised.applied[0] == "dynamic-quantization"
    (advice,) = (a for a in advised.advice if a.rule == "dynamic-quantization")
    assert advice.error is not None
    assert advice.error < 0.1
    assert len(advice.places) == 3
    assert not is_dynamically_quantized(advised.rewritten.ir)


def test_the_npu_computes_it_without_overflow(fixed: Any, dynamic: Any) -> None:  # noqa: F811
    """Both the input and (as its weights are Constant nodes) the weights are quantized at run time."""
    path, feeds = dynamic("ocr_cls"), sample("ocr_cls", fixed("ocr_cls"), seed=1)
    session = hexforge.InferenceSession(str(path), providers=[("QNNExecutionProvider", {"backend_type": "htp"})])
    assert not {op for row in session.placements for op in row.qnn_ops if op in ("ReduceMin", "ElementWiseRound")}
    (found,), (near,) = session.run(None, feeds), _outputs(path, feeds)
    assert np.abs(found - near).max() < 0.05
