# SPDX-License-Identifier: Apache-2.0
"""The headers have the numbers of the tables, and no others; Python's enumerations are the tables', too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hexforge.addons.capi.library import include_path
from hexforge.addons.executorch import qnn_types
from hexforge.qnn_api.enumerations import UNDEFINED, enumerators, members_of, value_of
from hexforge.qnn_api.error_codes import error_codes

HEADERS = sorted(path for path in include_path().rglob("*.h") if path.name not in ("QnnOpDef.h", "QnnSaver.h"))
ENUMERATION = re.compile(r"typedef enum\s*\{(.*?)\}\s*(\w+)\s*;", re.S)


def _declared(header: Path) -> Iterator[tuple[str, str, str]]:
    """Type, name and number, as it is written, of each enumerator of a header."""
    text = re.sub(r"//[^\n]*", "", header.read_text(encoding="utf-8"))
    for body, type in ENUMERATION.findall(text):
        for name, number in re.findall(r"(\w+)\s*=\s*(\w+)", body):
            yield type, name, number


def _number(written: str) -> int:
    return int(written, 0) if written[0].isdigit() else 0 if written == "QNN_SUCCESS" else value_of(written)


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.name)
def test_a_header_has_the_numbers_of_the_table(header: Path) -> None:
    name = header.relative_to(include_path()).as_posix()
    written = {(type, name, _number(number)) for type, name, number in _declared(header) if "_Error_t" not in type}
    assert written == {(row.type, row.name, row.value) for row in enumerators() if row.header == name}


def test_the_headers_error_codes_are_those_that_explain_knows() -> None:
    known = {code.name: code.number for code in error_codes()}
    for header in HEADERS:
        for type, name, number in _declared(header):
            if "_Error_t" in type and "_ERROR_" in name and _number(number) != UNDEFINED and name in known:
                assert _number(number) == known[name], name


def test_every_confirmed_number_has_a_source() -> None:
    for row in enumerators():
        assert bool(row.source) == row.confirmed, row
        if row.confirmed and row.value != UNDEFINED:
            assert set(row.source.split(", ")) <= {"EP", "ET", "ORT", "C#", "HTP guide"}, row


@pytest.mark.parametrize("type", ["Qnn_TensorType_t", "Qnn_DataType_t", "Qnn_QuantizationEncoding_t"])
def test_executorch_has_the_numbers_of_the_table(type: str) -> None:
    own = {member.name: member.value for member in getattr(qnn_types, type)}
    assert own.items() <= members_of(type).items()
