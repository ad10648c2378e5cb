# SPDX-License-Identifier: Apache-2.0
"""The guide's page: mediapipe's hand landmarker, from its bundle to a deployed file, command by command."""

from __future__ import annotations

import re
import shlex
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hexforge.addons.vendor.package import find_package
from hexforge.cli import main
from tests import ROOT

pytestmark = pytest.mark.litert
WHEEL = ROOT / "build" / "tflite-files" / "mediapipe"
MODELS = {"palm_detection_full": "hand_detector", "hand_landmark_full": "hand_landmarks_detector"}
"""Files of the package mediapipe on PyPI, and their names in the bundle that mediapipe publishes."""
NEEDS_VENDOR = ("deploy", "verify")


def commands() -> list[list[str]]:
    """The lines of the guide's page."""
    text = (ROOT / "docs" / "guide.md").read_text("utf-8")
    page = text.partition("## From mediapipe")[2].partition("\n## ")[0]
    return [shlex.split(line)[1:] for line in re.findall(r"^    (hexforge .*)$", page, re.MULTILINE)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the bundle, and pictures to calibrate with."""
    if not WHEEL.is_dir():
        pytest.skip("mediapipe's files are not there; `python -m benchmarks.tflite.real_models hand` fetches them")
    with zipfile.ZipFile(tmp_path / "hand_landmarker.task", "w") as bundle:
        for name, inside in MODELS.items():
            bundle.write(WHEEL / f"{name}.tflite", f"{inside}.tflite")
    (tmp_path / "hands").mkdir()
    random = np.random.default_rng(0)
    for number in range(5):
        small = Image.fromarray(random.integers(0, 256, (14, 14, 3), dtype=np.uint8))
        small.resize((224, 224)).save(tmp_path / "hands" / f"{number}.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_goes_from_the_bundle_to_a_deployed_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, said = commands(), {}
    assert len(lines) <= 10
    assert [line[0] for line in lines][-2:] == list(NEEDS_VENDOR)
    for line in lines:
        if line[0] in NEEDS_VENDOR and find_package() is None:
            continue
        with pytest.raises(SystemExit) as ended:
            main(line)
        said[line[0]] = capsys.readouterr().out
        assert not ended.value.code, said
    assert "runs whole on the NPU" in said["check"]
    assert "both models were run" in said["convert"]
    assert (folder / "hand.qdq.onnx").exists()
    assert find_package() is None or any((folder / "shipped").iterdir())
