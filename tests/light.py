# SPDX-License-Identifier: Apache-2.0
"""The small zoo that the onnx package brings along: real graphs of IR 3 and opset 9 whose weights are made up."""

from __future__ import annotations

from pathlib import Path

import onnx

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
NAMES = ("densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "zfnet512")
"""Those of a size to test with; alexnet and vgg19 have 250 and 570 MB of weights."""


def light(name: str) -> Path:
    """One of them by name."""
    return FOLDER / f"light_{name}.onnx"
