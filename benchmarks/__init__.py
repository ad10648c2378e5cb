# SPDX-License-Identifier: Apache-2.0
"""What the figures come from: rooms by what is measured, every benchmark a command that prints a table."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The checkout."""
