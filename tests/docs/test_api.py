# SPDX-License-Identifier: Apache-2.0
"""The API reference says what the docstrings say, the pages of options and of the gpu's ops what their tables say."""

from __future__ import annotations

import hexforge
from docs.generate import GPU_OPS_PAGE, OPTIONS_PAGE, PAGE, gpu_ops_page, options_page, page


def test_the_reference_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run make docs"


def test_the_options_are_up_to_date() -> None:
    assert OPTIONS_PAGE.read_text(encoding="utf-8") == options_page(), "run make docs"


def test_the_gpus_ops_are_up_to_date() -> None:
    assert GPU_OPS_PAGE.read_text(encoding="utf-8") == gpu_ops_page(), "run make docs"
    assert "no kernel yet" not in gpu_ops_page()


def test_the_reference_has_every_name() -> None:
    text = page()
    assert [name for name in hexforge.__all__ if f"\n### {name}\n" not in text] == []
    assert " at 0x" not in text
