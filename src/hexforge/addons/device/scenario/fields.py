# SPDX-License-Identifier: Apache-2.0
"""Fields: a JSON object read with suspicion: every fault says where it is, what is wrong, and what would work."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from hexforge.errors import CallError
from hexforge.options import did_you_mean

NOTHING: Any = object()
MOST = (1 << 62) - 1
MOST_NUMBER = 1e15
"""Of times in microseconds, sizes in megabytes and energies: thirty years, and no more than sums of them can hold."""
MOST_STEPS = 1_000_000
"""Of what is played one by one: tasks of a graph, executions of a step."""


class Fields:
    """The fields of one object; `done` after the last was read refuses whatever is left."""

    def __init__(self, data: Any, where: str) -> None:
        self.where = where
        if not isinstance(data, Mapping):
            raise CallError(f"{where}: is a {type(data).__name__}, not an object")
        self._data = dict(data)
        self._read: list[str] = []

    def has(self, key: str) -> bool:
        """Whether a field is given."""
        return key in self._data

    def any(self, key: str, default: Any = NOTHING) -> Any:
        """A field of any kind."""
        self._read.append(key)
        if key in self._data:
            return self._data[key]
        if default is NOTHING:
            hint = did_you_mean(key, self._data)
            raise CallError(f"{self.where}: needs a field {key!r}{hint}")
        return default

    def text(self, key: str, default: Any = NOTHING, choices: Sequence[str] = ()) -> str:
        """A text."""
        value = self.any(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, value, "a text")
        if choices and value not in choices:
            raise CallError(
                f"{self.where}: {key} is {value!r}; it is one of {', '.join(choices)}{did_you_mean(value, choices)}"
            )
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """true or false."""
        value = self.any(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def number(self, key: str, default: Any = NOTHING, low: float = 0.0) -> float:
        """A number that is not below `low`."""
        value = self.any(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= MOST_NUMBER:
            raise self._wrong(key, value, f"a number of at least {low:g} and at most {MOST_NUMBER:g}")
        return float(value)

    def count(self, key: str, default: Any = NOTHING, low: int = 0, high: int = MOST) -> int:
        """A whole number that is not below `low` nor above `high`."""
        value = self.any(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            above = f" and at most {high:,}" if high != MOST else ""
            raise self._wrong(key, value, f"a whole number of at least {low}{above}")
        return value

    def bytes(self, name: str, default: int = 0) -> int:
        """A size: `<name>_bytes`, or `<name>_mb`."""
        if self.has(f"{name}_mb"):
            if self.has(f"{name}_bytes"):
                raise CallError(f"{self.where}: give {name}_mb or {name}_bytes, not both")
            return round(self.number(f"{name}_mb") * (1 << 20))
        self._read.append(f"{name}_mb")
        return self.count(f"{name}_bytes", default)

    def list(self, key: str, default: Any = NOTHING) -> list[Any]:
        """A list."""
        value = self.any(key, default)
        if not isinstance(value, list):
            raise self._wrong(key, value, "a list")
        return value

    def names(self, key: str, default: Any = NOTHING) -> tuple[str, ...]:
        """A list of texts."""
        value = self.list(key, default)
        if not all(isinstance(item, str) for item in value):
            raise self._wrong(key, value, "a list of texts")
        return tuple(value)

    def done(self) -> None:
        """CallError for a field that nobody reads."""
        for key in self._data:
            if key not in self._read:
                known = f"; it can have {', '.join(dict.fromkeys(self._read))}"
                raise CallError(f"{self.where}: unknown field {key!r}{did_you_mean(key, self._read) or known}")

    def _wrong(self, key: str, value: Any, wanted: str) -> CallError:
        given = reprlib.repr(value)  # which may be as long as the file
        return CallError(f"{self.where}: {key} is {given}, not {wanted}")
