# SPDX-License-Identifier: Apache-2.0
"""Names that people use for chips: how a name is spelled does not matter, devices stand for the chip in them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

DEVICES: Mapping[str, tuple[str, ...]] = {
    "SM8350": ("Galaxy S21", "Galaxy S21+", "Galaxy S21 Ultra", "Xiaomi Mi 11", "OnePlus 9"),
    "SM7325": ("Galaxy A73 5G",),
    "SM8450": ("Galaxy S22", "Galaxy S22 Ultra", "Galaxy S22+", "Galaxy S22 5G", "Galaxy S22 Ultra 5G",
               "Galaxy S22+ 5G", "Galaxy Tab S8", "Xiaomi 12", "Xiaomi 12 Pro", "OnePlus 10 Pro"),
    "SC8280XP": ("ThinkPad X13s", "Surface Pro 9 5G"),
    "SM8475": ("Galaxy Z Fold4", "Galaxy Z Flip4", "OnePlus 10T", "OnePlus 11R"),
    "SM8550": ("Galaxy S23", "Galaxy S23 Ultra", "Galaxy S23+", "Galaxy Z Fold5", "Galaxy Z Flip5", "Xiaomi 13",
               "OnePlus 11", "8 Gen 2 for Galaxy"),
    "SXR2230P": ("XR2 Gen 2", "Quest 3", "Meta Quest 3"),
    "SM8650": ("Galaxy S24", "Galaxy S24 Ultra", "Galaxy S24+", "Galaxy Z Fold6", "Galaxy Z Flip6", "Xiaomi 14",
               "OnePlus 12", "8 Gen 3 for Galaxy"),
    "SM8635": ("Poco F6", "Redmi Turbo 3"),
    "SC8380XP": ("X1 Elite", "X1E-80-100", "X1E-78-100", "X1E-84-100", "X1P-64-100", "Surface Pro 11",
                 "Surface Laptop 7"),
    "SM8750": ("Galaxy S25", "Galaxy S25 Ultra", "Galaxy S25+", "Galaxy Z Fold7", "Xiaomi 15", "OnePlus 13", "8 Gen 4",
               "8 Elite for Galaxy"),
    "SM8735": ("Poco F7", "Nothing Phone (3)"),
    "SM8850": ("Galaxy S26 Ultra", "Galaxy S26+", "Xiaomi 17", "OnePlus 15"),
    "SC8480XP": ("X2 Elite Extreme", "X2E"),
    "SM8845": ("8 Gen 5", "OnePlus 15R"),
    "QCS6490": ("RB3 Gen 2", "RB3 Gen 2 Vision Kit", "Rubik Pi 3", "Radxa Dragon Q6A"),
    "QCS9075": ("IQ-9075", "IQ9"),
    "QCS8275": ("IQ-8275", "VENTUNO Q"),
    # Chips without HTP, so that a device of theirs is told why.
    "SDM845": ("Pixel 3", "Pixel 3 XL"),
    "SDM670": ("Pixel 3a", "Pixel 3a XL"),
    "SM8150": ("Pixel 4",),
    "SM7150-AB": ("Pixel 4a",),
    "SM7250": ("Pixel 5", "Pixel 5a 5G"),
    "SM8250-AB": ("Galaxy Tab S7",),
    "SDM429": ("Galaxy Tab A8 (2021)",),
    "SM6150-AC": ("Redmi Note 10 5G",),
}  # fmt: skip
"""Names of chips, and devices known for one, beside the aliases of the table of chips.

Where they are from: Galaxy S22, S24, S25 and S26, RB3 Gen 2, IQ-9075, VENTUNO Q and the X Elite are devices that
Qualcomm AI Hub measures by chip (latency/measured). Galaxy S21+ and Ultra, A73, Tab S8, S26+, Xiaomi 12 Pro and those
without HTP are devices of qai-hub-models. Users named theirs in public threads: Poco F6 (llama.cpp 22352), OnePlus
11R and 15R (LiteRT 9045 and 7516), Rubik Pi 3 and Dragon Q6A (GenieX 1203 and 1170). Redmi Turbo 3, Poco F7 and
Nothing Phone (3) are in public kernels and device trees of their chips. The press of their launches has the 8 Gen 1
of Xiaomi 12 and OnePlus 10 Pro (9to5google.com, 2021-12-01), the 8+ Gen 1, SM8475, of the fourth Galaxy Z
(droidmaze.com), the 8 Elite Gen 5, SM8850, of Xiaomi 17, OnePlus 15 and Galaxy S26 Ultra (findarticles.com), and the
8 Gen 5 as the chip below it (hi-tech.ua, 2025-09-30). The others are as their makers say, from memory, and were not
looked up. Samsung sells some Galaxy S21, S22, S24 and S26 with an Exynos: a name stands for those with a Snapdragon.
"""

_PREFIXES = ("qualcomm", "samsung", "galaxy", "google", "xiaomi", "snapdragon", "dragonwing", "sd", "phone")
_SUFFIXES = ("mobile", "platform", "proxy", "crd", "qrd", "mtp", "adp", "evk")
"""What lists write after a chip's name: whom it is for, and boards that it is sold on for trial."""


def normalized_name(name: str) -> str:
    """A name in one spelling: "Snapdragon 8 Gen 3", "SD8G3" and "8gen3" give the same text."""
    key = re.sub(r"[^a-z0-9]", "", name.lower().replace("+", "plus"))
    shorter = True
    while shorter:
        shorter = False
        for prefix in _PREFIXES:
            if key.startswith(prefix) and len(key) > len(prefix):
                key, shorter = key.removeprefix(prefix), True
        for suffix in _SUFFIXES:
            if key.endswith(suffix) and len(key) > len(suffix):
                key, shorter = key.removesuffix(suffix), True
    return re.sub(r"gen(?=\d)", "g", key)


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that is spelled most like this one, if any is like it."""
    by_key: dict[str, str] = {}
    for each in known:
        by_key.setdefault(normalized_name(each), each)
    wanted = normalized_name(name)
    close = difflib.get_close_matches(wanted, by_key, 4, 0.6)

    def likeness(key: str) -> tuple[float, int]:
        return difflib.SequenceMatcher(None, key, wanted).ratio(), _common_start(key, wanted)

    return by_key[max(close, key=likeness)] if close else None


def _common_start(one: str, other: str) -> int:
    """How many letters two names have in common from the first on."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
