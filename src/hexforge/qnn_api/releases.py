# SPDX-License-Identifier: Apache-2.0
"""Releases: which package stands on which QAIRT and which onnxruntime, each row with its source.

What drives QNN is built with one QAIRT, and its libraries must not be older than what made a context.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PLUGIN, PLUGIN_MAVEN = "onnxruntime-qnn", "com.qualcomm.qti:onnxruntime-android-qnn"
IN_TREE_MAVEN, IN_TREE_NUGET = "com.microsoft.onnxruntime:onnxruntime-android-qnn", "Microsoft.ML.OnnxRuntime.QNN"
RUNTIME_MAVEN = "com.qualcomm.qti:qnn-runtime"
ONNXRUNTIME_MAVEN = "com.microsoft.onnxruntime:onnxruntime-android"
LEAST_ONNXRUNTIME = "1.24.1"
"""The first onnxruntime that takes the provider as a plugin."""
NEW_BLOB, NEW_BLOB_QAIRT = "4.0", "2.49"
"""The version of context blobs, and the QAIRT that it came with; 3.3 before (QNN HTP API 5.49.0's history)."""
UNKNOWN = ""

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """A package in a version, and what it stands on."""

    package: str
    version: str
    qairt: str
    """The QAIRT it was built with; empty where no page says."""
    onnxruntime: str
    """The onnxruntime it was compiled with, or is; empty where it needs none."""
    source: str


_PLUGIN_NOTES = "https://github.com/onnxruntime/onnxruntime-qnn/releases/tag/v"
_IN_TREE = (
    "https://github.com/microsoft/onnxruntime, c-api-noopenmp-packaging-pipelines.yml and android-java-api-aar.yml at v"
)
_PLUGINS = """
2.0.0 2.42.0 1.24.1, 2.1.0 - -, 2.1.1 - -, 2.2.0 2.46.0 1.24.4, 2.3.0 2.47.0 1.24.4, 2.4.0 2.48.40 1.26.0,
2.5.0 2.49.40 1.26.0, 2.6.0 - -, 2.7.0 2.51.0 1.29.0
"""
"""The provider as a plugin: version, QAIRT, the onnxruntime it was compiled with."""
_IN_TREES = """
1.19.0 2.25.0, 1.19.2 2.25.0, 1.20.0 2.27.0, 1.20.1 2.28.2, 1.21.0 2.31.0, 1.21.1 2.31.0, 1.22.0 2.33.0, 1.22.1 2.33.0,
1.22.2 2.36.1, 1.23.0 2.37.1, 1.23.1 2.37.1, 1.23.2 2.37.1, 1.24.1 2.42.0, 1.24.2 2.42.0, 1.24.3 2.42.0, 1.25.0 2.42.0,
1.25.1 2.42.0, 1.26.0 2.42.0, 1.27.0 2.42.0, 1.28.0 2.42.0, 1.29.0 2.42.0
"""
"""onnxruntime with the provider inside, for Android and NuGet: version and QAIRT."""
_OTHERS = (
    Release(
        "ExecuTorch",
        "1.0.0 to 1.4.1",
        "2.37.0",
        UNKNOWN,
        "https://github.com/pytorch/executorch, qnn_config.sh at tags",
    ),
    Release("LiteRT", "main of 2026-08", "2.47.0", UNKNOWN, "https://github.com/google-ai-edge/LiteRT, setup.py"),
    Release("GenieX", "0.5.0", "2.45", UNKNOWN, "https://github.com/qualcomm/GenieX/issues/1390"),
    Release("Nexa SDK", "0.2.73", "2.36.1", UNKNOWN, "https://github.com/qualcomm/GenieX/issues/1060"),
    Release("onnxruntime-genai", "any", UNKNOWN, UNKNOWN, "none: its QNN is that of the onnxruntime it is used with"),
)


def releases() -> tuple[Release, ...]:
    """Every release that is known, by package."""
    rows = []
    for entry in _PLUGINS.split(","):
        version, qairt, onnxruntime = (cell.strip("-") for cell in entry.split())
        for package in (PLUGIN, PLUGIN_MAVEN):
            if package == PLUGIN or as_version(version) >= (2, 3):
                rows.append(Release(package, version, qairt, onnxruntime, _PLUGIN_NOTES + version))
    for entry in _IN_TREES.split(","):
        version, qairt = entry.split()
        rows += [
            Release(package, version, qairt, version, _IN_TREE + version) for package in (IN_TREE_MAVEN, IN_TREE_NUGET)
        ]
    return (*sorted(rows, key=lambda row: (row.package, as_version(row.version))), *_OTHERS)


def as_version(text: str) -> Version:
    """The numbers of a version: "2.48.40.260810" is (2, 48, 40, 260810)."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    return tuple(int(part[:9]) for part in found.group(1).split(".")) if found else ()


def release_of(package: str, version: str) -> Release | None:
    """The row of a package in a version, whatever its last number."""
    rows = [row for row in releases() if row.package.lower() == package.lower()]
    exact = next((row for row in rows if row.version == version), None)
    alike = (row for row in rows if as_version(row.version)[:2] == as_version(version)[:2])
    return exact or next(alike, None)


def qairt_of(package: str, version: str) -> str:
    """The QAIRT that a package in a version stands on; empty where that is not known."""
    if package.lower() in (RUNTIME_MAVEN, "qairt"):
        return version
    row = release_of(package, version)
    return "" if row is None else row.qairt


def pair_for(qairt: str) -> Release:
    """The release of the plugin for Android whose libraries read contexts of a QAIRT: the first that is as new."""
    wanted = as_version(qairt)[:2]
    known = [row for row in releases() if row.package == PLUGIN_MAVEN and row.qairt]
    return next((row for row in known if as_version(row.qairt)[:2] >= wanted), known[-1])


def blob_version(qairt: str) -> str:
    """The version of the context blobs that a QAIRT writes, as far as its history says it."""
    version = as_version(qairt)[:2]
    if version >= as_version(NEW_BLOB_QAIRT):
        return NEW_BLOB
    return "3.3 or older" if version else ""
