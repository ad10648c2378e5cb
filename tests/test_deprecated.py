# SPDX-License-Identifier: Apache-2.0
"""Old names of public things work for one version and tell their new name."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass

import pytest

import hexforge
from hexforge.deprecated import RenamedAttribute, renamed_arguments, renamed_names


def test_the_table_tells_names_from_old_names() -> None:
    text = "from hexforge.a import one as one\nfrom hexforge.b import two as zwei\nfrom hexforge.b import two as two\n"
    homes, renamed = hexforge._table(text)  # type: ignore[attr-defined]
    assert homes == {"one": "hexforge.a", "two": "hexforge.b"}
    assert renamed == {"zwei": "two"}


def test_an_old_name_of_the_package_is_the_new_thing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(hexforge._RENAMED, "guess", "estimate")  # type: ignore[attr-defined]
    for _ in range(2):  # each use warns, not only the first
        with pytest.warns(DeprecationWarning, match=r"hexforge\.guess .* use hexforge\.estimate") as told:
            assert hexforge.guess is hexforge.estimate  # type: ignore[attr-defined]
        assert told[0].filename == __file__
    assert "guess" not in hexforge.__all__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        hexforge.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_every_old_name_of_the_package_still_works() -> None:
    for old, new in hexforge._RENAMED.items():  # type: ignore[attr-defined]
        with pytest.warns(DeprecationWarning, match=new):
            assert getattr(hexforge, old) is getattr(hexforge, new)


@dataclass(frozen=True, slots=True)
class Box:
    width_mm: int

    wide = RenamedAttribute("width_mm")

    def turned(self, *, degrees: int = 0) -> int:
        return degrees

    rotated = RenamedAttribute("turned")


def test_an_old_attribute_is_the_new_one() -> None:
    with pytest.warns(DeprecationWarning, match=r"Box\.wide .* use Box\.width_mm") as told:
        assert Box(3).wide == 3
    assert told[0].filename == __file__
    with pytest.warns(DeprecationWarning, match=r"Box\.rotated .* use Box\.turned"):
        assert Box(3).rotated(degrees=4) == 4


def test_an_old_name_of_a_module_is_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("boxes")
    monkeypatch.setitem(sys.modules, "boxes", module)
    module.pack = len  # type: ignore[attr-defined]
    module.__getattr__ = renamed_names("boxes", {"stuff": "pack"})  # type: ignore[method-assign]
    with pytest.warns(DeprecationWarning, match=r"boxes\.stuff .* use boxes\.pack") as told:
        assert module.stuff is len
    assert told[0].filename == __file__
    with pytest.raises(AttributeError, match="'boxes' has no attribute 'other'"):
        module.other  # noqa: B018


@pytest.mark.parametrize(
    ("owner", "old"), [(hexforge.Context, "base"), (hexforge.ManagedSession, "origin"), (hexforge.Adapter, "patched")]
)
def test_an_old_attribute_names_one_that_the_class_has(owner: type, old: str) -> None:
    alias = vars(owner)[old]
    assert isinstance(alias, RenamedAttribute)
    assert alias.new in vars(owner)


@renamed_arguments(wide="width_mm")
def box(width_mm: int, height_mm: int = 1) -> tuple[int, int]:
    return width_mm, height_mm


def test_an_old_argument_is_the_new_one() -> None:
    assert box(width_mm=2, height_mm=5) == (2, 5)
    with pytest.warns(DeprecationWarning, match=r"box\(wide=…\) .* use box\(width_mm=…\)") as told:
        assert box(wide=2, height_mm=5) == (2, 5)  # type: ignore[call-arg]
    assert told[0].filename == __file__
    with pytest.raises(TypeError, match="both 'width_mm' and its old name 'wide'"):
        box(width_mm=1, wide=2)  # type: ignore[call-arg]
