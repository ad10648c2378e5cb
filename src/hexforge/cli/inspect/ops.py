# SPDX-License-Identifier: Apache-2.0
"""`hexforge ops`: the support matrix, and every rule that refuses something."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rich.text import Text

from hexforge.cli.arguments import Json
from hexforge.cli.screen import console, print_json, table
from hexforge.errors import CallError
from hexforge.options import did_you_mean
from hexforge.request_fields import argument, option
from hexforge.rules import Rule, some_of

if TYPE_CHECKING:
    from hexforge.ir import Op, QuantRule

_UNITS = {"macs": "matrix MACs", "lanes": "vector lanes", "lookups": "table look-ups", "moved_bytes": "bytes moved"}
_SOURCES = "EP: the QNN execution provider's documentation, checks and tests; guide: the HTP chapter of the QNN SDK's"
_OUTPUTS = {
    "own": "output has its own encoding",
    "input": "output has the input's encoding",
    "fixed": "output has a fixed encoding",
    "never": "output is not quantized",
}


def ops(
    op: str = argument("An ONNX op or a QNN op; none: all of them.", default=""),
    refused_by: str = option("", "Only what is refused by ep, htp, gpu or executorch.", metavar="NAME"),
    as_json: Json = False,
) -> None:
    """Which ONNX ops become which QNN ops, what those are, and what of them is refused, why, and how that is known."""
    import hexforge.ops  # noqa: F401 - fills the op table
    from hexforge.backends.htp.support import columns as htp_columns
    from hexforge.frontends.onnx import written_ops
    from hexforge.ir import table as op_table

    known = {row.name: row for row in op_table()}
    onnx, fusions = written_ops.onnx_ops(), written_ops.fusions()
    if op:
        if op not in onnx and op not in known:
            raise CallError(f"{op!r} is no op of ONNX or QNN{did_you_mean(op, [*onnx, *known])}")
        onnx, fusions = ({k: v for k, v in m.items() if op == k or op in v} for m in (onnx, fusions))
        known = {name: known[name] for name in (onnx.get(op) or (op,))}
    tables = _rule_tables()
    if refused_by and refused_by not in tables:
        raise CallError(
            f"--refused-by {refused_by!r}: is none of {', '.join(tables)}{did_you_mean(refused_by, tables)}"
        )
    wanted = {op} | (known.keys() if op else set())
    rules = [row for row in _rules(tables, wanted) if refused_by in ("", row["refused_by"])]
    if as_json:
        qnn = {} if refused_by else {name: _facts(row) for name, row in known.items()}
        print_json(({} if refused_by else {"onnx": onnx, "fusions": fusions, "qnn": qnn}) | {"rules": rules})
        return
    screen = console()
    if not refused_by:
        screen.print(table(f"{len(onnx)} ONNX ops", ("ONNX op", "QNN ops it may become"), _rows(onnx)))
        if fusions:
            screen.print(table(f"{len(fusions)} fusions", ("fusion", "QNN ops it may become"), _rows(fusions)))
        cells = [
            (
                row.name,
                *("yes" if has else "no" for has in htp_columns(row.name)),
                ", ".join(row.inputs),
                ", ".join(p.name for p in row.params),
                ", ".join(_units(row)),
                _quantization(row.quant),
            )
            for row in known.values()
        ]
        columns: tuple[str, ...] = ("QNN op", "HTP", "HTP_FP16", "inputs", "parameters", "work", "quantization")
        optional = ("work", "quantization", "inputs")
        screen.print(table(f"{len(known)} QNN ops", columns, cells, optional=optional, whole=True))
    told = [
        (some_of(row["ops"]) or "all", row["refused_by"], row["reason"], row["refuser"], row["evidence"])
        for row in rules
    ]
    columns = ("ops", "by", "what is refused; what would work", "who refuses it", "how that is known")
    screen.print(table(f"{len(rules)} rules", columns, told, optional=("who refuses it", "how that is known")))
    screen.print(Text(_SOURCES, "dim"))


def _rule_tables() -> Mapping[str, Iterable[Rule[Any]]]:
    """Who refuses ops, and the rules of each."""
    from hexforge.addon import addons, import_target
    from hexforge.backends.htp import support as htp
    from hexforge.frontends.onnx import ep_limits

    of_addons = {name: import_target(rules) for addon in addons() for name, rules in addon.rules.items()}
    return {"ep": ep_limits.LIMITS, "htp": htp.RULES, **of_addons}


def _rules(tables: Mapping[str, Iterable[Rule[Any]]], ops: set[str]) -> list[dict[str, Any]]:
    """What is refused of some ops, or of all where {""} is given, by whom, and how that is known."""
    return [
        {"refused_by": name, "ops": sorted(row.ops), "reason": row.reason, "refuser": row.refuser,
         "evidence": row.evidence}
        for name, rows in tables.items()
        for row in rows
        if ops == {""} or not row.ops or row.ops & ops
    ]  # fmt: skip


def _facts(op: Op) -> dict[str, Any]:
    from hexforge.backends.htp.support import columns

    fixed, floating = columns(op.name)
    return {
        "htp": fixed,
        "htp_fp16": floating,
        "inputs": op.inputs,
        "outputs": op.outputs,
        "parameters": [p.name for p in op.params],
        "kind": op.kind.value,
        "work": _units(op),
        "quantization": _quantization(op.quant),
        "rounding": op.quant.rounding,
        "doc": op.doc,
    }


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
