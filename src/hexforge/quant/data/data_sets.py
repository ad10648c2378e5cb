# SPDX-License-Identifier: Apache-2.0
"""Data sets: samples in tar or Parquet shards, or in files behind a URL that fsspec opens, read one after another.

A tar shard holds files whose names up to the first dot are a sample's: `0017.npy` or `0017.jpg` for one input, an .npz
or `0017.INPUT.npy` for several, and `0017.cls` for its label. A Parquet shard has a column for each input (numbers, or
a picture's bytes) and `label`. Shards are named by a path, a pattern (`part-{000..099}.tar`, `*.parquet`), a folder or
a URL of one. A shard that ends too early is one sample that cannot be read.
"""

from __future__ import annotations

import bisect
import glob
import itertools
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from hexforge.errors import CallError, FormatError, HexforgeError
from hexforge.formats.files import file_stem
from hexforge.quant.data.model_inputs import Input
from hexforge.quant.data.parquet_rows import parquet_count, parquet_samples
from hexforge.quant.data.pictures import PictureOptions
from hexforge.quant.data.sample_files import read_content, sample_kind
from hexforge.quant.data.sample_sources import IndexedSamples, UnreadableSample

LABELS = "dataset"
"""Asks for the labels that a data set holds itself."""
_TARS = (".tar", ".tar.gz", ".tgz")
_PARQUET = (".parquet",)
_LABEL = "cls"
_HERE = ("file://", "local://", "memory://")
"""URLs of what only this machine has."""
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_MOST_BYTES = 1 << 30
"""A file in a tar shard is no larger."""
_SHORT_BYTES = 16 << 20
"""A shard of at most so many bytes is skipped through in milliseconds."""

_DAMAGES = (tarfile.TarError, OSError, EOFError, zlib.error)

Row = tuple[str, Any, Any]
"""Where a sample is from, what is there, and its label."""


def is_data_set(source: str) -> bool:
    """Whether a text names shards or a URL; a folder does where it holds shards."""
    return "://" in source or bool(_shard_names(source))


def data_set(source: str, inputs: Sequence[Input], pictures: Mapping[str, Any]) -> ShardSamples | IndexedSamples | None:
    """The samples of shards or of files behind a URL; None for what is neither."""
    options = PictureOptions.of(pictures, "picture options")
    remote = "://" in source
    names = _url_names(source) if remote else _shard_names(source)
    if not names and not remote:
        return None
    if all(map(_is_shard, names)):
        return ShardSamples(tuple(names), tuple(inputs), options)
    files = [name for name in names if sample_kind(name) is not None]
    if not files:
        raise CallError(f"{source}: no samples in it; these are .tar, .parquet, .npy, .npz, .raw or picture files")

    def get(number: int) -> tuple[str, Any]:
        with opened(files[number]) as file:
            return files[number], read_content(files[number], file.read(), inputs, options)

    return IndexedSamples(len(files), get, files, stored=True, remote=not source.startswith(_HERE))


def _is_shard(name: str) -> bool:
    return name.lower().endswith(_TARS + _PARQUET)


def _shard_names(source: str) -> list[str]:
    """The shards of a path, a pattern or a folder on this machine; none where it names something else."""
    path = Path(source)
    if path.is_dir():
        return sorted(str(p) for p in path.iterdir() if _is_shard(p.name) and p.is_file())
    if not _is_shard(source):
        return []
    if path.is_file():
        return [source]
    names = [name for one in _expanded(source) for name in sorted(glob.glob(one)) or [one]]  # noqa: PTH207 - the pattern may begin anywhere
    if missing := [name for name in names if not Path(name).is_file()]:
        raise CallError(f"{missing[0]}: there is no such file or folder of samples")
    return names


def _url_names(source: str) -> list[str]:
    """The files of a URL, of a pattern of one, or of a folder behind one."""
    names: list[str] = []
    for one in _expanded(source):
        system, path = file_system(one)
        try:
            if any(c in path for c in "*?["):
                listed = sorted(system.glob(path))
            elif system.isdir(path):
                listed = sorted(system.ls(path, detail=False))
            else:
                listed = [path]
            names += [system.unstrip_protocol(name) for name in listed]
        except Exception as error:  # a file system of anybody's
            raise CallError(f"{one}: cannot be read: {_first_line(error)}") from None
    return names


def _expanded(source: str) -> list[str]:
    """Patterns such as part-{000..099}.tar as names."""
    match = _RANGE.search(source)
    if match is None:
        return [source]
    low, high = match[1], match[2]
    numbers = range(int(low), int(high) + 1)
    return [
        name
        for number in numbers
        for name in _expanded(f"{source[: match.start()]}{number:0{len(low)}}{source[match.end() :]}")
    ]


def file_system(url: str) -> tuple[Any, str]:
    """What fsspec opens a URL with, and the path in it; CallError where it cannot."""
    try:
        import fsspec  # type: ignore[import-untyped]
    except ImportError:
        raise CallError(f"{url}: URLs need fsspec: pip install 'hexforge[cluster]'") from None
    try:
        system, path = fsspec.core.url_to_fs(url)
    except Exception as error:  # its own packages' faults too
        raise CallError(f"{url}: cannot be read: {_first_line(error)}") from None
    return system, path


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


@contextmanager
def opened(name: str) -> Iterator[IO[bytes]]:
    """A file by its path or URL; CallError where it is not there."""
    try:
        file: Any = file_system(name)[0].open(name, "rb") if "://" in name else Path(name).open("rb")  # noqa: SIM115
    except HexforgeError:
        raise
    except Exception as error:
        why = getattr(error, "strerror", None) or _first_line(error)
        raise CallError(f"{name}: cannot be read: {why}") from None
    with file:
        yield file


