# SPDX-License-Identifier: Apache-2.0
"""Parquet rows: samples out of the columns of a Parquet file. Needs pyarrow (extra `cluster`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np

from hexforge.errors import CallError, FormatError, HexforgeError
from hexforge.ir import Array
from hexforge.quant.data.model_inputs import Input
from hexforge.quant.data.pictures import PictureOptions, load_picture
from hexforge.quant.data.sample_files import raw_array
from hexforge.quant.data.sample_sources import UnreadableSample

LABEL = "label"
_PICTURE_STARTS = (b"\x89PNG", b"\xff\xd8\xff", b"BM", b"RIFF")
_ROWS = 256
"""Rows that are read at a time."""


def parquet_count(shard: str, file: IO[bytes]) -> int:
    """How many rows a file has."""
    return int(_file(shard, file).metadata.num_rows)


def parquet_samples(
    shard: str, file: IO[bytes], inputs: Sequence[Input], options: PictureOptions, skipped: int = 0
) -> Iterator[tuple[str, Any, Any]]:
    """Of each row where it is, its sample and its label, without the first so many."""
    table = _file(shard, file)
    names = table.schema_arrow.names
    columns = _columns(shard, names, inputs)
    number = skipped
    kept = [*columns.values(), *([LABEL] if LABEL in names else [])]
    for batch in _batches(shard, table, kept, skipped):
        labels = batch.column(LABEL).to_pylist() if LABEL in names else [None] * len(batch)
        arrays = {i: batch.column(columns[i.name]) for i in inputs}
        for row, label in enumerate(labels):
            where = f"{shard}, row {number}"
            number += 1
            try:
                sample: Any = {i.name: _array(where, cells[row], i, options) for i, cells in arrays.items()}
            except HexforgeError as error:
                sample = UnreadableSample(error)
            yield where, sample, label


def _batches(shard: str, table: Any, columns: list[str], skipped: int) -> Iterator[Any]:
    """Rows behind the first so many: groups of rows that are wholly before them are not read."""
    first, groups = 0, table.metadata.num_row_groups
    while first < groups and skipped >= (rows := table.metadata.row_group(first).num_rows):
        first, skipped = first + 1, skipped - rows
    try:
        for batch in table.iter_batches(_ROWS, row_groups=range(first, groups), columns=columns):
            if skipped < len(batch):
                yield batch[skipped:]
            skipped = max(0, skipped - len(batch))
    except (OSError, ValueError) as error:  # pyarrow's own are of these
        raise FormatError(f"{shard}: is damaged: {str(error).splitlines()[0]}") from None


def _file(shard: str, file: IO[bytes]) -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise CallError(f"{shard}: Parquet needs pyarrow: pip install 'hexforge[cluster]'") from None
    try:
        return parquet.ParquetFile(file)
    except (OSError, ValueError) as error:
        raise FormatError(f"{shard}: is no Parquet file, or damaged: {str(error).splitlines()[0]}") from None


def _columns(shard: str, names: Sequence[str], inputs: Sequence[Input]) -> dict[str, str]:
    """The column of each input: by its name, or the only one there is beside labels."""
    others = [name for name in names if name != LABEL]
    if len(inputs) == 1 and inputs[0].name not in names and len(others) == 1:
        return {inputs[0].name: others[0]}
    for i in inputs:
        if i.name not in names:
            raise CallError(f"{shard}: has no column for input {i}; its columns are {', '.join(names)}")
    return {i.name: i.name for i in inputs}


def _array(where: str, cell: Any, model_input: Input, options: PictureOptions) -> Any:
    """A cell as an input's array: numbers in a list of any depth, their bytes, or the bytes of a picture."""
    if not cell.is_valid:
        raise CallError(f"{where}: column of input {model_input} is empty")
    if hasattr(cell.type, "value_type"):  # a list: its numbers, flat
        values = cell.values
        while hasattr(values, "flatten") and hasattr(values.type, "value_type"):
            values = values.flatten()
        return _shaped(where, values.to_numpy(zero_copy_only=False), model_input)
    content = cell.as_py()
    if isinstance(content, dict):  # {bytes, path}, as pictures are kept
        content = content.get("bytes")
    if isinstance(content, bytes):
        if content.startswith(_PICTURE_STARTS) and len(model_input.shape) == 4:
            return load_picture(where, content, model_input.shape, model_input.dtype, options)
        return raw_array(where, content, model_input)
    if isinstance(content, int | float):
        return _shaped(where, np.asarray([content]), model_input)
    raise CallError(f"{where}: column of input {model_input} holds neither numbers nor bytes")


def _shaped(where: str, flat: Array, model_input: Input) -> Array:
    try:
        numbers = flat.astype(model_input.dtype, casting="same_kind")
        return numbers.reshape([-1 if d is None else d for d in model_input.shape])
    except (ValueError, TypeError) as error:
        raise CallError(f"{where}: does not fit input {model_input}: {error}") from None
