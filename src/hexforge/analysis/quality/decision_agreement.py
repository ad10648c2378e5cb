# SPDX-License-Identifier: Apache-2.0
"""Decision agreement: a metric without labels: how often a model decides as the float model does."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hexforge.analysis.quality.decisions.judge import DecisionCollector, DecisionJudge, JudgedSample
from hexforge.analysis.quality.decisions.measure import Outputs
from hexforge.analysis.quality.decisions.metric import DecisionMetric, decision_metric
from hexforge.analysis.quality.decisions.verdict import Decisions
from hexforge.analysis.quality.runners import runner
from hexforge.errors import CallError
from hexforge.ir import Array
from hexforge.model.reader import read
from hexforge.quant.data.feeds import Feeds


class DecisionAgreement:
    """How often a model decides as the reference does; alarms and SQNR are in `decisions`."""

    labelled = False

    def __init__(self, rule: DecisionMetric, reference: Path) -> None:
        self.name, self.reference = rule.kind, reference
        self.judge = DecisionJudge(read(reference), rule)
        self._run: Callable[[Feeds], dict[str, Array]] | None = None
        self._collector: DecisionCollector | None = None

    @classmethod
    def of(cls, text: str, reference: Path | None) -> DecisionAgreement:
        """The metric of a text such as detection, or detection:FLOAT.onnx."""
        kind, _, rest = text.partition(":")
        if rest.endswith(".onnx"):
            text, reference = kind, Path(rest)
        if reference is None or not reference.is_file():
            there = "name it" if reference is None else f"there is no file {str(reference)!r}"
            raise CallError(
                f"metric {text!r}: decisions are those of the float model; {there}, as in {kind}:FLOAT.onnx"
            )
        rule = decision_metric(text)
        assert rule is not None
        return cls(rule, reference)

    def __getstate__(self) -> dict[str, Any]:
        """What measures travels, with the kinds that were chosen."""
        state = {"name": self.name, "reference": self.reference, "judge": self.judge}
        return state | {"_run": None, "_collector": None}

    def prepare(self, feeds: Feeds) -> None:
        """Choose the kinds of decisions by a sample, before others are measured elsewhere."""
        self.judge.choose(self._outputs(feeds))

    def _outputs(self, feeds: Feeds) -> dict[str, Array]:
        if self._run is None:
            self._run = runner(self.reference, "ort", threads=1)
        return self._run(feeds)

    def measure(self, feeds: Feeds, outputs: Outputs, label: Any, *, draw: bool = False) -> JudgedSample:
        """What one sample says of both models; `draw` keeps what they decide, too."""
        return self.judge.compare(self.judge.reference(self._outputs(feeds)), outputs, draw=draw)

    @property
    def collector(self) -> DecisionCollector:
        """The samples so far."""
        if self._collector is None:
            self._collector = DecisionCollector(self.judge)
        return self._collector

    def update(self, measured: JudgedSample, label: Any) -> None:
        """Add it."""
        self.collector.keep({}, measured)

    def reset(self) -> None:
        """Forget all samples."""
        self._collector = None

    def result(self) -> float:
        """How often both decide alike, by the decisions that are furthest from good."""
        agreement = self.collector.decisions().agreement
        return -math.inf if math.isnan(agreement) else agreement

    def decisions(self, names: Any = (), numbers: Any = ()) -> Decisions:
        """The verdict over all samples."""
        return self.collector.decisions(names, numbers)
