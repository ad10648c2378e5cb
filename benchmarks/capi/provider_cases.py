# SPDX-License-Identifier: Apache-2.0
"""onnx's node cases through the vendor's provider over our library, beside our session and beside its own library.

`python -m benchmarks.capi.provider_cases [--set float] [--set A8] [--only TEXT]`; `make vendor` installs the provider.
Of each set: how many cases the provider takes whole over Qualcomm's library and over ours, how many run over ours, and
how many of these have the same bits as a session of hexforge's. Every case that one library takes and the other does
not, and every difference, is named. Exit code 1 where our library refuses a case that Qualcomm's takes, or one fails to
run that runs over Qualcomm's.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import hexforge
from benchmarks.conformance.cases import Case, collect
from benchmarks.peers.provider_process import Answer, ProviderProcess, version
from benchmarks.peers.vendor import missing
from benchmarks.placement.ep import OPTIONS, ExecutionProvider
from benchmarks.placement.sets import SETS, TYPES, quantized, readable
from hexforge.addons.capi.library import lib_path
from hexforge.errors import HexforgeError
from hexforge.ir import Array


def our_provider(log: Path | None = None, timeout_s: float = 120, **options: str) -> ProviderProcess:
    """The vendor's provider over our libQnnHtp.so."""
    return ProviderProcess({**OPTIONS, **options, "backend_path": str(lib_path() / "libQnnHtp.so")}, timeout_s, log)


def session_outputs(model: Path | bytes, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """What a session of hexforge's gives, with the provider's options."""
    provider = ("QNNExecutionProvider", {"backend_type": "htp", **OPTIONS})
    session = hexforge.InferenceSession(model, providers=[provider])
    results = session.run(None, {value.name: feeds[value.name] for value in session.get_inputs()})
    return dict(zip((value.name for value in session.get_outputs()), results, strict=True))


def difference(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> str:
    """How outputs differ, or nothing where they have the same bits."""
    said = []
    for name, array in ours.items():
        other = theirs[name]
        if array.dtype != other.dtype or array.shape != other.shape:
            said.append(f"{name} is {array.dtype} {list(array.shape)}, not {other.dtype} {list(other.shape)}")
        elif not np.array_equal(array, other, equal_nan=array.dtype.kind == "f"):
            with np.errstate(invalid="ignore"):
                apart = np.abs(array.astype(np.float64) - other.astype(np.float64))
            finite = apart[np.isfinite(apart)]
            most = f"{finite.max():.3g}" if finite.size else "nan"
            said.append(f"{name}: {int(np.count_nonzero(apart != 0))} of {array.size} elements, by {most} at most")
    return "; ".join(said)


@dataclass(frozen=True, slots=True)
class Row:
    """A case with what came of it."""

    name: str
    theirs: Answer
    ours: Answer
    apart: str
    """How the provider's outputs over our library differ from our session's."""
    ours_alone: bool
    """True where it fails over our library, and not over Qualcomm's."""


def rows(
    kind: str, only: str, vendor: ExecutionProvider, theirs_run: ProviderProcess, ours: ProviderProcess
) -> Iterator[Row]:
    """The cases of a set that onnxruntime reads and does not fold away."""
    for case in _cases(kind, only):
        theirs = vendor.ask(case.model)
        if theirs.unread or theirs.empty:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            path.write_bytes(case.model)
            feeds = {name: np.asarray(array) for name, array in case.feeds.items()}
            answer = ours.ask(path, feeds)
            alone = False
            if answer.error or answer.run_error:
                other = theirs_run.ask(path, feeds)
                alone = not (other.error or other.run_error)
        apart = ""
        if answer.outputs:
            try:
                apart = difference(session_outputs(case.model, case.feeds), answer.outputs)
            except HexforgeError as error:
                apart = f"our session: {type(error).__name__}: {error}"
        yield Row(case.name, theirs, answer, apart, alone)


def _cases(kind: str, only: str) -> Iterator[Case]:
    for case in collect():
        if not case.qnn_types or only not in case.name:
            continue
        model = readable(case.model)
        made = model if kind == "float" else quantized(replace(case, model=model), *TYPES[kind])
        if made is not None:
            yield replace(case, model=made)


def show(kind: str, found: Sequence[Row]) -> bool:
    """Print a set; True where our library takes and runs what Qualcomm's takes."""
    run = [row for row in found if row.ours.whole and not row.ours.run_error]
    failed = [row for row in found if row.ours_alone]
    both = [row for row in found if row.ours.whole and row.ours.run_error and not row.ours_alone]
    gaps = [row for row in found if row.theirs.whole and not row.ours.whole]
    more = [row for row in found if row.ours.whole and not row.theirs.whole]
    apart = [row for row in run if row.apart]
    theirs = sum(row.theirs.whole for row in found)
    ours = sum(row.ours.whole for row in found)
    print("| set | cases | whole over Qualcomm's library | whole over ours | run | same bits as our session |")
    print("|---|---:|---:|---:|---:|---:|")
    print(f"| {kind} | {len(found)} | {theirs} | {ours} | {len(run)} | {len(run) - len(apart)} |\n")
    _named("taken with Qualcomm's library, not with ours", [(row.name, _why(row.ours)) for row in gaps])
    _named("taken with our library, not with Qualcomm's", [(row.name, _why(row.theirs)) for row in more])
    _named("failed over our library alone", [(row.name, row.ours.run_error or row.ours.error) for row in failed])
    _named("taken whole, and failed over either library", [(row.name, row.ours.run_error) for row in both])
    _named("other bits than our session", [(row.name, row.apart) for row in apart])
    return not gaps and not failed


def _named(title: str, named: Sequence[tuple[str, str]]) -> None:
    print(f"{title}: {len(named) or 'none'}")
    for name, why in named:
        print(f"  {name}: {' '.join(why.split())[:240]}")


def _why(answer: Answer) -> str:
    left = [op for provider, nodes in answer.nodes.items() if provider != "QNNExecutionProvider" for op, _ in nodes]
    return answer.error or "left to the CPU: " + ", ".join(left)


def main(arguments: Sequence[str]) -> int:
    """Compare, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=SETS, action="append", dest="sets", help="one set; all by default")
    parser.add_argument("--only", default="", help="cases with this text in their names")
    parser.add_argument("--log", type=Path, help="write what the provider logs over our library to this file")
    given = parser.parse_args(arguments)
    if why := missing():
        raise SystemExit(why)
    print(f"onnxruntime-qnn and onnxruntime: {version()}; {OPTIONS}\n")
    good = True
    with ExecutionProvider() as vendor, ProviderProcess(OPTIONS) as theirs_run, our_provider(given.log) as ours:
        for kind in given.sets or SETS:
            good &= show(kind, list(rows(kind, given.only, vendor, theirs_run, ours)))
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
