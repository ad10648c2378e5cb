# SPDX-License-Identifier: Apache-2.0
"""The table of the HTP guide's features names tests that are there, and the page says what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import htp_features
from docs.htp_features import FEATURES_PAGE, features, features_page, line_numbers, marked_tests, missing

WITHOUT_TEST = {"Python": 0, "tools": 7, "C": 61}
"""How many features have neither a test of a door nor a reason why they do not go through it; let it fall."""


def test_the_table_is_up_to_date() -> None:
    assert FEATURES_PAGE.read_text(encoding="utf-8") == features_page(), "run make docs"


def test_there_are_94_features_of_different_names() -> None:
    assert len(features()) == len({row.name for row in features()}) == 94


def test_every_feature_has_a_test_or_a_reason_why_it_cannot_be_known() -> None:
    assert missing() == [], "mark a test, or say in docs/htp_features.csv why it cannot be known"
    shown = {marked.feature for marked in marked_tests()}
    assert [row.name for row in features() if row.open and row.name not in shown] == []


def test_markers_name_features_and_their_lines() -> None:
    rows = {row.name: line_numbers(row.lines) for row in features()}
    for marked in marked_tests():
        assert marked.feature in rows, f"{marked.test}: docs/htp_features.csv has no feature {marked.feature!r}"
        overlap = line_numbers(marked.lines) & rows[marked.feature]
        assert overlap, f"{marked.test}: lines {marked.lines} are not those of {marked.feature!r}"


def test_a_door_is_closed_with_a_reason_where_no_test_goes_through_it_alone() -> None:
    """A reason beside a test that shows the contrary is out of date."""
    through = {(marked.feature, marked.door) for marked in marked_tests()}
    stale = [(row.name, door) for row in features() for door, why in row.closed.items() if why]
    assert [cell for cell in stale if cell in through] == []


@pytest.mark.parametrize("door", htp_features.DOORS)
def test_no_more_features_than_now_lack_a_test_of_a_door(door: str) -> None:
    through = {marked.feature for marked in marked_tests() if marked.door == door}
    lacking = [row.name for row in features() if row.name not in through and not row.closed[door] and not row.unknown]
    assert len(lacking) <= WITHOUT_TEST[door], lacking


def test_markers_are_read_from_functions_classes_and_modules(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        'pytestmark = pytest.mark.feature("HNRD", guide="2969")\n'
        '@pytest.mark.feature("API version", guide="9-13")\n@pytest.mark.other\ndef test_version(): ...\n'
        'class TestIt:\n    @pytest.mark.feature("Gzip", guide="2563", door="C")\n    def test_in(self): ...\n'
    )
    found = [(marked.test, marked.feature, marked.lines, marked.door) for marked in marked_tests(tmp_path)]
    assert found == [
        ("test_some.py", "HNRD", "2969", "Python"),
        ("test_some.py::test_version", "API version", "9-13", "Python"),
        ("test_some.py::test_in", "Gzip", "2563", "C"),
    ]


@pytest.mark.parametrize("marker", ['"A", page="1"', '"A"', '"A", guide=""', 'guide="1"', '"A", guide="1", door="?"'])
def test_a_marker_without_a_name_or_lines_is_refused(marker: str, tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(f"@pytest.mark.feature({marker})\ndef test_it(): ...\n")
    with pytest.raises(ValueError, match=r"test_some\.py::test_it: write"):
        htp_features.marked_tests(tmp_path)
