# SPDX-License-Identifier: Apache-2.0
"""The vendor's emulator (`onnxruntime-qnn`) as a peer: in a process and an environment of its own (`make peers`)."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import ROOT

Array = np.ndarray[Any, Any]

PYTHON = ROOT / ".venv-vendor" / "bin" / "python"
_CHILD = Path(__file__).with_name("vendor_child.py")


@dataclass(frozen=True, slots=True)
class Case:
    """A model and what it is run with."""

    model: Path
    feeds: Mapping[str, Array]
    runs: int = 1


@dataclass(slots=True)
class VendorResult:
    """What the emulator made of a case."""

    cpu_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)
    outputs: dict[str, Array] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)
    error: str = ""

    @property
    def whole(self) -> bool:
        """True where no node was left to onnxruntime's CPU."""
        return not self.error and set(self.nodes) == {"QNNExecutionProvider"}


def missing() -> str:
    """Why the emulator cannot be asked, or nothing."""
    if not PYTHON.exists():
        return f"{PYTHON.parents[1].name} is not there; `make vendor` installs onnxruntime-qnn into it"
    done = subprocess.run([PYTHON, "-c", "import onnxruntime_qnn"], capture_output=True, text=True)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


SOC_MODEL = "60"
"""Float models need one; the same for all, as results differ by 1 LSB between targets."""


def run(
    cases: Sequence[Case], *, fp16: bool = False, soc_model: str = SOC_MODEL, timeout_s: float = 900
) -> list[VendorResult]:
    """Run the cases one after the other; fp16 is for float models, and holds for the whole process."""
    results = [VendorResult(error="not reached") for _ in cases]
    with tempfile.TemporaryDirectory() as folder:
        job: list[dict[str, object]] = []
        for index, case in enumerate(cases):
            feeds, outputs = (str(Path(folder) / f"{kind}{index}.npz") for kind in ("feeds", "outputs"))
            np.savez(feeds, **case.feeds)  # type: ignore[arg-type]
            job.append({"model": str(case.model), "feeds": feeds, "outputs": outputs, "runs": case.runs})
        text = json.dumps({"fp16": fp16, "soc_model": soc_model, "cases": job})
        try:
            done = subprocess.run(
                [PYTHON, _CHILD], input=text, capture_output=True, text=True, timeout=timeout_s, cwd=folder
            )
            said, why = done.stdout, _last_words(done)
        except subprocess.TimeoutExpired as late:
            said = (late.stdout or b"").decode() if isinstance(late.stdout, bytes) else late.stdout or ""
            why = f"not done after {timeout_s:g} s"
        for line in said.splitlines():
            if not line.startswith('{"case"'):
                continue  # the libraries write lines of their own
            row = json.loads(line)
            index = row.pop("case")
            results[index] = VendorResult(**row)
            if not results[index].error:
                with np.load(str(job[index]["outputs"])) as file:
                    results[index].outputs = dict(file)
    for one in results:
        if one.error == "not reached":
            one.error = why or "not reached"
    return results


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    if not done.returncode:
        return ""
    lines = done.stderr.strip().splitlines()
    return f"the emulator's process ended with {done.returncode}" + (f": {lines[-1]}" if lines else "")


if __name__ == "__main__":
    print(missing() or "the vendor's emulator is installed")
    sys.exit(bool(missing()))
