# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with the libraries of a place: each function yields a sentence for each that it finds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from hexforge.addons.doctor.facts import Facts, Library

PAGE = 16 << 10
"""Bytes of a page that Android devices may have, and that Google Play asks apps for."""
_COPIES = re.compile(r"^(?:lib)?Qnn|^libGenie|^libcdsprpc")


def damaged(facts: Facts) -> Iterator[str]:
    """Files that cannot be read, and libraries whose headers or bytes are not whole."""
    yield from facts.damaged
    for library in facts.libraries:
        if library.binary is None:
            yield f"{library.path} is no library: it begins as neither ELF nor PE does."
        elif library.binary.fault:
            yield f"{library.path} cannot be loaded: {library.binary.fault}."


def page_size(facts: Facts) -> Iterator[str]:
    """Libraries for 64-bit Android whose segments are laid out for pages of 4 KB."""
    for library in _for_android(facts):
        binary = library.binary
        if binary is not None and binary.bits == 64 and 0 < binary.page_bytes < PAGE:
            yield f"{library.path} is aligned to {binary.page_bytes >> 10} KB."


def skel_page(facts: Facts) -> Iterator[str]:
    """Hexagon libraries of a bundle, which is made for the store, whose segments are laid out for pages of 4 KB."""
    for library in facts.libraries:
        binary = library.binary
        in_bundle = facts.is_archive and library.path.startswith("base/lib/")
        if in_bundle and library.is_hexagon and binary is not None and 0 < binary.page_bytes < PAGE:
            yield f"{library.path} is aligned to {binary.page_bytes >> 10} KB, as QAIRT ships it."


def thirty_two_bit(facts: Facts) -> Iterator[str]:
    """Libraries of QNN's for 32 bits, of which it has none for HTP, and a Hexagon library in their place."""
    for library in facts.qnn:
        binary = library.binary
        if binary is not None and binary.bits == 32 and not library.is_hexagon:
            yield f"{library.path} is for {binary.machine} with 32 bits."
    abis = {PurePosixPath(library.path).parent.name for library in facts.libraries}
    if facts.is_archive and facts.uses_qnn and "armeabi-v7a" in abis and "arm64-v8a" not in abis:
        yield "It has libraries for armeabi-v7a and none for arm64-v8a."


def wrong_machine(facts: Facts) -> Iterator[str]:
    """Libraries for another processor than the folder, or the name, says."""
    for library in facts.libraries:
        if library.binary is None or library.binary.fault:
            continue
        machine, folder = library.binary.machine, PurePosixPath(library.path).parent.name
        if library.name.endswith("Skel.so") and machine != "Hexagon":
            yield f"{library.path} is for {machine}, and a Skel runs on the Hexagon."
        elif folder == "arm64-v8a" and not library.is_hexagon and machine != "ARM64" and library.binary.bits == 64:
            yield f"{library.path} is for {machine}."
    windows = {lib.binary.machine for lib in facts.qnn if lib.name.endswith(".dll") and lib.binary is not None}
    if len(windows - {"ARM64X"}) > 1:
        yield f"QNN's libraries are for {' and '.join(sorted(windows))} together."


def linux_library(facts: Facts) -> Iterator[str]:
    """Libraries of another system than Android's in an app."""
    for library in _for_android(facts):
        needed = () if library.binary is None else library.binary.needed
        if foreign := [name for name in needed if re.match(r"(libc|libstdc\+\+|libm|libpthread|libdl)\.so\.\d", name)]:
            yield f"{library.path} needs {foreign[0]}, which Linux has and Android has not."


def no_htp(facts: Facts) -> Iterator[str]:
    """No libQnnHtp where something needs it."""
    has_others = bool(facts.qnn) and not facts.is_gradle
    if (has_others or (facts.is_archive and facts.uses_qnn)) and not facts.names & {"libQnnHtp.so", "QnnHtp.dll"}:
        yield f"It has no {'QnnHtp.dll' if facts.is_windows else 'libQnnHtp.so'}, the library of the HTP backend."


