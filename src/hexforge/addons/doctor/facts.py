# SPDX-License-Identifier: Apache-2.0
"""Facts: what is known of a place: its libraries, manifests, packages, models, settings, and the chip it is for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from hexforge.addons.doctor.binaries import HEAD, LibraryHeader, read_binary
from hexforge.addons.doctor.manifest import MOST_BYTES, Manifest, read_manifest
from hexforge.addons.doctor.models import ShippedModel, read_model
from hexforge.addons.doctor.place import Entry, ExaminedPlace
from hexforge.chips.soc import Soc, known_chip
from hexforge.errors import FormatError

_LIBRARY = re.compile(r"\.(so(\.[\d.]+)?|dll)$")
_ARCH = re.compile(r"^(?:lib)?QnnHtpV(\d\d)(Stub|Skel)?\.(?:so|dll)$")
_BUILD = re.compile(
    r"(build\.gradle(\.kts)?|libs\.versions\.toml|requirements.*\.txt|pyproject\.toml|\.csproj|pom\.xml)$"
)
_SOURCE = re.compile(r"\.(kt|java|cpp|cc|c|h|hpp|py|sh|bat|ps1|cs|rs|swift)$")
_MAVEN = re.compile(
    r"""((?:com\.microsoft\.onnxruntime|com\.qualcomm\.qti|com\.google\.ai\.edge\.\w+|org\.pytorch):[\w-]+):(\d[\w.]*)"""
)
_PYTHON = re.compile(
    r"""(?<![\w.-])(onnxruntime(?:[-_]qnn|[-_]genai)?|executorch|ai-edge-litert)\s*==\s*(\d[\w.]*)""", re.I
)
_NUGET = re.compile(r'Include="(Microsoft\.ML\.OnnxRuntime[\w.]*|Qualcomm[\w.]*)"\s+Version="(\d[\w.]*)"')
_WHEEL = re.compile(r"(?:^|/)(onnxruntime(?:_qnn)?)-(\d[\w.]*)\.dist-info/")
_SDK_FOLDER = re.compile(r"(?:^|/)qairt/(\d+\.\d+[\d.]*)/")
_ADSP = re.compile(r"""ADSP_LIBRARY_PATH["']?\s*[,=]\s*([^\n)]{1,200})""")
_MODELS = (".onnx",)


@dataclass(frozen=True, slots=True)
class Library:
    """A library of a place."""

    entry: Entry
    binary: LibraryHeader | None

    @property
    def path(self) -> str:
        """Its path."""
        return self.entry.path

    @property
    def name(self) -> str:
        """Its file's name."""
        return self.entry.name

    @property
    def is_hexagon(self) -> bool:
        """Whether it is for the DSP, by its name or by its machine."""
        return self.name.endswith("Skel.so") or (self.binary is not None and self.binary.machine == "Hexagon")

    @property
    def of_qnn(self) -> bool:
        """Whether it is one of QNN's own, by its name."""
        return self.name.removeprefix("lib").startswith("Qnn")


@dataclass(frozen=True, slots=True)
class Package:
    """A package in a version, and where a place names it."""

    name: str
    version: str
    path: str


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the checks look at."""

    place: ExaminedPlace
    libraries: tuple[Library, ...] = ()
    manifest: Manifest | None = None
    damaged: tuple[str, ...] = ()
    """What could not be read, in sentences."""
    packages: tuple[Package, ...] = ()
    models: tuple[ShippedModel, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Path -> content of each JSON file that configures QNN."""
    adsp: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Source file -> what it sets ADSP_LIBRARY_PATH to."""
    build: Mapping[str, str] = field(default_factory=dict)
    """Build file -> its text."""
    chip: Soc | None = None

    @property
    def is_archive(self) -> bool:
        """Whether it is an app or another archive."""
        return self.place.kind == "archive"

    @property
    def is_gradle(self) -> bool:
        """Whether it is a project that Gradle builds: its libraries come when it is built."""
        return any("build.gradle" in path for path in self.build)

    @property
    def names(self) -> frozenset[str]:
        """The names of its libraries."""
        return frozenset(library.name for library in self.libraries)

    @property
    def qnn(self) -> tuple[Library, ...]:
        """QNN's own libraries."""
        return tuple(library for library in self.libraries if library.of_qnn)

    @property
    def is_windows(self) -> bool:
        """Whether its libraries are Windows'."""
        return any(library.name.endswith(".dll") for library in self.qnn)

    @property
    def is_android(self) -> bool:
        """Whether it is for Android."""
        return self.manifest is not None or self.is_gradle or any("arm64-v8a/" in lib.path for lib in self.libraries)

    @property
    def uses_qnn(self) -> bool:
        """Whether anything in it drives QNN."""
        drives = any("qnn" in package.name.lower() for package in self.packages)
        return bool(self.qnn) or drives or any(model.is_context for model in self.models)

    def archs(self, part: str) -> frozenset[int]:
        """The architectures it has a Stub or a Skel for."""
        found = (_ARCH.match(library.name) for library in self.libraries)
        return frozenset(int(match[1]) for match in found if match and (match[2] or "") == part)

    @property
    def wanted_archs(self) -> frozenset[int]:
        """The architectures it is for: the chip's, else those of its contexts."""
        if self.chip is not None:
            return frozenset({self.chip.htp_arch})
        return frozenset(model.chip.htp_arch for model in self.models if model.chip is not None and model.is_context)

    def versions(self, name: str) -> tuple[Package, ...]:
        """The packages of a name, or of a name that begins so."""
        return tuple(package for package in self.packages if package.name.lower().replace("_", "-") == name.lower())


