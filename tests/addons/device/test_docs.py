# SPDX-License-Identifier: Apache-2.0
"""docs/device.md has every code and every step as the source has them."""

from __future__ import annotations

import inspect

import pytest

from hexforge.addons.device.codes import Code, codes_table
from hexforge.addons.device.scenario.steps import STEPS, ProcessSteps
from tests import ROOT


def test_the_page_has_the_codes_and_the_steps() -> None:
    page = (ROOT / "docs" / "device.md").read_text("utf-8")
    assert codes_table() in page
    for name in STEPS:
        taken = inspect.signature(getattr(ProcessSteps, name)).parameters
        fields = [field for field in taken if field not in ("self", "digests")]
        assert f"| `{name}` | {', '.join(f'`{f}`' for f in fields)} |" in page


@pytest.mark.feature("Error codes", guide="385, 914, 2763, 3019-3024, 3481-3504")
def test_every_code_is_raised_somewhere() -> None:
    source = "\n".join(p.read_text("utf-8") for p in (ROOT / "src" / "hexforge" / "addons" / "device").rglob("*.py"))
    unused = [code.name for code in Code if f"Code.{code.name}" not in source]
    assert unused == []
