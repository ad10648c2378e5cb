# SPDX-License-Identifier: Apache-2.0
"""Sample sources: where samples come from, unchecked, read by number, as a stream or only once."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hexforge.errors import CallError, HexforgeError
from hexforge.quant.data.model_inputs import Input, checked_sample


@dataclass(frozen=True, slots=True)
class UnreadableSample:
    """Stands for a sample that cannot be read."""

    error: HexforgeError
    """Why, with where it is."""


class SampleSource(Protocol):
    """Where samples come from, unchecked: pairs of where one is from and what is there."""

    def read(self, start: int) -> Iterator[tuple[str, Any]]:
        """The samples from number `start` on; an UnreadableSample where the next ones can be read all the same."""
        ...

    def count(self) -> int:
        """How many there are."""
        ...


@dataclass(frozen=True, slots=True)
class IndexedSamples:
    """Samples that are read by number."""

    total: int
    get: Callable[[int], tuple[str, Any]]
    names: Sequence[str] = ()
    """The file of each, where each has one."""
    folder: Path | None = None
    """The folder of all files, which must not disappear."""
    stored: bool = False
    """Whether another process can read them from where they are kept, or make them up alike."""
    remote: bool = False
    """Whether other machines can."""

    @property
    def short(self) -> bool:
        """Any of them is read without those before it."""
        return True

    def read(self, start: int) -> Iterator[tuple[str, Any]]:
        """The samples from number `start` on."""
        for number in range(start, self.total):
            try:
                yield self.get(number)
            except HexforgeError as error:
                if self.folder is not None and not self.folder.is_dir():
                    raise CallError(f"{self.folder}: the folder of samples is no longer there") from None
                yield "", UnreadableSample(error)

    def count(self) -> int:
        """How many there are."""
        return self.total


class StreamedSamples:
    """Samples that can be read again from the beginning, only."""

    def __init__(self, begin: Callable[[], Iterator[Any]], name: str) -> None:
        self.begin, self.name, self.total = begin, name, -1

    def read(self, start: int) -> Iterator[tuple[str, Any]]:
        """The samples from number `start` on."""
        number = -1
        for number, raw in enumerate(self.begin()):
            if number >= start:
                yield f"sample {number} of {self.name}", raw
        self.total = number + 1

    def count(self) -> int:
        """How many there are."""
        if self.total < 0:
            for _ in self.read(0):
                pass
        return self.total


class OnceReadSamples:
    """Samples that can be read only once: kept in a temporary folder, one file each, as far as they have been read."""

    def __init__(self, items: Iterator[Any], inputs: Sequence[Input], name: str) -> None:
        self.items, self.inputs, self.name, self.kept, self.ended = items, inputs, name, 0, False
        self.folder = Path(tempfile.mkdtemp(prefix="hexforge-samples-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def read(self, start: int) -> Iterator[tuple[str, Any]]:
        """The samples from number `start` on."""
        number = start
        while number < self.kept or self._keep(number):
            path = self.folder / f"{number}.npz"
            with np.load(path, allow_pickle=False) as file:
                yield f"sample {number} of {self.name}", {i.name: file[str(k)] for k, i in enumerate(self.inputs)}
            number += 1

    def count(self) -> int:
        """How many there are."""
        while self._keep(self.kept):
            pass
        return self.kept

    def _keep(self, number: int) -> bool:
        """Read on to sample `number`; False where the samples end before it."""
        while self.kept <= number and not self.ended:
            raw = next(self.items, None)
            if raw is None:
                self.ended = True
                break
            arrays = checked_sample(raw, self.inputs, f"sample {self.kept} of {self.name}")
            named = {str(k): arrays[i.name] for k, i in enumerate(self.inputs)}
            np.savez(self.folder / f"{self.kept}.npz", **named)  # type: ignore[arg-type]
            self.kept += 1
        return number < self.kept
