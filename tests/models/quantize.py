"""QDQ versions of real models, made with onnxruntime's own quantizer from a few random samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx_ir
from onnx_ir.passes import common
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize
from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config, qnn_preprocess_model

TYPES = {
    "a8w8": (QuantType.QUInt8, QuantType.QInt8),
    "a16w8": (QuantType.QUInt16, QuantType.QUInt8),
}


class _Samples(CalibrationDataReader):
    def __init__(self, samples: Sequence[Mapping[str, Any]]) -> None:
        self.rest = iter(samples)

    def get_next(self) -> Mapping[str, Any] | None:
        return next(self.rest, None)


def quantized(source: Path, dest: Path, types: str, samples: Sequence[Mapping[str, Any]]) -> None:
    """Write `source`, which has static shapes, as a QDQ model."""
    model = onnx_ir.load(source)
    # the quantizer takes Constant nodes for activations, and the preprocessor fails on metadata
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    model.metadata_props.clear()
    prepared = dest.with_suffix(".lifted.onnx")
    onnx_ir.save(model, prepared)
    preprocessed = dest.with_suffix(".preprocessed.onnx")
    ready = preprocessed if qnn_preprocess_model(prepared, preprocessed) else prepared
    activation, weight = TYPES[types]
    config = get_qnn_qdq_config(ready, _Samples(samples), activation_type=activation, weight_type=weight)
    quantize(ready, dest, config)
