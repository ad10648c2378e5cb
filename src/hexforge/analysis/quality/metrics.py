# SPDX-License-Identifier: Apache-2.0
"""Metrics: how well outputs fit labels. Each measures samples, anywhere, and sums up what was measured, in order."""

from __future__ import annotations

import importlib.util
import inspect
import math
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from hexforge.analysis.quality.decision_agreement import DecisionAgreement
from hexforge.analysis.quality.decisions.metric import NAMES as DECISIONS
from hexforge.analysis.quality.picture_metrics import peak_of, psnr_db, ssim
from hexforge.analysis.quality.runners import runner
from hexforge.errors import CallError, ModelError
from hexforge.ir import Array
from hexforge.quant.compare import ErrorSums, ExactMean
from hexforge.quant.data.feeds import Feeds

Outputs = Mapping[str, Array]


def in_decibels(metric: str) -> bool:
    """Whether a metric of that name is a ratio in decibels; all others are shares or figures of their own."""
    return metric in ("sqnr", "psnr")


def quality_text(quality: float, metric: str) -> str:
    """A quality with its unit."""
    if not in_decibels(metric):
        return f"{quality:.4f}"
    return "exact" if quality == math.inf else f"{quality:.{1 if metric == 'sqnr' else 2}f} dB"


class Metric(Protocol):
    """What evaluation needs. `measure` runs beside the model, in any process; the rest in one, in order."""

    name: str
    labelled: bool
    """Whether it needs labels."""

    def measure(self, feeds: Feeds, outputs: Outputs, label: Any) -> Any:
        """What one sample adds."""

    def update(self, measured: Any, label: Any) -> None:
        """Add it."""

    def result(self) -> float:
        """The figure of all samples."""

    def reset(self) -> None:
        """Forget all samples."""


@runtime_checkable
class ResumableMetric(Protocol):
    """A metric whose sums can be written down, so that it goes on from there."""

    name: str

    @property
    def resumable(self) -> bool:
        """Whether this one can."""

    def sums(self) -> Any:
        """What all samples add up to, as JSON."""

    def go_on(self, sums: Any) -> None:
        """Go on from what was written."""


class MeanMetric:
    """A metric that is the mean of a figure for each sample."""

    def __init__(self) -> None:
        self._figures = ExactMean()

    @property
    def resumable(self) -> bool:
        """It is: sums of figures are written down exactly."""
        return True

    def update(self, measured: Any, label: Any) -> None:
        """Count it."""
        self._figures.add(measured)

    def reset(self) -> None:
        """Forget all samples."""
        self._figures = ExactMean()

    def result(self) -> float:
        """The mean of all samples."""
        return self._figures.result()

    def sums(self) -> Any:
        """What all samples add up to, as JSON."""
        return self._figures.sums()

    def go_on(self, sums: Any) -> None:
        """Go on from what was written."""
        self._figures.go_on(sums)


class TopK(MeanMetric):
    """The share of samples whose label is among the k classes with the highest scores."""

    labelled = True

    def __init__(self, k: int, output: str = "") -> None:
        super().__init__()
        self.name, self.k, self.output = f"top{k}", k, output
        self.classes = 0
        """How many scores there must be; 0: any number."""

    def measure(self, feeds: Feeds, outputs: Outputs, label: Any) -> float:
        """The share of rows that are right: 0 or 1 where the model has a batch of one."""
        scores = self._scores(outputs)
        labels = np.atleast_1d(np.asarray(label)).ravel()
        if labels.dtype.kind not in "iu" and not (labels.dtype.kind == "f" and (labels == np.rint(labels)).all()):
            raise CallError(f"label {label!r} is no number of a class; {self.name} needs one (or --classes with names)")
        if self.classes and scores.shape[1] != self.classes:
            raise CallError(
                f"the labels are of {self.classes} classes and the model has {scores.shape[1]}; name all of them in "
                "their order (--classes)"
            )
        if len(labels) != len(scores):
            raise CallError(f"{len(labels)} labels for {len(scores)} rows of scores; give a label for each row")
        wrong = labels[(labels < 0) | (labels >= scores.shape[1])]
        if wrong.size:
            raise CallError(f"label {wrong[0]}: the model has {scores.shape[1]} classes, 0 to {scores.shape[1] - 1}")
        mine = labels.astype(np.int64)
        own = scores[np.arange(len(mine)), mine][:, None]
        earlier = np.arange(scores.shape[1]) < mine[:, None]  # of equal scores the first class is the higher
        above = (scores > own).sum(1) + ((scores == own) & earlier).sum(1)
        return float((above < self.k).mean())

    def _scores(self, outputs: Outputs) -> Array:
        if not self.output and len(outputs) > 1:
            named = ", ".join(map(repr, outputs))
            raise CallError(f"the model has the outputs {named}; name the one with the scores, as in {self.name}:NAME")
        if self.output and self.output not in outputs:
            raise CallError(f"the model has no output {self.output!r}; it has {', '.join(map(repr, outputs))}")
        scores = outputs[self.output or next(iter(outputs))]
        return scores.reshape(-1, scores.shape[-1]) if scores.ndim else scores.reshape(1, 1)


