# SPDX-License-Identifier: Apache-2.0
"""Text tokens: how names and literals are written in the text form of a graph."""

from __future__ import annotations

import re
from json.encoder import encode_basestring_ascii
from typing import Any

WORD = re.compile(r"[A-Za-z0-9_./-]+")
KEYWORDS = ("graph", "return")


quoted = encode_basestring_ascii
"""A text as JSON has it."""


def name_text(name: str) -> str:
    """A name, quoted as in JSON where it is not a plain word."""
    return name if WORD.fullmatch(name) and name not in KEYWORDS else quoted(name)


def literal_text(value: Any) -> str:
    """A number, a boolean, none or nested tuples of them."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(literal_text, value))}]"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return repr(value)
