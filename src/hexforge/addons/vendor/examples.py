# SPDX-License-Identifier: Apache-2.0
"""Examples: the programs in Python, C++ and Kotlin that a deployed folder has, filled in for its model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hexforge.addons.vendor.package import PACKAGE, WANTED

SHIPPED = Path(__file__).with_name("shipped")
PLACES = {
    "run.py.in": "run.py",
    "make_contexts.py.in": "make_contexts.py",
    "main.cpp.in": "cpp/main.cpp",
    "CMakeLists.txt.in": "cpp/CMakeLists.txt",
    "NpuModel.kt.in": "android/NpuModel.kt",
}
"""Where each file lies in a folder."""
ONNXRUNTIME = "1.31.1"


def example_files(model: str, chip: str, provider_options: Mapping[str, str]) -> dict[str, str]:
    """The texts of the examples by their path in the folder; C++ and Kotlin are written for one chip."""
    filled = {
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
