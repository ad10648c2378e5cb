# SPDX-License-Identifier: Apache-2.0
"""The kinds of files that add-ons know are told from the others as the core's are."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from hexforge.addon import addons, file_kinds
from tests.formats.test_file_kinds import folder_of, require_named, require_named_by_python, zipped

SAFETENSORS = struct.pack("<Q", 2) + b'{"a":{}}'
FILES: Mapping[str, tuple[str, bytes, str]] = {
    "safetensors": ("m.safetensors", SAFETENSORS, "without a graph (safetensors); `hexforge llm export"),
    "gguf": ("m.gguf", b"GGUF\x03\0\0\0" + bytes(40), "is weights in a GGUF file; `hexforge llm export FILE"),
    "dlc": ("m.dlc", zipped("model", "model.params", "dlc.metadata"), "which only its SDK reads; give the ONNX file"),
    "ptd": ("m.ptd", bytes(4) + b"FT01" + bytes(40), "is a .ptd, which holds tensors of a program; give the program"),
    "bundled program": ("m.bpte", bytes(4) + b"BP08" + bytes(40), "take the program out of it"),
}
FOLDERS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "hf": (("config.json", "model.safetensors", "tokenizer.json"), "`hexforge llm export FOLDER"),
    "bundle": (("bundle.json", "prefill.bin"), "`hexforge llm run FOLDER` runs it"),
    "saver_output": (("saver_output.c", "params.bin"), "is a recording of the Saver; `hexforge replay FOLDER`"),
}


@pytest.mark.parametrize("case", FILES)
@pytest.mark.parametrize("command", ["check", "info"])
def test_a_file_is_named(case: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, data, words = FILES[case]
    (tmp_path / name).write_bytes(data)
    require_named(tmp_path / name, words, command, capsys)
    require_named_by_python(tmp_path / name)


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("command", ["check", "estimate", "info"])
def test_a_folder_is_named(name: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    members, words = FOLDERS[name]
    require_named(folder_of(tmp_path / name, members), words, command, capsys)


def test_they_come_before_files_of_others() -> None:
    names = [kind.name for kind in file_kinds()]
    places = sorted(names.index(kind.name) for addon in addons() for kind in addon.files)
    assert names.index("a context") < places[0] <= places[-1] < names.index("a zip archive")


def test_what_addons_do_with_files_of_others_is_of_kinds_that_there_are() -> None:
    names = {kind.name for kind in file_kinds()}
    assert [(addon.name, kind) for addon in addons() for kind in addon.does if kind not in names] == []
