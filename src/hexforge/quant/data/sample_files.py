# SPDX-License-Identifier: Apache-2.0
"""Sample files: folders, lists and stacks of .npy, .npz, .raw, pictures and sounds."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import IO, Any, Literal

import numpy as np

from hexforge.errors import CallError
from hexforge.formats.files import file_stem
from hexforge.ir import Array
from hexforge.quant.data.model_inputs import Input
from hexforge.quant.data.pictures import SUFFIXES as PICTURE_SUFFIXES
from hexforge.quant.data.pictures import PictureOptions, load_picture
from hexforge.quant.data.sample_sources import IndexedSamples
from hexforge.quant.data.sounds import SUFFIXES as SOUND_SUFFIXES
from hexforge.quant.data.sounds import load_sound

LIST_FILE = "input_list.txt"
"""One sample a line, as qnn-net-run reads it: `name:=path other:=path`, or only paths in the order of the inputs."""

UNNAMED = "arr_0"
"""What numpy.savez calls an array that is given no name."""
_KINDS = {".npy": ".npy", ".npz": ".npz", ".raw": ".raw", ".bin": ".raw"}
_KINDS |= dict.fromkeys(PICTURE_SUFFIXES, "picture") | dict.fromkeys(SOUND_SUFFIXES, "sound")


def file_samples(path: Path, inputs: Sequence[Input], pictures: Mapping[str, Any]) -> IndexedSamples:
    """The samples of a folder, an input list or one file (which may hold many, stacked)."""
    if path.is_dir():
        listed = path / LIST_FILE
        if listed.is_file():
            return _input_list_samples(listed, inputs, pictures)
        return _folder_samples(path, inputs, pictures)
    if not path.is_file():
        raise CallError(f"{path}: there is no such file or folder of samples")
    if path.suffix == ".txt":
        return _input_list_samples(path, inputs, pictures)
    if path.suffix == ".npz":
        with path.open("rb") as file:
            return stacked_samples(_by_name(_loaded(str(path), file), inputs, str(path)), inputs, str(path))
    if path.suffix == ".npy":
        return stacked_samples(_loaded(str(path), path, "r"), inputs, str(path))
    options = PictureOptions.beside(path.parent, pictures)
    return IndexedSamples(1, lambda _: (str(path), _read(path, inputs, options)))


def stacked_samples(source: Mapping[str, Any] | Array, inputs: Sequence[Input], where: str) -> IndexedSamples:
    """Arrays that hold one sample, or many along one more axis in front or along a batch that the model has as 1."""
    arrays = source if isinstance(source, Mapping) else {inputs[0].name: source}
    counts: dict[str, int] = {}
    slices: dict[str, str] = {}
    for model_input in (i for i in inputs if i.name in arrays):
        array = np.asarray(arrays[model_input.name])
        more = len(array.shape) - len(model_input.shape)
        batch = bool(more == 0 and model_input.shape and model_input.shape[0] == 1 and array.shape[0] != 1)
        slices[model_input.name] = "front" if more == 1 else "batch" if batch else "whole"
        counts[model_input.name] = len(array) if more == 1 or batch else 1
    if len(set(counts.values())) > 1:
        numbers = ", ".join(f"{count} of {name!r}" for name, count in counts.items())
        raise CallError(f"{where}: holds {numbers}; every input needs as many samples")

    def get(i: int) -> tuple[str, Any]:
        cut = {"front": lambda a: a[i], "batch": lambda a: a[i : i + 1], "whole": lambda a: a}
        return f"{where}, sample {i}", {
            name: cut[slices.get(name, "whole")](np.asarray(array)) for name, array in arrays.items()
        }

    return IndexedSamples(next(iter(counts.values()), 1), get)


def _folder_samples(path: Path, inputs: Sequence[Input], pictures: Mapping[str, Any]) -> IndexedSamples:
    folders = {i.name: folder for i in inputs if (folder := _subfolder(path, i.name)) is not None}
    if not folders:
        files = _files(path, len(inputs))
        options = PictureOptions.beside(path, pictures)
        names = [file.name for file in files]
        return IndexedSamples(
            len(files), lambda i: (str(files[i]), _read(files[i], inputs, options)), names, path, True
        )
    for model_input in inputs:
        if model_input.name not in folders:
            raise CallError(f"{path}: has folders for {', '.join(folders)}, and none for input {model_input}")
    lists = {name: _files(folder, 1) for name, folder in folders.items()}
    if len({len(files) for files in lists.values()}) > 1:
        numbers = ", ".join(f"{len(files)} in {folders[name].name}" for name, files in lists.items())
        raise CallError(f"{path}: every input needs as many files, and there are {numbers}")
    own = {name: PictureOptions.beside(folder, pictures) for name, folder in folders.items()}

    def get(i: int) -> tuple[str, Any]:
        read = {w.name: _read(lists[w.name][i], (w,), own[w.name])[w.name] for w in inputs}
        return ", ".join(str(lists[w.name][i]) for w in inputs), read

    return IndexedSamples(len(next(iter(lists.values()))), get, folder=path, stored=True)


def _subfolder(path: Path, name: str) -> Path | None:
    """The folder of an input: by its name, or by that with what file systems do not like replaced."""
    for candidate in dict.fromkeys((name, file_stem(name))):
        if candidate not in ("", ".", "..") and "/" not in candidate and (path / candidate).is_dir():
            return path / candidate
    return None


def _files(path: Path, inputs: int) -> list[Path]:
    """The sample files of a folder, all of one kind, numbers in their names in order."""
    try:
        present = [p for p in path.iterdir() if p.is_file() and not p.name.startswith(".")]
    except OSError as error:
        raise CallError(f"{path}: cannot be read: {error.strerror or error}") from None
    files = sorted((p for p in present if p.suffix.lower() in _KINDS), key=_natural)
    kinds = sorted({_KINDS[p.suffix.lower()] for p in files})
    if not files:
        others = ", ".join(sorted(p.name for p in present)[:3])
        only = f", only {others}" if others else ""
        raise CallError(f"{path}: no samples in it{only}; put .npy, .npz, .raw, picture or .wav files there")
    if len(kinds) > 1:
        raise CallError(f"{path}: holds {' and '.join(kinds)} files; keep samples of one kind in a folder")
    if inputs > 1 and kinds != [".npz"]:
        raise CallError(
            f"{path}: the model has {inputs} inputs, so samples are .npz files with arrays by name, folders "
            f"named after the inputs, or lines of {LIST_FILE}; these are {kinds[0]} files"
        )
    return files


def _natural(path: Path) -> list[str | int]:
    return [int(t) if t.isdecimal() else t.lower() for t in re.split(r"([0-9]+)", path.name)]


def _input_list_samples(path: Path, inputs: Sequence[Input], pictures: Mapping[str, Any]) -> IndexedSamples:
    try:
        lines = [(n, line.split()) for n, line in enumerate(path.read_text("utf-8").splitlines(), 1) if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise CallError(f"{path}: cannot be read: {error}") from None
    lines = [(n, tokens) for n, tokens in lines if tokens[0][0] not in "#%"]  # outputs that qnn-net-run is to write
    if not lines:
        raise CallError(f"{path}: lists no samples; write one a line: name:=path")
    options = PictureOptions.beside(path.parent, pictures)

    def get(i: int) -> tuple[str, Any]:
        number, tokens = lines[i]
        where = f"{path}, line {number}"
        named = [t.partition(":=") for t in tokens]
        if any(separator for _, separator, _ in named):
            files = {name: file for name, _, file in named}
        elif len(tokens) == len(inputs):
            files = {model_input.name: token for model_input, token in zip(inputs, tokens, strict=True)}
        else:
            raise CallError(f"{where}: {len(tokens)} file(s) for {len(inputs)} inputs; name them: name:=path")
        sample: dict[str, Any] = {}
        for name, file in files.items():
            model_input = next((w for w in inputs if w.name == name), None)
            if model_input is None:
                raise CallError(f"{where}: the model has no input {name!r}; it reads {', '.join(map(str, inputs))}")
            beside = path.parent / file
            sample |= _read(beside if beside.exists() else Path(file), (model_input,), options)
        return where, sample

    return IndexedSamples(len(lines), get, stored=True)


def _read(path: Path, inputs: Sequence[Input], options: PictureOptions) -> dict[str, Any]:
    """One file as a sample; what else an .npz holds is left."""
    if sample_kind(path.name) is None:
        raise CallError(f"{path}: not a file of samples; those are .npy, .npz, .raw, pictures and .wav")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CallError(f"{path}: cannot be read: {error.strerror or error}") from None
    return read_content(str(path), content, inputs, options)


def input_file(path: Path, model_input: Input) -> Any:
    """What one file holds for one input; options of a picture are those of the images.json beside it."""
    return _read(path, (model_input,), PictureOptions.beside(path.parent, {}))[model_input.name]


def sample_kind(name: str) -> str | None:
    """What a file of this name holds, by its suffix: .npy, .npz, .raw, picture or sound; None where it is no sample."""
    return _KINDS.get(PurePath(name).suffix.lower())


def read_content(where: str, content: bytes, inputs: Sequence[Input], options: PictureOptions) -> dict[str, Any]:
    """The content of a file as a sample, by the suffix of its name; what else an .npz holds is left."""
    kind, model_input = sample_kind(where), inputs[0]
    if kind == ".npz":
        return _by_name(_loaded(where, io.BytesIO(content)), inputs, where)
    if kind == ".npy":
        return {model_input.name: _loaded(where, io.BytesIO(content))}
    if kind == ".raw":
        return {model_input.name: raw_array(where, content, model_input)}
    if kind == "sound":
        return {model_input.name: load_sound(where, content, model_input.shape, model_input.dtype)}
    return {model_input.name: load_picture(where, content, model_input.shape, model_input.dtype, options)}


def _by_name(arrays: Mapping[str, Any], inputs: Sequence[Input], where: str) -> dict[str, Any]:
    if len(inputs) == 1 and list(arrays) == [UNNAMED]:
        return {inputs[0].name: arrays[UNNAMED]}
    missing = [i for i in inputs if i.name not in arrays]
    if missing:
        there = ", ".join(map(repr, arrays)) or "nothing"
        raise CallError(f"{where}: input {missing[0]} is missing; there is {there}; arrays go by the inputs' names")
    return {i.name: arrays[i.name] for i in inputs}


def _loaded(where: str, file: IO[bytes] | Path, mapped: Literal["r"] | None = None) -> Any:
    suffix = PurePath(where).suffix.lower()
    try:
        if suffix == ".npz":
            with np.load(file, allow_pickle=False) as arrays:
                return dict(arrays)
        return np.load(file, mapped, allow_pickle=False)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        why = "not one, or it holds Python objects" if "pickle" in str(error) else error
        raise CallError(f"{where}: cannot be read as {suffix[1:]}: {why}") from None


def raw_array(where: str, content: bytes, model_input: Input) -> Array:
    """Bytes as an input's array."""
    open_dims = model_input.shape.count(None)
    known_bytes = (
        int(np.prod([d for d in model_input.shape if d is not None], dtype=np.int64)) * model_input.dtype.itemsize
    )
    if open_dims > 1 or (
        len(content) != known_bytes if not open_dims else not known_bytes or len(content) % known_bytes
    ):
        raise CallError(
            f"{where}: has {len(content)} bytes, input {model_input} takes {known_bytes}; write it with array.astype("
            f"{model_input.dtype.name!r}).tofile(path)"
        )
    return np.frombuffer(content, model_input.dtype).reshape([-1 if d is None else d for d in model_input.shape])
