# SPDX-License-Identifier: Apache-2.0
"""Hostile names: models and contexts whose graphs, nodes and tensors are called what a terminal, a page or a file
system would obey, through every command on a pseudo-terminal.

A fault is a control or a character that turns text on the terminal, a traceback, another exit code than a command's
own, a name in a page that is not escaped, or a file outside the folder that the commands were given.
"""

from __future__ import annotations

import importlib
import json
import os
import pty
import re
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import hexforge.ort  # noqa: F401 - once for all children
from hexforge.cli.command_table import commands
from hexforge.terminal_text import visible

PAYLOADS = (
    "\x1b[2J", "\x1b]0;title\x07", "\x1b[66;6m", "\x1bc", "\x1b[1;1H", "\x1bP1$r0m\x1b\\", "\x9b2J", "\x9d0;c1\x9c",
    "\x85", "\u202egnp", "\u2066", "\u200f", "\u2028", "\ufeff", "\U000e0041", "\b\b\b", "\r", "\x07", "\x00", "\x7f",
    "[bold]", "[/nope]", "[link=http://x.test]", "[/]", "\\[", "</script><b id=pwned>", "<img src=x onerror=alert(1)>",
    "'\"&", "../../escape", "/escape", "..", ".", "a/b", "a_b", "%s%n", "{0}", "${x}", "\n", "\t", " ", "漢字", "é",
)  # fmt: skip
"""Parts of names."""
OWN = re.compile(r"\x1b\[(?!66;6m)[0-9;]*m|\x1b\[\?25[lh]|\x1b\[[0-9]*[AKCDG]|\r")
"""What tables, colours and progress bars of commands write themselves."""
UNESCAPED = ("<b id=pwned>", "<img src=x")
NAMELESS = frozenset(
    {
        "addons",
        "mcp",
        "abi-probe",
        "history",
        "op-package",
        "config",
        "ops",
        "devices",
        "options",
        "socs",
        "demo",
        "lib-path",
        "sdk-root",
        "phone",
        "versions",
    }
)
"""Commands that read no file with names: sources, lists of what there is, a model of our own."""
SAMPLES, INPUT = "samples", (1, 3, 8, 8)


@dataclass(frozen=True, slots=True)
class HostileNames:
    """The names of one round, no two alike."""

    seed: int

    def __iter__(self) -> Iterator[str]:
        rng, used = np.random.default_rng(self.seed), set[str]()
        while True:
            name = "".join(PAYLOADS[i] for i in rng.integers(0, len(PAYLOADS), int(rng.integers(1, 5))))
            if name not in used:
                used.add(name)
                yield name


def write_models(folder: Path, seed: int) -> None:
    """`m.onnx`, which the NPU takes but for a node, `open.onnx` with an open batch, and what commands read beside."""
    names = iter(HostileNames(seed))
    rng = np.random.default_rng(seed)
    for file, batch in (("m.onnx", 1), ("other.onnx", 1), ("open.onnx", next(names))):
        x, c, r, p, f, y, w, b = (next(names) for _ in range(8))
        weights = numpy_helper.from_array(rng.standard_normal((4, 3, 3, 3)).astype(np.float32), w)
        bias = numpy_helper.from_array(rng.standard_normal(4).astype(np.float32), b)
        nodes = [
            helper.make_node("Conv", [x, w, b], [c], next(names), pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [c], [r], next(names)),
            helper.make_node("Det", [r], [p], next(names)),  # QNN has no such op
            helper.make_node("GlobalAveragePool", [r], [f], next(names)),
            helper.make_node("Flatten", [f], [y], next(names)),
        ]
        if file != "m.onnx":
            del nodes[2]
        outputs = [helper.make_tensor_value_info(y, TensorProto.FLOAT, [batch, 4])]
        if file == "m.onnx":
            outputs.append(helper.make_tensor_value_info(p, TensorProto.FLOAT, [batch, 4]))
        given = helper.make_tensor_value_info(x, TensorProto.FLOAT, [batch, *INPUT[1:]])
        graph = helper.make_graph(nodes, next(names), [given], outputs, [weights, bias], doc_string=next(names))
        opset = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=9, producer_name=next(names))
        helper.set_model_props(model, {next(names): next(names)})
        onnx.save(model, folder / file)
    (folder / SAMPLES).mkdir()
    for i in range(2):
        np.save(folder / SAMPLES / f"{i}.npy", rng.standard_normal(INPUT).astype(np.float32))
    rng.standard_normal(INPUT).astype(np.float32).tofile(folder / "x.raw")
    (folder / "list.txt").write_text("x.raw\n")
    (folder / "labels.csv").write_text("0,1\n1,2\n")
    lines = [f'"{next(names)}" generated: could not create op', f"Failed to validate op {next(names)} with error 0xc26"]
    (folder / "device.log").write_text("\n".join([*lines, f"failed with error 5005 {next(names)}", next(names)]))
    (folder / "budget.yaml").write_text(
        json.dumps({"models": [{"name": next(names), "model": "m.onnx", "latency_ms": 100.0}]})
    )


