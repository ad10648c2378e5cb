"""`hexforge ops`: the support matrix."""

from __future__ import annotations

from hexforge.cli.arguments import Json
from hexforge.cli.commands.tables.support import kinds, quantization, writes
from hexforge.cli.screen import console, print_json, table


def ops(as_json: Json = False) -> None:
    """Which ONNX ops become which QNN ops, and what those are: work and quantization rule."""
    import hexforge.ops  # noqa: F401 - fills the op table
    from hexforge.frontends.onnx.fusions.table import FUSED
    from hexforge.frontends.onnx.translate.builder import TRANSLATORS
    from hexforge.ir import table as op_table

    known = {op.name: op for op in op_table()}
    onnx = {name: writes(made, name, known) for name, made in sorted(TRANSLATORS.items())}
    fusions = {name: writes(made, name, known) for name, made in sorted(FUSED.items())}
    if as_json:
        qnn = {
            name: {
                "inputs": op.inputs,
                "outputs": op.outputs,
                "parameters": [p.name for p in op.params],
                "work": kinds(op),
                "quantization": quantization(op.quant),
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
            ", ".join(kinds(op)),
            quantization(op.quant),
        )
        for op in known.values()
    ]
    screen.print(table(f"{len(known)} QNN ops", ("QNN op", "inputs", "parameters", "work", "quantization"), rows))


def _rows(matrix: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(name, ", ".join(made) or "—") for name, made in matrix.items()]
