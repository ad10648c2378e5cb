# SPDX-License-Identifier: Apache-2.0
"""Judged: a case in LiteRT's reference kernels, and its ONNX model in onnxruntime.

`python -m tests.addons.tflite.judged` prints how many of each operator's cases agree, differ or are refused; what
LiteRT itself has no kernel for is no case.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hexforge
from hexforge.addons.tflite.compare import difference, run_litert, run_onnx
from hexforge.addons.tflite.convert import onnx_model
from hexforge.addons.tflite.model_file import parse
from hexforge.errors import HexforgeError
from hexforge.ir import Array
from tests.addons.tflite.cases import FLOAT, INT8, INT16, QUANTIZED, RANGE, UINT8, Case
from tests.addons.tflite.operator_cases import CASES

Run = Callable[[bytes, list[Array]], list[Array]]
"""An ONNX model and its inputs to its outputs."""
TOLERANCE = 1e-5
RECORD = Path(__file__).with_name("litert_results.npz")
COARSE = {
    ("DIV", UINT8): "a quotient near zero comes out as the least integer",
    ("EXP", INT16): "interpolated in a table of 513 entries",
    (
        "LOCAL_RESPONSE_NORMALIZATION",
        FLOAT,
    ): "the reference sums one channel less than LiteRT's usual kernel and its name",
    ("RESIZE_BILINEAR", INT16): "weights are of 10 bits",
    ("SUM", INT8): "the reference wraps around where LiteRT's usual kernel, which agrees, does not",
    ("TANH", INT16): "interpolated in a table",
}
"""Where LiteRT's reference kernels are not the exact number rounded once, and why; these cases are counted apart."""


@dataclass(frozen=True)
class Verdict:
    """What became of a case: agrees, coarse, differs, refused or no kernel; `apart` as `difference` says it."""

    word: str
    apart: float = 0.0
    reason: str = ""


def ranges_of(case: Case, kind: str, in_float: list[Array] | None) -> list[tuple[float, float]]:
    """The ranges of outputs that quantized ones have their scales from."""
    if kind not in QUANTIZED or case.scale != RANGE or in_float is None:
        return []
    return [(float(o.min()), float(o.max())) for o in in_float]


def of_litert(case: Case, kind: str) -> list[Array]:
    """What LiteRT's reference kernels compute; RuntimeError or ValueError where they have none."""
    needs_range = kind in QUANTIZED and case.scale == RANGE and None in case.outputs and FLOAT in case.types
    ranges = ranges_of(case, kind, of_litert(case, FLOAT) if needs_range else None)
    first = run_litert(case.model(kind, ranges).content(), case.feeds(kind))[1]
    content = case.model(kind, ranges, [o.shape for o in first]).content()
    return run_litert(content, case.feeds(kind))[1]


def run_npu(made: bytes, feeds: list[Array]) -> list[Array]:
    """What a simulated chip computes; an error where a node would run on the CPU."""
    options = {"backend_type": "htp", "soc_model": "SM8650", "offload_graph_io_quantization": "0"}
    settings = hexforge.SessionOptions()
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = hexforge.InferenceSession(made, settings, providers=[("QNNExecutionProvider", options)])
    names = [value.name for value in session.get_inputs()]
    results: list[Array] = session.run(None, dict(zip(names, feeds, strict=True)))
    return results


def judge(case: Case, kind: str, wanted: list[Array], in_float: list[Array] | None, run: Run = run_onnx) -> Verdict:
    """A case in one type, given what LiteRT computes of it, and of the same in float."""
    content = case.model(kind, ranges_of(case, kind, in_float), [o.shape for o in wanted]).content()
    try:
        made = onnx_model(parse(content, "case.tflite")).SerializeToString()
        got = run(made, case.feeds(kind))
    except HexforgeError as error:
        return Verdict("refused", reason=str(error))
    except Exception as error:  # onnxruntime's own errors have no common class
        return Verdict("differs", float("inf"), str(error))
    apart = max(difference(w, g) for w, g in zip(wanted, got, strict=False))  # behind them are variables
    detail = "" if apart <= TOLERANCE else f"{[w.reshape(-1)[:8] for w in wanted]} {[g.reshape(-1)[:8] for g in got]}"
    word = "agrees" if apart <= TOLERANCE else "coarse" if (case.operator, kind) in COARSE else "differs"
    return Verdict(word, apart, detail)


@functools.cache
def recorded() -> dict[tuple[int, str], list[Array]]:
    """What LiteRT computed when `--record` was last given, by the number of the case and the type."""
    found: dict[tuple[int, str], list[Array]] = {}
    with np.load(RECORD) as file:
        for key in file.files:
            number, kind, _ = key.split("-")
            found.setdefault((int(number), kind), []).append(file[key])
    return found


def every_case() -> Iterator[tuple[int, Case, str]]:
    """Each case by its number, with each of its types."""
    return ((number, case, kind) for number, case in enumerate(CASES) for kind in case.types)


def main() -> None:
    """Print the table, and what is wrong; with --record keep what LiteRT computes.

    With --npu integers are computed by a simulated chip and held against the record, which takes no LiteRT.
    """
    only = {name for name in sys.argv[1:] if not name.startswith("--")}
    on_npu = "--npu" in sys.argv
    counts: dict[str, Counter[str]] = {}
    record: dict[tuple[int, str], list[Array]] = {}
    for number, case, kind in every_case():
        if (only and case.operator not in only) or (on_npu and kind not in QUANTIZED):
            continue
        try:
            if on_npu:
                kept = recorded()
                verdict = judge(case, kind, kept[number, kind], kept.get((number, FLOAT)), run_npu)
            else:
                record[number, kind] = of_litert(case, kind)
                verdict = judge(case, kind, record[number, kind], record.get((number, FLOAT)))
        except (RuntimeError, ValueError) as error:
            verdict = Verdict("no kernel", reason=str(error))
        counts.setdefault(case.operator, Counter())[verdict.word] += 1
        if verdict.word not in ("agrees", "coarse"):
            print(f"{verdict.word}: {case.operator} {kind} {case.label} {verdict.apart:.2g} {verdict.reason[:300]}")
    for operator, each in sorted(counts.items()):
        print(f"{operator:34}" + "  ".join(f"{word} {count}" for word, count in sorted(each.items())))
    total = sum(counts.values(), Counter[str]())
    print(f"{len(counts)} operators: " + ", ".join(f"{count} {word}" for word, count in total.most_common()))
    if "--record" in sys.argv:
        arrays: Any = {f"{n}-{kind}-{i}": o for (n, kind), each in record.items() for i, o in enumerate(each)}
        np.savez_compressed(RECORD, **arrays)


if __name__ == "__main__":
    main()
