# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser, where one is installed: it draws, and zoom, choice, sort and filter work."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hexforge.report import page
from tests.report.estimates import made
from tests.report.test_page import EVIL

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here (apt install chromium)"),
]

ACTIONS = """
const found = {};
const find = (query) => document.querySelector(query);
const cells = (n) => [...ops.querySelectorAll("tbody tr:not(.space)")].map((row) => row.cells[n].textContent);
const key = (key) => find("canvas").dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const view = () => find(".timeline .count").textContent;
const tables = document.querySelectorAll("#ops .table");
const ops = tables[tables.length - 1];
addEventListener("error", (event) => (found.error = event.message));
found.whole = view();
key("+");
found.zoomed = view();
key("0");
found.reset = view();
key("ArrowDown");
found.chosen = find(".details strong").textContent;
found.row = ops.querySelector("tr.selected td").title;
ops.querySelectorAll("th button")[4].click();
found.sorted = cells(4).slice(0, 3);
const search = ops.querySelector("input");
search.value = "softmax";
search.dispatchEvent(new Event("input"));
found.filtered = [...new Set(cells(1))];
found.count = ops.querySelector(".count").textContent;
found.sum = ops.querySelector("tfoot td:nth-child(5)").textContent;
ops.querySelectorAll("tbody tr")[1].click();
found.picked = find(".details strong").textContent;
found.theme = document.documentElement.dataset.theme;
find("#theme").click();
found.other = document.documentElement.dataset.theme;
found.images = document.querySelectorAll("img").length;
found.heading = find("h1").textContent;
// a print paints at once, without a frame
dispatchEvent(new Event("beforeprint"));
const { width, height } = find("canvas");
const pixels = find("canvas").getContext("2d").getImageData(0, 0, width, height).data;
found.colours = new Set(new Uint32Array(pixels.buffer)).size;
found.printed = document.documentElement.dataset.theme;
dispatchEvent(new Event("afterprint"));
const out = document.createElement("pre");
out.id = "found";
out.textContent = JSON.stringify(found);
document.body.append(out);
"""


def opened(path: Path) -> tuple[str, str]:
    """The document as drawn, and what the browser logged."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"]
    command += [f"--user-data-dir={path.parent / 'profile'}", "--virtual-time-budget=4000", "--dump-dom"]
    done = subprocess.run([*command, f"{path.as_uri()}?theme=light"], capture_output=True, text=True, timeout=120)
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def test_draws_without_a_complaint(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(made(300, EVIL, EVIL)), "utf-8")
    drawn, log = opened(path)
    assert 'data-drawn="yes"' in drawn
    assert log == ""


def test_interaction(tmp_path: Path) -> None:
    text = page(made(300, EVIL, "t"))
    # the page's policy lets no script but its own run: here it makes room for the one that plays the reader
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    path = tmp_path / "page.html"
    path.write_text(text.replace("</body>", f"<script>{ACTIONS}</script></body>"), "utf-8")
    drawn, log = opened(path)
    shown = re.search(r'<pre id="found">(.*?)</pre>', drawn, re.DOTALL)
    assert shown is not None, log
    found: dict[str, Any] = json.loads(html.unescape(shown[1]))
    assert found["whole"] == found["reset"] != found["zoomed"]
    assert found["chosen"] == found["row"] == "/t/0"
    assert found["sorted"] == ["7.00", "7.00", "7.00"]
    assert found["filtered"] == ["Softmax"]
    assert found["count"] == "100 of 300 rows"
    assert found["sum"] == f"{sum(row.us for row in made(300).rows if row.op == 'Softmax'):.2f}"
    assert found["picked"] not in ("", "/t/0")
    assert (found["theme"], found["other"]) == ("light", "dark")
    assert found["printed"] == "light"
    assert found["colours"] > 10
    assert (found["images"], found["heading"]) == (0, EVIL)
    assert "error" not in found
    assert log == ""
