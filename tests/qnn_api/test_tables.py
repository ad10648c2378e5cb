# SPDX-License-Identifier: Apache-2.0
"""The headers have the numbers of the tables, and no others; Python's enumerations are the tables', too."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from hexforge.addons.capi.library import include_path
from hexforge.addons.executorch import qnn_types
from hexforge.qnn_api.enumerations import UNDEFINED, enumerators, members_of, value_of
from hexforge.qnn_api.error_codes import error_codes
from tools.qnn_headers import Headers

HEADERS = Headers().texts()
ENUMERATION = re.compile(r"typedef enum\s*\{(.*?)\}\s*(\w+)\s*;", re.S)


def _declared(text: str) -> Iterator[tuple[str, str, str]]:
    """Type, name and number, as it is written, of each enumerator of a header."""
    for body, type in ENUMERATION.findall(re.sub(r"//[^\n]*", "", text)):
        for name, number in re.findall(r"(\w+)\s*=\s*(\w+)", body):
            yield type, name, number


def _number(written: str) -> int:
    return int(written, 0) if written[0].isdigit() else 0 if written == "QNN_SUCCESS" else value_of(written)


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_is_what_the_tables_say(header: str) -> None:
    assert (include_path() / header).read_text(encoding="ascii") == HEADERS[header], "run python -m tools.qnn_headers"


def test_there_are_no_other_headers() -> None:
    written = {path.relative_to(include_path()).as_posix() for path in include_path().rglob("*.h")}
    assert written == {*HEADERS, "QnnOpDef.h", "hexforge_device.h"}


def test_every_enumerator_is_in_its_header() -> None:
    for row in enumerators():
        assert re.search(rf"\b{row.name}\b", HEADERS[row.header]), row


def test_the_headers_error_codes_are_those_that_explain_knows() -> None:
    known = {code.name: code.number for code in error_codes()}
    for text in HEADERS.values():
        for type, name, number in _declared(text):
            if "_Error_t" in type and "_ERROR_" in name and _number(number) != UNDEFINED and name in known:
                assert _number(number) == known[name], name


def test_every_confirmed_number_has_a_source() -> None:
    for row in enumerators():
        assert bool(row.source) == row.confirmed, row
        if row.confirmed and row.value != UNDEFINED:
            assert set(row.source.split(", ")) <= {"EP", "ET", "ORT", "LiteRT", "C#", "HTP guide"}, row


def test_a_number_that_nobody_published_is_taken_for_no_other() -> None:
    own = [row.value for row in enumerators() if row.is_own and not row.name.endswith(("_MAJOR", "_MINOR", "_PATCH"))]
    aliases = 1  # the retention order has two names
    assert len(own) == len(set(own)) + aliases
    assert all(value >> 16 == 0x4846 for value in own)


@pytest.mark.parametrize("type", ["Qnn_TensorType_t", "Qnn_DataType_t", "Qnn_QuantizationEncoding_t"])
def test_executorch_has_the_numbers_of_the_table(type: str) -> None:
    own = {member.name: member.value for member in getattr(qnn_types, type)}
    assert own.items() <= members_of(type).items()