def write_contexts(seed: int) -> None:
    """`two.bin` of two graphs and a recording, made where the models lie; both have hostile names."""
    import hexforge
    from hexforge.runtime.contexts.request import ContextRequest

    names = iter(HostileNames(seed + 1_000_000))
    graphs = next(names), next(names)
    request = ContextRequest(graph_names=graphs)
    model = {"rate_hz": 10, "context": "two.bin"}
    Path("work.yaml").write_text(json.dumps({"models": {"two": {**model, "graph": graphs[0]}}}))
    Path("bad.yaml").write_text(json.dumps({"models": {next(names): model, "two": model}, next(names): 1}))
    hexforge.compile(["other.onnx", "other.onnx"], "two.bin", "SM8650", request)
    provider = {"backend_type": "saver", "qnn_saver_path": "libQnnSaver.so"}
    session = hexforge.InferenceSession("other.onnx", providers=[("QNNExecutionProvider", provider)])
    session.run(None, {session.get_inputs()[0].name: np.zeros(INPUT, np.float32)})


LINES = (
    "check m.onnx", "check m.onnx --json", "check m.onnx --refused", "check missing.onnx", "check two.bin",
    "sweep m.onnx open.onnx --soc SM8650 --report sweep.html --csv sweep.csv", "llm estimate m.onnx",
    "estimate m.onnx --report estimate.html", "estimate m.onnx --json", "estimate two.bin", "profile m.onnx -o profile",
    "advise m.onnx", "show m.onnx", "show m.onnx --onnx-units", "run m.onnx -o outputs", "run m.onnx --json",
    "run m.onnx -i nothing=x.npy", "bench m.onnx --iterations 2", "fix-shapes open.onnx fixed.onnx --dim batch=1",
    "fix-shapes open.onnx fixed.onnx", "convert-opset m.onnx newer.onnx --opset 18",
    "quantize m.onnx --data samples -o m.qdq.onnx", "compare m.onnx m.qdq.onnx --data samples --report compare.html",
    "compile m.qdq.onnx -o one.bin --soc SM8650 --soc SM8750 --wrap", "info one.bin", "info two.bin",
    "info two.bin --json", "whatif m.onnx --switch float_order --tries 2", "whatif m.onnx --switch short_depth",
    "wrap two.bin -o wrapped", "prune one.bin --soc SM8650 -o pruned.bin", "run two.bin", "info m.onnx",
    "tool qnn-net-run --retrieve_context two.bin --backend libQnnHtp.so --input_list list.txt,list.txt --output_dir out"
    " --log_level info",
    "tool qnn-context-binary-utility --context_binary two.bin --json_file two.json",
    "tool qnn-profile-viewer --input_log profile/qnn-profiling-data.log --output viewed.json",
    "diff m.onnx other.onnx --report diff.html", "diff two.bin one.bin", "diff two.bin m.onnx", "diff m.onnx x.raw",
    "explain device.log --model m.onnx --all", "explain device.log --json",
    "doctor . --soc SM8650", "doctor device.log --json",
    "replay saver_output", "gate budget.yaml", "eval m.onnx --data samples --labels labels.csv --metric top1",
    "search m.onnx --data samples --soc SM8650 --jobs 1",
    "optimize m.onnx --data samples --soc SM8650 -o fast --jobs 1",
    "plan --workload work.yaml --frames 3 -o planned", "plan two.bin --workload bad.yaml",
    "deploy m.qdq.onnx --soc SM8650 -o shipped --no-groups", "verify shipped",
    "vendor m.qdq.onnx --soc SM8650 -o made_by",
    "calibrate labels.csv --soc SM8650 -o costs.json", "trace ./missing",
    "lora info two.bin", "convert m.onnx -o m.again.onnx", "device m.onnx", "executor-runner --model_path m.onnx",
    "tool qnn-onnx-converter --input_network m.onnx --output_path converted.onnx --input_list list.txt",
    "tool qnn-throughput-net-run --config m.onnx", "tool qnn-context-binary-generator --model m.onnx --backend"
    " libQnnHtp.so --binary_file made --output_dir made",
)  # fmt: skip
"""What is run, in this order, where the models lie."""


