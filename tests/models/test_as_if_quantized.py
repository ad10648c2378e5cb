# SPDX-License-Identifier: Apache-2.0
"""Real models: what estimate promises at a precision is what quantize builds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.test_as_if_quantized import check_promise
from tests.models.test_models import MODELS, fixed, sample  # noqa: F401 - a fixture

pytestmark = pytest.mark.models


@pytest.mark.parametrize("precision", ["w8a8", "w8a16"])
@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if model.quantizable])
def test_promised_is_built(name: str, precision: str, fixed: Any) -> None:  # noqa: F811
    source = fixed(name)
    check_promise(source, [sample(name, source, seed=i) for i in range(2)], precision)
