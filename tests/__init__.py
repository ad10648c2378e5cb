# SPDX-License-Identifier: Apache-2.0
"""Tests, in the rooms of what they test; `make test` runs them."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The checkout."""
