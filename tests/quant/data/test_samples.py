# SPDX-License-Identifier: Apache-2.0
"""Samples: every source gives the same, in order, and what is wrong is said with its file or number."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnxruntime.quantization import CalibrationDataReader
from PIL import Image

from hexforge.errors import CallError, FormatError
from hexforge.model.reader import read
from hexforge.quant.data.feeds import Samples
from hexforge.quant.data.model_inputs import Input, inputs_of
from hexforge.quant.data.samples import samples
from tests import ROOT
from tests.digits import held_out

Array = np.ndarray[Any, Any]

X = Input("x", (1, 2, 3), np.dtype(np.float32))
TOKENS = Input("in/put:0", (1, 4), np.dtype(np.int64))
ONE, TWO = (X,), (X, TOKENS)
ARRAYS = [np.full(X.shape, i, np.float32) for i in range(12)]  # type: ignore[type-var]
PAIRS = [{"x": a, "in/put:0": np.full((1, 4), i)} for i, a in enumerate(ARRAYS)]


def firsts(found: Samples) -> list[float]:
    """The first number of x in each sample."""
    return [float(np.asarray(feeds["x"]).flat[0]) for feeds in found]


class Reader(CalibrationDataReader):
    """onnxruntime's reader as its examples write it."""

    def __init__(self) -> None:
        self.rest = iter(PAIRS)
        self.asked = 0

    def get_next(self) -> dict[str, Array] | None:
        self.asked += 1
        return next(self.rest, None)  # type: ignore[return-value]


class Rewinding(Reader):
    """One that can start anew."""

    def rewind(self) -> None:
        self.rest = iter(PAIRS)


class Again:
    """Iterable, without a length."""

    def __iter__(self) -> Iterator[dict[str, Array]]:
        return iter(PAIRS)  # type: ignore[arg-type]


def npy_folder(folder: Path) -> Path:
    for i, array in enumerate(ARRAYS):
        np.save(folder / f"sample{i}.npy", array)
    (folder / "README").write_text("not a sample")
    return folder


def raw_folder(folder: Path) -> Path:
    for i, array in enumerate(ARRAYS):
        array.tofile(folder / f"{i}.raw")
    return folder


def npz_folder(folder: Path) -> Path:
    for i, pair in enumerate(PAIRS):
        np.savez(folder / f"{i}.npz", **pair, label=np.array(i))  # type: ignore[arg-type]
    return folder


def input_folders(folder: Path) -> Path:
    for name, key in (("x", "x"), ("in_put_0", "in/put:0")):
        (folder / name).mkdir()
        for i, pair in enumerate(PAIRS):
            np.save(folder / name / f"{i}.npy", pair[key])  # type: ignore[arg-type]
    return folder


def input_list(folder: Path) -> Path:
    lines = ["#output_1 output_2"]
    (folder / "data").mkdir()
    for i, pair in enumerate(PAIRS):
        pair["x"].tofile(folder / "data" / f"x{i}.raw")  # type: ignore[attr-defined]
        pair["in/put:0"].tofile(folder / "data" / f"t{i}.raw")  # type: ignore[attr-defined]
        lines.append(f"in/put:0:=data/t{i}.raw x:=data/x{i}.raw" if i % 2 else f"data/x{i}.raw data/t{i}.raw")
    (folder / "input_list.txt").write_text("\n".join(lines) + "\n\n")
    return folder


def stacked_npz(folder: Path) -> Path:
    np.savez(folder / "all.npz", x=np.concatenate(ARRAYS), **{"in/put:0": np.stack([p["in/put:0"] for p in PAIRS])})  # type: ignore[arg-type]
    return folder / "all.npz"


def stacked_npy(folder: Path) -> Path:
    np.save(folder / "all.npy", np.stack(ARRAYS))
    return folder / "all.npy"


