# SPDX-License-Identifier: Apache-2.0
"""Dumps: folders of tensors that somebody's run of a model wrote, read and brought into a tensor's shape and encoding.

A folder of `qnn-net-run --debug` (.raw of floats, or of integers called NAME_native.raw, channels last), of onnxruntime
(.tensorproto), of ExecuTorch (an etdump and debug_output.bin), or of .npy and .npz files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from hexforge.errors import FormatError
from hexforge.formats.file_kinds import open_model
from hexforge.ir import Array

_ENDINGS = (".raw", ".npy", ".tensorproto", ".pb")
_SUFFIXES = re.compile(r"(_channel_last|_nhwc|_nchw|_tmp(_\d+)?)?")


@dataclass(frozen=True, slots=True)
class Dump:
    """The tensors of a folder by their files' names; an array is read when it is asked for."""

    folder: Path
    tensors: dict[str, Callable[[], Array]]

    def matching(self, names: Sequence[str]) -> Iterator[tuple[str, Array]]:
        """Tensors that may be one of the names, the surest first."""
        plain = {_plain(stem): stem for stem in self.tensors}
        seen: set[str] = set()
        for name in map(_plain, names):
            rest = sorted(
                (s for s in plain if s.startswith(name) and _SUFFIXES.fullmatch(s[len(name) :])), reverse=True
            )
            for stem in [name] * (name in plain) + rest:
                if stem not in seen:
                    seen.add(stem)
                    yield plain[stem], self.tensors[plain[stem]]()


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name)


def read_dump(folder: Path) -> Dump:
    """The dump in a folder; of qnn-net-run's that of the first input. FormatError where there is none."""
    first = folder / "Result_0"
    root = first if first.is_dir() else folder
    tensors: dict[str, Callable[[], Array]] = {}
    for path in sorted(root.rglob("*")):
        if path.suffix in _ENDINGS and path.is_file():
            tensors[path.stem.removesuffix("_native")] = lambda path=path: _read(path)  # type: ignore[misc]
        elif path.suffix == ".npz":
            try:
                with np.load(path, allow_pickle=False) as file:
                    tensors.update({name: lambda array=file[name]: array for name in file.files})
            except (ValueError, OSError, EOFError) as error:
                raise FormatError(f"{path}: cannot be read: {error}") from None
        elif path.is_file() and (log := open_model(path)).does("tensors"):
            for name, read in log.do("tensors"):
                tensors.setdefault(name, read)
    if not tensors:
        raise FormatError(f"{folder}: has no tensors; .raw, .npy, .npz, .tensorproto and .etdp files are read")
    return Dump(folder, tensors)


def _read(path: Path) -> Array:
    try:
        if path.suffix == ".raw":
            return np.fromfile(path, np.uint8)
        if path.suffix == ".npy":
            loaded: Array = np.load(path, allow_pickle=False)
            return loaded
        return np.asarray(onnx.numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes())))
    except (ValueError, OSError, EOFError, DecodeError) as error:
        raise FormatError(f"{path}: cannot be read: {error}") from None


def aligned(dumped: Array, like: Array, scale: float, zero: int) -> Array | None:
    """A dumped tensor with the shape, layout and type of another; None where it is none of that size.

    Real numbers of a fixed-point tensor are quantized by its scale and zero point. Of layouts that fit, the one that is
    nearest to `like` is taken.
    """
    typed = _typed(dumped, like)
    if typed is None or typed.size != like.size:
        return None
    if typed.dtype != like.dtype:
        if typed.dtype.kind == "f" and like.dtype.kind in "iu" and scale:
            limits = np.iinfo(like.dtype)
            typed = np.clip(np.rint(typed / scale) + zero, limits.min, limits.max)
        typed = typed.astype(like.dtype)
    layouts = [typed.reshape(like.shape)]
    if like.ndim >= 3:
        last = (like.shape[0], *like.shape[2:], like.shape[1])
        layouts.append(np.moveaxis(typed.reshape(last), -1, 1))
    wide: Any = np.float64
    return min(layouts, key=lambda one: float(np.abs(one.astype(wide) - like.astype(wide)).mean()))


def _typed(dumped: Array, like: Array) -> Array | None:
    """The numbers of a file that is bytes alone, by how many there are."""
    if dumped.dtype != np.uint8 or dumped.ndim != 1 or dumped.size == like.size:
        return dumped
    if dumped.size == 4 * like.size and like.dtype.itemsize != 4:
        return dumped.view(np.float32)
    return dumped.view(like.dtype) if dumped.size == like.nbytes else None
