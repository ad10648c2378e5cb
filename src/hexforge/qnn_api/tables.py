# SPDX-License-Identifier: Apache-2.0
"""Tables: the rows of a CSV file of this folder."""

from __future__ import annotations

import csv
from importlib.resources import files


def rows_of(file: str) -> list[dict[str, str]]:
    """The rows of a table, by the names of its columns."""
    text = files(__package__).joinpath(file).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
