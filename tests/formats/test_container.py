# SPDX-License-Identifier: Apache-2.0
"""Containers and contexts: nothing lost when writing is interrupted, nothing believed that is not whole."""

from __future__ import annotations

import fcntl
import os
import random
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.backends.htp.backend import HtpBackend
from hexforge.errors import CallError, FormatError, HexforgeError
from hexforge.formats.container import HEADER, PAGE, Container, Pool, Writer, checksum, checksum_of_pieces
from hexforge.ir import DType, Graph, Role, ScaleOffset, TensorType
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.context_builder import ContextBuilder, PreparedGraph


def sections(*contents: bytes) -> Writer:
    made = Writer()
    for i, content in enumerate(contents):
        made.add("data", str(i), content)
    return made


def test_checksums_are_crc32c_and_continue() -> None:
    assert checksum(b"123456789") == 0xE3069283
    data = np.random.default_rng(0).integers(0, 256, 100_003, dtype=np.uint8).tobytes()
    whole = checksum(data)
    for cut in (1, 7, 8, 4096, 12_288, 99_999):
        assert checksum(data[cut:], checksum(data[:cut])) == whole
    crc = 0xFFFFFFFF
    for byte in data[:3000]:  # the definition, bit by bit
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 if crc & 1 else crc >> 1
    assert checksum(data[:3000]) == crc ^ 0xFFFFFFFF


def test_sections_come_back_aligned_and_whole(tmp_path: Path) -> None:
    made = sections(b"one", b"", b"x" * 5000)
    made.add("data", "parts", b"a", b"bc")
    made.write(tmp_path / "c")
    assert (tmp_path / "c").read_bytes() == made.to_bytes()
    found = Container(tmp_path / "c")
    found.verify()
    assert [bytes(found.section("data", n)) for n in found.names("data")] == [b"one", b"", b"x" * 5000, b"abc"]
    assert all(s.offset % PAGE == 0 for s in found.sections)
    with pytest.raises(FormatError, match="no section data 'other'"):
        found.section("data", "other")
    with pytest.raises(CallError, match="added twice"):
        made.add("data", "0", b"")


