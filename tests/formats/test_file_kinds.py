# SPDX-License-Identifier: Apache-2.0
"""Kinds of files: each is told from the others, by little of it, and named with what would work."""

from __future__ import annotations

import io
import os
import socket
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hexforge
from hexforge import addon
from hexforge.addon import Addon, FileKind, file_kinds, import_target
from hexforge.cli import main
from hexforge.errors import CallError, FormatError, HexforgeError, UnsupportedError
from hexforge.formats import file_kinds as recognition
from hexforge.formats.file_kinds import MOST_BYTES, UNKNOWN, kind_of, kind_of_bytes, open_model, stem_of
from hexforge.model.reader import read
from tests.digits import MODEL


def zipped(*names: str, filler: int = 0) -> bytes:
    """A zip archive with these files, the first as large as said."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for i, name in enumerate(names):
            archive.writestr(name, bytes(filler) if not i else b"x")
    return buffer.getvalue()


def tarred() -> bytes:
    """A tar archive with an empty file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("model.onnx"))
    return buffer.getvalue()


def arrays(write: Callable[..., None], *values: Any) -> bytes:
    """What numpy writes."""
    buffer = io.BytesIO()
    write(buffer, *values)
    return buffer.getvalue()


FILES: Mapping[str, tuple[str, bytes, str]] = {
    "torch": ("m.pt", zipped("archive/data.pkl", "archive/version"), "is a checkpoint of PyTorch; where it was made"),
    "torch, large": ("m.pth", zipped("m/data.pkl", "m/data/0", filler=9999), "is a checkpoint of PyTorch; "),
    "torchscript": ("m.pt", zipped("m/data.pkl", "m/code/m.py", "m/constants.pkl"), "`torch.onnx.export(torch.jit"),
    "pickle": ("m.pth", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "never opened here; where it was made"),
    "keras": ("m.keras", zipped("metadata.json", "config.json", "model.weights.h5"), "is a Keras model; `python -m"),
    "hdf5": ("m.h5", b"\x89HDF\r\n\x1a\n" + bytes(40), "is a Keras model; `python -m tf2onnx.convert --keras"),
    "core ml": ("m.mlmodel", b"\x08\x05\x12\x04\n\x02ab", "is a Core ML model; give the model"),
    "openvino": ("m.xml", b'<?xml version="1.0"?>\n<net name="m" version="11">', "is a model of OpenVINO; give the"),
    "tensorrt": ("m.bin", b"ftrt" + bytes(40), "is an engine of TensorRT; it runs on one NVIDIA GPU only"),
    "tensorrt by its name": ("m.engine", b"\0\1\2\3" * 9, "is an engine of TensorRT"),
    "ort": ("m.ort", b"\x18\0\0\0ORTM" + bytes(40), "is in ORT format; give the ONNX file"),
    "library": ("libm.so", b"\x7fELF\2\1\1" + bytes(40), "is an ELF library; give the ONNX file"),
    "npy": ("x.npy", arrays(np.save, np.zeros(3)), "is arrays of numpy; give them with --input"),
    "npz": ("x.npz", arrays(np.savez, np.zeros(3)), "is arrays of numpy; give them with --input"),
    "picture": ("x.png", b"\x89PNG\r\n\x1a\n" + bytes(9), "is a picture; give the folder"),
    "zip": ("m.zip", zipped("model.onnx"), "is a zip archive; `unzip FILE`"),
    "empty zip": ("m.zip", zipped(), "is a zip archive; `unzip FILE`"),
    "tar": ("m.tar", tarred(), "is a tar archive; `tar -xf FILE`"),
    "gzip": ("m.onnx.gz", b"\x1f\x8b\x08" + bytes(20), "is a compressed file; "),
    "empty": ("m.onnx", b"", "is empty; get the file again"),
    "lfs": ("m.onnx", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "fetch it with `git lfs pull`"),
    "html": ("m.onnx", b"\n<!DOCTYPE html><html><body>Log in", "is a web page, not a model; "),
    "encodings": ("m.encodings", b'{"version": "1.0.0", "param_encodings": []}', "is encodings of a model in JSON"),
    "json": ("m.json", b'{"a": 1}', "is a JSON file, which `hexforge {}` does not take; `hexforge estimate MODEL"),
    "text": ("m.txt", b"just words\n", "is a text file, which `hexforge {}` does not take; `hexforge explain`"),
    "junk": ("m.bin", bytes(range(256)), "is of no kind that hexforge knows; it may be damaged"),
}
FOLDERS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "m.mlpackage": (("Manifest.json", "Data"), "is a Core ML model; "),
    "saved": (("saved_model.pb", "variables"), "is a SavedModel of TensorFlow; `python -m tf2onnx.convert"),
    "models": (("a.onnx",), "is a folder; give the .onnx file in it"),
}


