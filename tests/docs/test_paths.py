# SPDX-License-Identifier: Apache-2.0
"""What the pages name is there: files of the checkout, modules of the package, pages they link to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
COMMANDS = [ROOT / "Makefile", *sorted((ROOT / "benchmarks").rglob("*.py"))]
"""Files beside the pages that name modules to run."""
FILE = re.compile(r"(?<![\w/.<-])((?:[\w-]+/)+[\w-]+\.(?:py|json|md|cpp|h|toml|txt|yml))(?![\w/])")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)")
MODULE = re.compile(r"""-m"?,?\s"?((?:benchmarks|tests)(?:\.\w+)*|fuzz|tools\.\w+|docs\.\w+)""")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_files_and_links_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    homes = (ROOT, ROOT / "src" / "hexforge", ROOT / "docs", page.parent)
    # a file whose first folder is none of ours is one that a command of the page writes
    ours = {name for name in FILE.findall(text) if any((home / name.split("/")[0]).is_dir() for home in homes)}
    missing = {name for name in ours if not any((home / name).exists() for home in homes)}
    links = {link for link in LINK.findall(text) if not link.startswith("gallery/")}  # made with the site, which looks
    missing |= {link for link in links if not (page.parent / link).exists()}
    assert not missing | missing_modules(text)


@pytest.mark.parametrize("page", COMMANDS, ids=lambda p: str(p.relative_to(ROOT)))
def test_modules_that_commands_run_exist(page: Path) -> None:
    assert not missing_modules(page.read_text(encoding="utf-8"))


def missing_modules(text: str) -> set[str]:
    """Modules that commands in a text run and that the checkout has not."""
    paths = {module: ROOT.joinpath(*module.split(".")) for module in MODULE.findall(text)}
    return {m for m, p in paths.items() if not p.with_suffix(".py").exists() and not (p / "__main__.py").exists()}
