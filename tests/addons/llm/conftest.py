# SPDX-License-Identifier: Apache-2.0
"""Bundles of the small Llama, exported once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from hexforge.addons.llm import ExportRequest, LanguageModel, export, load
from tests.addons.llm import SMALL

Bundled = Callable[..., Path]


@pytest.fixture(scope="session")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Bundled:
    """The folder of a bundle at a precision."""

    @cache
    def made(precision: str, native: bool = False, context: int = 512) -> Path:
        folder = tmp_path_factory.mktemp("bundles") / "bundle"
        export(SMALL, folder, ExportRequest(context=context, precision=precision, native=native))
        return folder

    return made


@pytest.fixture(scope="session")
def loaded(bundled: Bundled) -> Callable[..., LanguageModel]:
    """A loaded bundle at a precision."""
    return cache(lambda precision, native=False, backend="": load(bundled(precision, native), backend=backend))
