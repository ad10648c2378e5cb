# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.placement [--set SET]`: hexforge's word on what the EP takes, against the EP's own.

For every set of onnx's node cases (float, and quantized to 8 and 16 bits) it prints how many the installed
onnxruntime-qnn takes whole (`make peers` installs it), how many hexforge says it takes, in how many they agree, and
every case where they do not, with hexforge's reason. Answers of the EP are kept in build/placement; it is asked once.
Exit code 1 where agreement is below 97 %, or the EP takes a case that hexforge says it refuses.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.peers.vendor import missing
from benchmarks.placement.ep import EP, OPTIONS, Answer, ExecutionProvider, version
from benchmarks.placement.sets import SETS, Sample, samples
from benchmarks.placement.verdict import Verdict, htp, judge
from hexforge.frontends.onnx.ep_limits import EP_VERSION

WANTED = 97.0


@dataclass(frozen=True, slots=True)
class Compared:
    """A case with both answers."""

    sample: Sample
    answer: Answer
    verdict: Verdict

    @property
    def said(self) -> bool:
        """True where hexforge says that the EP takes it whole."""
        return not self.verdict.ep_refuses

    @property
    def agree(self) -> bool:
        """True where hexforge's word is what the EP did."""
        return self.said == self.answer.whole


def compare(kind: str, provider: ExecutionProvider) -> tuple[list[Compared], Counter[str]]:
    """Both answers for the cases of a set; why other cases have none."""
    backend, rows, without = htp(), [], Counter[str]()
    for sample in samples(kind):
        answer = provider.ask(sample.model)
        if answer.unread:
            without["onnxruntime does not read it"] += 1
        elif answer.empty or (verdict := judge(sample.model, backend)).nodes == 0:
            without["all of it is constant"] += 1
        else:
            rows.append(Compared(sample, answer, verdict))
    return rows, without


def show(kind: str, rows: Sequence[Compared], without: Counter[str]) -> bool:
    """Print a set; True where it is as good as wanted."""
    agree = sum(row.agree for row in rows)
    percent = 100 * agree / max(len(rows), 1)
    kinder = [row for row in rows if row.said and not row.answer.whole]
    stricter = [row for row in rows if row.answer.whole and not row.said]
    print(f"{kind}: {len(rows)} cases" + "".join(f"; {count} more: {why}" for why, count in without.items()))
    print(f"  the EP takes whole         {sum(row.answer.whole for row in rows):5}")
    print(f"  hexforge htp takes         {sum(not row.verdict.refused for row in rows):5}")
    print(f"  hexforge says the EP takes {sum(row.said for row in rows):5}")
    print(f"  agreement                  {percent:7.1f} %")
    print(f"  the EP takes, hexforge says it refuses: {len(stricter) or 'none'}")
    for row in stricter:
        print(f"    {row.sample.name}: {row.verdict.ep_refuses}")
    print(f"  the EP does not take, hexforge says it does: {len(kinder) or 'none'}")
    for row in kinder:
        print(f"    {row.sample.name}: {_done(row.answer)}")
    print()
    return percent >= WANTED and not stricter


def _done(answer: Answer) -> str:
    if answer.error:
        return f"no session: {' '.join(answer.error.split())[:160]}"
    left = Counter(op for provider, nodes in answer.nodes.items() if provider != EP for op, _ in nodes)
    return "left to the CPU: " + ", ".join(f"{op} x{count}" if count > 1 else op for op, count in left.items())


def main(arguments: Sequence[str]) -> int:
    """Compare, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=SETS, action="append", dest="sets", help="one set; all by default")
    given = parser.parse_args(arguments)
    if why := missing():
        raise SystemExit(why)
    print(f"onnxruntime-qnn and onnxruntime: {version()}; limits hold for {EP_VERSION}; {OPTIONS}\n")
    good = True
    with ExecutionProvider() as provider:
        for kind in given.sets or SETS:
            good &= show(kind, *compare(kind, provider))
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
