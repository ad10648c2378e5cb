# SPDX-License-Identifier: Apache-2.0
"""Real models through the vendor's provider over our library, beside our session; and contexts both ways.

`python -m benchmarks.capi.provider_models [MODEL ...] [--variant float]`; `make vendor` installs the provider. Of each
model: nodes that the provider took and left to onnxruntime's CPU, how its outputs differ from our session's, whether
the context that it writes with our library runs in our session, whether the context of `hexforge compile` runs in the
provider, each with the bits of the model that it was made of; and the processor time of a run in milliseconds, in the
provider and in our session. Exit code 1 where something does not run, or a context gives other bits than its model.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import hexforge
from benchmarks.arguments import add_names
from benchmarks.capi.provider_cases import difference, our_provider
from benchmarks.models.quantized import MODELS, VARIANTS, file
from benchmarks.peers.provider_process import EP, Answer, ProviderProcess, version
from benchmarks.peers.vendor import missing
from benchmarks.placement.ep import OPTIONS
from hexforge.errors import HexforgeError
from hexforge.ir import Array
from hexforge.runtime.contexts.compile import compile
from hexforge.runtime.contexts.request import ContextRequest
from hexforge.runtime.contexts.wrap import wrap

USUAL = ("squeezenet", "mobilenet_v2", "magika", "ppocr_cls", "ppocr_rec", "yolov8n")


def in_session(model: Path, feeds: Mapping[str, Array], runs: int = 1) -> tuple[dict[str, Array], float]:
    """What a session of hexforge's gives, and the processor time of its fastest run."""
    provider = ("QNNExecutionProvider", {"backend_type": "htp", **OPTIONS})
    session = hexforge.InferenceSession(model, providers=[provider])
    given = {value.name: feeds[value.name] for value in session.get_inputs()}
    times = []
    for _ in range(runs):
        begin = time.process_time()
        results = session.run(None, given)
        times.append(time.process_time() - begin)
    return dict(zip((value.name for value in session.get_outputs()), results, strict=True)), min(times)


def by_provider(process: ProviderProcess, feeds: Mapping[str, Array], path: Path, folder: Path) -> str:
    """What comes of a context that the provider writes over our library: nothing where all is well."""
    made = folder / "written_ctx.onnx"
    entries = {"ep.context_enable": "1", "ep.context_file_path": str(made)}
    if why := process.ask(path, session_options=entries).error:
        return f"is not written: {why}"
    wanted = process.ask(path, feeds).outputs
    try:
        return difference(wanted, in_session(made, feeds)[0])
    except HexforgeError as error:
        return f"our session: {error}"


def by_hexforge(process: ProviderProcess, feeds: Mapping[str, Array], path: Path, folder: Path) -> str:
    """What comes of a context of `hexforge compile` in the provider: nothing where all is well."""
    context = folder / "compiled.bin"
    try:
        compile(path, context, "htp", ContextRequest())
        (wrapped,) = wrap(context, folder)
    except HexforgeError as error:
        return f"is not compiled: {error}"
    answer = process.ask(wrapped, feeds)
    return answer.error or answer.run_error or difference(in_session(path, feeds)[0], answer.outputs)


def measure(name: str, variant: str, process: ProviderProcess, runs: int) -> tuple[str, bool]:
    """A row of the table, and whether all is well."""
    path, feeds = file(name, variant), MODELS[name].feeds(7)
    answer = process.ask(path, feeds, runs)
    if answer.error or answer.run_error:
        return f"| {name} {variant} | {_short(answer.error or answer.run_error)} |", False
    ours, ours_s = in_session(path, feeds, runs)
    with tempfile.TemporaryDirectory() as folder:
        written = by_provider(process, feeds, path, Path(folder)) if answer.whole else "not whole"
        compiled = by_hexforge(process, feeds, path, Path(folder))
    cells = [
        f"{name} {variant}", _nodes(answer), _short(difference(ours, answer.outputs)) or "same bits",
        _short(written) or "same bits", _short(compiled) or "same bits",
        f"{min(answer.cpu_s) * 1000:.1f}", f"{ours_s * 1000:.1f}",
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |", not written and not compiled


def _nodes(answer: Answer) -> str:
    counts = {provider: len(nodes) for provider, nodes in answer.nodes.items()}
    taken = counts.pop(EP, 0)
    return f"{taken} + {sum(counts.values())}"


def _short(text: str) -> str:
    return " ".join(text.split())[:160]


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_names(parser, "model", MODELS, USUAL)
    parser.add_argument("--variant", choices=VARIANTS, action="append", dest="variants", help="float and a8w8-int8")
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args(arguments)
    if why := missing():
        raise SystemExit(why)
    print(f"onnxruntime-qnn and onnxruntime: {version()}; {OPTIONS}\n")
    print("| model | nodes: taken + CPU | provider | its context here | our context there | provider ms | session ms |")
    print("|---|---:|---|---|---|---:|---:|")
    good = True
    with our_provider(timeout_s=600) as process:
        for name in given.models:
            for variant in given.variants or ("float", "a8w8-int8"):
                row, well = measure(name, variant, process, given.runs)
                print(row, flush=True)
                good &= well
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
