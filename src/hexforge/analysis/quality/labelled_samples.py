# SPDX-License-Identifier: Apache-2.0
"""Labelled samples: what a model is evaluated on, each sample with what is right, read range by range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from hexforge.analysis.mapped_tasks import RangedTasks
from hexforge.analysis.quality.labels import FOLDERS, class_folders, class_numbers, read_labels
from hexforge.analysis.quality.metrics import Metric, TopK
from hexforge.errors import CallError
from hexforge.quant.data.data_sets import LABELS, ShardSamples
from hexforge.quant.data.feeds import Feeds
from hexforge.quant.data.pictures import PictureFolder
from hexforge.quant.data.sample_sources import IndexedSamples, UnreadableSample
from hexforge.quant.data.samples import CheckedSamples, LeftOutSamples
from hexforge.quant.data.samples import samples as samples_of

LabelledSample = tuple[int, Feeds | UnreadableSample, Any]
"""Number, sample and label."""
_RANGE = 64
"""Samples of files that are read by one reader, one after another."""


@dataclass(frozen=True, slots=True)
class SampleRange:
    """Samples of one part, which are read one after another."""

    part: int
    before: int
    """How many samples the parts before it have."""
    numbers: Sequence[int]
    """Among the samples of all parts; they rise."""
    labels: Sequence[Any] | None
    """None where the data set has them itself, or there are none."""

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: slice) -> SampleRange:
        labels = None if self.labels is None else self.labels[index]
        return replace(self, numbers=self.numbers[index], labels=labels)


@dataclass(frozen=True, slots=True)
class LabelledSamples:
    """Samples to evaluate on, each with what is right: (number, sample, label), as often as it is asked."""

    parts: Sequence[CheckedSamples]
    order: Sequence[int]
    """Numbers of the samples among those of all parts; they rise."""
    labels: Sequence[Any] | None
    """In that order; None where the data set has them itself, or there are none."""
    classes: Mapping[str, int] | None = None
    """The numbers of classes, where the data set's own labels are their names."""
    left_out: LeftOutSamples = field(default_factory=LeftOutSamples)

    def __len__(self) -> int:
        return len(self.order)

    def names(self, numbers: Sequence[int]) -> list[str]:
        """The files of some samples, where they come from files."""
        names = [str(name) for part in self.parts for name in getattr(part.origin, "names", ())[part.skip :]]
        return [names[i] for i in numbers if i < len(names)]

    def leave_out(self, number: int, sample: UnreadableSample) -> None:
        """Count a sample that cannot be read; an error where all must be."""
        if any(part.strict for part in self.parts):
            raise sample.error
        self.left_out.add(number, sample.error)

    def __iter__(self) -> Iterator[tuple[int, Feeds, Any]]:
        """Those that can be read."""
        any_read = False
        for number, feeds, label in self.tasks():
            if isinstance(feeds, UnreadableSample):
                self.leave_out(number, feeds)
            else:
                any_read = True
                yield number, feeds, label
        if not any_read and self.left_out.reasons:
            raise CallError(f"no sample can be read; the first: {self.left_out.reasons[0]}")

    def without_first(self, count: int) -> LabelledSamples:
        """The same without the first so many."""
        return replace(self, order=self.order[count:], labels=None if self.labels is None else self.labels[count:])

    def identity(self) -> list[Any]:
        """What tells these samples from others: names, sizes and times of files; CallError where these are none."""
        known: list[Any] = [list(self.order) if not isinstance(self.order, range) else str(self.order)]
        for part in self.parts:
            origin = part.origin
            if not isinstance(origin, ShardSamples | IndexedSamples) or not origin.stored:
                raise CallError("a state needs samples that are kept in files; these are of this process alone")
            names = origin.shards if isinstance(origin, ShardSamples) else origin.names
            folder = getattr(origin, "folder", None) or Path()
            times = [_stamp(folder / name) for name in names if "://" not in name]
            known.append([str(folder), part.skip, part.limit, list(names), times, origin.count()])
        return known

    def tasks(self) -> RangedTasks[LabelledSample]:
        """All of them, for others to read; those that cannot be read stand for themselves."""
        origins = [part.origin for part in self.parts]
        kept = [origin for origin in origins if isinstance(origin, ShardSamples | IndexedSamples) and origin.stored]
        travels = len(kept) == len(origins)
        anywhere = travels and all(origin.remote for origin in kept)
        short = all(origin.short for origin in kept)
        return RangedTasks(tuple(self._ranges()), _RangeReader(self.parts, self.classes), travels, anywhere, short)

    def _ranges(self) -> Iterator[SampleRange]:
        """Samples that are read together: of one part, of one shard, or so many that a reader has some work."""
        before = at = 0
        for number, part in enumerate(self.parts):
            for end in _ends(part):
                start = at
                while at < len(self.order) and self.order[at] < before + end:
                    at += 1
                if at > start:
                    labels = None if self.labels is None else self.labels[start:at]
                    yield SampleRange(number, before, self.order[start:at], labels)
            before += len(part)


