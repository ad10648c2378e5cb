# SPDX-License-Identifier: Apache-2.0
"""Error codes: the numbers that QNN's components, Genie and FastRPC give, by name, with what happened and what would
work. The one table is error_codes.csv.

Names and numbers are those of QNN's page of error codes and of FastRPC's AEEStdErr.h; the sentences are ours.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from hexforge.qnn_api.tables import rows_of

QNN_PAGE = "https://docs.qualcomm.com/doc/80-63442-10/topic/api_error_codes.html"
FASTRPC_HEADER = "https://github.com/qualcomm/fastrpc/blob/main/inc/AEEStdErr.h"
GENIE_ISSUE = "https://github.com/qualcomm/ai-hub-apps/issues/121"
_SOURCES = {"QNN": QNN_PAGE, "AEE": FASTRPC_HEADER, "GENIE": GENIE_ISSUE}
DSP_OFFSET = 0x80000400
"""What the DSP adds to FastRPC's numbers; the host's have no offset."""
_RANGES = (
    (1000, "common"), (2000, "property"), (3000, "op package"), (4000, "backend"), (5000, "context"), (6000, "graph"),
    (7000, "tensor"), (8000, "memory"), (9000, "signal"), (10000, "error"), (11000, "log"), (12000, "profile"),
    (13000, "performance infrastructure"), (14000, "device"), (30000, "system"),
    (60000, "interface"),
)  # fmt: skip
"""First numbers of QNN's components, each of which has a thousand; the system library has those up to 49999."""


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """A code by its name: what happened where it is given, and what would work."""

    name: str
    number: int
    happened: str
    would_work: str
    on_device: str = ""
    """When the simulated device gives it; empty where it does not."""

    @property
    def source(self) -> str:
        """The address of the page that has the name and the number."""
        return _SOURCES[self.name.partition("_")[0]]


@dataclass(frozen=True, slots=True)
class FoundCodes:
    """What a number stands for: the codes that have it, the first the most general, and how it was read."""

    number: int
    codes: tuple[ErrorCode, ...]
    reading: str = ""
    """How the number was read where it is not a code as it stands, or whose range it is in where it is none."""


@functools.cache
def error_codes() -> tuple[ErrorCode, ...]:
    """Every code of the table."""
    return tuple(
        ErrorCode(row["name"], int(row["number"], 0), row["happened"], row["would_work"], row["device"])
        for row in rows_of("error_codes.csv")
    )


@functools.cache
def _by_name() -> dict[str, ErrorCode]:
    return {code.name: code for code in error_codes()}


def code_named(name: str) -> ErrorCode | None:
    """The code of a name such as QNN_CONTEXT_ERROR_CREATE_FROM_BINARY, which newer headers spell QAIRT_…."""
    return _by_name().get(re.sub("^QAIRT_", "QNN_", name.upper()))


def parse_number(text: str) -> int | None:
    """A decimal, hexadecimal or negative number; None for any other text, and for one of more than 64 bits."""
    if not re.fullmatch(r"[-+]?(?:0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20})", text.strip()):
        return None
    digits = text.strip().lstrip("+")
    number = int(digits, 16) if "x" in digits.lower() else int(digits)
    return number if -(1 << 63) <= number < 1 << 64 else None


def codes_of(number: int, fastrpc: bool | None = None) -> FoundCodes:
    """What a number stands for; with `fastrpc` only FastRPC's codes, without it (False) only the others."""
    unsigned = number & 0xFFFFFFFF if -(1 << 31) <= number < 0 else number
    on_dsp = DSP_OFFSET < unsigned < DSP_OFFSET + 0x400
    readings: list[tuple[int, bool | None, str]] = [(number, fastrpc, "")]
    if number == 0xFFFFFFFF:
        readings.append((-1, fastrpc, "0xffffffff is -1"))
    if on_dsp:
        offset = unsigned - DSP_OFFSET
        readings.append((offset, True, f"{unsigned:#x} is FastRPC's {offset:#x} on the DSP"))
    elif number > 0xFFFF:
        readings.append((number & 0xFFFF, False, f"the code is in the low 16 bits of {number:#x}"))
    if -50000 < number <= -1000:
        readings.append((-number, False, f"{number} is {-number} with its sign turned"))
    for read, rpc, how in readings:
        known = tuple(
            code
            for code in error_codes()
            if code.number == read and (rpc is None or rpc == code.name.startswith("AEE_"))
        )
        if known and (not how.startswith("the code is") or known[0].name.startswith("QNN_")):
            return FoundCodes(read, known, how)
    return FoundCodes(number, (), _range(number))


def _range(number: int) -> str:
    for first, name in _RANGES:
        if first <= number < (50000 if first == 30000 else first + 1000):
            return f"it is in the range of QNN's {name} component, whose documentation does not list it"
    return ""
