# SPDX-License-Identifier: Apache-2.0
"""What the pages claim: nothing is installed from a registry that is not there, no context runs on a phone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FROM_A_REGISTRY = re.compile(r"pip install [^\n`]*(?<![./\w])'?hexforge\b")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_installs_from_a_registry_before_there_is_a_release(page: Path) -> None:
    if "Nothing has been released yet" not in (ROOT / "CHANGELOG.md").read_text("utf-8"):
        pytest.skip("there is a release")
    assert FROM_A_REGISTRY.findall(page.read_text("utf-8")) == []


@pytest.mark.parametrize("line", ["pip install hexforge", "pip install 'hexforge[gpu]'", "pip install -U hexforge"])
def test_such_lines_are_seen(line: str) -> None:
    assert FROM_A_REGISTRY.search(line)


@pytest.mark.parametrize("line", ["pip install .", "pip install '.[gpu]'", "pip install ./hexforge"])
def test_lines_for_a_checkout_are_not(line: str) -> None:
    assert not FROM_A_REGISTRY.search(line)


@pytest.mark.parametrize("name", ["README.md", "docs/guide.md", "docs/context_format.md"])
def test_pages_say_that_contexts_run_in_hexforge(name: str) -> None:
    text = " ".join((ROOT / name).read_text("utf-8").split())
    assert re.search(r"no phone (and no SDK )?reads (it|them)", text)
    assert "context file that deploys" not in text
