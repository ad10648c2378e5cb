# SPDX-License-Identifier: Apache-2.0
"""SweepRequest: for which chips, precisions and runtime the models of a sweep are timed."""

from __future__ import annotations

from dataclasses import dataclass

from hexforge.chips.deployment import Deployment
from hexforge.chips.soc import SOCS, require_chip
from hexforge.request_fields import option

ALL, PRECISIONS = "all", ("float", "w8a8", "w8a16")


def listed(text: str) -> tuple[str, ...]:
    """The parts of a text between commas."""
    return tuple(part for one in text.split(",") if (part := one.strip()))


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """What each model of a sweep is asked for."""

    socs: tuple[str, ...] = option(
        (ALL,), "Chips, separated by commas; all: every one.", "--soc", kind=str, given=ALL, read=listed
    )
    """Chips by name, number or device; `all` is every one."""
    precisions: tuple[str, ...] = option(
        PRECISIONS, "Precisions, separated by commas.", "--precision", kind=str, given=",".join(PRECISIONS), read=listed
    )
    runtime: str = option("qnn_dlc", "qnn_dlc, onnx or tflite.")
    advice: bool = option(False, "Ask of each model what would gain most (slower).", "--advise")
    """Whether each model is asked, on the first chip, what would gain most."""

    def deployments(self) -> list[Deployment]:
        """Every chip at every precision."""
        named = [chip.name for soc in self.socs for chip in (SOCS if soc.lower() == ALL else [require_chip(soc)])]
        chips = tuple(dict.fromkeys(named))
        return [Deployment(soc, precision, self.runtime) for precision in self.precisions for soc in chips]