def no_system(facts: Facts) -> Iterator[str]:
    """No libQnnSystem beside libQnnHtp, where contexts are loaded."""
    loads = any(model.is_context for model in facts.models)
    if (
        loads
        and facts.names & {"libQnnHtp.so", "QnnHtp.dll"}
        and not facts.names & {"libQnnSystem.so", "QnnSystem.dll"}
    ):
        yield "It has contexts and no libQnnSystem, which reads what is in them."


def no_prepare(facts: Facts) -> Iterator[str]:
    """A model that is to be compiled on the device, and no library that does it."""
    has = facts.names & {"libQnnHtpPrepare.so", "QnnHtpPrepare.dll"}
    graphs = [model.path for model in facts.models if not model.is_context]
    compiled = any(model.is_context for model in facts.models)
    if graphs and not compiled and not has and facts.names & {"libQnnHtp.so", "QnnHtp.dll"}:
        yield f"{graphs[0]} has no context, and libQnnHtpPrepare, which compiles on the device, is not there."


def stub_without_skel(facts: Facts) -> Iterator[str]:
    """A Stub whose Skel is missing, so that the DSP has nothing to load."""
    if facts.is_archive or facts.qnn:
        for arch in sorted(facts.archs("Stub") - facts.archs("Skel")):
            yield f"libQnnHtpV{arch}Stub is there and libQnnHtpV{arch}Skel.so is not."


def skel_without_stub(facts: Facts) -> Iterator[str]:
    """A Skel whose Stub is missing, so that the CPU cannot reach it."""
    for arch in sorted(facts.archs("Skel") - facts.archs("Stub")):
        yield f"libQnnHtpV{arch}Skel.so is there and libQnnHtpV{arch}Stub is not."


def wrong_arch(facts: Facts) -> Iterator[str]:
    """Libraries for other architectures than that of the chip, or of the contexts."""
    there = facts.archs("Stub") | facts.archs("Skel")
    if not facts.qnn or facts.is_gradle:
        return
    for arch in sorted(facts.wanted_archs - there):
        who = f"{facts.chip.name} is v{arch}" if facts.chip is not None else f"its contexts are for v{arch}"
        have = ", ".join(f"v{other}" for other in sorted(there)) or "no architecture"
        yield f"{who}, and the Stub and Skel that are there are for {have}."


def copies(facts: Facts) -> Iterator[str]:
    """One library of QNN's twice, and not the same: which of them is loaded is chance."""
    by_name: dict[tuple[str, str], set[int]] = {}
    for library in facts.libraries:
        if _COPIES.match(library.name):
            machine = "" if library.binary is None else library.binary.machine
            by_name.setdefault((library.name, machine), set()).add(library.entry.size)
    for (name, _), sizes in sorted(by_name.items()):
        if len(sizes) > 1:
            yield f"{name} is there {len(sizes)} times, each of another size."


def own_cdsprpc(facts: Facts) -> Iterator[str]:
    """FastRPC's own library in an app: it must be the one of the phone."""
    for library in facts.libraries:
        if library.name in ("libcdsprpc.so", "libadsprpc.so") and facts.is_android:
            yield f"{library.path} is FastRPC's library of another phone."


def misplaced_skel(facts: Facts) -> Iterator[str]:
    """A Skel where no app's installer looks for libraries."""
    for library in facts.libraries:
        if facts.is_archive and library.name.endswith("Skel.so") and "/assets/" in f"/{library.path}":
            yield f"{library.path} is an asset: FastRPC opens files, and none of an app's package."


def no_catalog(facts: Facts) -> Iterator[str]:
    """On Windows, a Skel without the catalog that signs it."""
    names = {library.entry.name.lower() for library in facts.libraries} | {e.name.lower() for e in facts.place.entries}
    for arch in sorted(facts.archs("Skel")):
        if facts.is_windows and f"libqnnhtpv{arch}.cat" not in names:
            yield f"libQnnHtpV{arch}Skel.so is there without libqnnhtpv{arch}.cat, which signs it."


def _for_android(facts: Facts) -> Iterator[Library]:
    """The libraries that Android's own loader takes."""
    if not facts.is_android:
        return
    for library in facts.libraries:
        if not library.is_hexagon and library.name.endswith(".so"):
            yield library
