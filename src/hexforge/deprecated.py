# SPDX-License-Identifier: Apache-2.0
"""Old names of public things: each works for one more version, with a DeprecationWarning that tells the new name.

A renamed name of `import hexforge` needs only a line in __init__.pyi: `from hexforge.room import new as old`.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])


def warn_renamed(old: str, new: str, stacklevel: int = 3) -> None:
    """Warn whoever called the caller (`stacklevel` 3) that `old` is called `new` now."""
    text = f"{old} is deprecated and will be removed in the next version: use {new}"
    warnings.warn(text, DeprecationWarning, stacklevel=stacklevel)


class RenamedAttribute:
    """An old name of a class's field, property or method: `old = RenamedAttribute("new")` in the class body."""

    def __init__(self, new: str) -> None:
        self.new = new
        self.old = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.old = name

    @overload
    def __get__(self, instance: None, owner: type) -> RenamedAttribute: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Any: ...
    def __get__(self, instance: object | None, owner: type) -> Any:
        if instance is None:
            return self
        warn_renamed(f"{owner.__name__}.{self.old}", f"{owner.__name__}.{self.new}")
        return getattr(instance, self.new)


def renamed_names(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__` for its old names: `__getattr__ = renamed_names(__name__, {"old": "new"})`."""

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn_renamed(f"{module}.{name}", f"{module}.{names[name]}")
        return getattr(sys.modules[module], names[name])

    return __getattr__


def renamed_arguments(**names: str) -> Callable[[F], F]:
    """Keyword arguments that a function had under other names: `@renamed_arguments(old="new")`."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def called(*given: Any, **keywords: Any) -> Any:
            for old in names.keys() & keywords.keys():
                if names[old] in keywords:
                    raise TypeError(f"{function.__name__}() got both {names[old]!r} and its old name {old!r}")
                warn_renamed(f"{function.__name__}({old}=…)", f"{function.__name__}({names[old]}=…)")
                keywords[names[old]] = keywords.pop(old)
            return function(*given, **keywords)

        return called  # type: ignore[return-value]

    return decorate