def on_terminal(work: Callable[[], int | None], folder: Path, seconds: float = 120) -> tuple[int, str]:
    """What a child process that has a pseudo-terminal writes on it, and its exit code (128 and more: a signal)."""
    pid, terminal = pty.fork()
    if pid == 0:
        code = 70
        try:
            os.chdir(folder)
            sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, m, encoding="utf-8") for n, m in enumerate("rww"))
            os.environ.update(TERM="xterm-256color", COLUMNS="100", LINES="40")
            code = work() or 0
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(bool(left.code))
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            with suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)
    written, end = bytearray(), time.monotonic() + seconds
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # the child has closed it
            part = b""
        if not part:
            break
        written += part
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), written.decode("utf-8", "replace")


def faults(line: str, code: int, shown: str) -> list[str]:
    """What is wrong with how a command ended and what it showed."""
    found = []
    text = OWN.sub("", shown)
    if text != visible(text):
        at = next(i for i, (a, b) in enumerate(zip(text, visible(text), strict=False)) if a != b)
        found.append(f"shows {text[max(0, at - 40) : at + 20]!r}")
    if "Traceback (most recent call last)" in text:
        found.append(f"ends in a traceback: {text.strip().splitlines()[-1]!r}")
    if code not in (0, 1, 2):
        found.append(f"ends with {code}")
    return [f"hexforge {line}: {what}" for what in found]


def hostile_names(seed: int, lines: Sequence[str] = LINES) -> list[str]:
    """Run commands on what a seed makes; what is wrong with any of them."""
    from hexforge import cli

    for row in commands().values():  # once for all children
        importlib.import_module(row.target.partition(":")[0])

    def command(line: str) -> Callable[[], None]:
        return lambda: cli.main(line.split())

    with tempfile.TemporaryDirectory() as above:
        folder = Path(above) / "a" / "b"
        folder.mkdir(parents=True)
        write_models(folder, seed)
        code, shown = on_terminal(lambda: write_contexts(seed), folder)
        found = [] if code == 0 else [f"contexts: {shown}"]
        for line in lines:
            found += faults(line, *on_terminal(command(line), folder))
        for page in folder.rglob("*.html"):
            text = page.read_text("utf-8")
            found += [f"{page.name} has {raw!r} of a name" for raw in UNESCAPED if raw in text]
        outside = [path for path in (*Path(above).iterdir(), *(Path(above) / "a").iterdir()) if path != folder]
        found += [f"{path.name} was written outside" for path in outside if path != folder.parent]
        if (escape := Path("/escape")).exists():
            found.append(f"{escape} was written")
        shutil.rmtree(folder)
    return [f"seed {seed}: {what}" for what in found]
