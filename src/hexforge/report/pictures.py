# SPDX-License-Identifier: Apache-2.0
"""Pictures: what a model makes of a picture in float and quantized, side by side, with the differences amplified."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hexforge.analysis.quality.pictures import PictureComparison, QuantizedPicture, range_of
from hexforge.ir import Array
from hexforge.report.section import Section, SectionPart
from hexforge.results import Key, Result

AMPLIFIED = 8
"""How many times larger than it is a difference is drawn; errors that can just be seen are an eighth of white then."""
MOST_PIXELS = 512
"""The longest side of a picture on a page; larger ones are made smaller by whole factors."""
_GREY, _RGB = 0, 2
_FROM_THE_LEFT = 1
"""PNG's filter that keeps each pixel's difference from the one at its left, which compresses photographs well."""


@dataclass(frozen=True, slots=True, eq=False)
class Picture(Result):
    """A picture and what it is."""

    title: str
    pixels: Array
    """[height, width, 1 or 3], 8 bits."""
    about: str = ""

    described = (
        "title about",
        Key("height", of=lambda picture: picture.pixels.shape[0]),
        Key("width", of=lambda picture: picture.pixels.shape[1]),
        Key("png", of=lambda picture: base64.b64encode(png_bytes(picture.pixels)).decode()),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Pictures(SectionPart):
    """Pictures side by side, which are in the page as PNG."""

    pictures: Sequence[Picture]
    title: str = ""

    draw = "pictures"
    described = ("draw title pictures",)


def pictures_section(compared: PictureComparison, *, recommended: bool = True) -> Section:
    """Input, target and float picture; below them each quantized picture with its difference from the float one.

    Where nothing is recommended, the first is only the one that is least bad.
    """
    named = "Recommended" if recommended else "Least bad"
    low, high = compared.range
    first = []
    if compared.given is not None:
        first.append(Picture("Input", pixels_of(compared.given, *range_of(compared.given)), "as the model gets it"))
    if compared.target is not None:
        first.append(Picture("Wanted", pixels_of(compared.target, low, high), "the label of this sample"))
    about = "" if compared.in_float_db is None else _against(compared.in_float_db, "the wanted one")
    first.append(Picture("Float model", pixels_of(compared.in_float, low, high), about))
    second = []
    for number, quantized in enumerate(compared.quantized):
        kind = named if number == 0 else "Fastest mix"
        second.append(
            Picture(f"{kind}: {quantized.name}", pixels_of(quantized.pixels, low, high), _distances(quantized))
        )
        difference = np.abs(quantized.pixels.astype(np.float64) - compared.in_float)
        about = f"from the float model, {AMPLIFIED} times amplified"
        second.append(Picture("Its difference", pixels_of(difference, 0, (high - low) / AMPLIFIED), about))
    note = (
        f"Sample {compared.sample + 1}, output {compared.output}: of all samples that were judged, the one whose "
        f"picture the {named.lower()} model changes most. PSNR in dB: more is better, 6 dB more is half the error."
    )
    return Section("Before and after", [Pictures(first, "In float"), Pictures(second, "Quantized")], note)


def png_bytes(pixels: Array) -> bytes:
    """A picture of 8 bits [height, width, 1 or 3] as a PNG file."""
    height, width, channels = pixels.shape
    steps = np.diff(pixels, axis=1, prepend=np.zeros_like(pixels[:, :1])).reshape(height, width * channels)
    lines = np.concatenate([np.full((height, 1), _FROM_THE_LEFT, np.uint8), steps], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, _RGB if channels == 3 else _GREY, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pixels_of(picture: Array, low: float, high: float) -> Array:
    """A picture in 8 bits, black at `low` and white at `high`, made smaller where it is large."""
    factor = math.ceil(max(picture.shape[:2]) / MOST_PIXELS)
    height, width = (side // factor for side in picture.shape[:2])
    blocks = picture[: height * factor, : width * factor].astype(np.float64)
    small = blocks.reshape(height, factor, width, factor, -1).mean((1, 3))
    return np.asarray(np.rint(np.clip((small - low) / (high - low), 0, 1) * 255), np.uint8)


def _distances(picture: QuantizedPicture) -> str:
    to_float = _against(picture.to_float_db, "the float model's")
    return (
        to_float if picture.to_target_db is None else f"{_against(picture.to_target_db, 'the wanted one')}, {to_float}"
    )


def _against(psnr: float, other: str) -> str:
    return f"{psnr:.2f} dB against {other}" if math.isfinite(psnr) else f"the same as {other}"
