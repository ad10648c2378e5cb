# SPDX-License-Identifier: Apache-2.0
"""Pictures as models of packages see them, drawn on photos: puzzles, large letters, faces, pages of text."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from benchmarks.accuracy import data_files, rendered_text

_CALIBRATION = 1 << 20
_SKIMAGE = "scikit-image==0.26.0"


def photo_files(number: int) -> list[Path]:
    """Every fourth photo is for calibration, the others are judged."""
    calibrates = number >= _CALIBRATION
    return [path for i, path in enumerate(data_files.photos()) if (i % 4 == 0) == calibrates]


def photo(number: int, width: int, height: int = 0) -> Image.Image:
    """The photo of a number, its middle cut out to a size."""
    mine = photo_files(number)
    with Image.open(mine[number % _CALIBRATION % len(mine)]) as opened:
        picture = opened.convert("RGB")
    height = height or width
    scale = max(width / picture.width, height / picture.height)
    picture = picture.resize((max(width, round(picture.width * scale)), max(height, round(picture.height * scale))))
    left, top = (picture.width - width) // 2, (picture.height - height) // 2
    return picture.crop((left, top, left + width, top + height))


def puzzle(number: int, size: int) -> Image.Image:
    """A photo with a dark gap in the form of a piece of a puzzle, often with the piece at the left; grey around it."""
    random = np.random.default_rng([5, number])
    height = 360 + int(random.integers(0, 40))
    picture, side = photo(number, size, height), int(random.integers(60, 100))
    form = _piece(side)
    top, left = int(random.integers(10, height - 2 * side - 5)), int(random.integers(200, size - 2 * side - 5))
    cut = picture.crop((left, top, left + 2 * side, top + 2 * side))
    black = Image.new("RGB", form.size)
    picture.paste(Image.blend(cut, black, float(random.uniform(0.4, 0.65))), (left, top), form)
    if random.random() < 0.6:
        at = int(random.integers(0, 30))
        picture.paste(cut, (at, top), form)
        picture.paste(Image.new("RGB", form.size, (240, 240, 240)), (at, top), form.filter(ImageFilter.FIND_EDGES))
    whole = Image.new("RGB", (size, size), (114, 114, 114))
    whole.paste(picture, (0, (size - height) // 2))
    return whole


def _piece(side: int) -> Image.Image:
    """A square with two knobs and a hole."""
    form = Image.new("L", (2 * side, 2 * side))
    draw = ImageDraw.Draw(form)
    low, high, knob = side // 2, side // 2 + side, side // 5
    middle = (low + high) // 2
    draw.rectangle((low, low, high, high), fill=255)
    for x, y, fill in ((middle, low, 255), (high, middle, 255), (low, middle, 0)):
        draw.ellipse((x - knob, y - knob, x + knob, y + knob), fill=fill)
    return form


def letters(number: int, size: int) -> Image.Image:
    """A photo with a few large letters in many colours."""
    random = np.random.default_rng([6, number])
    picture = photo(number, size)
    draw = ImageDraw.Draw(picture)
    for _ in range(int(random.integers(3, 6))):
        font = ImageFont.truetype(str(random.choice(np.array(data_files.fonts(), str))), int(random.integers(50, 80)))
        at = tuple(int(random.integers(10, size - 100)) for _ in range(2))
        color = tuple(int(v) for v in random.integers(0, 256, 3))
        letter = chr(int(random.choice([*range(65, 91), *range(97, 123)])))
        draw.text((at[0], at[1]), letter, fill=color, font=font, stroke_width=2, stroke_fill=(255, 255, 255))
    return picture


@cache
def _face() -> Image.Image:
    """The head of the astronaut of scikit-image."""
    kept = data_files.DATA / "astronaut.png"
    if not kept.exists():
        picture = next(content for name, content in data_files.archive(_SKIMAGE) if name.endswith("/astronaut.png"))
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(picture)
    with Image.open(io.BytesIO(kept.read_bytes())) as opened:
        return opened.convert("RGB").crop((150, 0, 310, 230))


def portrait(number: int, size: int) -> Image.Image:
    """A photo with one to three faces of different sizes."""
    random = np.random.default_rng([7, number])
    picture = photo(number, size)
    for _ in range(int(random.integers(1, 4))):
        width = int(random.integers(40, 120))
        face = _face().resize((width, width * 230 // 160)).rotate(float(random.uniform(-15, 15)))
        face = face.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else face
        bright = np.clip(np.asarray(face, np.float32) * float(random.uniform(0.5, 1.2)), 0, 255).astype(np.uint8)
        at = int(random.integers(0, size - face.width)), int(random.integers(0, max(1, size - face.height)))
        picture.paste(Image.fromarray(bright), at)
    return picture


def document(number: int, width: int, height: int) -> Image.Image:
    """A page: a title, paragraphs, here and there a photo with a line below it."""
    random = np.random.default_rng([8, number])
    page = Image.new("RGB", (width, height), tuple(int(v) for v in random.integers(235, 256, 3)))
    draw = ImageDraw.Draw(page)
    margin, y = width // 12, height // 20
    title = ImageFont.truetype(str(data_files.fonts()[1]), width // 22)
    draw.text((margin, y), rendered_text.phrase(random, 3), fill=(0, 0, 0), font=title)
    y += width // 10
    body = ImageFont.truetype(str(data_files.fonts()[3]), max(9, width // 46))
    step = width // 32
    while y < height - 4 * step:
        if random.random() < 0.25 and y < height * 2 // 3:
            side = width // 3
            page.paste(photo(number, side, side * 2 // 3), (margin, y))
            y += side * 2 // 3 + step // 2
            draw.text((margin, y), rendered_text.phrase(random, 3), fill=(60, 60, 60), font=body)
            y += 2 * step
        for _ in range(int(random.integers(2, 7))):
            text = rendered_text.phrase(random, 9)
            while body.getlength(text) > width - 2 * margin:
                text = text.rpartition(" ")[0]
            draw.text((margin, y), text, fill=(20, 20, 20), font=body)
            y += step
            if y > height - 2 * step:
                break
        y += step
    return page


def face_crop(number: int, size: int, middle: tuple[float, float] = (0.5, 0.48), reach: float = 1.0) -> Image.Image:
    """The astronaut's face about a point of it, moved, turned, scaled and lit a little otherwise for every number."""
    random = np.random.default_rng([9, number])
    face = _face().rotate(float(random.uniform(-15, 15)), center=(80, 110))
    half = 80 * reach * float(random.uniform(0.85, 1.15))
    x, y = (
        160 * middle[0] + float(random.uniform(-0.1, 0.1)) * half,
        230 * middle[1] + float(random.uniform(-0.1, 0.1)) * half,
    )
    face = face.crop((round(x - half), round(y - half), round(x + half), round(y + half))).resize((size, size))
    bright = np.clip(np.asarray(face, np.float32) * float(random.uniform(0.6, 1.2)), 0, 255).astype(np.uint8)
    return Image.fromarray(bright)
