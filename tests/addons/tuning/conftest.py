# SPDX-License-Identifier: Apache-2.0
"""A computer whose CPU is measured alike every time, as the tests of estimates have it."""

from __future__ import annotations

from tests.analysis.conftest import measured as measured
