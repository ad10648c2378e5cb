# SPDX-License-Identifier: Apache-2.0
"""Listings of what is known: `hexforge ops`, `hexforge options`, `hexforge socs` and `hexforge addons`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rich.text import Text

from hexforge.addon import Addon
from hexforge.addon import addons as declared
from hexforge.cli.arguments import Json
from hexforge.cli.screen import console, print_json, table
from hexforge.errors import CallError
from hexforge.options import Option, did_you_mean
from hexforge.request_fields import argument, option
from hexforge.rules import Rule, some_of

if TYPE_CHECKING:
    from hexforge.chips.soc import Soc
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
        qnn = {} if refused_by else {name: _facts_of_op(row) for name, row in known.items()}
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


def _facts_of_op(op: Op) -> dict[str, Any]:
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


def options(as_json: Json = False) -> None:
    """List provider options, session keys, run options and dynamic options."""
    from hexforge.ort.options.parsing import OPTION_TABLES
    from hexforge.runtime import registry

    rows = [(title, option) for title, kind in OPTION_TABLES.items() for option in kind.table()]
    for name in registry.backend_options():
        more = (option for option in registry.config_class(name).table() if not option.provider)
        rows += [(f"{name} backend, beside the provider's", option) for option in more]
    if as_json:
        print_json(
            [
                {
                    "table": title,
                    "key": o.key,
                    "expects": o.expects,
                    "default": "" if o.default is None else o.write(o.default),
                    "does": o.doc,
                    "backend": o.backend,
                    "spellings": o.spellings(),
                    "no_effect_because": o.effect,
                }
                for title, o in rows
            ]
        )
        return
    screen = console()
    for title in dict.fromkeys(title for title, _ in rows):
        cells = [
            (o.key, "" if o.default is None else o.write(o.default), o.expects, o.doc, _effect(o))
            for its_title, o in rows
            if its_title == title
        ]
        columns = ("key", "default", "expects", "what it does", "effect here")
        screen.print(table(title, columns, cells, optional=("effect here", "expects", "default"), whole=True))


def _effect(option: Option) -> Text:
    """Who uses an option, or where else it can be said, or why it does nothing."""
    if option.effect is not None:
        return Text(option.effect, "yellow")
    elsewhere = ", ".join(f"{face} {word}" for face, word in option.spellings().items())
    return Text(f"used by {option.backend}" if option.backend else elsewhere or "used", "green")


def socs(
    name: str = argument("One chip in full, by name or number.", default="", show_default=False), as_json: Json = False
) -> None:
    """List the chips: architecture, VTCM, HVX threads, clocks, memory and abilities, each figure marked by source."""
    from hexforge.chips.claims import SOURCES
    from hexforge.chips.soc import ABILITIES, FIGURES, SOCS, Provenance, names_of, require_chip

    chosen = require_chip(name) if name else None
    if as_json:
        print_json(_facts_of_chip(chosen) if chosen else [_facts_of_chip(soc) for soc in SOCS])
        return
    screen = console()
    if chosen:
        facts = _facts_of_chip(chosen)
        rows = [(key, _text(facts, key)) for key in (*FIGURES, "dram_fitted_gbps", *ABILITIES)]
        rows += [(f"clock at {corner}", f"{mhz:g} MHz") for corner, mhz in facts["clock_mhz"].items()]
        rows[-1] = (rows[-1][0], f"{rows[-1][1]} {chosen.provenance('core_mhz').mark}")
        title = ", ".join((f"{chosen.name} (soc_model {chosen.soc_model})", *names_of(chosen)[1:]))
        screen.print(table(title, ("", "value"), rows))
        said = [
            (c["name"], _number(c["soc_model"]), _arch(c["htp_arch"]), c["sold_as"], c["source"])
            for c in facts["sources"]
        ]
        screen.print(table("what sources say", ("name", "no.", "arch", "sold as", "source"), said))
        for source in dict.fromkeys(claim["source"] for claim in facts["sources"]):
            screen.print(f"{source}: {SOURCES[source]}", highlight=False)
        screen.print(f"latencies measured: {'yes' if facts['measured'] else 'no'}; costs {facts['costs']}")
    else:
        shown = ("vtcm_mb", "hvx_threads", "core_mhz", "dram_gbps", "dram_fitted_gbps")
        able = ("float16", "bfloat16", "weight_sharing", "dlbc", "slc")
        lines = []
        for soc in SOCS:
            facts = _facts_of_chip(soc)
            cells = (_text(facts, key) for key in ("htp_arch", *shown, *able))
            measured = "yes" if facts["measured"] else ""
            lines.append((soc.name, str(soc.soc_model), *cells, measured, ", ".join(soc.aliases)))
        figures = ("arch", "VTCM MB", "HVX", "MHz", "DRAM GB/s", "fitted", "fp16", "bf16", "shared weights", "DLBC")
        least = ("VTCM MB", "fp16", "measured", "HVX", "MHz", "DRAM GB/s", "fitted", "bf16", "shared weights", "DLBC")
        columns = ("chip", "no.", *figures, "SLC", "measured", "sold as")
        screen.print(table("", columns, lines, optional=(*least, "SLC"), whole=True))
    screen.print("; ".join(f"{p.mark}: {p}" for p in Provenance) + ". Clocks below the highest corner are assumed.")


def _facts_of_chip(soc: Soc) -> dict[str, Any]:
    """All that is known of a chip, with the provenance of each figure."""
    from hexforge.chips.deployment import Deployment
    from hexforge.chips.names import DEVICES
    from hexforge.chips.power import Corner
    from hexforge.chips.soc import ABILITIES, FIGURES, ChipTarget, claims_of_chip
    from hexforge.runtime.registry import timed_backend

    target, shared = ChipTarget(soc.htp_arch, soc), timed_backend(Deployment(soc.name)).accelerator()
    abilities = {key: getattr(target if key.startswith(("float", "bfloat")) else soc, key) for key in ABILITIES}
    marks = {key: soc.provenance(key).value for key in (*FIGURES, "clock_mhz", *ABILITIES)}
    return {
        "name": soc.name,
        "aliases": list(soc.aliases),
        "devices": list(DEVICES.get(soc.name, ())),
        "soc_model": soc.soc_model,
        **{key: getattr(soc, key) for key in FIGURES},
        "dram_fitted_gbps": round((1 << 20) / 1e3 / shared.us_per_mb, 1),
        **abilities,
        "clock_mhz": {corner.name.lower(): round(soc.clock_mhz(corner), 1) for corner in Corner},
        "sources": [
            {"name": c.name, "soc_model": c.soc_model, "htp_arch": c.htp_arch, "sold_as": c.sold_as, "source": c.source}
            for c in claims_of_chip(soc)
        ],
        "measured": shared.provenance == "fitted",
        "costs": shared.provenance,
        "provenance": {**marks, "dram_fitted_gbps": shared.provenance.split()[0]},
    }


def _number(value: int) -> str:
    """A soc_model as a source gives it; nothing where it gives none."""
    return str(value or "")


def _arch(value: int) -> str:
    """An architecture as a source gives it; nothing where it gives none."""
    return f"v{value}" if value else ""


def _text(facts: dict[str, Any], key: str) -> str:
    """A figure and its mark: 8p, yes p."""
    value, mark = facts[key], facts["provenance"][key][0]
    if isinstance(value, bool):
        return f"{'yes' if value else 'no'} {mark}"
    return f"{'v' if key == 'htp_arch' else ''}{value:g}{mark}"


def addons(as_json: Json = False) -> None:
    """List the add-ons: what each adds, and what it needs and misses."""
    rows = [_facts_of_addon(addon) for addon in declared()]
    if as_json:
        print_json(rows)
        return
    cells = []
    for row in rows:
        remedy = f"; pip install 'hexforge[{row['extra']}]'" if row["extra"] else ""
        misses = Text(f"{', '.join(row['missing'])}{remedy}", "yellow") if row["missing"] else Text("nothing", "green")
        adds = [*row["commands"], *(f"--backend {name}" for name in (*row["backends"], *row["engines"]))]
        cells.append((row["name"], row["summary"], ", ".join(adds), ", ".join(row["needs"]), misses))
    columns = ("add-on", "what it is", "commands", "stands on", "misses")
    console().print(table(f"{len(rows)} add-ons", columns, cells, optional=("stands on",), whole=True))


def _facts_of_addon(addon: Addon) -> dict[str, Any]:
    return {
        "name": addon.name,
        "summary": addon.summary,
        "commands": [command.name for command in addon.commands],
        "backends": list(addon.backends),
        "engines": list(addon.engines),
        "needs": list(addon.needs),
        "extra": addon.extra,
        "missing": list(addon.missing()),
    }
