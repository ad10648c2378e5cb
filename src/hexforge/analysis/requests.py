# SPDX-License-Identifier: Apache-2.0
"""Requests: what a model is quantized, compared, scored, searched and optimized by, each declared once.

The public functions take the fields of a request as parameters, the commands as options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexforge.analysis.workers import Workers
from hexforge.chips.soc import DEFAULT_SOC
from hexforge.request_fields import none_if_empty, option, spelled

if TYPE_CHECKING:
    from hexforge.analysis.quality.runners import ModelEngine
    from hexforge.ir import Array
    from hexforge.model.source import ModelSource
    from hexforge.quant.data.feeds import Feeds, Samples
    from hexforge.quant.decide.recipe import Recipe

Progress = Callable[[int, int], None]
"""How far it is, and out of how much."""
StageProgress = Callable[[str, int, int], None]
"""What is being done, how far it is, and out of how much."""

DEFAULT_RECIPE = "w8a8_channel"
"""A scale for every output channel costs no time and keeps accuracy where one for all loses it (README, accuracy)."""
SQNR = "sqnr"

CHIPS = f'Chip by name, number or device: SM8650, "8 Gen 3", "Galaxy S24" ({DEFAULT_SOC}).'
MODEL = spelled("The ONNX file, a .tflite or a .pte.", is_argument=True, kind=Path, show_default=False)
SOC = spelled(CHIPS, "--soc")
DATA_HELP = "Folder of samples (.npy, .npz, .raw, images), tar or Parquet shards, a URL, or random:8 to try it."
LABELS = spelled(
    "A .csv, .json, .txt or .npy file; folders: their names; dataset: the shards' own.",
    kind=str,
    given="",
    read=none_if_empty,
)
CLASSES = spelled("Names of the classes, one a line, in their order.", kind=Path, exists=True, dir_okay=False)
BACKEND = spelled("Where the model runs: htp, cpu, ort (onnxruntime) or vendor.", kind=str)
JOBS = spelled("Processes to work on.", "--jobs", "-j", min=1)
LIMIT = spelled("Samples to look at; 0: all.", kind=int, given=0, read=none_if_empty, min=0)
STRICT = spelled("A sample that cannot be read is an error; else it is left out.")
JUDGED_BY = spelled(
    "What people decide by: decisions (told by the outputs), classification, labels, detection, segmentation, "
    "sequence, embedding, picture, keypoints, numbers, KIND:OUTPUT, detection:LAYOUT; sqnr: nothing.",
    "--metric",
)


@dataclass(frozen=True, slots=True)
class QuantizeRequest:
    """What a float model is quantized by."""

    model: ModelSource = field(metadata=MODEL)
    data: Any = field(metadata=spelled(DATA_HELP, kind=str, given=""))
    recipe: str | Path | Recipe = option(
        DEFAULT_RECIPE, "w8a8, w8a8_channel, w8a16, w4a16_block, w8a8+equalize; MatMul=w8a16 …, or a file.",
        "--recipe", "--precision", kind=str,
    )  # fmt: skip
    output: str | Path | None = option(None, "The file to write.", "--output", "-o", kind=Path, dir_okay=False)
    """Without one the model comes back as bytes."""
    _: KW_ONLY
    method: str | None = option(
        None, "Ranges: minmax, moving_average, percentile[=99.99], entropy, mse.", given="", kind=str,
        read=none_if_empty,
    )  # fmt: skip
    encodings: str | Path | None = option(None, "AIMET encodings that stand as they are.", kind=Path, exists=True)
    soc: str | None = field(default=None, metadata=spelled(CHIPS, given=DEFAULT_SOC, kind=str, read=none_if_empty))
    state: str | Path | None = option(None, "Keeps what calibration has seen: an interrupted run goes on.", kind=Path)
    """The next recipe does without calibration, too."""
    quality: bool = option(
        False, "Compare with the float model on samples held out of calibration, one of five.",
        "--quality/--no-quality", given=True,
    )  # fmt: skip
    rewrite: bool = option(False, "First write what the NPU refuses as what it takes, where the model stays the same.")
    metric: str = field(default="decisions", metadata=JUDGED_BY)
    strict_samples: bool = field(default=False, metadata=STRICT)
    workers: Workers = field(default_factory=Workers)
    """What samples are run by; the model is the same for any number of them."""
    dims: Mapping[str, int] | None = None
    shapes: Mapping[str, Sequence[int]] | None = None
    constants: Mapping[str, Any] | None = None
    progress: StageProgress | None = None


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """What a quantized model is compared with, and on what."""

    float_model: str | Path = field(
        metadata=spelled("The float ONNX file, .tflite or .pte.", is_argument=True, kind=Path)
    )
    quantized: str | Path | bytes = field(
        metadata=spelled("The QDQ file made of it, or a .pte.", is_argument=True, kind=Path, given=None)
    )
    data: str | Path | Samples | Iterable[Feeds] = field(metadata=spelled(DATA_HELP, kind=str, given=""))
    _: KW_ONLY
    backend: str | ModelEngine = field(default="htp", metadata=BACKEND)
    soc: str = field(default="", metadata=SOC)
    sensitivity: str = option("none", "Of each layer: quantize only it (one), all-but-one, or none.")
    jobs: int = field(default=1, metadata=JOBS)
    """Processes that measure layers."""
    cluster: bool | str = False
    """True, or its address: those of a Ray cluster do."""
    limit: int | None = field(default=None, metadata=LIMIT)
    metric: str = field(default="decisions", metadata=JUDGED_BY)
    strict_samples: bool = field(default=False, metadata=STRICT)
    dims: Mapping[str, int] | None = None
    shapes: Mapping[str, Sequence[int]] | None = None
    constants: Mapping[str, Any] | None = None
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class EvaluateRequest:
    """What a model is scored by."""

    model: str | Path | bytes = field(metadata=MODEL)
    data: str | Path | Samples | Iterable[Feeds] = field(metadata=spelled(DATA_HELP, kind=str))
    labels: str | Path | Sequence[Any] | Array | None = field(default=None, metadata=LABELS)
    metric: Any = option(
        "top1",
        "top1, top5, top1:OUTPUT, psnr, ssim, FILE.py:NAME; against --reference and without labels sqnr, decisions, "
        "or a kind such as detection.",
        kind=str,
    )
    """Also a function of (outputs by name, label), or an object with update(outputs, label) and result()."""
    _: KW_ONLY
    reference: str | Path | None = option(
        None, "The float model to compare decisions with.", kind=Path, exists=True, dir_okay=False
    )
    classes: Sequence[str] | Path | None = field(default=None, metadata=CLASSES)
    backend: str | ModelEngine = field(default="htp", metadata=BACKEND)
    soc: str = field(default="", metadata=SOC)
    jobs: int = field(default=1, metadata=JOBS)
    cluster: bool | str = False
    """True, or its address: the machines of a Ray cluster work, which need not see the files."""
    limit: int | None = field(default=None, metadata=LIMIT)
    strict_samples: bool = field(default=False, metadata=STRICT)
    state: str | Path | None = option(None, "Keeps what the samples add up to: an interrupted run goes on.", kind=Path)
    draw: bool = False
    """Keep the sample on which model and reference decide most differently, for a page."""
    dims: Mapping[str, int] | None = None
    shapes: Mapping[str, Sequence[int]] | None = None
    constants: Mapping[str, Any] | None = None
    progress: Progress | None = None
