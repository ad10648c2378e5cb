# SPDX-License-Identifier: Apache-2.0
"""QDQ versions of real models, made with onnxruntime's own quantizer from a few random samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
import onnx_ir
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize
from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config, qnn_preprocess_model

from hexforge.model.reader import read

TYPES = {"a8w8": (QuantType.QUInt8, QuantType.QInt8), "a16w8": (QuantType.QUInt16, QuantType.QUInt8)}


_AXIS_SINCE = 13
"""The opset whose DequantizeLinear can have a scale for every channel."""


class _Samples(CalibrationDataReader):
    def __init__(self, samples: Sequence[Mapping[str, Any]]) -> None:
        self.rest = iter(samples)

    def get_next(self) -> Mapping[str, Any] | None:
        return next(self.rest, None)


def quantized(
    source: Path,
    dest: Path,
    types: str | tuple[Any, Any],
    samples: Sequence[Mapping[str, Any]],
    per_channel: bool = False,
) -> None:
    """Write `source`, which has static shapes, as a QDQ model of a row of TYPES or of (activation, weight) types."""
    # folded first: the quantizer takes Constant and Range nodes for activations, and the preprocessor fails on metadata
    model = read(source).ir
    model.metadata_props.clear()
    model.graph.metadata_props.clear()
    prepared = dest.with_suffix(".folded.onnx")
    onnx_ir.save(model, prepared)
    if per_channel and model.opset_imports.get("", 0) < _AXIS_SINCE:  # the quantizer would write what no runtime reads
        onnx.save(onnx.version_converter.convert_version(onnx.load(prepared), _AXIS_SINCE), prepared)
    preprocessed = dest.with_suffix(".preprocessed.onnx")
    ready = preprocessed if qnn_preprocess_model(prepared, preprocessed) else prepared
    activation, weight = TYPES[types] if isinstance(types, str) else types
    config = get_qnn_qdq_config(
        ready,
        _Samples(samples),
        activation_type=activation,
        weight_type=weight,
        per_channel=per_channel,
        nodes_to_exclude=_unquantizable(onnx_ir.load(ready)),
    )
    quantize(ready, dest, config)


def _unquantizable(model: onnx_ir.Model) -> list[str]:
    """Nodes that read an infinite constant, for which the quantizer would write an infinite scale."""
    return [
        node.name or ""
        for node in model.graph
        for value in node.inputs
        if value is not None
        and value.const_value is not None
        and value.dtype == onnx_ir.DataType.FLOAT
        and not np.isfinite(value.const_value.numpy()).all()
    ]
