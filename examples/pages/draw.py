# SPDX-License-Identifier: Apache-2.0
"""Draw the pages of the guide: `python examples/pages/draw.py pages` writes twelve pictures of text as .npy files.

Each is as PP-OCR's text detector reads a picture: 1 x 3 x 320 x 320, blue first, mean and standard deviation taken out.
They are the same every time; Pillow draws them (`pip install pillow`).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

SIZE, COUNT = 320, 12
WORDS = (
    "the quick brown fox jumps over a lazy dog while seven wizards quietly box heavy jade lamps "
    "total 42.70 invoice no 10385 platform 9 exit left open daily from 8 to 17 fragile this side up"
).split()
MEAN, STD = (np.reshape(x, (3, 1, 1)) for x in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


def page(random: np.random.Generator) -> np.ndarray:
    """Lines of text on paper that is lit from one side, a little turned and noisy, as a phone sees a page."""
    paper, ink = (tuple(map(int, random.integers(low, high, 3))) for low, high in ((170, 256), (0, 90)))
    picture = Image.new("RGB", (SIZE, SIZE), paper)
    draw, top = ImageDraw.Draw(picture), int(random.integers(8, 30))
    while top < SIZE - 40:
        height = int(random.integers(14, 34))
        text = " ".join(random.choice(WORDS, int(random.integers(1, 6))))
        draw.text((int(random.integers(4, 60)), top), text, fill=ink, font=ImageFont.load_default(height))
        top += height + int(random.integers(6, 40))
    turned = picture.rotate(float(random.uniform(-4, 4)), Image.Resampling.BILINEAR, fillcolor=paper)
    light = np.linspace(*random.uniform(0.75, 1.05, 2), SIZE)[None, :, None]
    seen = np.asarray(turned, np.float32) * light + random.normal(0, random.uniform(1, 8), (SIZE, SIZE, 1))
    x = np.clip(seen, 0, 255)[:, :, ::-1].transpose(2, 0, 1) / 255
    return ((x - MEAN) / STD).astype(np.float32)[None]


def main(folder: Path) -> None:
    """Write the pages into a folder."""
    random = np.random.default_rng(7)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(COUNT):
        np.save(folder / f"page{number:02}.npy", page(random))
    print(f"{folder}: {COUNT} pages of {SIZE} x {SIZE}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "pages"))