SOURCES: dict[str, tuple[tuple[Input, ...], Callable[[Path], Any]]] = {
    "npy files": (ONE, npy_folder),
    "raw files": (ONE, raw_folder),
    "npz files": (TWO, npz_folder),
    "npz files of more than is read": (ONE, npz_folder),
    "folders": (TWO, input_folders),
    "input list": (TWO, input_list),
    "the list's own path": (TWO, lambda folder: str(input_list(folder) / "input_list.txt")),
    "stacked npz": (TWO, stacked_npz),
    "stacked npy": (ONE, stacked_npy),
    "array": (ONE, lambda _: np.concatenate(ARRAYS)),
    "dict": (TWO, lambda _: {"x": np.stack(ARRAYS), "in/put:0": np.concatenate([p["in/put:0"] for p in PAIRS])}),
    "list of dicts": (TWO, lambda _: PAIRS),
    "list of arrays": (ONE, lambda _: ARRAYS),
    "generator function": (ONE, lambda _: lambda: (a for a in ARRAYS)),
    "generator": (ONE, lambda _: (a for a in ARRAYS)),
    "iterable": (TWO, lambda _: Again()),
    "reader": (TWO, lambda _: Reader()),
    "reader that rewinds": (TWO, lambda _: Rewinding()),
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_gives_the_same_each_time(name: str, tmp_path: Path) -> None:
    inputs, make = SOURCES[name]
    found = samples(make(tmp_path), inputs)
    assert isinstance(found, Samples)
    assert firsts(found) == list(range(12))  # 10 comes after 9
    assert len(found) == 12
    assert firsts(found) == list(range(12))
    assert all(sorted(feeds) == sorted(i.name for i in inputs) for feeds in found)
    assert [int(feeds["in/put:0"][0, 3]) for feeds in found] == list(range(12)) if len(inputs) > 1 else True


@pytest.mark.parametrize("name", SOURCES)
def test_skip_and_limit(name: str, tmp_path: Path) -> None:
    inputs, make = SOURCES[name]
    found = samples(make(tmp_path), inputs, skip=3, limit=4)
    assert len(found) == 4
    assert firsts(found) == [3, 4, 5, 6]
    assert firsts(samples(found, inputs, skip=1, limit=2)) == [4, 5]
    assert firsts(samples(found, inputs, skip=1)) == [4, 5, 6]
    assert firsts(samples(found, inputs, limit=99)) == [3, 4, 5, 6]
    assert firsts(samples(found, inputs, skip=9)) == []


def test_the_end_comes_before_the_limit() -> None:
    late = samples(PAIRS, TWO, skip=10, limit=9)
    assert (len(late), firsts(late)) == (2, [10, 11])


def test_a_reader_is_read_no_further_than_needed() -> None:
    reader = Reader()
    found = iter(samples(reader, TWO))
    for _ in range(3):
        next(found)
    assert reader.asked == 3


def test_random_samples() -> None:
    inputs = (*TWO, Input("b", (2,), np.dtype(np.uint8)), Input("f", (2,), np.dtype(np.bool_)))
    found = samples("random:5:3", inputs)
    assert len(found) == 5
    once, again = list(found), list(found)
    for a, b in zip(once, again, strict=True):
        assert all(np.array_equal(a[i.name], b[i.name]) and a[i.name].dtype == i.dtype for i in inputs)
    assert not np.array_equal(once[0]["x"], once[1]["x"])
    assert not np.array_equal(once[0]["x"], next(iter(samples("random:5", inputs)))["x"])
    assert np.array_equal(once[2]["x"], next(iter(samples("random:5:3", inputs, skip=2)))["x"])
    for wrong in ("random:", "random:0", "random:x", "random:3:4:5"):
        with pytest.raises(CallError, match="random:N"):
            samples(wrong, inputs)
    with pytest.raises(CallError, match="fixed shape"):
        list(samples("random:1", (Input("x", (None, 3), np.dtype(np.float32)),)))


def test_a_models_inputs() -> None:
    model = read(ROOT / "tests" / "digits" / "digits.onnx").ir
    (wanted,) = inputs_of(model)
    assert (wanted.name, wanted.shape, wanted.dtype) == ("image", (1, 1, 8, 8), np.float32)
    assert len(list(samples(held_out()[0].astype(np.float32), model, limit=2))) == 2


# -- what is wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (np.zeros((1, 2, 4), np.float32), r"sample 1.*shape \[1, 2, 4\].*'x' float32\[1, 2, 3\]"),
        (np.zeros((2, 3), np.float32), r"array\[None\]"),
        (np.zeros((1, 2, 3)), r"'x' is float64.*astype\('float32'\)"),
        (np.array([[[1, np.nan, 3], [np.inf, 5, 6]]], np.float32), r"2 value\(s\).*nan at \[0, 0, 1\]"),
        ({"y": ARRAYS[0]}, r"no input 'y'.*'x' float32"),
        ({}, r"input 'x' .* is missing; there is nothing"),
        ([[1, 2], [3]], "not an array"),
    ],
)
def test_wrong_samples(bad: Any, said: str) -> None:
    found = iter(samples([ARRAYS[0], bad], ONE))
    next(found)
    with pytest.raises(CallError, match=said):
        next(found)