def _resident_kb(path: Path) -> int:
    """Memory that the maps of a file take in this process."""
    resident, own = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0] and not line.split()[0].endswith(":"):
            own = line.endswith(str(path))
        elif own and line.startswith("Rss:"):
            resident += int(line.split()[1])
    return resident


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux tells what is resident")
def test_a_large_section_leaves_memory_once_it_was_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytes(range(256)) * 16384
    for least, resident in ((len(content) + 1, True), (len(content), False)):
        monkeypatch.setattr("hexforge.formats.container.LARGE_BYTES", least)
        path = tmp_path / f"{least}"
        path.write_bytes(sections(content).to_bytes())
        found = Container(path)
        data = found.section("data", "0")
        assert (_resident_kb(path) >= len(content) // 1024) is resident
        assert data == content


def test_a_pool_stores_the_same_bytes_once() -> None:
    pool = Pool()
    first = pool.put(np.arange(100, dtype=np.int32))
    assert pool.put(np.arange(100, dtype=np.int32)) == first
    second = pool.put(b"abc")
    assert second[0] % Pool.ALIGN == 0
    stored = b"".join(pool.parts)
    assert stored[first[0] : sum(first)] == np.arange(100, dtype=np.int32).tobytes()
    assert stored[second[0] : sum(second)] == b"abc"
    assert pool.put_bytes == 803


def test_a_pool_keeps_bytes_of_one_checksum_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hexforge.formats.container.checksum", lambda data, before=0: 7)
    pool = Pool()
    places = [pool.put(data) for data in (b"abc", b"abd", b"abc", b"abd")]
    assert places[:2] == places[2:]
    assert places[0] != places[1]
    stored = b"".join(pool.parts)
    assert [stored[at : at + size] for at, size in places[:2]] == [b"abc", b"abd"]


def test_a_newer_version_is_refused_with_words() -> None:
    data = bytearray(sections(b"one").to_bytes())
    data[8] = 5
    data[HEADER.size - 4 : HEADER.size] = checksum(bytes(data[: HEADER.size - 4])).to_bytes(4, "little")
    with pytest.raises(FormatError, match="format version 5, this hexforge reads 4; compile the model again"):
        Container(data)


@pytest.mark.parametrize("other", [b"", b"HXFCTX", b"\x08\x09onnx", b"PK\x03\x04", b"\x02\x00\x00\x00qnn", bytes(200)])
def test_other_files_are_told_apart(other: bytes) -> None:
    with pytest.raises(FormatError, match=r"is not a hexforge context|ends within"):
        Container(other)


# -- nothing believed ---------------------------------------------------------------------------------------------


def small() -> Graph:
    made = Graph("g")
    x = made.value("x", TensorType(DType.UINT8, (1, 4), ScaleOffset(0.1, -3)), Role.APP_WRITE)
    weight = np.array([[1, -2, 3, -4], [5, 6, -7, 8]], np.int8)
    y = made.value("y", TensorType(DType.UINT8, (1, 2), ScaleOffset(0.5, -9)), Role.APP_READ)
    made.node("FullyConnected", [x, made.static(weight, ScaleOffset(0.25), name="w")], [y])
    return made


def small_context() -> bytes:
    builder = ContextBuilder("htp")
    builder.add(PreparedGraph("g", HtpBackend(threads=1).compile(small())))
    return builder.writer().to_bytes()


def outcome(data: bytes | bytearray) -> list[int] | str:
    """What a context of these bytes computes, or the class of the error it is refused with."""
    try:
        program = Context(data).program("g", BACKEND)
        return list(program.run({"x": np.array([[9, 80, 7, 255]], np.uint8)})["y"].ravel())
    except FormatError as error:
        return "refused" if error.offset is not None else f"refused without an offset: {error}"


BACKEND = HtpBackend(threads=1)


def test_every_flipped_byte_is_refused_or_padding() -> None:
    data = bytearray(small_context())
    right = outcome(data)
    assert isinstance(right, list)
    found = Container(bytes(data))
    held = {i for s in found.sections for i in range(s.offset, s.offset + s.bytes)}
    held |= set(range(HEADER.size)) | set(range(max(s.offset + s.bytes for s in found.sections), len(data)))
    for i in range(len(data)):
        data[i] ^= 0xFF if i % 2 else 1 << i % 8
        got = outcome(data)
        data[i] ^= 0xFF if i % 2 else 1 << i % 8
        assert got == right or (got == "refused" and i in held), (i, got)
        if i in held and _checked(i, found, len(data)):
            assert got == "refused", i


def _checked(i: int, found: Container, size: int) -> bool:
    """True where a byte is under a checksum: all but zeros between sections and behind the arrays of the pool."""
    return i < HEADER.size or any(s.offset <= i < s.offset + s.bytes for s in found.sections)


def test_every_truncation_is_refused() -> None:
    data = small_context()
    for size in range(len(data)):
        with pytest.raises(FormatError):
            Context(data[:size])
    with pytest.raises(FormatError, match="its header says"):
        Context(data + b"\0")


def test_damage_with_a_right_checksum_is_refused_or_harmless() -> None:
    """Files are untrusted: someone may have computed the checksums again."""
    right = outcome(small_context())
    rng = random.Random(0)
    original = Container(small_context())
    refused = 0
    for _ in range(400):
        made = Writer()
        target = rng.choice([s for s in original.sections if s.kind in ("info", "program")])
        for section in original.sections:
            content = bytearray(original.section(section.kind, section.name))
            if section == target:
                for _ in range(rng.randint(1, 4)):
                    content[rng.randrange(len(content))] = rng.choice(b'0123456789-"[]{},:truefalsn\x00\xff')
            made.add(section.kind, section.name, bytes(content))
        try:
            program = Context(made.to_bytes()).program("g", BACKEND)
            program.run({"x": np.array([[9, 80, 7, 255]], np.uint8)})
        except HexforgeError:
            refused += 1
    assert refused > 200
    assert outcome(small_context()) == right


# -- nothing lost -------------------------------------------------------------------------------------------------


def in_child(work: Callable[[], None]) -> int:
    """A process that does the work and ends; its number."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


def test_killed_while_writing_leaves_the_old_or_the_new_file(tmp_path: Path) -> None:
    path = tmp_path / "c.bin"
    versions = [sections(bytes([n]) * 300_000, b"tail") for n in range(2)]
    whole = [v.to_bytes() for v in versions]
    versions[0].write(path)

    def write() -> None:
        for n in range(10_000):
            versions[(now + 1 + n) % 2].write(path)  # the other one first

    rng = random.Random(1)
    now, seen = 0, {0}
    for times in range(2000):
        if times >= 200 and len(seen) == 2:  # on a busy machine a child may be killed before it wrote anything
            break
        child = in_child(write)
        time.sleep(rng.random() * 0.02 * (1 + times / 200))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        found = path.read_bytes()
        assert found in whole
        now = found[PAGE]
        seen.add(now)
        Container(path).verify()
    assert seen == {0, 1}


def refused_in_child(work: Callable[[], None]) -> str:
    """The message of the CallError that the work ends in, from a process whose limits it may change."""
    read, write = os.pipe()

    def tried() -> None:
        try:
            work()
        except CallError as error:
            os.write(write, str(error).encode())

    os.waitpid(in_child(tried), 0)
    os.close(write)
    with os.fdopen(read) as file:
        return file.read()


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "c.bin"
    sections(b"old").write(path)
    before = path.read_bytes()

    def write() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))
        sections(b"new" * 100_000).write(path)

    assert "cannot be written: File too large" in refused_in_child(write)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["c.bin"]


def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    sections(b"old").write(folder / "c.bin")
    before = (folder / "c.bin").read_bytes()
    folder.chmod(0o555)
    for parent in folder.parents[:3]:  # another user must get there
        parent.chmod(parent.stat().st_mode | 0o111)

    def write() -> None:
        if os.getuid() == 0:
            os.setuid(65534)
        sections(b"new").write(folder / "c.bin")

    assert "c.bin: cannot be written: Permission denied" in refused_in_child(write)
    assert (folder / "c.bin").read_bytes() == before
    with pytest.raises(CallError, match="cannot be written"):
        sections(b"new").write(tmp_path / "none" / "c.bin")


def test_temporaries_of_killed_writers_go_with_the_next_write(tmp_path: Path) -> None:
    """Those of a living writer, young ones and files of others stay."""
    path = tmp_path / "c[1].bin"
    left, young, locked = (tmp_path / f".c[1].bin.{name}.part" for name in ("abcdefgh", "ijklmnop", "qrstuvwx"))
    others = [tmp_path / name for name in (".c[1].bin.backup", ".c1.bin.abcdefgh.part", "c[1].bin.abcdefgh.part")]
    for file in (left, young, locked, *others):
        file.write_bytes(b"half")
        os.utime(file, None if file is young else (0, 0))
    with locked.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        sections(b"new").write(path)
        assert {p.name for p in tmp_path.iterdir()} == {p.name for p in (path, young, locked, *others)}
    sections(b"newer").write(path)
    assert not locked.exists()
    Container(path).verify()


@pytest.mark.parametrize("cut", [0, 1, 7, 500, 999, 1000])
def test_checksums_of_two_pieces_join_to_that_of_both(cut: int) -> None:
    data = np.random.default_rng(3).integers(0, 256, 1000, np.uint8).tobytes()
    first, second = data[:cut], data[cut:]
    assert checksum_of_pieces([first, second]) == checksum(data)
    for threads in (2, 3, 7):
        assert checksum_of_pieces([first, second], threads, least_part=1) == checksum(data)
    assert checksum(b"123456789") == 0xE3069283  # the check value of CRC-32C
