# SPDX-License-Identifier: Apache-2.0
"""Names out of files as file names: one part of a path each, different names different files."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hexforge.formats.files import file_names, file_stem

NAMES = st.lists(st.text(max_size=300) | st.sampled_from(["a/b", "a_b", "a_b~2", "..", ".", "", "/x", "../x"]))


@given(NAMES)
def test_different_names_are_different_files_in_one_folder(names: list[str]) -> None:
    for endings in (("",), ("", "_native"), (".json", "_tensor_log.json")):
        stems = file_names(names, endings)
        assert list(stems) == list(dict.fromkeys(names))
        files = [f"{stem}{ending}.raw" for stem in stems.values() for ending in endings]
        assert len(set(files)) == len(files)
        for file in files:
            assert Path(file).name == file
            assert os.path.normpath(file) == file
            assert not file.startswith(".")
            assert "\0" not in file
            assert len(file.encode()) < 255 - 16


def test_names_that_are_files_stay_as_they_are() -> None:
    assert file_names(["a/b", "a_b", "a:b", "é.1+x-y"]) == {
        "a/b": "a_b~2", "a_b": "a_b", "a:b": "a_b~3", "é.1+x-y": "é.1+x-y",
    }  # fmt: skip
    assert [file_stem(name) for name in ("../../x", "/etc/passwd", "", "..", ".hidden")] == [
        "_._.._x", "_etc_passwd", "unnamed", "_.", "_hidden",
    ]  # fmt: skip


def test_endings_and_other_files_are_minded() -> None:
    assert file_names(["a", "a_native"], ("", "_native")) == {"a": "a", "a_native": "a_native~2"}
    assert file_names(["two"], (".onnx",), taken=["two.onnx"]) == {"two": "two~2"}
