# SPDX-License-Identifier: Apache-2.0
"""Units of a QDQ model one at a time, each on the tensors that onnxruntime computes before it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from hexforge.backends.cpu import CpuBackend
from hexforge.frontends.onnx.node_units import single_unit
from hexforge.frontends.onnx.unit import Unit
from hexforge.model.reader import read
from tests.frontends.onnx.parts import build, units

Array = np.ndarray[Any, Any]


def unit_agreements(path: Path, feeds: Mapping[str, Array]) -> list[tuple[str, float, int]]:
    """For each fixed-point tensor that a unit writes: its name, the share within 1 LSB of onnxruntime's, its size."""
    model = read(path)
    found = units(model.ir)
    known = {**feeds, **_tensors(path, feeds, {n for unit in found for n in (*_reads(unit), *_writes(unit))})}
    backend = CpuBackend()
    agreements = []
    for number, unit in enumerate(found):
        compared = [name for name in _writes(unit) if name in known and known[name].dtype.kind in "iu"]
        if not compared or not all(name in known for name in _reads(unit)):
            continue
        program = backend.compile(build([unit], f"unit_{number}", _writes(unit)))
        outputs = program.run({value.name: known[value.name] for value in program.graph.inputs})
        for name in compared:
            apart = np.abs(outputs[name].astype(np.int64) - known[name].astype(np.int64))
            agreements.append((name, float((apart <= 1).mean()), apart.size))
    return agreements


def plain_float32(path: Path, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs of a QDQ model computed node by node: float32 between DequantizeLinear and QuantizeLinear."""
    model = read(path)
    units(model.ir)  # makes constants of what is quantized at load time
    nodes = [single_unit(node) for node in model.ir.graph]
    outputs = [value.name or "" for value in model.ir.graph.outputs]
    program = CpuBackend().compile(build(nodes, "control", outputs))
    return program.run({value.name: feeds[value.name] for value in program.graph.inputs})


def _reads(unit: Unit) -> list[str]:
    return [o.value.name or "" for o in unit.inputs if o is not None and o.value.const_value is None]


def _writes(unit: Unit) -> list[str]:
    return [o.value.name or "" for o in unit.outputs if o is not None]


def _tensors(path: Path, feeds: Mapping[str, Array], names: set[str]) -> dict[str, Array]:
    """Inner tensors of a model as onnxruntime computes them, without its rewrites."""
    model = onnx.load(path)
    written = {name for node in model.graph.node for name in node.output}
    present = {value.name for value in model.graph.output}
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(n) for n in sorted((names & written) - present))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = [value.name for value in session.get_outputs()]
    return dict(zip(wanted, session.run(wanted, dict(feeds)), strict=True))
