# SPDX-License-Identifier: Apache-2.0
"""The models that placement is compared on: onnx's node cases as they are, and quantized to 8 and to 16 bits.

The quantizer is onnxruntime's own, with its settings for the QNN EP.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
from onnx import TensorProto
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize
from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config

from benchmarks.conformance.cases import Case, collect
from benchmarks.models.quantized import quiet
from benchmarks.placement import control_flow

TYPES = {"A8": (QuantType.QUInt8, QuantType.QUInt8), "A16": (QuantType.QUInt16, QuantType.QUInt8)}
"""set -> data types of activations and weights; the float set has none."""
CONTROL = "control flow"
SETS = ("float", *TYPES, CONTROL)
NEWEST_IR, NEWEST_OPSET = 13, 26
"""What onnxruntime 1.31 reads."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A model to place."""

    name: str
    ops: frozenset[str]
    """What it tests: the op types before it was quantized."""
    model: bytes


def samples(kind: str) -> Iterator[Sample]:
    """The models of a set."""
    if kind == CONTROL:
        yield from (Sample(*model) for model in control_flow.models())
        return
    for case in collect():
        if not case.qnn_types:
            continue
        case = replace(case, model=readable(case.model))
        if kind == "float":
            yield Sample(case.name, case.ops, case.model)
        elif (model := quantized(case, *TYPES[kind])) is not None:
            yield Sample(case.name, case.ops, model)


def readable(model: bytes) -> bytes:
    """The model as onnxruntime 1.31 reads it: with an older IR, and an older opset where that has the same ops."""
    proto = onnx.load_model_from_string(model)
    opset = next((entry for entry in proto.opset_import if entry.domain == ""), None)
    if proto.ir_version <= NEWEST_IR and (opset is None or opset.version <= NEWEST_OPSET):
        return model
    proto.ir_version = min(proto.ir_version, NEWEST_IR)
    if opset is not None and opset.version > NEWEST_OPSET:
        opset.version = NEWEST_OPSET
        try:
            onnx.checker.check_model(proto)
        except onnx.checker.ValidationError:
            return model
    return proto.SerializeToString()


class _Feeds(CalibrationDataReader):
    def __init__(self, case: Case) -> None:
        self.rest = iter([case.feeds])

    def get_next(self) -> object:
        return next(self.rest, None)


def quantized(case: Case, activation: QuantType, weight: QuantType) -> bytes | None:
    """The case as a QDQ model; None where the quantizer fails or has nothing to quantize."""
    if not case.has_float32 or case.ops & {"QuantizeLinear", "DequantizeLinear"}:
        return None
    model = onnx.load_model_from_string(case.model)
    floats = {v.name for v in model.graph.input if v.type.tensor_type.elem_type == TensorProto.FLOAT}
    if not floats:
        return None
    for index, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{index}"
    with tempfile.TemporaryDirectory() as folder, quiet():
        source, target = Path(folder) / "float.onnx", Path(folder) / "quantized.onnx"
        onnx.save(model, source)
        try:
            config = get_qnn_qdq_config(source, _Feeds(case), activation_type=activation, weight_type=weight)
            # ops that only move data are quantized too, as they are behind others in a whole model
            config.extra_options["ForceQuantizeNoInputCheck"] = True
            quantize(source, target, config)
        except Exception:  # cases that onnxruntime cannot run, or whose shapes the quantizer does not understand
            return None
        made = target.read_bytes()
    ops = {node.op_type for node in onnx.load_model_from_string(made).graph.node}
    return made if "QuantizeLinear" in ops else None
