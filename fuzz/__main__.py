# SPDX-License-Identifier: Apache-2.0
"""`python -m fuzz TARGET [--runs N] [--seconds S]`: atheris on one target.

A fault ends it; the input that brought it about is kept in fuzz-faults/. The targets of fuzz.rounds need no atheris:
they make models by number, and list what is wrong with each.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import FunctionType

from fuzz.rounds import ROUNDS, run_rounds


def instrument(package: str) -> None:
    """Count the branches of every function of a package; an editable install is not seen by atheris's import hook."""
    import atheris

    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(f"{package}."):
            for value in [*vars(module).values()]:
                parts = vars(value).values() if isinstance(value, type) else (value,)
                for part in parts:
                    inner = getattr(part, "__func__", getattr(part, "fget", part))
                    if isinstance(inner, FunctionType) and (inner.__module__ or "").startswith(package):
                        atheris.instrument_func(inner)


def main() -> None:
    """Write the seeds, then hand over to libFuzzer; or run a target that makes its models by number."""
    if len(sys.argv) > 1 and sys.argv[1] in ROUNDS:
        sys.exit(run_rounds(sys.argv[1:]))
    import atheris

    from fuzz.targets import TARGETS, seeds

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--runs", type=int, default=200_000)
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--corpus", type=Path, default=Path("build/fuzz"))
    given = parser.parse_args()
    corpus = given.corpus / given.target
    corpus.mkdir(parents=True, exist_ok=True)
    for i, seed in enumerate(seeds(given.target)):
        (corpus / f"seed{i}").write_bytes(seed)
    Path("fuzz-faults").mkdir(exist_ok=True)
    options = [f"-runs={given.runs}", "-timeout=20", "-rss_limit_mb=3000", "-max_len=16384", "-print_final_stats=1"]
    options += [f"-max_total_time={given.seconds}"] if given.seconds else []
    target = TARGETS[given.target]
    instrument("hexforge")
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix=fuzz-faults/{given.target}-", str(corpus)], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
