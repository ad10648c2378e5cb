# SPDX-License-Identifier: Apache-2.0
"""Sounds: .wav files as the numbers a model reads, from -1 to 1, at the rate that the file has."""

from __future__ import annotations

import io
import wave
from collections.abc import Sequence
from typing import Any

import numpy as np

from hexforge.errors import CallError
from hexforge.ir import Array

SUFFIXES = frozenset({".wav"})
"""The suffixes of files that are read as sounds."""


def load_sound(where: str, content: bytes, shape: Sequence[int | None], dtype: np.dtype[Any]) -> Array:
    """A sound as an input's array: its channels averaged, its end cut off or filled with silence to the input's size.

    An input of whole numbers gets those of 16 bits.
    """
    sizes = [size for size in shape if size != 1]
    if len(sizes) > 1:
        raise CallError(
            f"{where}: no sound fits an input of shape {list(shape)}; it must have one dimension that is not 1; "
            "compute its features and write them with numpy.save"
        )
    sound = _sound(where, content)
    wanted = sizes[0] if sizes else 1
    if wanted is not None:
        sound = np.pad(sound[:wanted], (0, max(0, wanted - len(sound))))
    if dtype.kind in "iu":
        if dtype != np.int16:
            raise CallError(f"{where}: a sound becomes floats or int16, and the model reads {dtype.name}")
        sound = np.clip(np.rint(sound * 32768), -32768, 32767)
    return sound.astype(dtype).reshape([1 if size == 1 else len(sound) for size in shape])


def _sound(where: str, content: bytes) -> Array:
    """The numbers of a file of PCM, channels averaged."""
    try:
        with wave.open(io.BytesIO(content)) as file:
            channels, width = file.getnchannels(), file.getsampwidth()
            data = file.readframes(file.getnframes())
    except (wave.Error, EOFError, ValueError, RuntimeError) as error:
        raise CallError(
            f"{where}: cannot be read as wav: {error or 'it ends too early'}; write it as 16-bit PCM"
        ) from None
    if not channels or width not in (1, 2, 3, 4):
        raise CallError(
            f"{where}: cannot be read as wav: {8 * width} bits, {channels} channels; write it as 16-bit PCM"
        )
    values: Array = np.frombuffer(data[: len(data) // (channels * width) * channels * width], np.uint8).reshape(
        -1, width
    )
    if width == 1:  # the one width that wav stores without a sign
        values = values ^ 128
    wide = np.zeros((len(values), 4), np.uint8)
    wide[:, 4 - width :] = values
    numbers = wide.view("<i4")[:, 0] / 2.0**31
    mixed: Array = numbers.reshape(-1, channels).mean(1)
    return mixed
