# SPDX-License-Identifier: Apache-2.0
"""Pictures on a page: whole PNG files inside it, the difference amplified, large ones made smaller."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from hexforge.analysis.quality.pictures import PictureComparison, QuantizedPicture
from hexforge.report import Picture, Pictures, Section, page
from hexforge.report.pictures import AMPLIFIED, pictures_section, png_bytes
from tests.report.estimates import made
from tests.report.test_page import Elements, content

RANDOM = np.random.default_rng(2)


@pytest.mark.parametrize("channels", [1, 3])
def test_png(channels: int) -> None:
    pixels = RANDOM.integers(0, 256, (21, 34, channels), dtype=np.uint8)
    read = np.asarray(Image.open(io.BytesIO(png_bytes(pixels))))
    np.testing.assert_array_equal(read.reshape(pixels.shape), pixels)


def drawn(picture: dict[str, str]) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(picture["png"]))))


def test_the_difference_is_amplified() -> None:
    in_float = np.full((16, 16, 3), 0.5, np.float32)
    off = in_float + np.float32(0.05)
    compared = PictureComparison(
        2, "out", (0.0, 1.0), in_float / 8, in_float, in_float, 40.0,
        (QuantizedPicture("mix", off, 26.0, 25.5), QuantizedPicture("w8a8", in_float, float("inf"), 40.0)),
    )  # fmt: skip
    section = pictures_section(compared).to_json()
    first, second = (part["pictures"] for part in section["parts"])
    assert [p["title"] for p in first] == ["Input", "Wanted", "Float model"]
    unusable = pictures_section(compared, recommended=False).to_json()
    assert "ecommended" not in str(unusable)
    assert unusable["parts"][1]["pictures"][0]["title"] == "Least bad: mix"
    assert [p["title"] for p in second] == ["Recommended: mix", "Its difference", "Fastest mix: w8a8", "Its difference"]
    assert second[0]["about"] == "25.50 dB against the wanted one, 26.00 dB against the float model's"
    assert "the same as the float model's" in second[2]["about"]
    assert set(drawn(first[0]).ravel()) == {round(255 / 16)}  # as dark as it is
    assert set(drawn(second[1]).ravel()) == {round(0.05 * AMPLIFIED * 255)}
    assert not drawn(second[3]).any()
    assert section["note"].startswith("Sample 3, output out")


def test_large_pictures_are_made_smaller() -> None:
    large = np.tile(np.array([0.0, 1.0]), (1100, 550))[..., None]
    compared = PictureComparison(
        0, "y", (0.0, 1.0), None, None, large, None, (QuantizedPicture("m", large, 9.0, None),)
    )
    (shown,) = pictures_section(compared).to_json()["parts"][0]["pictures"]
    assert (shown["height"], shown["width"]) == (366, 366)
    assert drawn(shown).shape == (366, 366)


def test_a_page_loads_no_picture_from_elsewhere() -> None:
    pixels = RANDOM.integers(0, 256, (16, 16, 3), dtype=np.uint8)
    text = page(made(3), lead=[Section("Before", [Pictures([Picture("<b>one", pixels)])])])
    (shown,) = content(text)["lead"][0]["parts"][0]["pictures"]
    np.testing.assert_array_equal(drawn(shown), pixels)
    elements = Elements(text).found
    assert "img" not in [tag for tag, _ in elements]
    policy = next(a["content"] for _, a in elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:;")
