# SPDX-License-Identifier: Apache-2.0
"""`hexforge abi-probe`: a program that, compiled against an SDK's headers, says how they lay out QNN's structures.

Its output is a passport: the numbers of every enumerator, and the size of every structure with its members' places,
as JSON. Names that an SDK has not are left out by -DWITHOUT_name; with --include the command finds them itself. A
passport is compared with hexforge's own headers: what differs is what a program made with that SDK would misread.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexforge.addons.capi.library import include_path
from hexforge.errors import CallError, FormatError
from hexforge.qnn_api.enumerations import enumerators
from hexforge.qnn_api.structures import declarations
from hexforge.qnn_api.tables import rows_of

VERSION = 1
_LINE = re.compile(r"probe\.c:(\d+):\d+:")
"""A line of the program that the compiler names, in an error or as where a macro was used."""


def program() -> str:
    """The program in C."""
    return "".join(_program())


def _program() -> Iterator[str]:
    yield (
        "// Compile it against an SDK's headers: cc probe.c -I$QNN_SDK_ROOT/include/QNN -o probe && ./probe\n"
        "// A name that the headers have not is left out by -DWITHOUT_name.\n"
        "#include <stddef.h>\n#include <stdio.h>\n\n"
    )
    for row in rows_of("headers.csv"):
        yield f'#if __has_include("{row["header"]}")\n#include "{row["header"]}"\n#endif\n'
    yield (
        '\n#define VALUE(name) printf("%s\\n    \\"" #name "\\": %lld", comma, (long long)(name)), comma = ","\n'
        '#define BEGIN(type) printf("%s\\n    \\"" #type "\\": {\\"size\\": %zu, \\"members\\": {", '
        "outer, sizeof(type)), "
        'outer = ",", comma = ""\n'
        '#define MEMBER(type, name) printf("%s\\"" #name "\\": [%zu, %zu]", comma, offsetof(type, name), '
        'sizeof(((type*)0)->name)), comma = ", "\n\n'
        'int main(void) {\n  const char *comma = "", *outer = "";\n'
        f'  printf("{{\\n  \\"hexforge_abi\\": {VERSION},\\n  \\"values\\": {{");\n'
    )
    for name in dict.fromkeys(row.name for row in enumerators()):
        yield f"#ifndef WITHOUT_{name}\n  VALUE({name});\n#endif\n"
    yield '  printf("\\n  },\\n  \\"structures\\": {");\n'
    for each in declarations():
        if not each.is_structure:
            continue
        yield f"#ifndef WITHOUT_{each.name}\n  BEGIN({each.name});\n"
        for member in each.members:
            name = member.name.partition("[")[0]
            yield f"#ifndef WITHOUT_{each.name}_{name}\n  MEMBER({each.name}, {name});\n#endif\n"
        yield '  printf("}}");\n#endif\n'
    yield '  printf("\\n  }\\n}\\n");\n  return 0;\n}\n'


def probe(include: Path, compiler: str = "cc") -> str:
    """The passport of the headers in a folder: the program compiled without what they have not, and run."""
    if shutil.which(compiler) is None:
        raise CallError(f"there is no compiler {compiler}; name one with --compiler")
    if not include.is_dir():
        raise CallError(f"{include}: there is no such folder; it is include/QNN of an SDK")
    lines = program().splitlines()
    without: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "probe.c", Path(folder) / "probe"
        source.write_text("\n".join(lines) + "\n", encoding="ascii")
        for _ in range(64):
            command = [compiler, "-std=gnu11", "-w", f"-I{include}", *without, str(source), "-o", str(target)]
            made = subprocess.run(command, capture_output=True, text=True, check=False)
            if made.returncode == 0:
                return subprocess.run([target], capture_output=True, text=True, check=True).stdout
            lacking = {_guard_of(lines, int(number)) for number in _LINE.findall(made.stderr)} - {None}
            fresh = [f"-D{name}" for name in sorted(filter(None, lacking)) if f"-D{name}" not in without]
            if not fresh:
                raise CallError(f"{include}: the compiler says {made.stderr.strip().splitlines()[0]}")
            without += fresh
    raise CallError(f"{include}: its headers cannot be compiled")


def _guard_of(lines: list[str], number: int) -> str | None:
    """The guard around a line of the program that did not compile: of a structure, around all of it."""
    for line in reversed(lines[: number - 1]):
        if line.startswith("#ifndef WITHOUT_"):
            return line.removeprefix("#ifndef ")
        if line.startswith("#endif"):
            return None
    return None


@dataclass(frozen=True, slots=True)
class LayoutDifference:
    """What two passports say otherwise."""

    name: str
    ours: str
    theirs: str


def read_passport(path: Path) -> Mapping[str, Any]:
    """A passport from its file; FormatError where it is none."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CallError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: is no passport of hexforge abi-probe: {error}") from None
    if not isinstance(given, dict) or given.get("hexforge_abi") != VERSION:
        raise FormatError(f"{path}: is no passport of hexforge abi-probe, version {VERSION}")
    values, structures = given.get("values"), given.get("structures")
    if not isinstance(values, dict) or not all(type(value) is int for value in values.values()):
        raise FormatError(f"{path}: its values are not numbers by names")
    if not isinstance(structures, dict) or not all(map(_is_layout, structures.values())):
        raise FormatError(f"{path}: its structures are not sizes and places of members")
    return given


def _is_layout(given: Any) -> bool:
    members = given.get("members") if isinstance(given, dict) else None
    return (
        isinstance(members, dict)
        and type(given.get("size")) is int
        and all(
            isinstance(place, list) and len(place) == 2 and all(type(number) is int and number >= 0 for number in place)
            for place in members.values()
        )
    )


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[LayoutDifference]:
    """What a program made with other headers would misread: numbers, sizes, places; a name that one has alone, too."""
    for name in dict.fromkeys([*ours["values"], *theirs["values"]]):
        own, other = ours["values"].get(name), theirs["values"].get(name)
        if own != other:
            yield LayoutDifference(name, _said(own), _said(other))
    for type in dict.fromkeys([*ours["structures"], *theirs["structures"]]):
        own, other = ours["structures"].get(type), theirs["structures"].get(type)
        if own is None or other is None:
            yield LayoutDifference(type, "there" if own else "not there", "there" if other else "not there")
            continue
        if own["size"] != other["size"]:
            yield LayoutDifference(type, f"{own['size']} bytes", f"{other['size']} bytes")
        for member in dict.fromkeys([*own["members"], *other["members"]]):
            mine, given = own["members"].get(member), other["members"].get(member)
            if mine != given:
                yield LayoutDifference(f"{type}.{member}", _placed(mine), _placed(given))


def _said(value: int | None) -> str:
    return "not there" if value is None else str(value)


def _placed(place: list[int] | None) -> str:
    return "not there" if place is None else f"{place[1]} bytes at {place[0]}"


def own_passport(compiler: str = "cc") -> Mapping[str, Any]:
    """The passport of hexforge's headers."""
    made: Mapping[str, Any] = json.loads(probe(include_path(), compiler))
    return made
