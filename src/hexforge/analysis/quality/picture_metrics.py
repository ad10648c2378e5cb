# SPDX-License-Identifier: Apache-2.0
"""Metrics of pictures: how near a model's picture is to the one that is wanted, as PSNR in dB or as SSIM."""

from __future__ import annotations

import math

import numpy as np

from hexforge.errors import CallError
from hexforge.ir import Array

WINDOW = 7
"""SSIM looks at squares of so many pixels, as scikit-image does unless told otherwise."""
_K1, _K2 = 0.01, 0.03
"""The constants of the paper that defined SSIM (Wang et al., 2004)."""


def peak_of(picture: Array) -> float:
    """The largest number that a picture may have: 255 for integers and for what exceeds one, else 1."""
    return 255.0 if picture.dtype.kind in "iu" or (picture.size and float(picture.max()) > 1.5) else 1.0


def psnr_db(picture: Array, target: Array, peak: float) -> float:
    """The peak signal to noise ratio in dB; infinite where both are the same."""
    error = float(np.mean(np.square(picture - target)))
    return 10 * math.log10(peak * peak / error) if error > 0 else math.inf


def ssim(picture: Array, target: Array, peak: float) -> float:
    """The structural similarity, at most 1: the mean over squares of the last two axes, or the two before channels."""
    if picture.shape[-1] <= 4 and picture.ndim > 2:
        picture, target = np.moveaxis(picture, -1, 0), np.moveaxis(target, -1, 0)
    if min(picture.shape[-2:]) < WINDOW:
        raise CallError(f"ssim needs pictures of at least {WINDOW} x {WINDOW} pixels; this one is {picture.shape}")
    mean_a, mean_b = _window_means(picture), _window_means(target)
    sample = WINDOW**2 / (WINDOW**2 - 1)
    var_a = sample * (_window_means(picture * picture) - mean_a * mean_a)
    var_b = sample * (_window_means(target * target) - mean_b * mean_b)
    shared = sample * (_window_means(picture * target) - mean_a * mean_b)
    c1, c2 = (_K1 * peak) ** 2, (_K2 * peak) ** 2
    light = (2 * mean_a * mean_b + c1) / (mean_a * mean_a + mean_b * mean_b + c1)
    return float(np.mean(light * (2 * shared + c2) / (var_a + var_b + c2)))


def _window_means(picture: Array) -> Array:
    """The mean of every square of WINDOW pixels, out of running sums."""
    width = [(0, 0)] * (picture.ndim - 2) + [(1, 0), (1, 0)]
    sums = np.pad(picture, width).cumsum(-1).cumsum(-2)
    n = WINDOW
    whole = sums[..., n:, n:] - sums[..., :-n, n:] - sums[..., n:, :-n] + sums[..., :-n, :-n]
    return np.asarray(whole / n**2)
