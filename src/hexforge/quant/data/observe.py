# SPDX-License-Identifier: Apache-2.0
"""Observe: what a tensor holds over all samples, in a memory that does not grow with them."""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hexforge._native import channel_extents, coarsen, extent, histogram_exponent, observe
from hexforge.errors import FormatError
from hexforge.formats.files import write_atomically
from hexforge.ir import Array

BINS = 2048
"""Bins of a histogram."""

_EMPTY_EXPONENT = -126  # of a histogram in which nothing was counted yet: the finest there is
_INTEGERS = ("count", "zeros", "nonfinite", "samples", "exponent", "channel_axis")
_REALS = ("minimum", "maximum", "minimum_sum", "maximum_sum")
_VERSION = 1


class TensorStatistics:
    """Extremes, counts and a histogram of one tensor; infinities and NaN are only counted.

    Bin b of the histogram holds the values in [b, b + 1) * 2**exponent and lies in counts[b % BINS]. The exponent is
    the smallest with which every bin between the extremes has a place of its own. So a growing range only ever adds up
    neighbouring bins, no count is lost or estimated, and the order of updates and merges does not show.
    """

    __slots__ = (
        "channel_axis", "channel_maximum", "channel_minimum", "count", "counts", "exponent", "maximum", "maximum_sum",
        "minimum", "minimum_sum", "nonfinite", "samples", "zeros",
    )  # fmt: skip

    def __init__(self, histogram: bool = True, channel_axis: int | None = None) -> None:
        self.minimum, self.maximum = math.inf, -math.inf
        """The extremes of all finite values; infinity and minus infinity where there is none."""
        self.minimum_sum = self.maximum_sum = 0.0
        """The sums of each sample's own extremes."""
        self.count = self.zeros = self.nonfinite = 0
        """Finite values, those of them that are zero, and the others."""
        self.samples = 0
        """Updates that had a finite value."""
        self.exponent = _EMPTY_EXPONENT
        self.counts: Array | None = np.zeros(BINS, np.int64) if histogram else None
        self.channel_axis = channel_axis
        self.channel_minimum: Array | None = None
        self.channel_maximum: Array | None = None

    @property
    def average(self) -> tuple[float, float]:
        """Mean over the samples of their minimum and of their maximum; zeros where there is no value."""
        return (self.minimum_sum / self.samples, self.maximum_sum / self.samples) if self.samples else (0.0, 0.0)

    def update(self, array: Array) -> None:
        """Take in one sample's values."""
        values = np.ascontiguousarray(array, np.float32)
        if self.counts is None:
            low, high, zeros, nonfinite = extent(values)
        else:
            low, high, zeros, nonfinite, self.exponent = observe(
                values, self.counts, self.exponent, self.minimum, self.maximum
            )
        self.zeros += zeros
        self.nonfinite += nonfinite
        finite = values.size - nonfinite
        if not finite:
            return
        self.count += finite
        self.samples += 1
        self.minimum, self.maximum = min(self.minimum, low), max(self.maximum, high)
        self.minimum_sum += low
        self.maximum_sum += high
        if self.channel_axis is not None and self.channel_axis < values.ndim:
            self._update_channels(values, self.channel_axis)

    def _update_channels(self, values: Array, axis: int) -> None:
        shape = values.shape
        if self.channel_minimum is None or self.channel_maximum is None:
            self.channel_minimum = np.full(shape[axis], np.inf, np.float32)
            self.channel_maximum = np.full(shape[axis], -np.inf, np.float32)
        cube = values.reshape(math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))
        channel_extents(cube, self.channel_minimum, self.channel_maximum)

    def merge(self, other: TensorStatistics) -> None:
        """Take in what another has seen of the same tensor."""
        if (self.counts is None) != (other.counts is None) or self.channel_axis != other.channel_axis:
            raise ValueError("statistics with and without a histogram or channels do not merge")
        minimum, maximum = min(self.minimum, other.minimum), max(self.maximum, other.maximum)
        if self.counts is not None and other.counts is not None and other.count:
            exponent = histogram_exponent(minimum, maximum, BINS)
            theirs = other.counts.copy()
            coarsen(theirs, other.exponent, other.minimum, other.maximum, exponent)
            coarsen(self.counts, self.exponent, self.minimum, self.maximum, exponent)
            self.counts += theirs
            self.exponent = exponent
        self.minimum, self.maximum = minimum, maximum
        for name in ("count", "zeros", "nonfinite", "samples", "minimum_sum", "maximum_sum"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.channel_minimum is not None and other.channel_maximum is not None:
            if self.channel_minimum is None or self.channel_maximum is None:
                self.channel_minimum, self.channel_maximum = other.channel_minimum.copy(), other.channel_maximum.copy()
            else:
                np.minimum(self.channel_minimum, other.channel_minimum, out=self.channel_minimum)
                np.maximum(self.channel_maximum, other.channel_maximum, out=self.channel_maximum)

    def histogram(self) -> tuple[Array, Array]:
        """Counts of the bins from minimum to maximum, and their edges (one more)."""
        if self.counts is None:
            raise ValueError("no histogram was kept of this tensor")
        if not self.count:
            return np.zeros(0, np.int64), np.zeros(1)
        width = math.ldexp(1.0, self.exponent)
        first, last = math.floor(self.minimum / width), math.floor(self.maximum / width)
        bins = np.arange(first, last + 2)
        return self.counts[bins[:-1] % BINS], bins * width

    def to_arrays(self) -> dict[str, Array]:
        """Everything, as arrays."""
        arrays = {
            "integers": np.array([-1 if (v := getattr(self, n)) is None else v for n in _INTEGERS], np.int64),
            "reals": np.array([getattr(self, n) for n in _REALS], np.float64),
        }
        for name in ("counts", "channel_minimum", "channel_maximum"):
            if getattr(self, name) is not None:
                arrays[name] = getattr(self, name)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> TensorStatistics:
        """The inverse of to_arrays; ValueError where the arrays contradict each other."""
        integers = dict(zip(_INTEGERS, map(int, _checked(arrays["integers"], np.int64, len(_INTEGERS))), strict=True))
        reals = dict(zip(_REALS, map(float, _checked(arrays["reals"], np.float64, len(_REALS))), strict=True))
        statistics = cls("counts" in arrays)
        for name, value in (integers | reals).items():
            setattr(statistics, name, value)
        statistics.channel_axis = None if statistics.channel_axis == -1 else statistics.channel_axis
        if "channel_minimum" in arrays:
            channels = len(arrays["channel_minimum"])
            statistics.channel_minimum = _checked(arrays["channel_minimum"], np.float32, channels).copy()
            statistics.channel_maximum = _checked(arrays["channel_maximum"], np.float32, channels).copy()
        if statistics.count and not -math.inf < statistics.minimum <= statistics.maximum < math.inf:
            raise ValueError("extremes out of order")
        if not statistics.count and (statistics.minimum, statistics.maximum) != (math.inf, -math.inf):
            raise ValueError("extremes of no values")
        if statistics.counts is not None:
            statistics.counts = _checked(arrays["counts"], np.int64, BINS).copy()
            exponent = (
                histogram_exponent(statistics.minimum, statistics.maximum, BINS)
                if statistics.count
                else _EMPTY_EXPONENT
            )
            if (
                exponent != statistics.exponent
                or statistics.counts.sum() != statistics.count
                or statistics.counts.min() < 0
            ):
                raise ValueError("a histogram that does not belong to its extremes and count")
        return statistics


def _checked(array: Array, dtype: Any, length: int) -> Array:
    if array.dtype != dtype or array.shape != (length,):
        raise ValueError(f"{array.dtype}{list(array.shape)} where {np.dtype(dtype)}[{length}] belongs")
    return array


class Statistics(Mapping[str, TensorStatistics]):
    """Statistics of a model's tensors by name, with hashes of the model and of the data."""

    def __init__(
        self, tensors: dict[str, TensorStatistics], model_sha256: str = "", data_sha256: str = "", samples: int = 0
    ) -> None:
        self.tensors = tensors
        self.model_sha256 = model_sha256
        self.data_sha256 = data_sha256
        """The hash of the samples seen, in their order."""
        self.samples = samples
        """How many were seen."""

    def __getitem__(self, name: str) -> TensorStatistics:
        return self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def save(self, path: Path | str) -> None:
        """Write everything to an .npz file, whole or not at all."""
        about = {
            "hexforge_statistics": _VERSION,
            "model_sha256": self.model_sha256,
            "data_sha256": self.data_sha256,
            "samples": self.samples,
            "names": list(self.tensors),
        }
        arrays: dict[str, Array] = {"about": np.frombuffer(json.dumps(about).encode(), np.uint8)}
        for i, tensor in enumerate(self.tensors.values()):
            arrays |= {f"{i}.{name}": array for name, array in tensor.to_arrays().items()}
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        write_atomically(Path(path), buffer.getvalue())

    @classmethod
    def load(cls, path: Path | str) -> Statistics:
        """Read what save wrote; FormatError for any other file."""
        try:
            with Path(path).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                arrays = dict(file)
            about = json.loads(arrays.pop("about").tobytes())
            if about["hexforge_statistics"] != _VERSION:
                raise ValueError(f"version {about['hexforge_statistics']}, this hexforge reads {_VERSION}")
            parts: list[dict[str, Array]] = [{} for _ in about["names"]]
            for key, array in arrays.items():
                index, _, name = key.partition(".")
                parts[int(index)][name] = array
            tensors = {str(n): TensorStatistics.from_arrays(p) for n, p in zip(about["names"], parts, strict=True)}
            if not isinstance(about["samples"], int) or about["samples"] < 0:
                raise ValueError("no number of samples")
            return cls(tensors, str(about["model_sha256"]), str(about["data_sha256"]), about["samples"])
        except OSError as error:
            raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from None
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
            raise FormatError(
                f"{path}: not a file of calibration statistics, or damaged ({error}); delete it and calibrate again"
            ) from None
