# SPDX-License-Identifier: Apache-2.0
"""The house at a glance: rooms and their sizes, who imports whom, cycles, and what a visitor would trip over.

    python -m tools.house [SRC]     (make house; SRC is src/hexforge)

It prints and judges nothing.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

SOURCE = Path("src/hexforge")
MOST_FILES = 16
MOST_PARAMETERS, FAR_TOO_MANY = 8, 14
MOST_LINES = 60
WIDEST = 120
ROOMS_OF_ROOMS = ("frontends", "backends")
"""Rooms whose rooms are counted one by one."""
HIDDEN_IMPORT = r'["\']{}\.[a-z_.]+:[A-Za-z_]+["\']'


class House:
    """What the modules of a package are, and what they import, define and assign."""

    def __init__(self, source: Path) -> None:
        self.source, self.name = source, source.name
        self.files = {self._module(file): file for file in sorted(source.rglob("*.py"))}
        self.texts = {module: file.read_text("utf-8") for module, file in self.files.items()}
        self.lines = {module: text.count("\n") for module, text in self.texts.items()}
        self.imports: dict[str, set[str]] = defaultdict(set)
        self.between_rooms: Counter[tuple[str, str]] = Counter()
        self.classes: dict[str, list[str]] = defaultdict(list)
        self.many_parameters: list[tuple[int, str]] = []
        self.long_functions: list[tuple[int, str]] = []
        self.assigned: Counter[str] = Counter()
        for module, text in self.texts.items():
            for node in ast.walk(ast.parse(text)):
                self._count(module, node)

    def _module(self, file: Path) -> str:
        parts = file.relative_to(self.source).with_suffix("").parts
        return ".".join((self.name, *parts)).removesuffix(".__init__")

    def _count(self, module: str, node: ast.AST) -> None:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == self.name:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                target = whole if whole in self.files else node.module
                self.imports[module].add(target)
                if self.room(target) != self.room(module):
                    self.between_rooms[self.room(module), self.room(target)] += 1
        elif isinstance(node, ast.ClassDef):
            self.classes[node.name].append(module)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            given = node.args
            bound = given.args[:1] and given.args[0].arg in ("self", "cls")
            parameters = len(given.args) + len(given.kwonlyargs) - bool(bound)
            if parameters > MOST_PARAMETERS:
                self.many_parameters.append((parameters, f"{module}.{node.name}"))
            length = (node.end_lineno or node.lineno) - node.lineno
            if length > MOST_LINES:
                self.long_functions.append((length, f"{module}.{node.name}"))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            self.assigned[node.id] += 1

    def room(self, module: str) -> str:
        """The room that a module is counted to."""
        parts = module.split(".")[1:]
        return ".".join(parts[:2] if parts and parts[0] in ROOMS_OF_ROOMS else parts[:1])

    def rooms(self) -> Iterator[tuple[str, list[str]]]:
        """Every folder with the modules in it."""
        for folder in sorted({file.parent for file in self.files.values()}):
            inside = [module for module, file in self.files.items() if file.parent == folder]
            yield str(folder.relative_to(self.source.parent)), inside

    def cycles(self) -> list[list[str]]:
        """Modules that import each other in a circle."""
        seen: set[str] = set()
        circles: list[list[str]] = []

        def visit(module: str, path: list[str]) -> None:
            if module in path:
                circles.append(path[path.index(module) :])
                return
            if module in seen:
                return
            for target in sorted(self.imports[module]):
                if target in self.files:
                    visit(target, [*path, module])
            seen.add(module)

        for module in self.files:
            visit(module, [])
        return circles

    def matches(self, pattern: str) -> int:
        """How often a pattern stands in all modules."""
        return sum(len(re.findall(pattern, text)) for text in self.texts.values())

    def holders(self, word: str) -> int:
        """How many modules have a word."""
        return sum(word in text for text in self.texts.values())

    def facts(self) -> dict[str, int | str]:
        """What says whether one idea has one place."""
        htp, addons = f"{self.name}.backends.htp", f"{self.name}.addons"
        core = [module for module in self.files if not module.startswith(addons)]
        hidden_import = HIDDEN_IMPORT.format(self.name)
        hidden = [m for m, t in self.texts.items() if re.search(hidden_import, t) and not m.endswith("registry")]
        outside = [module for module in self.files if not module.startswith(htp)]
        lines_of_core = sum(n for module, n in self.lines.items() if not module.startswith(f"{addons}."))
        return {
            "folders": len({file.parent for file in self.files.values()}),
            "lines": sum(self.lines.values()),
            "lines of the core": lines_of_core,
            "core modules that import an add-on": sum(self._imports_below(module, f"{addons}.") for module in core),
            "functions with 14 parameters or more": sum(n >= FAR_TOO_MANY for n, _ in self.many_parameters),
            "functions called to_json": self.matches(r"def to_json\("),
            "classes named *Model*, *Context*": sum("Model" in name or "Context" in name for name in self.classes),
            "modules outside that import backends.htp": sum(self._imports_below(module, htp) for module in outside),
            "protocols asked at run time": self.matches(r"@runtime_checkable"),
            "modules naming dlbc_weights": self.holders("dlbc_weights"),
            "fold_relu": self.holders("fold_relu"),
            "modules writing Chrome traces": self.holders("traceEvents"),
            "isinstance(HtpBackend)": self.matches(r"isinstance\([^)]*HtpBackend"),
            "lines with 'found'": self.matches(r"(?m)^.*\bfound\b.*$"),
            "imports hidden in strings": ", ".join(hidden) or "none",
        }

    def _imports_below(self, module: str, prefix: str) -> bool:
        return any(target.startswith(prefix) for target in self.imports[module])


def report(house: House) -> Iterator[str]:
    """The lines that are printed."""
    yield "rooms (python files, lines):"
    for folder, inside in house.rooms():
        full = "   <- full" if len(inside) > MOST_FILES else ""
        yield f"  {folder:44s} {len(inside):3d} {sum(house.lines[module] for module in inside):6d}{full}"
    between = house.between_rooms.most_common(40)
    yield f"imports between rooms: {', '.join(f'{a or house.name} -> {b} {n}' for (a, b), n in between)}"
    yield f"module cycles: {'; '.join(' <-> '.join(circle) for circle in house.cycles()[:8]) or 'none'}"
    twice = [
        f"{name} ({len(modules)})"
        for name, modules in sorted(house.classes.items())
        if len(modules) > 1 and not name.startswith("_")
    ]
    yield f"class names twice: {', '.join(twice) or 'none'}"
    yield f"signatures over {MOST_PARAMETERS} parameters: {_most(house.many_parameters)}"
    yield f"functions over {MOST_LINES} lines: {_most(house.long_functions)}"
    longest = sorted(house.lines.items(), key=lambda row: -row[1])[:8]
    names = [f"{module.partition('.')[2]} {n}" for module, n in longest]
    yield f"longest files: {', '.join(names)}"
    yield f"names assigned most: {', '.join(f'{word} {n}' for word, n in house.assigned.most_common(25))}"
    yield f"one idea, one place: {'; '.join(f'{what} {n}' for what, n in house.facts().items())}"
    native = house.source.parent.parent / "native"
    if native.is_dir():
        files = list(native.rglob("*.[ch]*"))
        wide = sum(len(line) > WIDEST for file in files for line in file.read_text(errors="replace").splitlines())
        folders = sum(entry.is_dir() for entry in native.rglob("*"))
        yield f"native: {folders} folders, {len(files)} files, {wide} lines over {WIDEST} columns"


def _most(rows: list[tuple[int, str]]) -> str:
    return ", ".join(f"{n} {name}" for n, name in sorted(rows, reverse=True)[:15]) or "none"


def main(arguments: Sequence[str]) -> int:
    """Print the figures of a package."""
    print("\n".join(report(House(Path(arguments[0]) if arguments else SOURCE))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
