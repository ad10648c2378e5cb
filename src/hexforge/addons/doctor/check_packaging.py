# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with how an app is packaged and which versions it puts together."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hexforge.addons.doctor.check_libraries import PAGE
from hexforge.addons.doctor.facts import Facts, Package
from hexforge.qnn_api import releases
from hexforge.qnn_api.releases import as_version

_ANDROID_12 = 31
_LEGACY = re.compile(r"useLegacyPackaging\s*=?\s*(true|false)")
_ABIS = re.compile(r"abiFilters\D*?((?:[\"'][\w-]+[\"'][,\s+=)]*)+)")
_DRIVES = (releases.PLUGIN_MAVEN, releases.IN_TREE_MAVEN, releases.RUNTIME_MAVEN)


def not_extracted(facts: Facts) -> Iterator[str]:
    """An app whose Skel stays inside the package, where FastRPC cannot open it."""
    manifest = facts.manifest
    if facts.is_archive and manifest is not None and facts.archs("Skel"):
        stays = manifest.extract_native_libs is False or (
            manifest.extract_native_libs is None and any(lib.entry.stored_at is not None for lib in facts.libraries)
        )
        if stays:
            yield "It has a Skel, and its libraries are not extracted when it is installed (extractNativeLibs)."
    if facts.is_gradle and _android_qnn(facts):
        set_to = [match[1] for text in facts.build.values() for match in _LEGACY.finditer(text)]
        extracts = manifest is not None and manifest.extract_native_libs is True
        if "true" not in set_to and not extracts:
            yield "The build leaves libraries inside the package: useLegacyPackaging is not true."


def zip_alignment(facts: Facts) -> Iterator[str]:
    """Libraries that are mapped out of the package and do not begin at a page of 16 KB."""
    if facts.manifest is None or facts.manifest.extract_native_libs is True:
        return
    for library in facts.libraries:
        at = library.entry.stored_at
        if (
            facts.is_archive
            and at is not None
            and at % PAGE
            and library.binary is not None
            and library.binary.bits == 64
        ):
            yield f"{library.path} begins at byte {at:,} of the package, which is no multiple of 16 KB."


def no_cdsprpc(facts: Facts) -> Iterator[str]:
    """An app for Android 12 or newer that does not ask for the phone's FastRPC library."""
    manifest = facts.manifest
    if manifest is None or not (facts.uses_qnn or _android_qnn(facts)):
        return
    target = manifest.target_sdk or _ANDROID_12
    if target >= _ANDROID_12 and "libcdsprpc.so" not in manifest.native_libraries:
        yield 'Its manifest has no <uses-native-library android:name="libcdsprpc.so">.'


def cdsprpc_required(facts: Facts) -> Iterator[str]:
    """An app that phones without FastRPC refuse to install."""
    if facts.manifest is not None and facts.manifest.native_libraries.get("libcdsprpc.so"):
        yield "libcdsprpc.so is required: phones without it do not install the app."


def abi_filters(facts: Facts) -> Iterator[str]:
    """A build that leaves out ARM's 64 bits."""
    for path, text in facts.build.items():
        for match in _ABIS.finditer(text):
            if "arm64-v8a" not in match[1]:
                yield f"{path} builds for {match[1].strip()} only."


def adsp_not_set(facts: Facts) -> Iterator[str]:
    """An Android app that never says where its Skel is."""
    if facts.is_gradle and _android_qnn(facts) and not facts.adsp:
        yield "Nothing in it sets ADSP_LIBRARY_PATH."


def adsp_paths(facts: Facts) -> Iterator[str]:
    """ADSP_LIBRARY_PATH set to several things, or with the separator of other paths."""
    values = {
        value.rstrip("\\").strip().rstrip("; ,'\"").lstrip("'\"") for found in facts.adsp.values() for value in found
    }
    plain = {value for value in values if re.fullmatch(r"[\w./;:~$\{\}-]+", value)}
    fixed = {value for value in plain if value.startswith(("/", "~", "."))}
    if len(fixed) > 1:
        yield f"ADSP_LIBRARY_PATH is set to {' and to '.join(sorted(fixed))}."
    for value in sorted(plain):
        if re.search(r"(?<=[\w.}]):(?=[/~.$])", value):
            yield f"ADSP_LIBRARY_PATH has folders with a colon between them: {value}."


def onnxruntime_too_old(facts: Facts) -> Iterator[str]:
    """The provider as a plugin beside an onnxruntime that takes no plugins."""
    for plugin in _plugins(facts):
        for host in (*facts.versions("onnxruntime"), *facts.versions(releases.ONNXRUNTIME_MAVEN)):
            if as_version(host.version) < as_version(releases.LEAST_ONNXRUNTIME):
                yield f"{plugin.name} {plugin.version} beside {host.name} {host.version} ({host.path})."


def no_onnxruntime(facts: Facts) -> Iterator[str]:
    """The provider as a plugin, and no onnxruntime that it plugs into."""
    hosts = (*facts.versions("onnxruntime"), *facts.versions(releases.ONNXRUNTIME_MAVEN))
    if facts.packages and not hosts and not _others(facts):
        for plugin in _plugins(facts):
            if plugin.path in facts.build:
                yield f"{plugin.path} has {plugin.name} {plugin.version} and no onnxruntime."


def two_providers(facts: Facts) -> Iterator[str]:
    """The provider twice: inside onnxruntime and as a plugin."""
    inside = facts.versions(releases.IN_TREE_MAVEN)
    if inside and _plugins(facts):
        plugin = _plugins(facts)[0]
        yield f"{inside[0].name} {inside[0].version} has the provider inside, and {plugin.name} is there, too."


def mixed_qairt(facts: Facts) -> Iterator[str]:
    """Packages that stand on different QAIRTs and bring the same libraries."""
    known: dict[releases.Version, str] = {}
    for package in facts.packages:
        if qairt := releases.qairt_of(package.name, package.version):
            known.setdefault(as_version(qairt)[:2], f"{package.name} {package.version} (QAIRT {qairt})")
    if len(known) > 1:
        yield f"{' beside '.join(known[version] for version in sorted(known))}."


def context_newer(facts: Facts) -> Iterator[str]:
    """A context of a newer QAIRT than the libraries that are to read it."""
    for model in facts.models:
        made = as_version(model.qairt)[:2]
        for package in facts.packages:
            has = releases.qairt_of(package.name, package.version)
            if made and has and as_version(has)[:2] < made:
                blob = releases.blob_version(model.qairt)
                old = releases.blob_version(has)
                blobs = f"; its blob is version {blob}, theirs {old}" if blob != old else ""
                theirs = f"{package.name} {package.version} has {has}"
                yield f"{model.path} was made by QAIRT {model.qairt}, {theirs}{blobs}."


def _plugins(facts: Facts) -> tuple[Package, ...]:
    plugins = (*facts.versions(releases.PLUGIN), *facts.versions(releases.PLUGIN_MAVEN))
    return tuple(plugin for plugin in plugins if as_version(plugin.version) >= (2,))


def _others(facts: Facts) -> bool:
    """Whether something brings an onnxruntime under another name."""
    return any(facts.versions(name) for name in (releases.IN_TREE_MAVEN, "onnxruntime-genai"))


def _android_qnn(facts: Facts) -> bool:
    """Whether a build for Android takes QNN's libraries or its provider."""
    return any(facts.versions(name) for name in _DRIVES)
