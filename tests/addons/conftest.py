# SPDX-License-Identifier: Apache-2.0
"""Phones of their own for tests of add-ons that meet one."""

from __future__ import annotations

from pathlib import Path

import pytest

from hexforge.addons.phone.phones import VARIABLE, Phone, add_phone


@pytest.fixture
def phones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "phones"
    monkeypatch.setenv(VARIABLE, str(folder))
    monkeypatch.delenv("ANDROID_SERIAL", raising=False)
    return folder


@pytest.fixture
def phone(phones: Path) -> Phone:
    return add_phone("one", "SM8650")
