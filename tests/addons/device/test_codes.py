# SPDX-License-Identifier: Apache-2.0
"""Every code that the device says it gives is given."""

from __future__ import annotations

import pytest

from hexforge.addons.device.codes import Code
from tests import ROOT


@pytest.mark.feature("Error codes", guide="385, 914, 2763, 3019-3024, 3481-3504")
def test_every_code_is_raised_somewhere() -> None:
    source = "\n".join(p.read_text("utf-8") for p in (ROOT / "src" / "hexforge" / "addons" / "device").rglob("*.py"))
    unused = [code.name for code in Code if f"Code.{code.name}" not in source]
    assert unused == []
