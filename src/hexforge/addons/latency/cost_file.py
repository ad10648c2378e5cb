# SPDX-License-Identifier: Apache-2.0
"""cost.json: what a fit leaves behind for estimates, and the text of that file."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.addons.latency.fitting import CostFit
from hexforge.addons.latency.terms import PARAMETER_NAMES
from hexforge.backends.htp.time import cost
from hexforge.chips.soc import Soc
from hexforge.formats.files import write_atomically

FACTORS = cost.FACTORS
"""What a chip is, on top of the parameters that all have in common."""
SHIPPED = Path(cost.__file__).with_name("cost.json")
SAME = 2e-3
"""How far a figure may be from another to be the same."""
SOURCE = "fitted by hexforge.latency on the measured latencies of qai-hub-models 0.65.0"


def costs_of(fit: CostFit) -> dict[str, Any]:
    """The part of the file that `cost.costs` reads."""
    return {
        "reference": cost.REFERENCE,
        "off": sorted(fit.off),
        "parameters": {
            name: float(f"{np.exp(v):.6g}") for name, v in zip(PARAMETER_NAMES, fit.parameters, strict=True)
        },
        "members": {
            name: [float(f"{np.exp(v):.5g}") for v in column]
            for name, column in zip(PARAMETER_NAMES, fit.members.T, strict=True)
        },
        "chips": {
            chip: {n: float(f"{np.exp(v):.5g}") for n, v in zip(FACTORS, factors, strict=True)}
            for chip, factors in sorted(fit.chips.items())
        },
    }


def fit_of(contents: dict[str, Any]) -> CostFit:
    """The fit that a file was written from, as exact as its digits."""
    members = np.log(np.array([contents["members"][name] for name in PARAMETER_NAMES]).T)
    chips = {chip: np.log([factors[name] for name in FACTORS]) for chip, factors in contents["chips"].items()}
    return CostFit(members, chips, frozenset(contents.get("off", ())))


def calibrated_costs(soc: Soc, multiplied: Mapping[str, float], source: str) -> dict[str, Any]:
    """The shipped file of costs with the factors of one chip multiplied."""
    contents = dict(cost.fitted())
    before, _ = cost.chip_factors(soc, contents)
    after = {name: float(f"{before[name] * multiplied.get(name, 1.0):.5g}") for name in FACTORS}
    return {**contents, "source": source, "chips": {**contents["chips"], soc.name: after}}


def printed(fit: CostFit) -> Iterator[str]:
    """A line for each parameter of a fit, and one for each chip."""
    for parameter, log in zip(cost.PARAMETERS, fit.parameters, strict=True):
        yield f"{parameter.name:28} {math.exp(log):10.4g} {parameter.unit} (prior {parameter.prior:g})"
    for chip, factors in fit.chips.items():
        yield " ".join((f"{chip:10}", *(f"{n} {math.exp(f):.2f}" for n, f in zip(FACTORS, factors, strict=True))))


def digest_of(folder: Path) -> str:
    """A digest of the measurements of a folder."""
    return hashlib.sha256((folder / "measured.csv").read_bytes()).hexdigest()


def differences(fitted: Any, kept: Any, where: str = "") -> list[str]:
    """Where two files say different things, numbers beyond what another processor's rounding may do to a fit."""
    if isinstance(fitted, dict) and isinstance(kept, dict):
        only = [f"{where}{name}: is in one of them only" for name in sorted(fitted.keys() ^ kept.keys())]
        both = sorted(fitted.keys() & kept.keys())
        return only + [line for name in both for line in differences(fitted[name], kept[name], f"{where}{name}.")]
    if isinstance(fitted, list) and isinstance(kept, list) and len(fitted) == len(kept):
        pairs = enumerate(zip(fitted, kept, strict=True))
        return [line for i, (a, b) in pairs for line in differences(a, b, f"{where}{i}.")]
    numbers = isinstance(fitted, int | float) and isinstance(kept, int | float)
    same = math.isclose(fitted, kept, rel_tol=SAME, abs_tol=SAME) if numbers else fitted == kept
    return [] if same else [f"{where.rstrip('.')}: {fitted} is fitted, {kept} is kept"]


def fit_arguments(module: str, about: str | None, data: Path, out: Path) -> argparse.Namespace:
    """What a fit is told on the command line: which data, which file, and whether that is only compared."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=about)
    if module == "hexforge.latency":
        parser.add_argument("choose", nargs="?", choices=["choose"], help="only say which switches are chosen, and why")
    parser.add_argument("--data", type=Path, default=data, help="the measured rows; hexforge's own by default")
    parser.add_argument("--out", type=Path, default=out, help="the file that is written; hexforge's own by default")
    parser.add_argument("--check", action="store_true", help="compare with the file instead; 1 where a figure differs")
    return parser.parse_args()


def keep_or_check(contents: object, given: argparse.Namespace) -> int:
    """Write the file, or say where it differs; the exit code."""
    if given.check:
        differing = differences(contents, json.loads(given.out.read_text("utf-8")))
        print("\n".join(differing) or f"{given.out}: every figure is that of this fit")
        return int(bool(differing))
    write_atomically(given.out, text_of(contents).encode())
    return 0


def text_of(contents: object) -> str:
    """JSON with a line for each entry, lists on their line."""
    lines: list[str] = []
    for line in json.dumps(contents, indent=1).splitlines():
        inside = bool(lines) and lines[-1].rstrip().endswith(("[", ",")) and "[" in lines[-1] and "]" not in lines[-1]
        if inside:
            lines[-1] += line.strip() if lines[-1].endswith("[") else " " + line.strip()
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"
