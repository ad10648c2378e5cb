# SPDX-License-Identifier: Apache-2.0
"""Requests: what mixes of precisions are searched by, and what a model is optimized by, each declared once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from hexforge.analysis.requests import CLASSES, DEFAULT_RECIPE, LABELS, MODEL, SQNR, Progress
from hexforge.analysis.workers import Workers
from hexforge.chips.deployment import Deployment
from hexforge.request_fields import none_if_empty, option, spelled

LOW, HIGH = DEFAULT_RECIPE, "w8a16_channel"
SCORED_BY = (
    "sqnr with decisions beside it; decisions, or a kind such as detection, which need no labels; top1, top5, "
    "psnr, ssim, FILE.py:NAME"
)


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """Which mixes are looked at."""

    low: str = option(LOW, "The recipe of most layers.")
    high: str = option(HIGH, "The recipe of layers that need more.")
    groups: int = option(16, "Groups of layers that change together.", min=1)
    target: float | None = option(None, "Quality to reach; unless given, the knee of the front.")
    budget: int = option(100, "Mixes to measure at most.", min=2)


@dataclass(frozen=True, slots=True)
class Scoring:
    """How the quality of a mix is measured: as `evaluate` does, more is better."""

    metric: Any = option(SQNR, f"{SCORED_BY} as of eval; more is better.", kind=str)
    """A mere sqnr is against the float model."""
    labels: Any = field(default=None, metadata=LABELS)
    classes: Sequence[str] | Path | None = field(default=None, metadata=CLASSES)
    data: Any = option(
        None, "Samples quality is measured on; unless given, --data.", "--evaluation", kind=str, given="",
        read=none_if_empty,
    )  # fmt: skip
    samples: int = option(16, "Samples that quality is measured on.", min=1)


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """Of what model, on what samples and for which chip a mix of two precisions is searched."""

    model: str | Path = field(metadata=MODEL)
    data: Any = field(metadata=spelled("Calibration samples: a folder, shards, a URL, or random:8.", kind=str))
    deployment: Deployment | str = field(default_factory=Deployment)
    space: SearchSpace = field(default_factory=SearchSpace)
    scoring: Scoring = field(default_factory=Scoring)
    _: KW_ONLY
    workers: Workers = field(default_factory=Workers)
    state: str | Path | None = option(None, "Keeps what was measured: an interrupted search goes on.", kind=Path)
    """A file beside it keeps what calibration has seen."""
    dims: Mapping[str, int] | None = None
    shapes: Mapping[str, Sequence[int]] | None = None
    constants: Mapping[str, Any] | None = None
    progress: Progress = lambda done, of: None


@dataclass(frozen=True, slots=True)
class OptimizeRequest:
    """What a model is optimized by: samples, how its quality is judged, and how long to look."""

    data: Any = field(
        metadata=spelled("Samples: a folder (.npy, .npz, .raw, images), shards, a URL, or random:8.", kind=str)
    )
    evaluation: Any = option(None, "Samples to judge on; unless given, --data.", kind=str, given="", read=none_if_empty)
    labels: Any = field(default=None, metadata=LABELS)
    metric: Any = option(SQNR, f"{SCORED_BY}; top1 where there are labels.", kind=str, given="")
    classes: Sequence[str] | Path | None = field(default=None, metadata=CLASSES)
    budget: int = option(24, "Mixes of precisions to measure at most.", min=2)
    groups: int = 8
    samples: int = option(16, "Samples that each mix is judged on.", min=1)
    scored: int = 256
    """Samples that the float model and the recommended one are judged on at the end, at most."""
    low: str = LOW
    high: str = HIGH
    jobs: int = option(1, "Processes; 0: one for each processor.", "--jobs", "-j", min=0)
    cluster: bool | str = False
    """True, or its address: mixes are measured on the machines of a Ray cluster."""
    dims: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Inputs that become constants, and their values."""