class PictureMetric(MeanMetric):
    """The mean over samples of how near an output is to its label, which is the picture that is wanted."""

    labelled = True

    def __init__(self, name: str, output: str = "") -> None:
        super().__init__()
        self.name, self.output = name, output

    def measure(self, feeds: Feeds, outputs: Mapping[str, Array], label: Any) -> float:
        """The figure of one sample."""
        if self.output and self.output not in outputs:
            raise CallError(f"the model has no output {self.output!r}; it has {', '.join(map(repr, outputs))}")
        if not self.output and len(outputs) > 1:
            named = ", ".join(map(repr, outputs))
            raise CallError(f"the model has the outputs {named}; name the picture, as in {self.name}:NAME")
        picture = np.asarray(outputs[self.output or next(iter(outputs))], np.float64)
        target = np.asarray(label)
        if target.dtype.kind not in "iuf" or np.squeeze(target).shape != np.squeeze(picture).shape:
            raise CallError(
                f"the label has the shape {list(target.shape)} and the output {list(picture.shape)}; {self.name} needs "
                "the wanted output as label, such as --labels PICTURES.npy"
            )
        wanted = target.reshape(picture.shape).astype(np.float64)
        peak = peak_of(target)
        return psnr_db(picture, wanted, peak) if self.name == "psnr" else ssim(picture, wanted, peak)


class Sqnr:
    """The SQNR against the outputs of another model, the lowest of all float outputs."""

    labelled, resumable = False, True

    def __init__(self, reference: Path) -> None:
        self.name, self.reference = "sqnr", reference
        self._run: Callable[[Feeds], dict[str, Array]] | None = None
        self._sums: dict[str, ErrorSums] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name, "reference": self.reference, "_run": None, "_sums": {}}

    def measure(self, feeds: Feeds, outputs: Outputs, label: Any) -> dict[str, ErrorSums]:
        """The errors of one sample's outputs."""
        if self._run is None:
            self._run = runner(self.reference, "ort", threads=1)
        return self.errors(self._run(feeds), outputs)

    def errors(self, reference: Outputs, outputs: Outputs) -> dict[str, ErrorSums]:
        """The errors of outputs against the reference's."""
        errors = {}
        for name, array in reference.items():
            if name in outputs and array.dtype.kind == "f":
                errors[name] = ErrorSums()
                errors[name].update(array, outputs[name])
        if not errors:
            raise CallError(f"{self.reference}: has no float output in common with the model")
        return errors

    def update(self, measured: dict[str, ErrorSums], label: Any) -> None:
        """Add the errors."""
        for name, sums in measured.items():
            self._sums.setdefault(name, ErrorSums()).merge(sums)

    def reset(self) -> None:
        """Forget all samples."""
        self._sums.clear()

    def sums(self) -> Any:
        """What all samples add up to, as JSON."""
        return {name: astuple(sums) for name, sums in self._sums.items()}

    def go_on(self, sums: Any) -> None:
        """Go on from what was written."""
        self._sums = {name: ErrorSums(*figures) for name, figures in sums.items()}

    def result(self) -> float:
        """The lowest SQNR of the outputs, in dB."""
        return min(sums.sqnr_db for sums in self._sums.values())


