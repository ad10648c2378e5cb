# SPDX-License-Identifier: Apache-2.0
"""Terminal text: what files say, as a terminal may show it.

Names of graphs, nodes and tensors may hold anything: sequences that clear the screen or set its title, controls of C1,
characters that turn the direction of what follows. Errors, logs and everything that commands print go through here.
"""

from __future__ import annotations

import json
import re

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls but tab and line feed
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # nothing to see
    "\ud800-\udfff]"  # half of a character, which cannot be written
)


def visible(text: str) -> str:
    """The text with what a terminal would obey, or nobody would see, as escapes (`\\x1b`); line feeds and tabs stay."""
    if text.isprintable():
        return text
    return _INVISIBLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def visible_json(text: str) -> str:
    """JSON that says the same with such characters as JSON's own escapes."""
    return _INVISIBLE.sub(lambda match: json.dumps(match[0])[1:-1], text)
