# SPDX-License-Identifier: Apache-2.0
"""`hexforge ops`: the support matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hexforge.cli.arguments import Json
from hexforge.cli.screen import console, print_json, table

if TYPE_CHECKING:
    from hexforge.ir import Op, QuantRule

_UNITS = {"macs": "matrix MACs", "lanes": "vector lanes", "lookups": "table look-ups", "moved_bytes": "bytes moved"}
_OUTPUTS = {
    "own": "output has its own encoding",
    "input": "output has the input's encoding",
    "fixed": "output has a fixed encoding",
    "never": "output is not quantized",
}


def ops(as_json: Json = False) -> None:
    """Which ONNX ops become which QNN ops, and what those are: work and quantization rule."""
    import hexforge.ops  # noqa: F401 - fills the op table
    from hexforge.frontends.onnx import support
    from hexforge.ir import table as op_table

    known = {op.name: op for op in op_table()}
    onnx, fusions = support.onnx_ops(), support.fusions()
    if as_json:
        qnn = {
            name: {
                "inputs": op.inputs,
                "outputs": op.outputs,
                "parameters": [p.name for p in op.params],
                "kind": op.kind.value,
                "work": _units(op),
                "quantization": _quantization(op.quant),
                "rounding": op.quant.rounding,
                "doc": op.doc,
            }
            for name, op in known.items()
        }
        print_json({"onnx": onnx, "fusions": fusions, "qnn": qnn})
        return
    screen = console()
    screen.print(table(f"{len(onnx)} ONNX ops", ("ONNX op", "QNN ops it may become"), _rows(onnx)))
    screen.print(table(f"{len(fusions)} fusions", ("fusion", "QNN ops it may become"), _rows(fusions)))
    rows = [
        (
            op.name,
            ", ".join(op.inputs),
            ", ".join(p.name for p in op.params),
            ", ".join(_units(op)),
            _quantization(op.quant),
        )
        for op in known.values()
    ]
    columns = ("QNN op", "inputs", "parameters", "work", "quantization")
    screen.print(table(f"{len(known)} QNN ops", columns, rows, optional=("work", "quantization", "inputs"), whole=True))


def _rows(matrix: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(name, ", ".join(names) or "—") for name, names in matrix.items()]


def _units(op: Op) -> tuple[str, ...]:
    """The units an op's work is counted in, in words."""
    return tuple(_UNITS[unit] for unit in op.work.units)


def _quantization(rule: QuantRule) -> str:
    """A quantization rule in words."""
    words = _OUTPUTS[rule.output]
    if rule.weight is not None and rule.weight_axis is not None:
        words += f"; weight per tensor or per axis {rule.weight_axis}"
    if rule.bias is not None:
        words += "; bias int32"
    return words
