# SPDX-License-Identifier: Apache-2.0
"""Real models: what estimate promises at a precision is what quantize builds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.analysis.test_as_if_quantized import check_promises
from tests.models.test_models import MODELS, fixed, sample  # noqa: F401 - a fixture

pytestmark = pytest.mark.models


@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if model.quantizable])
def test_promised_is_built(name: str, fixed: Any, tmp_path: Path) -> None:  # noqa: F811
    source = fixed(name)
    check_promises(source, [sample(name, source, seed=i) for i in range(2)], tmp_path)