def require_named(path: Path, words: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A command ends with what the file is, in the words of its kind."""
    with pytest.raises(HexforgeError) as told:
        open_model(path).do(command)
    assert words.format(command) in str(told.value)
    with pytest.raises(SystemExit) as ended:
        main([command, str(path)])
    assert ended.value.code == 2
    named = kind_of(path).name if kind_of(path) is not UNKNOWN or command == "info" else "is not an ONNX model"
    assert named in " ".join(capsys.readouterr().err.split())


def require_named_by_python(path: Path) -> None:
    """The public functions say what the file is."""
    for function in (hexforge.estimate, hexforge.profile, hexforge.check):
        with pytest.raises(HexforgeError, match="is "):
            function(path)
    with pytest.raises(FormatError) as told:
        read(path)
    known = kind_of(path)
    assert (known.name if known is not UNKNOWN else "is not an ONNX model") in str(told.value)


def folder_of(path: Path, members: tuple[str, ...]) -> Path:
    """A folder with these files, all empty."""
    path.mkdir()
    for member in members:
        (path / member).touch()
    return path


@pytest.mark.parametrize("case", FILES)
@pytest.mark.parametrize("command", ["check", "info"])
def test_a_file_of_others_is_named(case: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, data, words = FILES[case]
    (tmp_path / name).write_bytes(data)
    require_named(tmp_path / name, words, command, capsys)


@pytest.mark.parametrize("case", FILES)
def test_python_names_it_too(case: str, tmp_path: Path) -> None:
    name, data, _ = FILES[case]
    (tmp_path / name).write_bytes(data)
    require_named_by_python(tmp_path / name)


@pytest.mark.skipif(find_spec("torch") is not None, reason="torch is here and reads it")
@pytest.mark.parametrize(
    ("name", "members"),
    [("m.pt2", ("archive_format", "models/model.json")), ("m.bin", ("serialized_exported_program.json", "version"))],
)
def test_a_program_of_torch_is_named_where_torch_is_not(name: str, members: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(zipped(*members))
    with pytest.raises(CallError, match=r"is an exported program of torch, which torch reads; `pip install torch onnx"):
        hexforge.check(tmp_path / name)


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("command", ["check", "estimate", "info"])
def test_a_folder_is_named(name: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    members, words = FOLDERS[name]
    require_named(folder_of(tmp_path / name, members), words, command, capsys)


def test_a_command_that_does_not_take_it_says_what_does(tmp_path: Path) -> None:
    with pytest.raises(
        UnsupportedError, match="is an ONNX model without compiled graphs, which `hexforge info` does not"
    ):
        open_model(MODEL).do("info", "", True)
    assert open_model(MODEL).does("estimate")
    copy = tmp_path / "model"
    copy.write_bytes(MODEL.read_bytes())
    assert hexforge.estimate(copy).latency_ms == hexforge.estimate(MODEL).latency_ms
    assert kind_of_bytes(MODEL.read_bytes()) == kind_of(MODEL)


def test_a_damaged_model_is_read_as_one(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\xff" * 99)
    with pytest.raises(FormatError, match="is not an ONNX model, or is cut off or damaged"):
        hexforge.check(path)


# -- hostile files ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_what_is_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, named = tmp_path / "pipe", tmp_path / "socket"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(tmp_path)  # a long path is no address
        listening.bind("socket")
        for path, what in ((pipe, "a pipe"), (named, "a socket"), (Path("/dev/zero"), "a device")):
            for call in (kind_of, hexforge.estimate, hexforge.check, read):
                with pytest.raises(CallError, match=f"is {what}, not a file"):
                    call(path)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path, words in (
        (tmp_path / "none", "no such file"),
        (pipe / "inside", "no such file"),
        (loop, "cannot be read"),
    ):
        with pytest.raises(FormatError, match=words):
            kind_of(path)
    with pytest.raises(FormatError, match="cannot be read"):
        kind_of("a\0b")


def test_little_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large.pt"
    with path.open("wb") as file:
        file.write(zipped("archive/data.pkl"))
        file.truncate(1 << 40)
    taken = []
    opened = Path.open

    class Counted(io.FileIO):
        def read(self, size: int | None = -1) -> Any:
            taken.append(size)
            return super().read(size)

    monkeypatch.setattr(
        Path, "open", lambda self, mode="r": Counted(self, mode) if self == path else opened(self, mode)
    )
    assert kind_of(path).name == "a checkpoint of PyTorch"
    assert taken == [MOST_BYTES, MOST_BYTES]


def test_of_a_large_folder_few_names_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(9):
        (tmp_path / f"{i}.txt").touch()
    monkeypatch.setattr(recognition, "MOST_MEMBERS", 4)
    assert len(recognition.sample_of_file(tmp_path).members) == 4


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([b"", b"PK\x03\x04", b"PK\x03\x04" + b"\xff" * 40, b"{", b"\x80\x02"]))
def test_any_bytes_are_of_one_kind(data: bytes, start: bytes) -> None:
    assert kind_of_bytes(start + data).name


@pytest.mark.parametrize(
    "data", [b"{" * 4096, b" " * 4096, b"<?xml" + b" " * 4000, b'{"' + b"a" * 4090, b"PK\x03\x04" * 2048]
)
def test_no_pattern_takes_long(data: bytes) -> None:
    for _ in range(20):
        kind_of_bytes(data)


# -- the table --------------------------------------------------------------------------------------------------------


def test_all_that_the_table_names_is_there() -> None:
    for kind in file_kinds():
        for target in (*kind.does.values(), *([kind.recognised_by] if kind.recognised_by else [])):
            assert callable(import_target(target)), target


def test_an_addon_brings_a_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.toy"
    path.write_bytes(b"TOY1 and numbers \0\1\2")
    assert kind_of(path) is UNKNOWN
    kind = FileKind("a toy", "`hexforge info` says more", start=b"TOY1", does={"estimate": f"{__name__}:time_toy"})
    monkeypatch.setattr(addon, "addons", lambda: (Addon("toy", "Toys.", files=(kind,)),))
    file_kinds.cache_clear()
    try:
        assert kind_of(path) is kind
        assert hexforge.estimate(path).latency_ms == hexforge.estimate(MODEL).latency_ms
        with pytest.raises(UnsupportedError, match="is a toy, which `hexforge check` does not take; `hexforge info`"):
            hexforge.check(path)
    finally:
        file_kinds.cache_clear()


def time_toy(path: Path, request: Any, graph: str = "") -> Any:
    """What an add-on would read of it."""
    return open_model(MODEL).do("estimate", request, graph)


@pytest.mark.parametrize(
    ("model", "stem"),
    [
        ("net.onnx", "net"),
        ("face.task#detector", "face.detector"),
        ("face.task#parts/mesh.tflite", "face.parts_mesh.tflite"),
        ("face.task#.hidden", "face._hidden"),
    ],
)
def test_stem_names_the_file_and_the_model_in_it(tmp_path: Path, model: str, stem: str) -> None:
    """What a command writes beside a bundle is a file's name, whatever the model in the bundle is called."""
    (tmp_path / "face.task").write_bytes(b"")
    assert stem_of(tmp_path / model) == stem