def _stamp(path: Path) -> list[int]:
    try:
        status = path.stat()
    except OSError:
        return []
    return [status.st_size, status.st_mtime_ns]


def _ends(part: CheckedSamples) -> Sequence[int]:
    """Where ranges of a part end."""
    length = len(part)
    if isinstance(part.origin, ShardSamples):
        return [min(length, end - part.skip) for end in part.origin.ends()]
    if isinstance(part.origin, IndexedSamples):
        return [*range(_RANGE, length, _RANGE), length]
    return [length]


@dataclass(frozen=True, slots=True)
class _RangeReader:
    """Reads samples, on whatever machine it is."""

    parts: Sequence[CheckedSamples]
    classes: Mapping[str, int] | None

    def __call__(self, some: SampleRange) -> Iterator[LabelledSample]:
        part = self.parts[some.part]
        numbers = [number - some.before for number in some.numbers]
        rows = self._rows(part, numbers)
        for index, (number, (sample, own)) in enumerate(zip(some.numbers, rows, strict=True)):
            label = self._known(own) if some.labels is None else some.labels[index]
            yield number, sample, label

    def _rows(self, part: CheckedSamples, numbers: Sequence[int]) -> Iterator[tuple[Feeds | UnreadableSample, Any]]:
        """The samples of these numbers, with labels of the data set's own."""
        if isinstance(part.origin, IndexedSamples):
            for number in numbers:  # read by number, not one after another
                yield part.checked(*next(part.origin.read(part.skip + number))), None
            return
        first = numbers[0]
        wanted = set(numbers)
        if isinstance(part.origin, ShardSamples):
            labelled = part.origin.labelled(part.skip + first)
            rows = ((part.checked(where, raw), label) for where, raw, label in labelled)
        else:
            rows = ((sample, None) for sample in part.from_number(first))
        for number, row in enumerate(islice(rows, numbers[-1] - first + 1), first):
            if number in wanted:
                yield row

    def _known(self, label: Any) -> Any:
        if self.classes is None or not isinstance(label, str):
            return label
        if label not in self.classes:
            raise CallError(f"label {label!r} is not among the {len(self.classes)} classes")
        return self.classes[label]


def labelled_samples(
    data: Any,
    labels: Any,
    metric: Metric,
    model: Any,
    classes: Sequence[str] | None = None,
    limit: int | None = None,
    *,
    strict: bool = True,
) -> LabelledSamples:
    """Samples and labels for a metric: all of them, the first, or, where they lie class by class, evenly out of all."""
    parts, all_labels = _sources(data, labels, model, strict)
    total = sum(map(len, parts))
    if not total:
        raise CallError("there are no samples to evaluate")
    own = isinstance(labels, str | Path) and str(labels) == LABELS
    if all_labels is None and metric.labelled and not own:
        raise CallError(f"metric {metric.name} needs labels: a file of them, or folders named for classes")
    if all_labels is not None and isinstance(metric, TopK):
        all_labels, metric.classes = class_numbers(all_labels, classes)
    count = total if limit is None else min(limit, total)
    if count < 1:
        raise CallError(f"limit {limit}: at least one sample is evaluated")
    order = [i * total // count for i in range(count)] if len(parts) > 1 else range(count)
    known = {name: i for i, name in enumerate(classes)} if own and classes is not None else None
    return LabelledSamples(parts, order, None if all_labels is None else [all_labels[i] for i in order], known)


def _sources(data: Any, labels: Any, model: Any, strict: bool) -> tuple[list[CheckedSamples], list[Any] | None]:
    """The samples, in one part or in one for each class, and their labels."""
    if isinstance(labels, str | Path) and str(labels) == FOLDERS:
        pictures = data.options if isinstance(data, PictureFolder) else {}
        data = data.path if isinstance(data, PictureFolder) else data
        if not isinstance(data, str | Path):
            raise CallError("labels from folder names need a folder of samples; give a file or a list of labels")
        folders = class_folders(Path(data))
        parts = [samples_of(folder, model, strict=strict, **pictures) for folder in folders]
        return parts, [f.name for f, part in zip(folders, parts, strict=True) for _ in range(len(part))]
    samples = samples_of(data, model, strict=strict)
    if isinstance(labels, str | Path) and str(labels) == LABELS:
        if not isinstance(samples.origin, ShardSamples):
            raise CallError(f"labels {LABELS!r}: only tar and Parquet shards hold labels; give a file of them")
        return [samples], None
    names = getattr(samples.origin, "names", ())
    return [samples], None if labels is None else read_labels(labels, names, len(samples))
