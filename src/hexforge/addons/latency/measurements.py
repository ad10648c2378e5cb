# SPDX-License-Identifier: Apache-2.0
"""Latencies that were measured on devices, and the families that their models belong to.

Families are decided by where an architecture comes from (measured/families.csv), before anything is fitted. Models that
share a backbone are in one fold. A model is of one or more kinds, so that all transformers, say, can be left out at
once. Families marked `aside` were not looked at while the structure was chosen.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hexforge.chips import soc
from hexforge.errors import CallError, FormatError

DATA = Path(__file__).with_name("measured")
"""What the shipped costs are fitted to. It is in the checkout and not in packages, which it would make 20 MB larger."""
TARGET_DEVICES = ("Samsung Galaxy S24", "Samsung Galaxy S25", "QCS8550 (Proxy)", "Snapdragon X Elite CRD")
"""The devices that the figures are published for."""
SAME_RUNTIME = {"qnn_context_binary": "qnn_dlc"}
"""Runtimes that run the graph of another: a context is what a DLC becomes on the device."""
OTHER_RUNTIMES = ("precompiled_qnn_onnx", "voice_ai")
"""Runtimes whose rows are not read: they run the contexts of `qnn_context_binary` rows, in the same time."""
MEASURED_PRECISIONS = ("float", "w8a8", "w8a16")
LEFT_OUT = {("resnet_2plus1d", "tflite"), ("resnet_mixed", "tflite")}
"""Models and runtimes whose rows are not read: these take 20 to 160 times as long there as through qnn_dlc."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row of measured.csv: how long a model took at a precision, through a runtime, on a device."""

    model: str
    precision: str
    runtime: str
    device: str
    chip: str
    latency_us: float


@dataclass(frozen=True, slots=True)
class MeasuredFamily:
    """What a model belongs to, and the fold in which its family is held out."""

    name: str
    fold: int
    kinds: tuple[str, ...]
    """What the model is for, and how it is built: detector, transformer, video and so on."""
    aside: bool
    """True where it was not looked at while the structure of the model was chosen."""


def read_measurements(folder: Path = DATA) -> list[Measurement]:
    """The rows of measured.csv that are of use, each with the name of its chip."""
    measurements = []
    for where, row in table_rows(folder / "measured.csv", ("model", "precision", "runtime", "device", "soc_model")):
        try:
            latency_us = float(row["inference_ms"]) * 1e3
        except (KeyError, TypeError, ValueError):
            latency_us = 0.0
        if not 0 < latency_us < float("inf"):
            raise FormatError(f"{where}: inference_ms is {row.get('inference_ms')!r}; it is a time in milliseconds")
        if row["runtime"] in OTHER_RUNTIMES or (row["model"], row["runtime"]) in LEFT_OUT:
            continue
        runtime = SAME_RUNTIME.get(row["runtime"], row["runtime"])
        chip = soc.require_chip(row["soc_model"])
        measurements.append(Measurement(row["model"], row["precision"], runtime, row["device"], chip.name, latency_us))
    return measurements


def read_families(folder: Path = DATA) -> dict[str, MeasuredFamily]:
    """The family of each model; FormatError for a family that is in two folds, which would not hold it out."""
    families: dict[str, MeasuredFamily] = {}
    fold_of: dict[str, int] = {}
    for where, row in table_rows(folder / "families.csv", ("model", "family", "fold", "kinds", "aside")):
        if not row["fold"].isdecimal():
            raise FormatError(f"{where}: fold is {row['fold']!r}; it is a number")
        family = MeasuredFamily(row["family"], int(row["fold"]), tuple(row["kinds"].split()), row["aside"] == "1")
        if fold_of.setdefault(family.name, family.fold) != family.fold:
            raise FormatError(f"{where}: {family.name} is in the folds {fold_of[family.name]} and {family.fold}")
        families[row["model"]] = family
    return families


def table_rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The rows of a table that has some columns, and where each of them stands."""
    if not path.exists():
        raise CallError(
            f"{path}: is not there; measured latencies are in the source checkout "
            "(src/hexforge/addons/latency/measured), not in packages: give the folder that has them"
        )
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        missing = sorted(set(columns) - set(reader.fieldnames or ()))
        if missing:
            raise FormatError(f"{path}: has no column {missing[0]}")
        for row in reader:
            where = f"{path}:{reader.line_num}"
            if any(row[name] is None for name in columns):
                raise FormatError(f"{where}: has fewer columns than the table")
            yield where, row
