# SPDX-License-Identifier: Apache-2.0
"""Pictures: image files as the numbers a model reads. Needs the extra `images` (Pillow).

`images.json` beside the pictures says how, by the names of PictureOptions; the command line's options go before it:

    {"resize": 256, "crop": 224, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from hexforge.errors import CallError
from hexforge.formats.json_text import read_json
from hexforge.formats.validated import Count, Within, validated
from hexforge.ir import Array

SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".webp"})
"""The suffixes of files that are read as pictures."""

OPTIONS_FILE = "images.json"
"""Beside the pictures: options by name."""


@dataclass(frozen=True, slots=True)
class PictureOptions:
    """How a picture becomes numbers: (pixel * scale - mean) / std, channel by channel."""

    layout: Literal["", "NCHW", "NHWC"] = ""
    """NCHW or NHWC; empty: where the input has 1 or 3 channels."""
    resize: Literal["stretch", "crop", "pad"] | Annotated[int, Within(1)] = "stretch"
    """stretch to the input's size, crop the middle of it, or pad it, the sides kept in proportion; a number: the
    shorter side becomes that, and the middle of the input's size is taken."""
    crop: Count = 0
    """The middle square of so many pixels is taken, after a number's resize and before any other; 0: none."""
    color: Literal["", "RGB", "BGR", "L"] = ""
    """RGB, BGR or L (grey); empty: RGB or L as the input has 3 channels or 1."""
    scale: float = 1 / 255
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = 1.0

    @classmethod
    def of(cls, given: Mapping[str, Any], where: str) -> PictureOptions:
        """Options by name; CallError for unknown names and wrong values."""
        return validated(cls, dict(given), where)

    def about(self) -> str:
        """What is done to a picture, in words."""
        if isinstance(self.resize, int):
            size = f"shorter side resized to {self.resize}"
        else:
            size = {"stretch": "stretched", "crop": "cropped", "pad": "padded"}[self.resize] + " to the input's size"
        steps: list[str] = [self.color or "RGB (grey for one channel)"]
        middle = f"middle {self.crop} x {self.crop} taken"
        steps += [size, middle] if isinstance(self.resize, int) and self.crop else []
        steps += ([middle] if self.crop else []) + [size] if len(steps) == 1 else []
        steps.append("pixels / 255" if self.scale == 1 / 255 else f"pixels * {self.scale:g}")
        plain = self.mean == 0.0 and self.std == 1.0
        steps.append("no mean and std (--mean, --std)" if plain else f"less {self.mean}, divided by {self.std}")
        return ", ".join([*steps, self.layout or "layout of the input"])

    @classmethod
    def beside(cls, folder: Path, given: Mapping[str, Any]) -> PictureOptions:
        """Options from the file in a folder, where there is one, with those given on top."""
        path = folder / OPTIONS_FILE
        from_file: Any = {}
        if path.is_file():
            from_file = read_json(path)
            validated(cls, from_file, str(path))
        return cls.of({**from_file, **given}, "picture options")


def load_picture(
    path: str, content: bytes, shape: Sequence[int | None], dtype: np.dtype[Any], options: PictureOptions
) -> Array:
    """The content of a picture's file as an input of a shape and type."""
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        raise CallError(f"{path}: pictures need Pillow: pip install 'hexforge[images]'; or give .npy files") from None
    layout = options.layout or _layout(path, shape)
    if len(shape) != 4 or shape[0] not in (1, None):
        raise CallError(f"{path}: no picture fits an input of shape {list(shape)}; it must be one image, NCHW or NHWC")
    channels, height, width = (shape[i] for i in ((1, 2, 3) if layout == "NCHW" else (3, 1, 2)))
    color = options.color or ("L" if channels == 1 else "RGB")
    try:
        with Image.open(io.BytesIO(content)) as file:
            image = ImageOps.exif_transpose(file).convert("L" if color == "L" else "RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        why = "it is none, or a damaged one" if isinstance(error, UnidentifiedImageError) else error
        raise CallError(f"{path}: cannot be read as a picture: {why}") from None
    image = _resize_and_crop(image, options, (width, height))
    size = (width or image.width, height or image.height)
    if image.size != size:
        bilinear = Image.Resampling.BILINEAR
        if options.resize == "crop":
            image = ImageOps.fit(image, size, bilinear)
        elif options.resize == "pad":
            image = ImageOps.pad(image, size, bilinear)
        else:
            image = image.resize(size, bilinear)
    pixels = np.asarray(image)
    pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels
    pixels = pixels[:, :, ::-1] if color == "BGR" else pixels
    if dtype != np.uint8:
        try:
            pixels = (pixels * options.scale - np.asarray(options.mean)) / np.asarray(options.std)
        except ValueError:
            raise CallError(
                f"{path}: mean and std must be one number or {pixels.shape[2]}, one for each channel"
            ) from None
    return np.ascontiguousarray((pixels.transpose(2, 0, 1) if layout == "NCHW" else pixels)[None], dtype)


def _resize_and_crop(image: Any, options: PictureOptions, input_size: tuple[int | None, int | None]) -> Any:
    """The picture with its shorter side resized to a number and its middle taken, where that is asked for."""
    from PIL import Image

    if isinstance(options.resize, int):
        factor = options.resize / min(image.size)
        sizes = [max(1, round(side * factor)) for side in image.size]
        image = image.resize(tuple(sizes), Image.Resampling.BILINEAR)
    elif not options.crop:
        return image
    across, down = (options.crop, options.crop) if options.crop else (side or 0 for side in input_size)
    across, down = min(across or image.width, image.width), min(down or image.height, image.height)
    left, top = (image.width - across) // 2, (image.height - down) // 2
    return image.crop((left, top, left + across, top + down))


@dataclass(frozen=True, slots=True)
class PictureFolder:
    """A folder, list or file of pictures, with options that go before those of its images.json."""

    path: Path | str
    """A folder, a list or a file; text where it names a data set (hexforge.quant.data.data_sets)."""
    options: Mapping[str, Any]

    def about(self) -> str:
        """What is done to the pictures, in words."""
        if isinstance(self.path, str):
            return PictureOptions.of(self.options, "picture options").about()
        folder = self.path if self.path.is_dir() else self.path.parent
        beside = f" ({OPTIONS_FILE})" if (folder / OPTIONS_FILE).is_file() else ""
        return PictureOptions.beside(folder, self.options).about() + beside


def holds_pictures(path: Path) -> bool:
    """True for a picture, or a folder with a picture in it or in one of its folders."""
    if path.is_dir():
        return any(p.suffix.lower() in SUFFIXES for p in (*path.glob("*.*"), *path.glob("*/*.*")))
    if path.suffix == ".txt" and path.is_file():
        words = path.read_text("utf-8", "replace").split()
        return any(Path(word).suffix.lower() in SUFFIXES for word in words)
    return path.suffix.lower() in SUFFIXES


def _layout(path: str, shape: Sequence[int | None]) -> str:
    for layout, axis in (("NCHW", 1), ("NHWC", 3)):
        if len(shape) == 4 and shape[axis] in (1, 3):
            return layout
    raise CallError(f"{path}: no picture fits an input of shape {list(shape)}; it must have 1 or 3 channels")
