# SPDX-License-Identifier: Apache-2.0
"""ExecuTorch's own tests, from the installed wheel, on hexforge.

    python -m tests.executorch.own_suite [CLASS[.TEST] ...]

Every test is the wheel's, unchanged; models are run by `hexforge executor-runner` through the hook of these tests
(QNN_EXECUTOR_RUNNER). `--backend gpu` compiles the float ones for the gpu backend. `--jobs` processes share the tests;
one that takes longer than `--limit` is ended and its test counts as failed. `--json` keeps the outcomes, so that a run
which was stopped goes on with the rest, `--resume` as long as hexforge is the same. The last lines are the table, class
by class, beside what Qualcomm's library passes on x86, after a line for each test that did not pass.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.executorch.own_suite.run import SUITES, add_arguments, run
from tests.executorch.own_suite.worker import Outcome

VENDOR = {"quantized operators": (191, 196), "float operators": (174, 178), "models": (52, 61), "utils": (40, 64)}
"""What Qualcomm's library passes on x86 with its own runner, and of how many tests (reference, not measured here)."""
RARE = 20
"""Data types of so few cells have no row of their own."""


def table(outcomes: Sequence[Outcome], backend: str = "htp") -> str:
    """A line for each test that did not pass, then the table."""
    lines = [f"{o.suite}.{o.test}: {o.result}: {o.why}" for o in outcomes if o.result != "passed"]
    head = f"{'class':<32} {'passed':>6} {'of':>4} {'skipped':>8} {'seconds':>8}   vendor's library"
    lines += ["", head]
    names = [s for s in SUITES if any(o.suite == s.name for o in outcomes)]
    for suite in names:
        own = [o for o in outcomes if o.suite == suite.name]
        lines.append(_row(suite.name, own, ""))
        lines += [_row(f"  {scheme}", cells, "") for scheme, cells in by_scheme(own).items()]
    for group, (passed, of) in VENDOR.items() if backend == "htp" else ():
        members = [s.name for s in SUITES if s.group == group]
        own = [o for o in outcomes if o.suite in members]
        if own and all(any(o.suite == m for o in own) for m in members):
            lines.append(_row(f"= {group}", own, f"{passed} of {of}"))
    return "\n".join(lines)


def by_scheme(own: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """Cells of functions with parameters by what is in brackets, the data types of a run; the rare ones together."""
    schemes: dict[str, list[Outcome]] = {}
    for one in own:
        if one.test.endswith("]"):
            schemes.setdefault(one.test.partition("[")[2][:-1], []).append(one)
    common = {scheme: cells for scheme, cells in schemes.items() if len(cells) > RARE}
    others = [one for scheme, cells in schemes.items() if scheme not in common for one in cells]
    return {**common, "other schemes": others} if common and others else common


def _row(name: str, own: Sequence[Outcome], vendor: str) -> str:
    count = {kind: sum(o.result == kind for o in own) for kind in ("passed", "skipped", "expected failure")}
    seconds = sum(o.seconds for o in own)
    skipped = count["skipped"] + count["expected failure"]
    return f"{name:<32} {count['passed']:>6} {len(own):>4} {skipped:>8} {seconds:>8.0f}   {vendor}"


def main() -> int:
    """Run what is named, all by default; 0 where nothing failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    given = parser.parse_args()
    try:
        outcomes = run(given, parser)
    except KeyboardInterrupt:
        print("stopped; with --json or --resume the same command goes on")
        return 130
    print(table(outcomes, given.backend))
    return int(any(o.result == "failed" for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