def test_wrong_samples_for_several_inputs() -> None:
    with pytest.raises(CallError, match="2 inputs; give a dict"):
        list(samples([ARRAYS[0]], TWO))
    with pytest.raises(CallError, match=r"'in/put:0' int64\[1, 4\] is missing; there is x"):
        list(samples([{"x": ARRAYS[0]}], TWO))
    with pytest.raises(CallError, match="sample 0 of generator"):
        list(samples((a for a in [np.zeros(3)]), ONE))
    with pytest.raises(CallError, match="12 of 'x', 3 of 'in/put:0'"):
        samples({"x": np.stack(ARRAYS), "in/put:0": np.zeros((3, 4), np.int64)}, TWO)


def test_wrong_sources(tmp_path: Path) -> None:
    with pytest.raises(CallError, match="no such file or folder"):
        samples(tmp_path / "nowhere", ONE)
    with pytest.raises(CallError, match="no samples in it; put"):
        samples(tmp_path, ONE)
    (tmp_path / "notes.md").touch()
    with pytest.raises(CallError, match=r"only notes.md; put .npy"):
        samples(tmp_path, ONE)
    with pytest.raises(CallError, match="from int"):
        samples(7, ONE)
    with pytest.raises(CallError, match="must not be negative"):
        samples(ARRAYS, ONE, skip=-1)


def test_wrong_files(tmp_path: Path) -> None:
    def sample(name: str, content: bytes, inputs: tuple[Input, ...] = ONE) -> None:
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_bytes(content)
        list(samples(folder, inputs))

    with pytest.raises(CallError, match=r"a.npy: cannot be read as npy"):
        sample("a.npy", b"\x93NUMPY damaged")
    with pytest.raises(CallError, match=r"b.npz: cannot be read as npz"):
        sample("b.npz", b"PK\x03\x04 damaged")
    with pytest.raises(CallError, match=r"c.raw: has 20 bytes, input 'x' float32\[1, 2, 3\] takes 24"):
        sample("c.raw", bytes(20))
    with pytest.raises(CallError, match=r"d.png: cannot be read as a picture"):
        sample("d.png", b"no picture", (Input("x", (1, 3, 4, 4), np.dtype(np.float32)),))
    with pytest.raises(CallError, match=r"2 inputs, so samples are .npz files"):
        sample("e.npy", b"", TWO)
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(CallError, match="cannot be read as npy"):
        samples(tmp_path / "objects.npy", ONE)
    np.savez(tmp_path / "other.npz", y=ARRAYS[0], z=ARRAYS[1])
    with pytest.raises(CallError, match=r"other.npz: input 'x' .* is missing; there is 'y', 'z'; arrays go by"):
        samples(tmp_path / "other.npz", ONE)
    np.savez(tmp_path / "renamed.npz", image=ARRAYS[0])
    with pytest.raises(CallError, match=r"input 'x' .* is missing; there is 'image'"):
        samples(tmp_path / "renamed.npz", ONE)
    np.savez(tmp_path / "unnamed.npz", ARRAYS[0])
    assert len(samples(tmp_path / "unnamed.npz", ONE)) == 1


def test_wrong_folders(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ARRAYS[0])
    (tmp_path / "b.raw").write_bytes(bytes(24))
    with pytest.raises(CallError, match=r"holds .npy and .raw files"):
        samples(tmp_path, ONE)
    (tmp_path / "x").mkdir()
    with pytest.raises(CallError, match="none for input 'in/put:0'"):
        samples(tmp_path, TWO)
    (tmp_path / "in_put_0").mkdir()
    np.save(tmp_path / "x" / "0.npy", ARRAYS[0])
    for i in range(2):
        np.save(tmp_path / "in_put_0" / f"{i}.npy", PAIRS[i]["in/put:0"])  # type: ignore[arg-type]
    with pytest.raises(CallError, match="1 in x, 2 in in_put_0"):
        samples(tmp_path, TWO)


