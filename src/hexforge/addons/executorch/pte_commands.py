# SPDX-License-Identifier: Apache-2.0
"""What commands show of a .pte: where each operator went, the graphs, the file's facts, and how to run it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from hexforge.cli.runnable import Runnable
from hexforge.cli.screen import bold_start, console, print_json, result_table, spinner, table
from hexforge.errors import CallError, UnsupportedError
from hexforge.results import Column, Key, record

if TYPE_CHECKING:
    from hexforge.addons.diagnosis.sides import Side
    from hexforge.addons.executorch.running.pte_graphs import LoweredMethod
    from hexforge.addons.profiler.command import ProfileRecording
    from hexforge.addons.profiler.record import Profile
    from hexforge.addons.tuning.advice.command import AskedAdvice
    from hexforge.chips.deployment import Deployment
    from hexforge.cli.arguments import InputArguments
    from hexforge.cli.commands.compare import DumpArguments
    from hexforge.cli.commands.info import ShowRequest
    from hexforge.ort.check import ModelCheck
    from hexforge.runtime.prepare import ModelRequest

MOST_PLACES = 5
"""Lines about where advice was found."""
DELEGATES = (
    "graph",
    Key("graphs_of_its_context", of=lambda delegate: [graph.name for graph in delegate.context.info.graphs]),
    Key("backend", of="context.info.backend"),
    Key("chips", of=lambda delegate: [target.label for target in delegate.context.info.targets]),
    Key("made_by", of="context.info.producer"),
    Key("bytes", of=lambda delegate: len(delegate.context.container)),
    Key("weight_sharing", of="context.info.weight_sharing"),
    Key("inputs", of=lambda delegate: [value.name for value in delegate.inputs]),
    Key("outputs", of=lambda delegate: [value.name for value in delegate.outputs]),
    "options",
)
"""What programs get of a delegate."""
SHOWN = (
    Column("delegate", of="number"),
    Column("graph"),
    Column("backend"),
    Column("chips", text=lambda row: ", ".join(row["chips"])),
    Column("bytes", "number", 0),
    Column("compiled as", text=lambda row: _types_of(row["options"])),
    Column("inputs", text=lambda row: str(len(row["inputs"]))),
    Column("outputs", text=lambda row: str(len(row["outputs"]))),
)
"""What people see of that."""


def check_pte(path: Path, options: Mapping[str, str], request: ModelRequest, strict: bool) -> ModelCheck:
    """Where the operators of a program's methods run."""
    from hexforge.addons.executorch.running.pte_graphs import lowered_methods
    from hexforge.ort.check import QNN, CheckedNode, ModelCheck

    methods = lowered_methods(path)
    named = [(method, row) for method in methods for row in method.rows()]
    nodes = tuple(
        CheckedNode(
            node=row.node if len(methods) == 1 else f"{method.name}: {row.node}",
            op=row.op_type,
            runs_on=row.where,
            qnn_ops=tuple(row.qnn_ops),
            slow_ops=(),
            unsafe=(),
            remarks=(),
            reason=row.reason,
            ep_refuses="",
            unit=unit,
        )
        for unit, (method, row) in enumerate(named)
    )
    placed = sum(node.runs_on == QNN for node in nodes)
    graphs = [graph for method in methods for graph in method.graphs]
    programs = [delegate.program for method in methods for delegate in method.delegates]
    totals = {
        "nodes": len(nodes), "added": 0, "folded": 0, "placed": placed, "refused": len(nodes) - placed,
        "refused_by_ep": 0, "offloaded": 0, "units": len(nodes), "qnn_graphs": len(graphs),
        "qnn_ops_before_passes": placed, "qnn_ops": sum(map(len, graphs)),
        "slow_ops": dict(Counter(node.op.name for program in programs for node in program.facts.references)),
    }  # fmt: skip
    return ModelCheck(path.name, None, dict(options), None, False, None, nodes, (), totals)


