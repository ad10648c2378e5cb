# SPDX-License-Identifier: Apache-2.0
"""What commands show of a .pte: where each operator went, the graphs, the file's facts, and how to run it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from hexforge.cli.runnable import Runnable, feeds_for, open_runnable, runnable_pte
from hexforge.cli.say import say
from hexforge.cli.screen import bar, bold_start, console, print_json, spinner, table
from hexforge.errors import CallError

if TYPE_CHECKING:
    from hexforge.addons.executorch.running.pte_graphs import LoweredMethod

MOST_PLACES = 5
"""Lines about where advice was found."""


def check_pte(path: Path, backend: dict[str, str]) -> dict[str, Any]:
    """What `hexforge check` says of a model, of the methods of a .pte."""
    from hexforge.addons.executorch.running.pte_graphs import QNN, lowered_methods

    with spinner(f"reading {path.name}"):
        methods = lowered_methods(path)
    nodes: list[dict[str, Any]] = []
    slow: Counter[str] = Counter()
    for method in methods:
        for delegate in method.delegates:
            slow.update(node.op.name for node in delegate.program.facts.references)
        for row in method.rows():
            nodes.append(
                {
                    "node": row.node if len(methods) == 1 else f"{method.name}: {row.node}", "op": row.op_type,
                    "runs_on": row.where, "qnn_ops": list(row.qnn_ops), "slow_ops": [], "unsafe": [],
                    "remarks": [],
                    "reason": row.reason, "ep_refuses": "", "unit": len(nodes),
                }
            )  # fmt: skip
    placed = sum(row["runs_on"] == QNN for row in nodes)
    graphs = [graph for method in methods for graph in method.graphs]
    totals = {
        "nodes": len(nodes), "added": 0, "folded": 0, "placed": placed, "refused": len(nodes) - placed,
        "refused_by_ep": 0, "offloaded": 0, "units": len(nodes), "qnn_graphs": len(graphs),
        "qnn_ops_before_passes": placed, "qnn_ops": sum(map(len, graphs)), "slow_ops": dict(slow),
    }  # fmt: skip
    return {
        "model": path.name, "opset": None, "backend": backend, "ep_version": None, "ep_obeyed": False, "nodes": nodes,
        "folded": [], "totals": totals,
    }  # fmt: skip


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
                "delegates": [_delegate(d) for d in method.delegates],
            }
            for method in lowered_methods(file)
        ],
        "named_data": {name: len(data) for name, data in file.named_data.items()},
    }


def _delegate(delegate: Any) -> dict[str, Any]:
    info, options = delegate.context.info, delegate.options
    return {
        "graph": delegate.graph,
        "graphs_of_its_context": [g.name for g in info.graphs],
        "backend": info.backend,
        "chips": [t.label for t in info.targets],
        "made_by": info.producer,
        "bytes": len(delegate.context.container),
        "weight_sharing": info.weight_sharing,
        "inputs": [v.name for v in delegate.inputs],
        "outputs": [v.name for v in delegate.outputs],
        "options": None if options is None else {key: getattr(options, key) for key in options.__slots__},
    }


def print_pte(screen: Console, described: dict[str, Any]) -> None:
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
        rows = [
            (
                str(i), d["graph"], d["backend"], ", ".join(d["chips"]), f"{d['bytes']:,}",
                "-" if d["options"] is None else "float16" if d["options"]["use_fp16"] else "quantized",
                str(len(d["inputs"])), str(len(d["outputs"])),
            )
            for i, d in enumerate(method["delegates"])
        ]  # fmt: skip
        if rows:
            columns = ("delegate", "graph", "backend", "chips", "bytes", "compiled as", "inputs", "outputs")
            screen.print(table("", columns, rows))


def print_pte_graphs(path: Path, elide: int | None) -> None:
    """The graphs of every method as text."""
    from hexforge.addons.executorch.running.pte_graphs import lowered_methods
    from hexforge.ir import text

    methods = lowered_methods(path)
    for method in methods:
        for graph in method.graphs:
            say(text.dumps(graph, elide=elide), nl=False)
    left = sum(len(method.left_on_cpu) for method in methods)
    if left:
        say(f"{left} operators are not in these graphs: see `hexforge check {path}`", colour="yellow", err=True)


def print_pte_advice(path: Path, deployment: Any, min_gain: float, as_json: bool) -> None:
    """What would make a .pte faster on a chip."""
    from hexforge.addons.executorch.running.advice import pte_advice
    from hexforge.addons.executorch.running.pte_graphs import timed_method

    with spinner(f"timing {path.name}"):
        before, advice = pte_advice(timed_method(path), deployment, min_gain)
    if as_json:
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
    screen.print(Text(f"{path.name} on {deployment.soc}: {before / 1e3:.3f} ms{end}"))


def print_pte_comparison(
    reference: Path, path: Path, data: str, limit: int, as_json: bool, metric: str = "decisions"
) -> None:
    """How far the outputs of a .pte are from those of another .pte, or of an ONNX model with the same inputs."""
    from hexforge.analysis.quality.decisions.judge import DecisionCollector, DecisionJudge
    from hexforge.analysis.quality.decisions.metric import required_decisions
    from hexforge.cli.quality.decisions import print_decisions
    from hexforge.quant.compare import ErrorSums

    rule = required_decisions(metric)
    collector = None if rule is None else DecisionCollector(DecisionJudge(None, rule))
    first = open_runnable(reference, {"backend_type": "cpu"})
    second = runnable_pte(path, "")
    wanted = [(value.dtype, [int(d or 0) for d in value.shape]) for value in second.inputs]
    if [(v.dtype, [int(d or 0) for d in v.shape]) for v in first.inputs] != wanted:
        raise CallError(f"{reference} and {path} take other inputs; they must be the same, in the same order")
    sums: list[ErrorSums] = []
    samples = samples_for(second, data)[: limit or None]
    with bar(f"comparing {path.name}") as progress:
        for done, sample in enumerate(samples):
            expected = first.run({v.name: a for v, a in zip(first.inputs, sample, strict=True)})
            outputs = second.run({v.name: a for v, a in zip(second.inputs, sample, strict=True)})
            if len(expected) != len(outputs):
                raise CallError(f"{reference} gives {len(expected)} outputs, {path} {len(outputs)}")
            sums = sums or [ErrorSums() for _ in outputs]
            for one, a, b in zip(sums, expected.values(), outputs.values(), strict=True):
                one.update(a, b)
            if collector is not None:
                feeds = {v.name: a for v, a in zip(first.inputs, sample, strict=True)}
                collector.add(feeds, expected, dict(zip(expected, outputs.values(), strict=True)))
            progress(done + 1, len(samples))
    rows = [
        {"output": i, "sqnr_db": one.sqnr_db, "cosine": one.cosine, "max_error": one.max_error}
        for i, one in enumerate(sums)
    ]
    decisions = None if collector is None else collector.decisions()
    if as_json:
        figures = {"model": path.name, "reference": reference.name, "samples": len(samples), "outputs": rows}
        print_json(figures | {"decisions": None if decisions is None else decisions.to_json()})
        return
    lines = [
        (f"output_{i}", "exact" if r["sqnr_db"] == float("inf") else f"{r['sqnr_db']:.2f}", f"{r['cosine']:.6f}",
         f"{r['max_error']:.4g}")
        for i, r in enumerate(rows)
    ]  # fmt: skip
    title = f"{path.name} against {reference.name}, {len(samples)} samples"
    screen = console()
    screen.print(table(title, ("output", "SQNR dB", "cosine", "max error"), lines))
    print_decisions(screen, decisions, f"{len(samples)} samples")


def samples_for(opened: Runnable, data: str) -> list[list[Any]]:
    """Inputs of several inferences: random:N, or a folder with an .npz (input_0 and so on) or .npy for each."""
    import numpy as np

    kind, _, count = data.partition(":")
    if kind == "random":
        if not (count or "8").isdecimal():
            raise CallError(f"--data {data}: random:N gives N samples of random numbers")
        seeds = range(int(count or 8))
        return [list(feeds_for(opened.inputs, {}, seed).values()) for seed in seeds]
    files = sorted(p for p in Path(data).iterdir() if p.suffix in (".npy", ".npz")) if Path(data).is_dir() else []
    if not files:
        raise CallError(f"--data {data}: give random:N, or a folder with an .npz or .npy for each inference")
    samples: list[list[Any]] = []
    for file in files:
        loaded = np.load(file, allow_pickle=False)
        arrays = [loaded] if file.suffix == ".npy" else [loaded[v.name] for v in opened.inputs if v.name in loaded]
        if len(arrays) != len(opened.inputs):
            raise CallError(f"{file}: has not all of {', '.join(v.name for v in opened.inputs)}")
        samples.append(arrays)
    return samples
