# SPDX-License-Identifier: Apache-2.0
"""CPU time to start: `python -m benchmarks.commands.startup [--rounds N]`.

Every figure is user and system time of a fresh process, the best of N interleaved rounds, and its ratio to a process
that imports onnxruntime and ends, in the same rounds. Targets: 0.25 s for the help, 0.6 s for a check of the demo.
Bytecode is cached, as it is after the first run of an installed package.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.process_cost import python_process_cost
from tests.digits import MODEL

TARGETS = {"hexforge --help": 0.25, "hexforge check (small model)": 0.6}
PEER = "import onnxruntime"
PROGRAM = "from hexforge.cli import main; main()"


def commands(context: Path) -> dict[str, list[str]]:
    """What is measured: name -> arguments of Python."""
    return {
        "python alone": ["-c", "pass"],
        PEER: ["-c", "import onnxruntime"],
        "hexforge --help": ["-c", PROGRAM, "--help"],
        "hexforge check (small model)": ["-c", PROGRAM, "check", str(MODEL)],
        "import hexforge, open a context": ["-c", f"import hexforge; hexforge.load_context({str(context)!r})"],
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder) / "demo.bin"
        compiling = ["-c", PROGRAM, "compile", str(MODEL), "-o", str(context), "--soc", "SM8650"]
        subprocess.run([sys.executable, *compiling], check=True, stdout=subprocess.DEVNULL)
        measured = commands(context)
        for arguments in measured.values():
            python_process_cost(arguments)  # writes the bytecode
        times = {name: float("inf") for name in measured}
        for _ in range(rounds):
            for name, arguments in measured.items():
                times[name] = min(times[name], python_process_cost(arguments)[0])
    print("| process | CPU s | of `import onnxruntime` | target |")
    print("|---|---:|---:|---:|")
    for name, seconds in times.items():
        target = f"{TARGETS[name]:.2f} s" if name in TARGETS else ""
        print(f"| {name} | {seconds:.3f} | {seconds / times[PEER]:.2f} | {target} |")


if __name__ == "__main__":
    main()
