# SPDX-License-Identifier: Apache-2.0
"""Metric: what --metric says of decisions: a kind, an output, or the layout of a detector in a few words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from hexforge.analysis.quality.decisions.answers import Classification, Labels, SymbolSequence
from hexforge.analysis.quality.decisions.channels import channel_axis
from hexforge.analysis.quality.decisions.detection import (
    FORMATS,
    MOST_OVERLAP,
    PLACED,
    THRESHOLD,
    Activation,
    AnchorScores,
    Detection,
    OutputPart,
)
from hexforge.analysis.quality.decisions.evidence import Supposed
from hexforge.analysis.quality.decisions.graph_facts import ModelFacts
from hexforge.analysis.quality.decisions.kinds import choose, ctc_blank, of_output
from hexforge.analysis.quality.decisions.maps import Keypoints, PictureLikeness, Segmentation
from hexforge.analysis.quality.decisions.measure import DecisionMeasure, Outputs, rows_of
from hexforge.analysis.quality.decisions.paired_anchors import Anchors, PairedAnchors
from hexforge.analysis.quality.decisions.recognise import detector
from hexforge.analysis.quality.decisions.vectors import Embedding, Numbers
from hexforge.errors import CallError
from hexforge.formats.json_text import read_json
from hexforge.options import did_you_mean

AUTO = "decisions"
KINDS = (
    "classification", "labels", "detection", "segmentation", "sequence", "embedding", "picture", "keypoints", "numbers",
)  # fmt: skip
NAMES = (AUTO, *KINDS)
DETECTION_KEYS = (
    "boxes", "scores", "objectness", "classes", "masks", "prototypes", "format", "activation", "background",
    "threshold", "nms", "finished",
)  # fmt: skip
_PART = re.compile(r"(?P<name>.+?)(\[(?P<first>\d*):(?P<last>\d*)\])?(?P<turned>\.T)?")


@dataclass(frozen=True, slots=True)
class DecisionMetric:
    """How decisions are judged: by what the outputs look like, or as somebody says."""

    kind: str = AUTO
    output: str = ""
    """The output that is judged; empty: all, or the first that fits."""
    layout: Mapping[str, Any] = field(default_factory=dict)
    """A detector's layout, by DETECTION_KEYS."""

    def measures(self, outputs: Outputs, facts: ModelFacts) -> list[DecisionMeasure | Supposed]:
        """What outputs are judged by; CallError where they do not fit."""
        if self.output and self.output not in outputs:
            raise CallError(f"the model has no output {self.output!r}; it has {', '.join(map(repr, outputs))}")
        if self.kind == AUTO:
            return [*of_output(self.output, outputs[self.output], facts)] if self.output else choose(outputs, facts)
        if self.kind == "detection":
            return [self._detector(outputs, facts)]
        chosen = self.output or self._first(outputs, facts)
        array, told = outputs[chosen], facts.of(chosen)
        axis = told.axis if told.axis is not None else array.ndim - 1
        if self.kind == "sequence":
            blank = None if array.dtype.kind in "iub" else ctc_blank(rows_of(array, axis))
            return [SymbolSequence(chosen, axis, blank)]
        if self.kind == "classification":
            return [Classification(chosen, axis)]
        if self.kind == "segmentation":
            return [_segmentation(chosen, array, facts)]
        if self.kind == "embedding":
            return [Embedding(chosen, axis)]
        if self.kind in ("picture", "keypoints") and array.ndim < 2:
            raise CallError(
                f"metric {self.kind}: output {chosen!r} has the shape {list(array.shape)}; name one with height and "
                f"width, as in {self.kind}:OUTPUT"
            )
        simple = {"labels": Labels, "picture": PictureLikeness, "keypoints": Keypoints, "numbers": Numbers}
        return [cast("DecisionMeasure", simple[self.kind](chosen))]

    def _first(self, outputs: Outputs, facts: ModelFacts) -> str:
        """The first output that looks like this kind, else the first one."""
        chosen = [kind.measure if isinstance(kind, Supposed) else kind for kind in choose(outputs, facts)]
        alike = [measure.outputs[0] for measure in chosen if measure.kind == self.kind]
        return alike[0] if alike else next(iter(outputs))

    def _detector(self, outputs: Outputs, facts: ModelFacts) -> DecisionMeasure:
        if self.layout:
            return _described(self.layout, outputs, facts)
        found = detector(outputs, facts)
        if found is None:
            shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in outputs.items())
            raise CallError(
                f"metric detection: no usual layout of boxes fits the outputs ({shapes}); describe it, as in "
                "detection:boxes=out[0:4],scores=out[4:84],format=cxcywh"
            )
        return found


def decision_metric(text: str) -> DecisionMetric | None:
    """What a text says of decisions, as in sequence:OUTPUT or detection:boxes=…; None for other metrics."""
    kind, _, rest = text.partition(":")
    if kind not in NAMES:
        return None
    if kind == "detection" and rest:
        if rest.endswith(".json"):
            given = read_json(Path(rest))
            if not isinstance(given, dict):
                raise CallError(f"{rest}: holds no layout; it is an object with {', '.join(DETECTION_KEYS)}")
            return DecisionMetric(kind, layout=_checked(given, rest))
        if "=" in rest:
            pairs = [part.partition("=") for part in rest.split(",")]
            return DecisionMetric(kind, layout=_checked({key.strip(): value.strip() for key, _, value in pairs}, text))
    return DecisionMetric(kind, rest)


