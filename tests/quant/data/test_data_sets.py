# SPDX-License-Identifier: Apache-2.0
"""Data sets: shards and URLs give the samples that a folder gives, and what cannot be read is left out and counted."""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hexforge.errors import CallError
from hexforge.quant.data.data_sets import ShardSamples
from hexforge.quant.data.model_inputs import Input
from hexforge.quant.data.samples import CheckedSamples, samples

X = Input("x", (1, 2, 3), np.dtype(np.float32))
TOKENS = Input("in/put:0", (1, 4), np.dtype(np.int64))
ONE, TWO = (X,), (X, TOKENS)
ARRAYS = [np.arange(6, dtype=np.float32).reshape(1, 2, 3) + 10 * i for i in range(12)]


def npy(array: Any) -> bytes:
    """An array as the content of a .npy file."""
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def write_tar(path: Path, files: dict[str, bytes]) -> Path:
    """A tar file of these files, in order."""
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Three tar shards of four samples each, with labels."""
    folder = tmp_path / "shards"
    folder.mkdir()
    for shard in range(3):
        files: dict[str, bytes] = {}
        for i in range(4 * shard, 4 * shard + 4):
            files |= {f"{i:04}.npy": npy(ARRAYS[i]), f"{i:04}.cls": b"%d" % i}
        write_tar(folder / f"part-{shard:03}.tar", files)
    return folder


def firsts(found: CheckedSamples) -> list[float]:
    return [float(feeds["x"].flat[0]) for feeds in found]


@pytest.mark.parametrize("pattern", ["", "/*.tar", "/part-{000..002}.tar"])
def test_tar_shards_by_folder_pattern_and_range(shards: Path, pattern: str) -> None:
    read = samples(f"{shards}{pattern}", ONE)
    assert len(read) == 12
    assert firsts(read) == [10.0 * i for i in range(12)]
    assert firsts(samples(f"{shards}{pattern}", ONE, skip=5, limit=4)) == [50.0, 60.0, 70.0, 80.0]
    assert isinstance(read.origin, ShardSamples)
    assert [label for _, _, label in read.origin.labelled(3)] == list(range(3, 12))


def test_a_compressed_shard_and_a_url(shards: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    part = shards / "part-001.tar"
    packed = shards.parent / "one.tar.gz"
    packed.write_bytes(gzip.compress(part.read_bytes()))
    assert firsts(samples(packed, ONE)) == [40.0, 50.0, 60.0, 70.0]
    memory = fsspec.filesystem("memory")
    for i in range(3):
        memory.pipe(f"/set/{i}.npy", npy(ARRAYS[i]))
        memory.pipe(f"/tars/{i}.tar", (shards / f"part-00{i}.tar").read_bytes())
    assert firsts(samples("memory://set", ONE)) == [0.0, 10.0, 20.0]
    assert firsts(samples("memory://tars/*.tar", ONE)) == [10.0 * i for i in range(12)]
    assert firsts(samples("memory://tars/{0..1}.tar", ONE)) == [10.0 * i for i in range(8)]
    with pytest.raises(CallError, match="nosuch://x: cannot be read"):
        samples("nosuch://x", ONE)


def test_several_inputs_and_pictures_in_a_tar(tmp_path: Path) -> None:
    tokens = np.arange(4).reshape(1, 4)
    files = {"a/0.x.npy": npy(ARRAYS[1]), "a/0.in_put_0.npy": npy(tokens)}
    (sample,) = samples(write_tar(tmp_path / "two.tar", files), TWO)
    assert np.array_equal(sample["in/put:0"], tokens)
    stream = io.BytesIO()
    Image.new("RGB", (4, 4), (255, 0, 0)).save(stream, "png")
    picture = Input("x", (1, 3, 4, 4), np.dtype(np.float32))
    (sample,) = samples(write_tar(tmp_path / "picture.tar", {"0.png": stream.getvalue()}), (picture,), std=0.5)
    assert sample["x"][0, :, 0, 0].tolist() == [2.0, 0.0, 0.0]


def test_parquet_columns_of_numbers_bytes_and_pictures(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    labels = pa.array(range(12))
    for name, column in (
        ("lists", pa.array([a.reshape(-1).tolist() for a in ARRAYS], pa.list_(pa.float32()))),
        ("nested", pa.array([a.tolist() for a in ARRAYS])),
        ("bytes", pa.array([a.tobytes() for a in ARRAYS])),
    ):
        parquet.write_table(pa.table({"x": column, "label": labels}), tmp_path / f"{name}.parquet", row_group_size=5)
        read = samples(tmp_path / f"{name}.parquet", ONE)
        assert len(read) == 12
        assert all(np.array_equal(feeds["x"], a) for feeds, a in zip(read, ARRAYS, strict=True))
        assert isinstance(read.origin, ShardSamples)
        for start in range(13):
            rest = list(read.origin.labelled(start))
            assert [label for _, _, label in rest] == list(range(start, 12))
            assert [where for where, _, _ in rest] == [f"{tmp_path / name}.parquet, row {i}" for i in range(start, 12)]
            assert all(np.array_equal(row["x"], a) for (_, row, _), a in zip(rest, ARRAYS[start:], strict=True))
    stream = io.BytesIO()
    Image.new("RGB", (4, 4), (0, 255, 0)).save(stream, "png")
    parquet.write_table(
        pa.table({"image": [{"bytes": stream.getvalue(), "path": "a.png"}], "label": [1]}), tmp_path / "p.parquet"
    )
    picture = Input("x", (1, 3, 4, 4), np.dtype(np.float32))
    (sample,) = samples(tmp_path / "p.parquet", (picture,))
    assert sample["x"][0, :, 0, 0].tolist() == [0.0, 1.0, 0.0]
    with pytest.raises(CallError, match="has no column for input 'in/put:0'"):
        list(samples(tmp_path / "lists.parquet", TWO))


def test_what_cannot_be_read_is_left_out_and_counted_or_an_error(shards: Path) -> None:
    content = (shards / "part-001.tar").read_bytes()
    (shards / "part-001.tar").write_bytes(content[: 512 * 5 + 100])  # one whole sample, half a second one
    write_tar(shards / "part-002.tar", {"8.npy": b"no array", "9.npy": npy(ARRAYS[9]), "10.npy": npy(ARRAYS[0][0])})
    read = samples(shards, ONE, strict=False)
    assert firsts(read) == [0.0, 10.0, 20.0, 30.0, 40.0, 90.0]
    assert firsts(read) == [0.0, 10.0, 20.0, 30.0, 40.0, 90.0]
    assert len(read) == len(list(read)) + len(read.left_out.numbers)
    assert len(read.left_out.numbers) == 4
    assert read.left_out.told().startswith("4 samples could not be read and were left out; the first: ")
    assert "part-001.tar, 0005: is cut off" in read.left_out.reasons[0]
    assert "part-001.tar: is damaged behind '0005'" in read.left_out.reasons[1]
    assert isinstance(read.origin, ShardSamples)
    everything = [where for where, _ in read.origin.read(0)]
    for start in range(len(read) + 1):
        assert [where for where, _ in read.origin.read(start)] == everything[start:]
    with pytest.raises(CallError, match=r"part-001.tar, 0005: is cut off"):
        list(samples(shards, ONE))


def test_where_no_sample_can_be_read_the_first_says_why(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"{i}.npy").write_bytes(b"nothing")
    with pytest.raises(CallError, match=r"no sample can be read; the first: .*0.npy: cannot be read as npy"):
        list(samples(tmp_path, ONE, strict=False))


def test_a_folder_that_disappears_is_an_error_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    for i, array in enumerate(ARRAYS):
        np.save(folder / f"{i}.npy", array)
    read = iter(samples(folder, ONE, strict=False))
    next(read)
    shutil.rmtree(folder)
    with pytest.raises(CallError, match="set: the folder of samples is no longer there"):
        next(read)
