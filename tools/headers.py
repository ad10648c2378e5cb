# SPDX-License-Identifier: Apache-2.0
"""The licence line of every source file: `python -m tools.headers` names files without it, `--fix` adds it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "native", "tests", "benchmarks", "fuzz", "examples", "docs", "tools")
COMMENTS = {".py": "#", ".cpp": "//", ".h": "//"}
OTHERS = Path("tests") / "scripts"
"""Published scripts of others, which stay as they are."""
LICENCE = "SPDX-License-Identifier: Apache-2.0"


def sources(root: Path = ROOT) -> Iterator[Path]:
    """Every source file that must have the line; empty files need none."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if OTHERS in path.relative_to(root).parents:
                continue
            if path.suffix in COMMENTS and path.is_file() and path.stat().st_size:
                yield path


def has_line(path: Path) -> bool:
    """True where the first line, or the one below `#!`, is the licence's."""
    lines = path.read_text(encoding="utf-8").splitlines()[:2]
    first = lines[1:] if lines and lines[0].startswith("#!") else lines[:1]
    return first == [f"{COMMENTS[path.suffix]} {LICENCE}"]


def add_line(path: Path) -> None:
    """Put the line first, or below `#!`."""
    text = path.read_text(encoding="utf-8")
    shebang, rest = "", text
    if text.startswith("#!"):
        shebang, _, rest = text.partition("\n")
        shebang += "\n"
    path.write_text(f"{shebang}{COMMENTS[path.suffix]} {LICENCE}\n{rest}", encoding="utf-8")


def main() -> None:
    """Name the files without the line, or add it to them."""
    missing = [path for path in sources() if not has_line(path)]
    if "--fix" in sys.argv[1:]:
        for path in missing:
            add_line(path)
        print(f"headers: added to {len(missing)} files")
        return
    for path in missing:
        print(f"{path.relative_to(ROOT)}: no `{LICENCE}` in its first line")
    if missing:
        raise SystemExit(f"headers: {len(missing)} files; python -m tools.headers --fix adds it")


if __name__ == "__main__":
    main()