@dataclass(frozen=True, slots=True)
class ShardSamples:
    """The samples of shards, in their order."""

    shards: tuple[str, ...]
    inputs: tuple[Input, ...]
    options: PictureOptions
    _counts: list[int] = field(default_factory=list)
    """Of each shard, when they were counted."""

    @property
    def stored(self) -> bool:
        """Another process can read them."""
        return True

    @property
    def remote(self) -> bool:
        """Whether other machines can."""
        return all("://" in shard and not shard.startswith(_HERE) for shard in self.shards)

    @property
    def short(self) -> bool:
        """Whether any sample of a shard is read at once, those before it skipped."""
        try:
            return not any("://" in shard or Path(shard).stat().st_size > _SHORT_BYTES for shard in self.shards)
        except OSError:  # who reads it says so
            return False

    def ends(self) -> list[int]:
        """How many samples there are up to the end of each shard."""
        if not self._counts:
            self._counts.extend(self._count(shard) for shard in self.shards)
        return list(itertools.accumulate(self._counts))

    def count(self) -> int:
        """How many there are."""
        return self.ends()[-1]

    def read(self, start: int) -> Iterator[tuple[str, Any]]:
        """The samples from number `start` on."""
        return ((where, raw) for where, raw, _ in self.labelled(start))

    def labelled(self, start: int) -> Iterator[Row]:
        """The samples from number `start` on, with their labels."""
        ends = self.ends() if start else []
        first = bisect.bisect_right(ends, start) if start else 0
        skipped = start - (ends[first - 1] if first else 0)
        for index in range(first, len(self.shards)):
            yield from self._rows(self.shards[index], skipped if index == first else 0)

    def _rows(self, shard: str, skipped: int) -> Iterator[Row]:
        with opened(shard) as file:
            try:
                if shard.lower().endswith(_PARQUET):
                    yield from parquet_samples(shard, file, self.inputs, self.options, skipped)
                else:
                    yield from _tar_samples(shard, file, self.inputs, self.options, skipped)
            except FormatError as error:
                yield shard, UnreadableSample(error), None

    def _count(self, shard: str) -> int:
        count = 0
        with opened(shard) as file:
            try:
                if shard.lower().endswith(_PARQUET):
                    return parquet_count(shard, file)
                for _ in _tar_groups(shard, file, None):
                    count += 1
            except FormatError:  # what is behind the damage is one sample that cannot be read
                count += 1
        return count


def _tar_groups(shard: str, file: IO[bytes], skipped: int | None) -> Iterator[tuple[str, dict[str, bytes | None]]]:
    """Of each sample its key and its files by what follows the key's dot; FormatError where the shard is damaged.

    The first so many have no contents; with None all have none.
    """
    key, parts, number = "", dict[str, bytes | None](), 0
    try:
        with tarfile.open(fileobj=file, mode="r:" if shard.lower().endswith(".tar") else "r:gz") as tar:
            while (member := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # it would keep them all
                folder, slash, name = member.name.rpartition("/")
                if not member.isfile() or name.startswith("."):
                    continue
                stem, _, suffix = name.partition(".")
                if parts and f"{folder}{slash}{stem}" != key:
                    yield key, parts
                    parts, number = {}, number + 1
                key = f"{folder}{slash}{stem}"
                parts[suffix.lower()] = None if skipped is None or number < skipped else _content(tar, member)
    except _DAMAGES as error:
        if parts:
            yield key, parts
        raise FormatError(f"{shard}: is damaged behind {key!r}: {_first_line(error)}") from None
    if parts:
        yield key, parts


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes | None:
    """The bytes of a file; None where they cannot be read."""
    try:
        file = tar.extractfile(member) if member.size <= _MOST_BYTES else None
        return None if file is None else file.read()
    except _DAMAGES:
        return None


def _tar_samples(
    shard: str, file: IO[bytes], inputs: Sequence[Input], options: PictureOptions, skipped: int
) -> Iterator[Row]:
    for key, parts in itertools.islice(_tar_groups(shard, file, skipped), skipped, None):
        where = f"{shard}, {key}"
        whole = {name: content for name, content in parts.items() if content is not None}
        label = whole.pop(_LABEL, None)
        try:
            if len(whole) + (label is not None) < len(parts):
                raise CallError(f"{where}: is cut off, or has more than {_MOST_BYTES:,} bytes")
            sample: Any = _tar_sample(where, whole, inputs, options)
            known = None if label is None else _label(label)
        except HexforgeError as error:
            sample, known = UnreadableSample(error), None
        yield where, sample, known


def _tar_sample(
    where: str, parts: Mapping[str, bytes], inputs: Sequence[Input], options: PictureOptions
) -> dict[str, Any]:
    by_input = {i.name: name for i in inputs for name in parts if name.rpartition(".")[0] == file_stem(i.name).lower()}
    if by_input:
        sample: dict[str, Any] = {}
        for i in (i for i in inputs if i.name in by_input):
            name = by_input[i.name]
            sample |= read_content(f"{where}.{name}", parts[name], (i,), options)
        return sample
    usable = [name for name in parts if sample_kind(f"x.{name}") is not None]
    if len(usable) != 1:
        there = ", ".join(parts) or "nothing"
        raise CallError(f"{where}: has {there}; a sample is one .npy, .npz, .raw or picture file, or one an input")
    if len(inputs) > 1 and sample_kind(f"x.{usable[0]}") != ".npz":
        raise CallError(f"{where}: the model has {len(inputs)} inputs; give an .npz, or KEY.INPUT.npy for each")
    return read_content(f"{where}.{usable[0]}", parts[usable[0]], inputs, options)


def _label(content: bytes) -> Any:
    text = content.decode("utf-8", "replace").strip()
    return int(text) if text.lstrip("-").isdecimal() else text
