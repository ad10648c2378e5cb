# SPDX-License-Identifier: Apache-2.0
"""The API reference says what the docstrings say, the pages of options and of the gpu's ops what their tables say."""

from __future__ import annotations

import importlib
import re

import hexforge
from docs.generate import GPU_OPS_PAGE, MODULES_PAGE, OPTIONS_PAGE, PAGE, gpu_ops_page, modules_page, options_page, page
from docs.generated_sections import FOLDER, SECTIONS, with_sections
from tests import ROOT


def test_the_reference_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run make docs"


def test_the_options_are_up_to_date() -> None:
    assert OPTIONS_PAGE.read_text(encoding="utf-8") == options_page(), "run make docs"


def test_the_gpus_ops_are_up_to_date() -> None:
    assert GPU_OPS_PAGE.read_text(encoding="utf-8") == gpu_ops_page(), "run make docs"
    assert "no kernel yet" not in gpu_ops_page()


def test_the_modules_are_up_to_date() -> None:
    assert MODULES_PAGE.read_text(encoding="utf-8") == modules_page(), "run make docs"
    assert not re.findall(r"^- `\w+`: $", modules_page(), re.M), "a module has no docstring"


def test_sections_of_pages_are_up_to_date() -> None:
    for name in SECTIONS:
        text = (FOLDER / name).read_text(encoding="utf-8")
        assert text == with_sections(name, text), f"docs/{name}: run make docs"


def test_what_pages_teach_is_public() -> None:
    """Every name of hexforge in a block of Python on a page is one that `import hexforge` offers."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    internal = {
        "docs/adding_an_op.md",
        "docs/adding_a_backend.md",
        "docs/adding_an_addon.md",
    }  # written for those who change hexforge
    for path in pages:
        if str(path.relative_to(ROOT)) in internal:
            continue
        for block in re.findall(r"^ *```(?:python|py)\b(.*?)^ *```", path.read_text(encoding="utf-8"), re.M | re.S):
            taught = {*re.findall(r"\bhexforge\.([a-zA-Z]\w*)", block)}
            for names in re.findall(r"from hexforge import ([\w, ]+)", block):
                taught |= {name.strip().partition(" as ")[0] for name in names.split(",")}
            assert taught <= {*hexforge.__all__}, f"{path.name} teaches {sorted(taught - {*hexforge.__all__})}"


def test_modules_are_public_as_a_whole() -> None:
    for name in ("device", "executorch", "ort"):
        module = getattr(hexforge, name)
        assert module is importlib.import_module(f"hexforge.{name}")
        assert [member for member in module.__all__ if not hasattr(module, member)] == []


def test_the_reference_has_every_name() -> None:
    text = page()
    assert [name for name in hexforge.__all__ if f"\n### {name}\n" not in text] == []
    assert " at 0x" not in text
