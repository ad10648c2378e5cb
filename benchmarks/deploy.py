# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.deploy [MODEL ...]`: real models deployed and proven: placement, contexts, every tensor.

Each model of packages on the registry is quantized by each recipe on samples of what it sees in use, and deployed for
each chip with `hexforge deploy`'s own function: Qualcomm's package (`make vendor`) compiles it, the context is loaded
again, and every tensor is judged on other samples. Groups of ops are looked for on the first chip. Rows are kept in
build/deploy, and the same command goes on from there (--fresh begins again). Exit code 1 where a node is placed
otherwise, a context does not load, or at 8 bits a tensor has less than 95 % within one step.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import ROOT
from benchmarks.arguments import add_names
from benchmarks.quality.models import CALIBRATION, MODELS
from hexforge import quantize
from hexforge.addons.vendor.deploy import DeployRequest, deploy
from hexforge.addons.vendor.package import require_package
from hexforge.addons.vendor.proof import Proof
from hexforge.errors import HexforgeError

CHOSEN = (
    "ppocr_cls", "wake_word", "orientation", "centerface", "ppocr_det", "english_det", "ppocr_rec",
    "silero_vad", "nudenet", "open_nsfw",
)  # fmt: skip
RECIPES = ("w8a8_channel", "w8a16_channel", "w8a8")
CHIPS = ("SM8650", "SM8550", "SM8750")
KEPT = ROOT / "build" / "deploy" / "rows.json"
CALIBRATED, PROVEN = 8, 1


@dataclass(frozen=True, slots=True)
class Row:
    """A model by a recipe on a chip."""

    model: str
    recipe: str
    chip: str
    nodes: int = 0
    """Nodes whose placement was compared."""
    otherwise: int = 0
    loads: bool = False
    context_bytes: int = 0
    tensors: int = 0
    agree: int = 0
    gaps: tuple[str, ...] = ()
    """Tensors and groups that differ: the ops, the tensor, how far, and the judge."""
    unsteady: int = 0
    error: str = ""

    @property
    def good(self) -> bool:
        """True where it is as wanted."""
        enough = self.agree == self.tensors or "a16" in self.recipe
        return not self.error and not self.otherwise and self.loads and enough


def rows(name: str, recipe: str, chips: Sequence[str]) -> Iterator[Row]:
    """A model by a recipe, quantized once and deployed for each of some chips."""
    chosen = MODELS[name]
    with tempfile.TemporaryDirectory() as folder:
        quantized = Path(folder) / f"{name}.onnx"
        try:
            quantize(chosen.path(), chosen.samples(CALIBRATION, CALIBRATED), recipe, quantized)
        except HexforgeError as error:
            yield from (Row(name, recipe, chip, error=str(error)) for chip in chips)
            return
        for chip in chips:
            request = DeployRequest([chip], chosen.samples(0, PROVEN), groups=chip == CHIPS[0])
            try:
                result = deploy(quantized, Path(folder) / chip, request)
            except HexforgeError as error:
                yield Row(name, recipe, chip, error=str(error))
                continue
            proof = result.proofs[chip]
            placed = proof.placement
            yield Row(
                name, recipe, chip, placed.compared, len(placed.differences), bool(proof.context_loads),
                result.contexts[chip], len(proof.tensors), len(proof.tensors) - len(proof.disagreeing),
                tuple(_gaps(proof)), len(proof.unsteady),
            )  # fmt: skip


def _gaps(proof: Proof) -> Iterator[str]:
    found = [(row.op, row) for row in proof.disagreeing]
    found += [(group.title, group.judged) for group in (proof.groups or ())]
    for title, row in found:
        counts = row.vendor_hexforge
        far = f"{100 * counts.share:.1f} % within {counts.tolerance}, at most {counts.largest:g}"
        yield f"{title} ({row.dtype}): {far}; {row.verdict} | {row.tensor}"


def load() -> dict[str, Row]:
    """Rows of an earlier run."""
    if not KEPT.exists():
        return {}
    found = (Row(**{**row, "gaps": tuple(row["gaps"])}) for row in json.loads(KEPT.read_text()))
    return {f"{row.model} {row.recipe} {row.chip}": row for row in found}


def keep(kept: dict[str, Row]) -> None:
    """Write the rows down."""
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    KEPT.with_suffix(".part").write_text(json.dumps([asdict(row) for row in kept.values()], indent=1))
    KEPT.with_suffix(".part").replace(KEPT)


