# SPDX-License-Identifier: Apache-2.0
"""Manifest: what an app's AndroidManifest.xml says, as text, as an APK's binary XML, or as a bundle's protobuf.

Every length and offset of the binary forms is checked against the bytes that are there.
"""

from __future__ import annotations

import struct
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hexforge.errors import FormatError
from hexforge.model.wire import message_fields

MOST_BYTES = 4 << 20
_MOST_ELEMENTS, _MOST_DEPTH = 20_000, 64
_ATTRIBUTES = {0x0101020C: "minSdkVersion", 0x01010270: "targetSdkVersion", 0x010104EA: "extractNativeLibs",
               0x01010003: "name", 0x0101028E: "required"}  # fmt: skip
"""Resource numbers of Android's own attributes, which stand for their names where a tool left those out."""
_STRINGS, _NUMBERS, _ELEMENT = 0x0001, 0x0180, 0x0102
_TEXT, _BOOLEAN, _DECIMAL, _HEXADECIMAL = 0x03, 0x12, 0x10, 0x11
_UTF8 = 1 << 8
_DELIMITED = 2

Element = tuple[str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an app says of itself, as far as an NPU session depends on it."""

    package: str = ""
    min_sdk: int = 0
    target_sdk: int = 0
    extract_native_libs: bool | None = None
    """None where it is not said: then Android's default counts."""
    native_libraries: Mapping[str, bool] = field(default_factory=dict)
    """Libraries of the system that it asks for, and whether it is installed only where they are."""


def read_manifest(data: bytes) -> Manifest:
    """The manifest in any of its forms; FormatError with the place where it is damaged."""
    if len(data) > MOST_BYTES:
        raise FormatError("AndroidManifest.xml is larger than any manifest")
    try:
        return _manifest(_elements(data))
    except (struct.error, LookupError, ValueError, ET.ParseError, RecursionError) as error:
        raise FormatError(f"AndroidManifest.xml is damaged: {error}") from None


def _elements(data: bytes) -> Iterator[Element]:
    if data[:4] == b"\x03\0\x08\0":
        return _binary_elements(data)
    if data.lstrip()[:1] == b"<":
        return _text_elements(data)
    return _node_elements(data, 0)


def _manifest(elements: Iterator[Element]) -> Manifest:
    package, sdk, extract, libraries = "", {"minSdkVersion": 0, "targetSdkVersion": 0}, None, {}
    for count, (name, values) in enumerate(elements):
        if count > _MOST_ELEMENTS:
            raise FormatError(f"AndroidManifest.xml has more than {_MOST_ELEMENTS} elements")
        if name == "manifest":
            package = values.get("package", "")
        elif name == "uses-sdk":
            sdk |= {key: int(values[key]) for key in sdk if values.get(key, "").isdecimal()}
        elif name == "application" and "extractNativeLibs" in values:
            extract = values["extractNativeLibs"] == "true"
        elif name == "uses-native-library" and "name" in values:
            libraries[values["name"]] = values.get("required", "true") == "true"
    return Manifest(package, sdk["minSdkVersion"], sdk["targetSdkVersion"], extract, libraries)


def _text_elements(data: bytes) -> Iterator[Element]:
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        raise FormatError("AndroidManifest.xml declares entities, which no manifest does")
    for element in ET.fromstring(data).iter():
        yield element.tag, {key.rpartition("}")[2]: value for key, value in element.attrib.items()}


# -- an APK's binary XML ---------------------------------------------------------------------------------------------


def _binary_elements(data: bytes) -> Iterator[Element]:
    strings: list[str] = []
    numbers: tuple[int, ...] = ()
    at = 8
    while at + 8 <= len(data):
        kind, header, size = struct.unpack_from("<HHI", data, at)
        if size < 8 or header < 8 or at + size > len(data):
            raise FormatError("AndroidManifest.xml is damaged: a chunk leaves the file", offset=at)
        chunk = data[at : at + size]
        if kind == _STRINGS:
            strings = _string_pool(chunk)
        elif kind == _NUMBERS:
            numbers = struct.unpack_from(f"<{(size - header) // 4}I", chunk, header)
        elif kind == _ELEMENT:
            yield _start_of_element(chunk, header, strings, numbers)
        at += size


def _string_pool(chunk: bytes) -> list[str]:
    count, _, flags, start = struct.unpack_from("<IIII", chunk, 8)
    if count > len(chunk) // 4:
        raise FormatError("AndroidManifest.xml is damaged: it has more texts than bytes")
    return [_string(chunk, start + at, bool(flags & _UTF8)) for at in struct.unpack_from(f"<{count}I", chunk, 28)]


def _string(chunk: bytes, at: int, is_utf8: bool) -> str:
    if is_utf8:
        for _ in range(2):  # the length in characters, then in bytes; each of one byte or two
            length = chunk[at] if not chunk[at] & 0x80 else (chunk[at] & 0x7F) << 8 | chunk[at + 1]
            at += 2 if chunk[at] & 0x80 else 1
        return chunk[at : at + length].decode("utf-8", "replace")
    (length,) = struct.unpack_from("<H", chunk, at)
    return chunk[at + 2 : at + 2 + 2 * (length & 0x7FFF)].decode("utf-16-le", "replace")


def _start_of_element(chunk: bytes, header: int, strings: list[str], numbers: tuple[int, ...]) -> Element:
    name, first, width, count = struct.unpack_from("<IHHH", chunk, header + 4)
    if width < 20:
        raise FormatError("AndroidManifest.xml is damaged: an attribute has too few bytes")
    values = {}
    for i in range(count):
        at = header + first + i * width
        key, raw, _, _, kind, value = struct.unpack_from("<IIHBBI", chunk, at + 4)
        known = _ATTRIBUTES.get(numbers[key]) if key < len(numbers) else None
        values[known or _text(strings, key)] = _attribute(strings, raw, kind, value)
    return _text(strings, name), values


def _text(strings: list[str], number: int) -> str:
    return strings[number] if number < len(strings) else ""


def _attribute(strings: list[str], raw: int, kind: int, value: int) -> str:
    if kind == _BOOLEAN:
        return "true" if value else "false"
    if kind in (_DECIMAL, _HEXADECIMAL):
        return str(value)
    return _text(strings, value if kind == _TEXT else raw)


# -- a bundle's protobuf: Resources.proto of aapt2, XmlNode and below -------------------------------------------------


def _node_elements(data: bytes, depth: int) -> Iterator[Element]:
    if depth > _MOST_DEPTH:
        raise FormatError("AndroidManifest.xml is damaged: its elements are nested without end")
    for number, element in _fields(data):
        if number != 1:
            continue
        parts = list(_fields(element))
        name = next((part for n, part in parts if n == 3), b"")
        values = dict(_proto_attribute(part) for n, part in parts if n == 4)
        yield name.decode("utf-8", "replace"), values
        for n, child in parts:
            if n == 5:
                yield from _node_elements(child, depth + 1)


def _proto_attribute(data: bytes) -> tuple[str, str]:
    texts = {n: part.decode("utf-8", "replace") for n, part in _fields(data) if n in (2, 3)}
    return texts.get(2, ""), texts.get(3, "")


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and content of each field of a protobuf message that has bytes."""
    try:
        for number, wire, _, start, stop in message_fields(data, 0, len(data)):
            if wire == _DELIMITED:
                yield number, data[start:stop]
    except FormatError as error:
        raise FormatError("AndroidManifest.xml is no manifest, or a damaged one", offset=error.offset) from None
