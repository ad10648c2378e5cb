# SPDX-License-Identifier: Apache-2.0
"""Pages in a real browser at the widths people have: nothing is cut at 1400 pixels, nothing sticks out at 480."""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hexforge.addons.tuning.optimize import optimize
from hexforge.addons.tuning.optimized_page import optimized_page
from hexforge.addons.tuning.requests import OptimizeRequest
from tests.digits import MODEL, held_out
from tests.report.test_browser import CHROMIUM

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here (apt install chromium)"),
]

MEASURE = """
const wider = (query) => [...document.querySelectorAll(query)].filter((e) => e.scrollWidth > e.clientWidth + 1);
const graph = document.querySelector(".graph");
const fills = () => [...graph.querySelectorAll("rect")].map((rect) => getComputedStyle(rect).fill).join(" ");
const byTime = fills();
[...graph.querySelectorAll("button")].find((b) => b.dataset.by === "sqnr").click();
graph.querySelectorAll(".node")[1].dispatchEvent(new MouseEvent("click", { bubbles: true }));
const out = document.createElement("pre");
out.id = "found";
out.textContent = JSON.stringify({
  first: document.querySelector("main h2").textContent,
  heading: document.querySelector("h1").textContent,
  page: [document.documentElement.scrollWidth, innerWidth],
  scrolled: wider(".scroll").map((e) => e.getAttribute("aria-label")),
  cut: wider("td.text, .label, h3, .big, .figure p, .steps li").map((e) => e.textContent),
  recoloured: byTime !== fills(),
  chosen: document.querySelector(".details strong").textContent,
  theme: document.documentElement.dataset.theme,
});
document.body.append(out);
"""


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    feeds = [{"image": picture} for picture in held_out()[0][:16]]
    folder = tmp_path_factory.mktemp("out")
    made = optimized_page(optimize(MODEL, folder, OptimizeRequest(feeds, samples=8, budget=6, groups=3)))
    made = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", made)
    return made.replace("</body>", f"<script>{MEASURE}</script></body>")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [500, 1024, 1400, 1600])
def test_widths(text: str, width: int, theme: str, tmp_path: Path) -> None:
    assert CHROMIUM is not None
    path = tmp_path / "page.html"
    path.write_text(text, "utf-8")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--window-size={width},900"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=4000", "--dump-dom"]
    done = subprocess.run([*command, f"{path.as_uri()}?theme={theme}"], capture_output=True, text=True, timeout=120)
    shown = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert shown is not None, done.stderr[-1000:]
    found: dict[str, Any] = json.loads(html.unescape(shown[1]))
    assert (found["heading"], found["first"]) == ("digits.onnx", "Recommendation")
    assert found["page"][0] <= found["page"][1]
    assert found["theme"] == theme
    assert found["recoloured"]
    assert found["chosen"] == "conv1_Conv2d"
    if width >= 1400:
        assert found["scrolled"] == []
        assert found["cut"] == []