def decisions_or_none(metric: Any) -> DecisionMetric | None:
    """How two models are judged where quality is measured by `metric`; None where it is SQNR alone.

    Metrics that need labels have a kind that needs none: top1 and top5 are classification, psnr and ssim picture.
    """
    if not isinstance(metric, str) or metric.rpartition(":")[0].endswith(".py"):
        return DecisionMetric()
    kind, _, rest = metric.partition(":")
    if kind == "sqnr":
        return None
    if re.fullmatch(r"top\d+", kind):
        return DecisionMetric("classification", rest)
    return DecisionMetric("picture", rest) if kind in ("psnr", "ssim") else decision_metric(metric)


def required_decisions(metric: str) -> DecisionMetric | None:
    """How two models are judged; None for sqnr, which is no decision; CallError for what cannot be told."""
    rule = decisions_or_none(metric)
    if metric.partition(":")[0] != "sqnr" and (rule is None or metric.rpartition(":")[0].endswith(".py")):
        known = (*NAMES, "top1", "top5", "psnr", "ssim", "sqnr")
        raise CallError(f"metric {metric!r}: there are {', '.join(known)}{did_you_mean(metric, known)}")
    return rule


def _checked(given: dict[str, Any], where: str) -> dict[str, Any]:
    for key in given:
        if key not in DETECTION_KEYS:
            raise CallError(f"{where}: unknown key {key!r}{did_you_mean(key, DETECTION_KEYS)}")
    if missing := [key for key in ("boxes", "scores") if key not in given]:
        raise CallError(f"{where}: says nothing of {missing[0]}, as in {missing[0]}=OUTPUT or {missing[0]}=OUTPUT[0:4]")
    if given.get("format", "cxcywh") not in FORMATS:
        raise CallError(f"{where}: format {given['format']!r}: there are {', '.join(FORMATS)}")
    if given.get("activation", "none") not in ("none", "sigmoid", "softmax"):
        raise CallError(f"{where}: activation {given['activation']!r}: there are none, sigmoid, softmax")
    for key in ("threshold", "nms"):
        try:
            fits = 0 <= float(given.get(key, 0.5)) <= 1
        except (TypeError, ValueError):
            fits = False
        if not fits:
            raise CallError(f"{where}: {key} {given[key]!r}: a number from 0 to 1")
    return given


def _described(given: Mapping[str, Any], outputs: Outputs, facts: ModelFacts) -> DecisionMeasure:
    """The detector that somebody describes, for outputs of these shapes."""
    boxes, part = (_part(str(given[key]), outputs) for key in ("boxes", "scores"))
    objectness, classes, masks = (
        _part(str(given[key]), outputs) if given.get(key) else None for key in ("objectness", "classes", "masks")
    )
    background = int(given["background"]) if str(given.get("background", "")).lstrip("-").isdecimal() else None
    scores = AnchorScores(part, objectness, cast("Activation", given.get("activation", "none")), background)
    form, threshold = str(given.get("format", "cxcywh")), float(given.get("threshold", THRESHOLD))
    if form not in PLACED:
        return PairedAnchors((Anchors.of(scores, [boxes], outputs),), threshold)
    prototypes = str(given.get("prototypes", ""))
    if prototypes and prototypes not in outputs:
        raise CallError(f"the model has no output {prototypes!r}; it has {', '.join(map(repr, outputs))}")
    finished = str(given.get("finished", "no")).lower() in ("yes", "true", "1")
    return Detection(
        "as described", boxes, scores, form, classes, masks, finished, prototypes, facts.picture, threshold,
        float(given.get("nms", MOST_OVERLAP)),
    )  # fmt: skip


def _part(text: str, outputs: Outputs) -> OutputPart:
    """Channels of an output, as in out[0:4]."""
    fits = _PART.fullmatch(text) if text not in outputs else None
    name = text if fits is None else fits["name"]
    if name not in outputs:
        raise CallError(f"the model has no output {name!r}; it has {', '.join(map(repr, outputs))}")
    first = int(fits["first"]) if fits is not None and fits["first"] else 0
    last = int(fits["last"]) if fits is not None and fits["last"] else None
    array = outputs[name]
    while array.ndim > 2 and array.shape[0] == 1:
        array = array[0]
    return OutputPart(name, first, last, channels_first=array.ndim > 1 and array.shape[0] < array.shape[-1])


def _segmentation(name: str, array: Any, facts: ModelFacts) -> DecisionMeasure:
    for looks in of_output(name, array, facts):
        supposed = looks.measure if isinstance(looks, Supposed) else looks
        if isinstance(supposed, Segmentation):
            return supposed
    if array.dtype.kind in "iub":
        return Segmentation(name, None)
    axis = channel_axis(array.shape)
    if array.ndim < 4 or array.shape[axis] == 1:
        return Segmentation(name, None, 0.5 if float(array.min()) >= 0 else 0.0)
    return Segmentation(name, axis)