def print_pte(path: Path, soc: str, as_json: bool) -> None:
    """Print the facts of a .pte; it was compiled for its chips, so that no other is asked about."""
    described = describe_pte(path)
    print_json(described) if as_json else _print(console(), described)


def describe_pte(path: Path) -> dict[str, Any]:
    """What `hexforge info --json` prints of a .pte."""
    from hexforge.addons.executorch.formats.pte import TensorValue, read_pte
    from hexforge.addons.executorch.running.pte_graphs import lowered_methods

    file = read_pte(path)

    def tensors(method: LoweredMethod, indices: tuple[int, ...]) -> list[str]:
        values = (method.plan.values[i] for i in indices)
        return [f"{v}{' or less' if v.dynamism else ''}" if isinstance(v, TensorValue) else repr(v) for v in values]

    return {
        "file": path.name,
        "bytes": path.stat().st_size,
        "format": "ET12",
        "methods": [
            {
                "name": method.name,
                "inputs": tensors(method, method.plan.inputs),
                "outputs": tensors(method, method.plan.outputs),
                "instructions": dict(Counter(type(i).__name__ for i in method.plan.instructions)),
                "memory_bytes": sum(method.plan.memory_bytes),
                "left_to_the_cpu": [{"operator": row.op_type, "reason": row.reason} for row in method.left_on_cpu],
                "delegates": [record(delegate, DELEGATES) for delegate in method.delegates],
            }
            for method in lowered_methods(file)
        ],
        "named_data": {name: len(data) for name, data in file.named_data.items()},
    }


def _types_of(options: Mapping[str, Any] | None) -> str:
    """The types that a delegate was compiled for."""
    return "-" if options is None else "float16" if options["use_fp16"] else "quantized"


def _print(screen: Console, described: dict[str, Any]) -> None:
    """The file, its methods, their delegates."""
    about = f": ExecuTorch program ({described['format']}), {described['bytes']:,} bytes"
    screen.print(bold_start(described["file"], about))
    for method in described["methods"]:
        facts = [
            ("inputs", ", ".join(method["inputs"])),
            ("outputs", ", ".join(method["outputs"])),
            ("instructions", ", ".join(f"{k} {v}" for k, v in method["instructions"].items())),
            ("left to the CPU", ", ".join(row["operator"] for row in method["left_to_the_cpu"]) or "nothing"),
        ]
        screen.print(table(f"method {method['name']}", ("", ""), facts))
        if method["delegates"]:
            numbered = [{"number": number, **delegate} for number, delegate in enumerate(method["delegates"])]
            screen.print(result_table("", SHOWN, numbered))


def show_pte(path: Path, asked: ShowRequest) -> tuple[Sequence[str], str]:
    """The graphs of every method as text, and how many operators are in none."""
    from hexforge.addons.executorch.running.pte_graphs import lowered_methods

    asked.require_as_compiled(path)
    methods = lowered_methods(path)
    left = sum(len(method.left_on_cpu) for method in methods)
    return asked.texts(graph for method in methods for graph in method.graphs), f"{left} operators" if left else ""


def profile_pte(path: Path, how: ProfileRecording) -> tuple[Profile, None]:
    """Every delegate of a program as a graph of one profile."""
    from hexforge.addons.executorch.running.pte_graphs import lowered_methods
    from hexforge.addons.profiler.recording.simulated import profile as simulated

    profiles = [
        simulated(delegate.program, how.deployment, level=how.given.level, runs=how.given.runs)
        for method in lowered_methods(path)
        for delegate in method.delegates
    ]
    if not profiles:
        raise UnsupportedError(f"{path}: has no delegate that runs on the HTP")
    graphs = tuple(graph for profiled in profiles for graph in profiled.graphs)
    return replace(profiles[0], model=path.stem, graphs=graphs), None