def show(kept: Sequence[Row]) -> None:
    """Print a line for each model and recipe, then the gaps by their ops."""
    table = Table("model", "recipe", "chips", "placed alike", "contexts load", "KB", "tensors", "agree", "gaps", "")
    for model, recipe in dict.fromkeys((row.model, row.recipe) for row in kept):
        some = [row for row in kept if (row.model, row.recipe) == (model, recipe)]
        errors = [row.error for row in some if row.error]
        table.add_row(
            model, recipe, str(len(some)), f"{sum(not r.otherwise and not r.error for r in some)} of {len(some)}",
            f"{sum(r.loads for r in some)} of {len(some)}", str(max(r.context_bytes for r in some) >> 10),
            str(sum(r.tensors for r in some)), str(sum(r.agree for r in some)), str(sum(len(r.gaps) for r in some)),
            errors[0][:60] if errors else "" if all(r.good for r in some) else "missed",
        )  # fmt: skip
    Console(width=140).print(table)
    count: Counter[str] = Counter()
    for row in kept:
        for gap in row.gaps:
            count[f"{gap.partition(':')[0]}; {gap.partition('; ')[2].partition(' | ')[0]}"] += 1
    for what, times in count.most_common():
        print(f"{times:4} x {what}")
    print(totals(kept))


@dataclass(frozen=True, slots=True)
class Gap:
    """What a line of `Row.gaps` says."""

    ops: str
    dtype: str
    share: float
    """Percent of the tensor within the tolerance."""
    tolerance: str
    largest: float
    verdict: str
    tensor: str


_GAP = re.compile(r"(.+) \((\w+)\): ([\d.]+) % within (\S+), at most (\S+); (.+?) \| (.+)")


def read_gap(text: str) -> Gap:
    """A gap as `_gaps` wrote it."""
    read = _GAP.fullmatch(text)
    assert read is not None, text
    ops, dtype, share, tolerance, largest, verdict, tensor = read.groups()
    return Gap(ops, dtype, float(share), tolerance, float(largest), verdict, tensor)


def totals(kept: Sequence[Row]) -> str:
    """The sentence of totals."""
    eight = [row for row in kept if "a16" not in row.recipe and not row.error]
    return (
        f"{len(kept)} deployments: {sum(not r.otherwise and not r.error for r in kept)} placed alike "
        f"({sum(r.nodes for r in kept)} nodes), {sum(r.loads for r in kept)} contexts load; at 8 bits "
        f"{sum(r.agree for r in eight)} of {sum(r.tensors for r in eight)} tensors have 95 % within one step"
    )


def markdown(kept: Sequence[Row]) -> Iterator[str]:
    """Lines of the two tables of docs/figures.md: models and recipes, then gaps by their ops."""
    yield "| model | recipe | placed alike | contexts load | tensors that agree | gaps |"
    yield "|---|---|---|---|---|---|"
    cases = {
        key: [row for row in kept if (row.model, row.recipe) == key]
        for key in dict.fromkeys((row.model, row.recipe) for row in kept)
    }
    for (model, recipe), some in cases.items():
        placed = f"{sum(not r.otherwise and not r.error for r in some)} of {len(some)}"
        loads = f"{sum(r.loads for r in some)} of {len(some)}"
        agree = f"{sum(r.agree for r in some)} of {sum(r.tensors for r in some)}"
        yield f"| {model} | {recipe} | {placed} | {loads} | {agree} | {sum(len(r.gaps) for r in some)} |"
    yield ""
    yield "| model | recipe | ops that differ | gaps | least within | largest, steps | nearer to onnxruntime |"
    yield "|---|---|---|---:|---:|---:|---|"
    for (model, recipe), some in cases.items():
        alike: dict[tuple[str, str, str], list[Gap]] = {}
        for gap in (read_gap(text) for row in some for text in row.gaps):
            alike.setdefault((gap.ops, gap.dtype, gap.verdict), []).append(gap)
        for (ops, dtype, verdict), gaps in alike.items():
            least = f"{min(gap.share for gap in gaps):.1f} % in {gaps[0].tolerance}"
            nearer = verdict.removesuffix(" to onnxruntime").removesuffix(" nearer").removesuffix(" is")
            largest = max(gap.largest for gap in gaps)
            yield f"| {model} | {recipe} | {ops} ({dtype}) | {len(gaps)} | {least} | {largest:g} | {nearer} |"
    yield ""
    yield totals(kept)


def main(arguments: Sequence[str]) -> int:
    """Deploy, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_names(parser, "model", MODELS, CHOSEN)
    parser.add_argument("--fresh", action="store_true", help="forget what was measured before")
    parser.add_argument("--markdown", action="store_true", help="as docs/figures.md has it")
    given: Any = parser.parse_args(arguments)
    require_package()
    kept = {} if given.fresh else load()
    for name in given.models:
        for recipe in RECIPES:
            missing = [chip for chip in CHIPS if f"{name} {recipe} {chip}" not in kept]
            for row in rows(name, recipe, missing) if missing else ():
                kept[f"{name} {recipe} {row.chip}"] = row
                keep(kept)
                print(name, recipe, row.chip, row.error or f"{row.agree} of {row.tensors}", file=sys.stderr)
    wanted = [row for row in kept.values() if row.model in (given.models)]
    if given.markdown:
        print("\n".join(markdown(wanted)))
    else:
        show(wanted)
    return 0 if all(row.good for row in wanted) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
