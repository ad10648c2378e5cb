# SPDX-License-Identifier: Apache-2.0
"""The stub of the native module, which type checkers read, has the names that the module has (`make stubs`)."""

from __future__ import annotations

import ast

from hexforge import _native
from tests import ROOT

STUB = ROOT / "src" / "hexforge" / "_native.pyi"


def stub_names() -> dict[str, set[str]]:
    """Public names of the stub, each with those of its members."""
    names: dict[str, set[str]] = {}
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            members = node.body if isinstance(node, ast.ClassDef) else ()
            names[node.name] = {m.name for m in members if isinstance(m, ast.FunctionDef)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] = set()
    return names


def test_the_stub_has_every_name_and_no_other() -> None:
    public = {name for name in vars(_native) if not name.startswith("_")}
    assert stub_names().keys() == public, "run make stubs"


def test_the_stub_has_every_method_and_no_other() -> None:
    for name, members in stub_names().items():
        thing = getattr(_native, name)
        if isinstance(thing, type):
            own = {member for member in vars(thing) if not member.startswith("_")}
            assert members - {"__init__"} == own, f"{name}: run make stubs"