def side_of_pte(path: Path, deployment: Deployment, request: ModelRequest) -> Side:
    """The contexts of a program's delegates, and what none of them took, as one side of a comparison."""
    from hexforge.addons.diagnosis.sides import side_of_opened
    from hexforge.addons.executorch.running.pte_graphs import lowered_methods

    methods = lowered_methods(path)
    contexts = [delegate.context for method in methods for delegate in method.delegates]
    left = [row for method in methods for row in method.left_on_cpu]
    if not contexts:
        names = ", ".join(row.op_type for row in left[:3]) or "no operator"
        raise UnsupportedError(f"{path}: no QNN delegate is in it ({names} on the CPU); lower it for QNN first")
    return side_of_opened(path, contexts, deployment, left)


def compare_pte_with_dump(
    path: Path, dump: Path, given: DumpArguments, soc: str, inputs: InputArguments, as_json: bool
) -> None:
    """Print which ops of a dump differ from what a program computes on the chip that it was lowered for."""
    from hexforge.addons.diagnosis.dump_comparison import given_arrays, print_dump_comparison
    from hexforge.addons.executorch.running import pte_dump_comparison

    if soc or inputs.fix_inputs:
        raise CallError(f"{path}: is compiled; only --input, --write and --json can be given with --dump")
    with spinner(f"comparing {dump.name}"):
        result = pte_dump_comparison.compare_pte_with_dump(path, dump, given_arrays(given))
    print_dump_comparison(result, dump, given.write, as_json)


def run_pte(path: Path, options: Mapping[str, str], request: ModelRequest, graph: str) -> Runnable:
    """A method of a program as `run` and `bench` take it; its inputs are called input_0, input_1 and so on."""
    from hexforge.addons.executorch.formats.pte import TensorValue
    from hexforge.addons.executorch.running.pte_loading import load
    from hexforge.ort.signature import NodeArg

    if set(options) - {"backend_type", "soc_model"}:
        raise CallError(f"{path}: is compiled already; leave --dim, --shape, --pin and --option out")
    module = load(path)
    if not graph and len(module.names) > 1:
        raise CallError(f"{path}: has the methods {', '.join(module.names)}; name one with --graph")
    opened = module.method(graph)
    for i, value in enumerate(opened.inputs):
        if not isinstance(value, TensorValue):
            raise CallError(f"{path}: input {i} is no tensor but {value!r}; use hexforge.executorch.load")
    inputs = [
        NodeArg(f"input_{i}", f"tensor({v.dtype.numpy})", list(v.sizes), v.dtype.numpy)
        for i, v in enumerate(opened.inputs)
    ]

    def run(feeds: Any) -> dict[str, Any]:
        outputs = opened.run([feeds[value.name] for value in inputs])
        return {f"output_{i}": output for i, output in enumerate(outputs)}

    left = len(opened.plan.operators)
    about = f"{len(opened.delegates)} delegates on hexforge" + (f", {left} operators on the CPU" if left else "")
    return Runnable(inputs, run, about)


def advise_on_pte(path: Path, asked: AskedAdvice) -> None:
    """Print what would make a .pte faster on a chip."""
    from hexforge.addons.executorch.running.advice import pte_advice
    from hexforge.addons.executorch.running.pte_graphs import timed_method

    if asked.apply is not None or asked.inputs.fix_inputs:
        raise CallError(f"{path}: is compiled already; leave --apply, --dim, --shape and --pin out")
    with spinner(f"timing {path.name}"):
        before, advice = pte_advice(timed_method(path), asked.deployment, asked.min_gain)
    if asked.as_json:
        print_json({"model": path.name, "before_us": round(before, 3), "advice": [a.to_json() for a in advice]})
        return
    screen = console()
    rows = [(f"{a.gain_us:.1f}", f"{100 * a.gain:.1f} %", a.title, a.how) for a in advice]
    if rows:
        screen.print(table("", ("us", "gain", "advice", "how"), rows, whole=True))
    for advised in advice:
        for place in advised.places[:MOST_PLACES]:
            screen.print(Text(f"  {advised.rule}: {place}"))
    end = "" if rows else "; nothing to advise"
    screen.print(Text(f"{path.name} on {asked.deployment.soc}: {before / 1e3:.3f} ms{end}"))
