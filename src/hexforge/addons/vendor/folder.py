# SPDX-License-Identifier: Apache-2.0
"""DeployedFolder: what is shipped of a model, with a manifest that has versions, sizes and checksums of all of it.

Its examples, in Python, C++ and Kotlin, are filled in for its model.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.addons.vendor.manifest import FORMAT, FolderManifest, read_manifest_file
from hexforge.addons.vendor.package import PACKAGE, WANTED
from hexforge.errors import CallError, ExistingFileError, FormatError
from hexforge.formats.npy_files import read_npz
from hexforge.ir import Array
from hexforge.model.declarations import Declared
from hexforge.qnn_api.releases import pair_for, qairt_of

MANIFEST, MODEL, SAMPLES, PAGE = "manifest.json", "model.onnx", "samples.npz", "report.html"
CONTEXT = "model_ctx"
"""What the files of a context begin with."""


@contextmanager
def whole_folder(path: Path, overwrite: bool = False) -> Iterator[Path]:
    """A folder to write into that becomes `path` at the end, whole; whatever goes wrong, nothing of it is left.

    One that is there is an error, or with `overwrite` replaced where it is a deployed folder.
    """
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        if not overwrite:
            raise ExistingFileError(f"{path}: is there already; remove it, name another folder, or give --overwrite")
        if not (path / MANIFEST).is_file():
            raise CallError(f"{path}: is no folder that hexforge deployed, and is not overwritten")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(dir=path.parent.absolute(), prefix=f".{path.name}."))
    except OSError as error:
        raise CallError(f"{path}: cannot be made: {error.strerror or error}; name another folder with -o") from None
    try:
        yield staging
        staging.chmod(0o755)
        flush_files(staging)
        _put_in_place(staging, path)
    except OSError as error:
        raise CallError(f"{path}: cannot be written: {error.strerror or error}; nothing of it was") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _put_in_place(staging: Path, path: Path) -> None:
    if not path.exists():
        staging.rename(path)
        return
    old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    path.rename(old / "old")
    try:
        staging.rename(path)
    except OSError:
        (old / "old").rename(path)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def flush_files(folder: Path) -> None:
    """Bring every file of a folder to the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb+") as file:
                os.fsync(file.fileno())


def sha256(path: Path) -> str:
    """The checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def written_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Size and checksum of every file but the manifest, by its path in the folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    return {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in paths
    }


def write_manifest(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write the manifest, last of all."""
    content = {"format": FORMAT, **facts, "files": written_files(folder)}
    (folder / MANIFEST).write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def read_manifest(folder: Path) -> FolderManifest:
    """The manifest of a deployed folder; FormatError where it is none."""
    path = folder / MANIFEST
    if not path.is_file():
        raise FormatError(f"{folder}: has no {MANIFEST}; it is no folder that hexforge deployed")
    return read_manifest_file(path)


def changed_files(folder: Path, manifest: FolderManifest) -> list[str]:
    """What is missing, was added, is not what the manifest says or has no checksum there, each in a sentence."""
    faults = [f"{name} has no checksum in {MANIFEST}" for name in manifest.without_checksum(SAMPLES)]
    for name, facts in manifest.files.items():
        path = folder / name
        try:
            is_there = path.is_file()
        except OSError:  # a name that no file can have
            is_there = False
        if not is_there:
            faults.append(f"{name} is missing")
        elif path.stat().st_size != facts.bytes or sha256(path) != facts.sha256:
            faults.append(f"{name} is not what was deployed")
    made_here = {Path(facts.context_model).parent for facts in manifest.chips.values() if facts.context_model}
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder)
        kept = place.as_posix() in manifest.files or place == Path(MANIFEST)
        if not kept and not path.is_dir() and not (place.parent in made_here and _is_context(place)):
            faults.append(f"{place.as_posix()} was added")
    return faults


def _is_context(path: Path) -> bool:
    """Whether a file is one of those that make_contexts.py makes."""
    return path.stem.startswith(CONTEXT) and path.suffix in (".onnx", ".bin")


def write_samples(folder: Path, samples: Sequence[Mapping[str, Array]]) -> None:
    """Keep the inputs that a proof was made on."""
    arrays = {f"{i}/{name}": array for i, feeds in enumerate(samples) for name, array in feeds.items()}
    with (folder / SAMPLES).open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def read_samples(folder: Path, inputs: Sequence[Declared]) -> list[dict[str, Array]]:
    """The samples that a proof was made on, by the inputs of the folder's model."""
    shapes = {str(tensor.name): tensor.shape for tensor in inputs}
    arrays = read_npz(folder / SAMPLES, lambda key: shapes.get(key.partition("/")[2]))
    count, left = divmod(len(arrays), len(shapes))
    wanted = {f"{number}/{name}" for number in range(count) for name in shapes}
    if left or wanted != set(arrays):
        raise FormatError(f"{folder / SAMPLES}: does not hold the model's inputs {', '.join(shapes)} for each sample")
    return [{name: arrays[f"{number}/{name}"] for name in shapes} for number in range(count)]


# -- the example programs -------------------------------------------------------------------------------------------

SHIPPED = Path(__file__).with_name("shipped")
PLACES = {
    "run.py.in": "run.py",
    "make_contexts.py.in": "make_contexts.py",
    "main.cpp.in": "cpp/main.cpp",
    "CMakeLists.txt.in": "cpp/CMakeLists.txt",
    "CMakePresets.json.in": "cpp/CMakePresets.json",
    "settings.gradle.kts.in": "android/settings.gradle.kts",
    "build.gradle.kts.in": "android/app/build.gradle.kts",
    "AndroidManifest.xml.in": "android/app/src/main/AndroidManifest.xml",
    "MainActivity.kt.in": "android/app/src/main/java/com/example/npu/MainActivity.kt",
    "NpuModel.kt.in": "android/app/src/main/java/com/example/npu/NpuModel.kt",
}
"""Where each file lies in a folder."""
ONNXRUNTIME = "1.31.1"


def example_files(model: str, chip: str, provider_options: Mapping[str, str]) -> dict[str, str]:
    """The texts of the examples by their path in the folder; C++ and Kotlin are written for one chip."""
    pair = pair_for(qairt_of(PACKAGE, WANTED))
    filled = {
        "@QAIRT@": pair.qairt,
        "@ONNXRUNTIME@": pair.onnxruntime,
        "@PLUGIN@": pair.version,
        "@MODEL@": model,
        "@CHIP@": chip,
        "@PROVIDER_CPP@": "\n".join(f"      {{{_quoted(k)}, {_quoted(v)}}}," for k, v in provider_options.items()),
        "@PROVIDER_KOTLIN@": "\n".join(
            f"                {_quoted(k)} to {_quoted(v)}," for k, v in provider_options.items()
        ),
    }
    texts = {"requirements.txt": f"{PACKAGE}=={WANTED}\nonnxruntime=={ONNXRUNTIME}\nnumpy\n"}
    for name, place in PLACES.items():
        text = (SHIPPED / name).read_text("utf-8")
        for mark, value in filled.items():
            text = text.replace(mark, value)
        texts[place] = text
    return texts


def _quoted(text: str) -> str:
    """A string of C++, Kotlin and JSON alike; `$` begins an expression in Kotlin."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\u0024") + '"'