class Custom(MeanMetric):
    """A function of outputs and label, of which the mean is taken, or an object with update and result."""

    labelled = False

    def __init__(self, user_metric: Any, name: str) -> None:
        super().__init__()
        self._class = user_metric if inspect.isclass(user_metric) else None
        user_metric = user_metric() if inspect.isclass(user_metric) else user_metric
        self.name, self.user_metric = name, user_metric
        self.collects = hasattr(user_metric, "update") and hasattr(user_metric, "result")
        if not self.collects and not callable(user_metric):
            raise CallError(
                f"metric {name}: neither a function of (outputs, label) nor an object with update and result"
            )

    @property
    def resumable(self) -> bool:
        """A function of one sample; what an object has collected nobody can write down."""
        return not self.collects

    def __getstate__(self) -> dict[str, Any]:
        """What measures travels; the metric itself sees the outputs where they are summed up."""
        return {
            "name": self.name,
            "user_metric": None,
            "_class": None,
            "collects": self.collects,
            "_figures": ExactMean(),
        }

    def measure(self, feeds: Feeds, outputs: Outputs, label: Any) -> Outputs:
        """The outputs: the metric itself sees them in order, in one process."""
        return outputs

    def update(self, measured: Outputs, label: Any) -> None:
        """Hand the outputs to the metric."""
        if self.collects:
            self._call(lambda: self.user_metric.update(dict(measured), label))
            return
        value = self._call(lambda: self.user_metric(dict(measured), label))
        super().update(self._figure(value), label)

    def reset(self) -> None:
        """Forget all samples."""
        super().reset()
        if self._class is not None:
            self.user_metric = self._call(self._class)
        elif self.collects:
            raise CallError(f"metric {self.name}: an object keeps what it has seen; name its class, to be made anew")

    def result(self) -> float:
        """The mean, or what the object says."""
        if self.collects:
            return self._figure(self._call(self.user_metric.result))
        return super().result()

    def _figure(self, value: Any) -> float:
        try:
            figure = float(value)
        except (TypeError, ValueError):
            figure = math.nan
        if math.isnan(figure):
            raise CallError(f"metric {self.name}: gave {value!r}, not a number")
        return figure

    def _call(self, call: Callable[[], Any]) -> Any:
        """What the metric gives; CallError that says where the metric raised an error."""
        try:
            return call()
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)[2:]
            where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
            raise CallError(f"metric {self.name}: {type(error).__name__}: {error}{where}") from error


def metric_of(metric: Any, reference: Path | None = None) -> Metric:
    """The metric that a text means, or a function, class or object of one's own.

    Texts are top1, top5:OUTPUT, psnr, ssim:OUTPUT, sqnr:FLOAT.onnx, FILE.py:NAME, and kinds of decisions, which need no
    labels: decisions, detection:FLOAT.onnx …; `reference` is the float model of those and of a mere "sqnr".
    """
    if not isinstance(metric, str):
        return Custom(metric, getattr(metric, "__name__", type(metric).__name__))
    kind, _, rest = metric.partition(":")
    if top := re.fullmatch(r"top(\d+)", kind):
        if int(top[1]) < 1:
            raise CallError(f"metric {metric!r}: k is at least 1")
        return TopK(int(top[1]), rest)
    if kind in ("psnr", "ssim"):
        return PictureMetric(kind, rest)
    if kind == "sqnr":
        model = Path(rest) if rest or reference is None else reference
        if not model.is_file():
            raise CallError(f"metric {metric!r}: sqnr:FLOAT.onnx needs the float model; there is no file {rest!r}")
        return Sqnr(model)
    if kind in DECISIONS:
        return DecisionAgreement.of(metric, reference)
    file, _, name = metric.rpartition(":")
    if file.endswith(".py"):
        return Custom(_load_function(Path(file), name), metric)
    raise CallError(
        f"metric {metric!r}: there are top1, top5 (any k), psnr, ssim, sqnr:FLOAT.onnx, FILE.py:NAME, and without "
        f"labels {', '.join(DECISIONS)}"
    )


def _load_function(path: Path, name: str) -> Any:
    if not path.is_file():
        raise CallError(f"metric {path}:{name}: there is no file {path}")
    spec = importlib.util.spec_from_file_location(f"hexforge_metric_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))  # as if it were run: it may import what lies beside it
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == path]
        line = getattr(error, "lineno", None) or (frames[-1].lineno if frames else None)
        where = f", line {line}" if line else ""
        raise CallError(f"metric {path}{where}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(path.parent))
    if not hasattr(module, name):
        raise CallError(f"metric {path}: has no {name!r}")
    return getattr(module, name)


def metric_source(metric: Any) -> str:
    """The source of a metric that the user wrote, because figures of another are others."""
    path = Path(metric.rpartition(":")[0]) if isinstance(metric, str) else Path()
    return path.read_text("utf-8") if path.suffix == ".py" else ""


def check_numbers(outputs: Outputs, sample: int) -> None:
    """ModelError where an output is not a number."""
    for name, array in outputs.items():
        if array.dtype.kind == "f" and np.isnan(array).any():
            count = int(np.isnan(array).sum())
            raise ModelError(f"sample {sample}: output {name!r} has {count} NaN of {array.size} elements")
