# SPDX-License-Identifier: Apache-2.0
"""Archives and files that mean harm: the doctor names them, reads a bounded part, writes nothing, and ends soon."""

from __future__ import annotations

import struct
import time
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hexforge.addons.doctor import place as places
from hexforge.addons.doctor.binaries import read_binary
from hexforge.addons.doctor.examination import examine_path
from hexforge.addons.doctor.manifest import read_manifest
from hexforge.errors import CallError, FormatError
from tests.addons.doctor import made
from tests.addons.doctor.made import library, qnn

LIBS = "lib/arm64-v8a"


def found(path: Path) -> list[str]:
    return [finding.id for finding in examine_path(path).findings]


def test_a_member_that_grows_without_end(tmp_path: Path) -> None:
    path = tmp_path / "bomb.apk"
    packed = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
    with packed, packed.open(f"{LIBS}/libQnnHtp.so", "w", force_zip64=True) as member:
        for _ in range(256):
            member.write(bytes(1 << 20))
    start = time.process_time()
    tracemalloc.start()
    try:
        assert "damaged" in found(path)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert time.process_time() - start < 5
    assert peak_bytes < 64 << 20


@pytest.mark.parametrize("name", ["../../etc/passwd.so", "/etc/passwd.so", "a/../../b.so", "..\\..\\b.so", "C:/b.so"])
def test_paths_that_leave_the_archive(name: str, tmp_path: Path) -> None:
    path = tmp_path / "app.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, library())
    report = examine_path(path)
    assert report.faults[0].id == "damaged"
    assert "leaves the archive" in report.faults[0].found
    assert report.examined[0] == "0 files"
    assert sorted(tmp_path.iterdir()) == [path]


def test_one_name_twice(tmp_path: Path) -> None:
    path = tmp_path / "app.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("libQnnHtp.so", library())
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("libQnnHtp.so", b"another")
    assert "is there twice" in examine_path(path).faults[0].found


def test_too_many_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "MOST_ENTRIES", 100)
    path = tmp_path / "app.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(150):
            archive.writestr(f"{number}.txt", b"")
    report = examine_path(path)
    assert "150 members" in report.faults[0].found
    assert report.examined[0] == "100 files"


def test_an_archive_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "app.apk"
    path.write_bytes(b"PK\3\4 and nothing else")
    assert found(path) == ["damaged"]
    other = tmp_path / "app.exe"
    other.write_bytes(b"MZ")
    with pytest.raises(CallError, match="is no folder and no archive"):
        examine_path(other)


@pytest.mark.parametrize("count", [4, 19, 30, 63, 64, 100, 200, 500])
def test_a_library_that_ends_early(count: int, tmp_path: Path) -> None:
    place = made.folder(tmp_path / "place", qnn(75, libQnnSystem=library()[:count]))
    assert found(place) == ["damaged"]


def test_links_out_of_a_folder_are_not_followed(tmp_path: Path) -> None:
    place = made.folder(tmp_path / "place", qnn(75))
    (place / "loop").symlink_to(place, target_is_directory=True)
    assert found(place) == []


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 400), st.binary(min_size=1, max_size=16))
def test_a_library_with_wrong_bytes(at: int, bytes_there: bytes) -> None:
    data = bytearray(library())
    data[at : at + len(bytes_there)] = bytes_there
    binary = read_binary(bytes(data), len(data))
    assert binary is None or binary.bits in (0, 32, 64)


@settings(max_examples=300)
@given(st.sampled_from(["text", "binary", "proto"]), st.integers(0, 700), st.binary(max_size=8), st.integers(0, 900))
def test_a_manifest_with_wrong_bytes(form: str, at: int, bytes_there: bytes, end: int) -> None:
    forms = {"text": made.manifest_text(), "binary": made.manifest_binary(), "proto": made.manifest_proto()}
    data = bytearray(forms[form])
    data[at : at + len(bytes_there)] = bytes_there
    try:
        manifest = read_manifest(bytes(data[:end]))
    except FormatError:
        return  # what it says is held below
    assert manifest.target_sdk >= 0


def test_a_manifest_in_an_encoding_that_nobody_knows() -> None:
    with pytest.raises(FormatError, match="is damaged"):
        read_manifest(made.manifest_text().replace(b"utf-8", b"wtf-9"))


def test_a_manifest_of_entities_and_one_of_endless_elements() -> None:
    bomb = b'<!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;&b;">]><manifest>&c;</manifest>'
    with pytest.raises(FormatError, match="entities"):
        read_manifest(bomb)
    nested = b""
    for _ in range(200):
        nested = (
            b"\x0a" + _varint(len(b"\x2a" + _varint(len(nested)) + nested)) + b"\x2a" + _varint(len(nested)) + nested
        )
    with pytest.raises(FormatError, match="nested"):
        read_manifest(nested)
    many = struct.pack("<HHI", 3, 8, 8) + struct.pack("<HHI", 1, 28, 36) + struct.pack("<7I", 1 << 30, 0, 0, 0, 0, 0, 0)
    with pytest.raises(FormatError, match="more texts than bytes"):
        read_manifest(many)


def _varint(value: int) -> bytes:
    made_of = bytearray()
    while value > 127:
        made_of.append(value & 127 | 128)
        value >>= 7
    return bytes([*made_of, value])
