# SPDX-License-Identifier: Apache-2.0
"""Kernels are compiled by this computer's OpenCL."""

from __future__ import annotations

import pytest

from tests.opencl import require_compiler


@pytest.fixture(autouse=True, scope="package")
def _compiler() -> None:
    require_compiler()
