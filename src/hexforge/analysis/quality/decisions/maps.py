# SPDX-License-Identifier: Apache-2.0
"""Maps: decisions pixel by pixel: classes of pixels, pictures to look at, peaks of heat maps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hexforge.analysis.quality.decisions.measure import OfOneOutput, Outputs, Tally, common_part, share
from hexforge.analysis.quality.picture_metrics import WINDOW, psnr_db, ssim
from hexforge.analysis.quality.pictures import as_picture, range_of
from hexforge.ir import Array

COVERED = 0.005
"""Classes that cover less of the pixels in both models do not count, where others cover more."""
NEAR = 0.05
"""The part of a map's diagonal by which a peak may move."""
SEEN = 0.3
"""A peak counts from this part of the highest one on."""


@dataclass(frozen=True, slots=True)
class Segmentation(OfOneOutput):
    """The class of each pixel."""

    axis: int | None = 1
    """Where the classes lie; None where pixels are classes already, or one number each."""
    threshold: float | None = None
    """From where on a pixel is of the one class there is; None where the highest of several scores counts."""
    kind: str = "segmentation"

    @property
    def about(self) -> str:
        """How pixels get their class."""
        if self.threshold is not None:
            return f"pixels above {self.threshold:g}"
        return "classes of pixels" if self.axis is None else "the class with the highest score at each pixel"

    def decide(self, outputs: Outputs) -> Array:
        """The class of each pixel."""
        array = outputs[self.output]
        if self.threshold is not None:
            return np.asarray(array > self.threshold).astype(np.int64)
        return array.astype(np.int64) if self.axis is None else array.argmax(self.axis)

    def compare(self, reference: Array, other: Array) -> Tally:
        """Pixels of each class in either model and in both; of all maps together where there are several."""
        first, second = (np.ravel(part) for part in common_part(reference, other))
        count = int(max(first.max(initial=0), second.max(initial=0))) + 1
        both = np.bincount(first[first == second].clip(0), minlength=count)
        return {"one": np.bincount(first.clip(0), minlength=count), "two": np.bincount(second.clip(0), minlength=count),
                "both": both}  # fmt: skip

    def figures(self, tally: Tally) -> dict[str, float]:
        """The mean over classes of intersection over union, and the share of pixels of the same class."""
        one, two, both = (tally[key] for key in ("one", "two", "both"))
        pixels = float(one.sum())
        either = one + two - both
        chosen = np.maximum(one, two) >= COVERED * pixels
        if self.threshold is not None:
            chosen[0] = False  # what is not marked is no class of its own
            chosen[1:] |= ~chosen[1:].any()
        chosen &= either > 0
        iou = float((both[chosen] / either[chosen]).mean()) if chosen.any() else float("nan")
        return {"agreement": iou, "pixels": share(float(both.sum()), pixels)}

    def words(self, decision: Array) -> str:
        """The classes that cover most."""
        counts = np.bincount(np.ravel(decision).clip(0))
        order = np.argsort(-counts, kind="stable")[:4]
        return ", ".join(f"class {i}: {100 * counts[i] / max(decision.size, 1):.1f} %" for i in order if counts[i])


@dataclass(frozen=True, slots=True)
class PictureLikeness(OfOneOutput):
    """A picture that is looked at."""

    kind: str = "picture"
    about: str = "a picture, by SSIM"

    def decide(self, outputs: Outputs) -> Array:
        """The picture."""
        array = outputs[self.output]
        picture = as_picture(array)
        return np.asarray(array if picture is None else picture, np.float64)

    def compare(self, reference: Array, other: Array) -> Tally:
        """PSNR and SSIM of one picture."""
        reference, other = common_part(reference, other)
        low, high = range_of(reference)
        psnr = psnr_db(other, reference, high - low)
        channels_last = reference.ndim == 3 and reference.shape[-1] <= 4
        sides = reference.shape[:2] if channels_last else reference.shape[-2:]
        drawn = reference.ndim > 1 and min(sides) >= WINDOW
        like = ssim(other, reference, high - low) if drawn else 1 - 10 ** (-psnr / 20)
        return {"pictures": 1, "ssim": like, "psnr": psnr}

    def figures(self, tally: Tally) -> dict[str, float]:
        """The mean SSIM, and the mean PSNR."""
        count = tally["pictures"]
        return {"agreement": max(0.0, share(tally["ssim"], count)), "psnr": share(tally["psnr"], count)}

    def words(self, decision: Array) -> str:
        """Its range."""
        return f"a picture from {decision.min():.4g} to {decision.max():.4g}"


@dataclass(frozen=True, slots=True)
class Keypoints(OfOneOutput):
    """The place of the peak in each of several heat maps."""

    kind: str = "keypoints"
    about: str = "the place of the peak in each heat map"

    def decide(self, outputs: Outputs) -> tuple[Array, Array, float]:
        """Places [maps, 2], how high the peaks are, and how far a peak may move."""
        maps = outputs[self.output]
        height, width = maps.shape[-2:]
        flat = maps.reshape(-1, height * width)
        places = np.stack(np.divmod(flat.argmax(1), width), 1)
        return places, flat.max(1), NEAR * float(np.hypot(height, width))

    def compare(self, reference: tuple[Array, Array, float], other: tuple[Array, Array, float]) -> Tally:
        """Peaks of the float model, and how many are at their place."""
        places, heights, near = reference
        seen = heights >= SEEN * heights.max(initial=0)
        far = np.hypot(*(places - other[0]).T)
        return {"peaks": int(seen.sum()), "kept": int((far[seen] <= near).sum())}

    def figures(self, tally: Tally) -> dict[str, float]:
        """The share of peaks that stay at their place."""
        return {"agreement": share(tally["kept"], tally["peaks"])}

    def words(self, decision: tuple[Array, Array, float]) -> str:
        """The first places."""
        return "peaks at " + ", ".join(f"{x}:{y}" for y, x in decision[0][:6].tolist())