def test_wrong_lists(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("# nothing\n")
    with pytest.raises(CallError, match="lists no samples"):
        samples(path, ONE)
    path.write_text("x:=none.raw\ny:=none.raw\na b c\n")
    for skip, said in ((0, "none.raw: cannot be read"), (1, "line 2: the model has no input 'y'"), (2, "3 file")):
        with pytest.raises(CallError, match=said):
            next(iter(samples(path, ONE, skip=skip)))


# -- pictures ---------------------------------------------------------------------------------------------------


def picture(path: Path, width: int = 8, height: int = 4) -> Array:
    """A picture of a red and a green half, as an array."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, : width // 2, 0] = 255
    pixels[:, width // 2 :, 1] = 128
    Image.fromarray(pixels).save(path)
    return pixels


def one(folder: Path, shape: tuple[int, ...], dtype: Any = np.float32, **options: Any) -> Array:
    """The only sample of a folder."""
    (feeds,) = samples(folder, (Input("x", shape, np.dtype(dtype)),), **options)
    return np.asarray(feeds["x"])


def test_pictures_become_numbers(tmp_path: Path) -> None:
    pixels = picture(tmp_path / "a.png").astype(np.float32)
    np.testing.assert_allclose(one(tmp_path, (1, 3, 4, 8))[0], pixels.transpose(2, 0, 1) / 255, atol=1e-6)
    np.testing.assert_array_equal(one(tmp_path, (1, 4, 8, 3), np.uint8)[0], pixels)
    np.testing.assert_array_equal(one(tmp_path, (1, 4, 8, 3), np.uint8, color="BGR")[0], pixels[:, :, ::-1])
    mean, std = (0.5, 0.25, 0.125), (0.5, 0.25, 2.0)
    expected = (pixels / 255 - np.array(mean)) / np.array(std)
    np.testing.assert_allclose(one(tmp_path, (1, 4, 8, 3), mean=mean, std=std)[0], expected, atol=1e-5)
    assert one(tmp_path, (1, 1, 4, 8), scale=1.0)[0, 0, 0, 0] == 76  # the grey of red


def test_pictures_are_resized(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    stretched = one(tmp_path, (1, 3, 4, 4))
    assert (stretched[0, 0, :, 0] == 1).all()
    assert (stretched[0, 1, :, 3] > 0.4).all()
    cropped = one(tmp_path, (1, 3, 4, 4), resize="crop")
    assert (cropped[0, 0, :, :2] == 1).all()
    padded = one(tmp_path, (1, 3, 8, 8), resize="pad")
    assert not padded[0, :, :2].any()
    assert (padded[0, 0, 2:6, :4] == 1).all()


def test_options_lie_beside_the_pictures(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    (tmp_path / "images.json").write_text(json.dumps({"scale": 1, "mean": [100, 0, 0], "layout": "NHWC"}))
    assert one(tmp_path, (1, 4, 8, 3))[0, 0, 0].tolist() == [155, 0, 0]
    assert one(tmp_path, (1, 4, 8, 3), scale=2.0)[0, 0, 0].tolist() == [410, 0, 0]
    for text, said in (
        ('{"scales": 1}', "scales: unknown key; did you mean 'scale'"),
        ('{"sharpness": 1}', "sharpness: unknown key; there are layout, resize, crop, color"),
        ('{"resize": "shrink"}', "resize is 'shrink': expected 'stretch', 'crop' or 'pad'"),
        ('{"std": "1"}', "std is '1': expected a number or a list"),
        ('{"scale": [1, 2]}', r"scale is \[1, 2\]: expected a number$"),
    ):
        (tmp_path / "images.json").write_text(text)
        with pytest.raises(CallError, match=said):
            one(tmp_path, (1, 4, 8, 3))
    for text, said in (("[]", "expected an object with layout"), ("{", "line 1, column 2: not JSON")):
        (tmp_path / "images.json").write_text(text)
        with pytest.raises(FormatError, match=said):
            one(tmp_path, (1, 4, 8, 3))


def test_pictures_that_do_not_fit(tmp_path: Path) -> None:
    picture(tmp_path / "a.jpg")
    for shape in ((1, 5, 4, 8), (1, 10), (2, 3, 4, 8)):
        with pytest.raises(CallError, match="no picture fits"):
            one(tmp_path, shape)
    with pytest.raises(CallError, match="one for each channel"):
        one(tmp_path, (1, 3, 4, 8), mean=(1.0, 2.0))
