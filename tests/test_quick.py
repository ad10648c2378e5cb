# SPDX-License-Identifier: Apache-2.0
"""`make quick` finds the tests of what changed."""

from __future__ import annotations

from tests import ROOT
from tools import odd_path
from tools.quick import ALWAYS, changed_files, mirrored_tests


def test_a_module_is_tested_by_its_name_then_by_its_room() -> None:
    tests = mirrored_tests(["src/hexforge/analysis/estimate.py"])
    assert tests[0] == "tests/analysis/test_estimate.py"
    assert tests[-1] == "tests/analysis"
    assert set(ALWAYS) < set(tests)


def test_a_module_without_a_mirror_has_the_nearest_room() -> None:
    assert mirrored_tests(["src/hexforge/backends/htp/time/no_such_file.py"])[-1] == "tests/backends/htp/time"
    assert mirrored_tests(["src/hexforge/backends/htp/time/no/such/room.py"])[-1] == "tests/backends/htp/time"
    assert mirrored_tests(["src/hexforge/no_such_file.py"]) == [*ALWAYS]


def test_a_name_in_another_room_is_another_subject() -> None:
    assert "tests/models/test_quantize.py" not in mirrored_tests(["src/hexforge/analysis/quality/quantize.py"])


def test_tests_and_pages_are_tested_themselves() -> None:
    assert mirrored_tests(["tests/ops/test_conv.py"]) == ["tests/ops/test_conv.py"]
    assert mirrored_tests(["tests/text/clean.ir"]) == ["tests/text"]
    assert mirrored_tests(["docs/guide.md", "native/conv.cpp"]) == ["tests/docs", "tests/native"]
    assert mirrored_tests(["CHANGELOG.md"]) == []


def test_what_changed_is_there() -> None:
    assert all((ROOT / name).is_file() for name in changed_files())


def test_the_tests_for_an_odd_path_are_where_they_are_named() -> None:
    assert [name for name in odd_path.TESTS if not (ROOT / name).exists()] == []
