# SPDX-License-Identifier: Apache-2.0
"""ExecuTorch's own tests, from the installed wheel, on hexforge.

    python -m tests.addons.executorch.own_suite [CLASS[.TEST] ...]

Every test is the wheel's, unchanged; models are run by `hexforge executor-runner` through the hook of these tests
(QNN_EXECUTOR_RUNNER). `--adaptor wheel` leaves the wheel's compiled adaptor and runtime in their place, over hexforge's
libQnnHtp.so; `--compare-adaptors` runs both and prints the counts side by side. `--backend gpu` compiles the float ones
for the gpu backend. `--jobs` processes share the tests; one that takes longer than `--limit` is ended and its test
counts as failed. `--json` keeps the outcomes, so that a run which was stopped goes on with the rest, `--resume` as long
as hexforge is the same. The last lines are the table, class by class, beside what Qualcomm's library passes on x86,
after a line for each test that did not pass.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from tests.addons.executorch.own_suite.run import ADAPTORS, SUITES, add_arguments, run
from tests.addons.executorch.own_suite.worker import Outcome

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


def side_by_side(outcomes: Mapping[str, Sequence[Outcome]]) -> str:
    """Counts of each class by who answered ExecuTorch, after a line for each test that did not end alike."""
    results = {adaptor: {(o.suite, o.test): o for o in own} for adaptor, own in outcomes.items()}
    names = sorted({name for own in results.values() for name in own})
    lines = []
    for name in names:
        ended = {adaptor: own.get(name) for adaptor, own in results.items()}
        if len({one.result if one else "not run" for one in ended.values()}) > 1:
            said = [
                f"{adaptor}: {f'{one.result} {one.why}'.strip() if one else 'not run'}"
                for adaptor, one in ended.items()
            ]
            lines.append(f"{'.'.join(name)}: {'; '.join(said)}")
    lines += ["", f"{'class: passed of (skipped)':<32}" + "".join(f"{adaptor:>20}" for adaptor in results)]
    for suite in dict.fromkeys(suite for suite, _ in names):
        cells = [[o for (own, _), o in of.items() if own == suite] for of in results.values()]
        lines.append(f"{suite:<32}" + "".join(f"{_counted(own):>20}" for own in cells))
    return "\n".join(lines)


def _counted(own: Sequence[Outcome]) -> str:
    skipped = sum(o.result in ("skipped", "expected failure") for o in own)
    return f"{sum(o.result == 'passed' for o in own)} of {len(own)} ({skipped})"


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
    parser.add_argument("--compare-adaptors", action="store_true", help="run both, side by side; with --resume")
    given = parser.parse_args()
    if given.compare_adaptors and given.resume is None:
        parser.error("--compare-adaptors keeps outcomes of two kinds: give --resume FOLDER")
    try:
        if given.compare_adaptors:
            both = {one: run(argparse.Namespace(**{**vars(given), "adaptor": one}), parser) for one in ADAPTORS}
            print(side_by_side(both))
            return int(any(o.result == "failed" for own in both.values() for o in own))
        outcomes = run(given, parser)
    except KeyboardInterrupt:
        print("stopped; with --json or --resume the same command goes on")
        return 130
    print(table(outcomes, given.backend))
    return int(any(o.result == "failed" for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
