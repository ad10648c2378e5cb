# SPDX-License-Identifier: Apache-2.0
"""Bundle: the models inside of a .task or a .litertlm, by name, and what a model says of itself beyond its graph."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from hexforge.addons.tflite.model_file import IDENTIFIER, TfliteModel
from hexforge.errors import CallError, CapacityError, FormatError
from hexforge.formats.file_kinds import file_and_member
from hexforge.formats.flatbuffer import Flatbuffer, FlatTable

_KEY = "TFLITE_METADATA"
_NAMES = {0: "name", 1: "description", 2: "version", 4: "author", 5: "license"}
_NORMALIZATION = 1
_LABELS = {2: "labels", 3: "labels by value"}


def texts(model: TfliteModel) -> dict[str, str]:
    """Each thing that is said, by what it is about; empty where the file has no metadata."""
    data = model.metadata.get(_KEY)
    if not data:
        return {}
    root = Flatbuffer(data, f"{model.where}, metadata").root()
    found = {name: text for number, name in _NAMES.items() if (text := root.text(number))}
    for subgraph in root.tables(3):
        for number, side in ((2, "input"), (3, "output")):
            for place, tensor in enumerate(subgraph.tables(number)):
                found |= _of_tensor(tensor, f"{side} {tensor.text(0) or place}")
    return found


def _of_tensor(tensor: FlatTable, name: str) -> dict[str, str]:
    found = {f"{name}: is": text} if (text := tensor.text(1)) else {}
    for unit in tensor.tables(4):
        kind, options = unit.union(0)
        if kind == _NORMALIZATION:
            mean, std = ([f"{value:g}" for value in options.numbers(field, "f")] for field in (0, 1))
            found[f"{name}: normalised by"] = f"(x - {'/'.join(mean)}) / {'/'.join(std)}"
    files = [
        f"{file.text(0)} ({_LABELS.get(file.integer(2, 'b'), 'a file')})" for file in tensor.tables(6) if file.text(0)
    ]
    return found | ({f"{name}: files": ", ".join(files)} if files else {})


MOST_MEMBERS = 4096
MOST_MODEL_BYTES = 4 << 30
"""Of a model that is unpacked; those of mediapipe are stored as they are."""
_ZIP, _SECTIONS = b"PK\x03\x04", b"LITERTLM"


def models_in(data: bytes | memoryview, where: str) -> Mapping[str, memoryview]:
    """The bytes of each model of a bundle, by its name; those of bundles inside as OUTER/INNER."""
    start = bytes(data[:8])
    if start.startswith(_ZIP):
        return _zipped(data, where)
    if start.startswith(_SECTIONS):
        return _sections(memoryview(data), where)
    raise FormatError(f"{where}: is neither a zip archive nor a .litertlm")


def models_of_file(path: Path) -> Mapping[str, memoryview]:
    """The models that a path names by name: all of a bundle, the one behind a #, or the file itself."""
    file, member = file_and_member(path)
    data = file.read_bytes()
    if member or data[4:8] == IDENTIFIER:
        inner, name = model_bytes(data, file.name, member)
        return {name: inner}
    return models_in(data, file.name)


def model_bytes(data: bytes, where: str, member: str = "") -> tuple[memoryview, str]:
    """The model in a file, and its name for messages: the file itself, or the one of a bundle that is asked for."""
    if bytes(data[4:8]) == IDENTIFIER:
        if member:
            raise CallError(f"{where}: is one model and no bundle; give it without #{member}")
        return memoryview(data), where
    models = models_in(data, where)
    if not models:
        raise FormatError(f"{where}: has no .tflite model inside")
    if not member and len(models) > 1:
        raise CallError(f"{where}: has {len(models)} models inside; name one: {_spelled(where, models)}")
    for name, inner in models.items():
        if not member or member in (name, PurePosixPath(name).stem, PurePosixPath(name).name):
            return inner, f"{where}#{name}"
    raise CallError(f"{where}: has no model {member!r} inside; it has {_spelled(where, models)}")


def _spelled(where: str, models: Mapping[str, memoryview]) -> str:
    return ", ".join(f"{where}#{PurePosixPath(name).stem}" for name in models)


def _zipped(data: bytes | memoryview, where: str, depth: int = 0) -> dict[str, memoryview]:
    found: dict[str, memoryview] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            if len(entries) > MOST_MEMBERS:
                raise CapacityError(f"{where}: has {len(entries)} members; at most {MOST_MEMBERS} are looked at")
            for entry in entries:
                with archive.open(entry) as file:
                    start = file.read(8)
                is_model = start[4:8] == IDENTIFIER
                if not is_model and not (start.startswith(_ZIP) and depth == 0):
                    continue
                if entry.file_size > MOST_MODEL_BYTES or entry.file_size > 64 * max(len(data), 1 << 16):
                    raise CapacityError(f"{where}: {entry.filename!r} unpacks to {entry.file_size} bytes")
                inner = archive.read(entry)
                if is_model:
                    found[entry.filename] = memoryview(inner)
                else:
                    nested = _zipped(inner, f"{where}#{entry.filename}", depth + 1)
                    found |= {f"{entry.filename}/{name}": model for name, model in nested.items()}
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise FormatError(f"{where}: cannot be unpacked: {error}") from None
    return found


def _sections(data: memoryview, where: str) -> dict[str, memoryview]:
    """The models of a .litertlm: a header says where its sections are, and those that are models say so themselves.

    Its first 32 bytes are a name, a version of three numbers, four unused bytes and where the header ends.
    """
    if len(data) < 40:
        raise FormatError(f"{where}: ends inside its header", len(data))
    end = int.from_bytes(data[24:32], "little")
    if not 32 < end <= len(data):
        raise FormatError(f"{where}: its header ends outside its {len(data)} bytes", 24)
    sections = Flatbuffer(data[32:end], where, 32).root().table(1)
    found: dict[str, memoryview] = {}
    for number, section in enumerate([] if sections is None else sections.tables(0)):
        first, last = section.integer(1, "Q"), section.integer(2, "Q")
        if not 0 <= first <= last <= len(data):
            raise section.fault(f"section {number} is outside its {len(data)} bytes")
        content = data[first:last]
        if bytes(content[4:8]) == IDENTIFIER:
            found[_section_name(section, number)] = content
    return found


def _section_name(section: FlatTable, number: int) -> str:
    """What a section says of its model, or its number."""
    for item in section.tables(0):
        if item.text(0) == "model_type" and (value := item.table(2)) is not None and (text := value.text(0)):
            return text.removeprefix("tf_lite_")
    return f"section_{number}"