def facts_of(place: ExaminedPlace, chip: Soc | None = None) -> Facts:
    """Read what the checks look at; each file once, and only as far as it is needed."""
    damaged = list(place.hostile)
    libraries = tuple(
        Library(entry, read_binary(entry.read(HEAD), entry.size))
        for entry in place.entries
        if _LIBRARY.search(entry.name)
    )
    manifest = _manifest_of(place, damaged)
    build = {entry.path: entry.text() for entry in place.entries if _BUILD.search(entry.name)}
    settings = dict(_settings(place))
    sources = {
        entry.path: entry.text() for entry in place.entries if _SOURCE.search(entry.name) and entry.size < 1 << 20
    }
    adsp = {path: tuple(match.strip() for match in _ADSP.findall(text)) for path, text in sources.items()}
    models = tuple(_models(place, settings, damaged))
    packages = tuple(dict.fromkeys(_packages(place, build)))
    adsp = {path: found for path, found in adsp.items() if found}
    return Facts(place, libraries, manifest, tuple(damaged), packages, models, settings, adsp, build, chip)


def _manifest_of(place: ExaminedPlace, damaged: list[str]) -> Manifest | None:
    entries = [entry for entry in place.entries if entry.name == "AndroidManifest.xml" and "/build/" not in entry.path]
    for entry in sorted(entries, key=lambda entry: len(PurePosixPath(entry.path).parts)):
        try:
            return read_manifest(entry.read(MOST_BYTES + 1))
        except FormatError as error:
            damaged.append(f"{entry.path}: {error}.")
    return None


def _packages(place: ExaminedPlace, build: Mapping[str, str]) -> Iterator[Package]:
    for path, text in build.items():
        for pattern in (_MAVEN, _PYTHON, _NUGET):
            yield from (Package(match[1].replace("_", "-"), match[2], path) for match in pattern.finditer(text))
    for entry in place.entries:
        if match := _WHEEL.search(entry.path):
            yield Package(match[1].replace("_", "-"), match[2], entry.path)
        if match := _SDK_FOLDER.search(entry.path):
            yield Package("QAIRT", match[1], entry.path[: match.end()])


def _settings(place: ExaminedPlace) -> Iterator[tuple[str, Any]]:
    for entry in place.entries:
        if entry.name.endswith(".json") and entry.size <= 1 << 20:
            try:
                content = json.loads(entry.read(1 << 20))
            except (ValueError, RecursionError):
                continue
            if isinstance(content, dict):
                yield entry.path, content


def _models(place: ExaminedPlace, settings: Mapping[str, Any], damaged: list[str]) -> Iterator[ShippedModel]:
    for entry in place.entries:
        if not entry.name.endswith(_MODELS):
            continue
        try:
            yield read_model(entry, place, chip_of(entry.path, settings))
        except FormatError as error:
            damaged.append(f"{error}.")


def chip_of(path: str, settings: Mapping[str, Any]) -> Soc | None:
    """The chip that a file was made for: by the manifest of a deployed folder, else by a folder named as a chip."""
    for content in settings.values():
        chips = content.get("chips")
        for name, given in chips.items() if isinstance(chips, dict) else ():
            if isinstance(given, dict) and given.get("context_model") == path:
                return known_chip(str(name))
    for part in PurePosixPath(path).parts[:-1]:
        if re.fullmatch(r"[A-Z]{2,3}\d{3,4}\w{0,2}", part) and (chip := known_chip(part)) is not None:
            return chip
    return None
