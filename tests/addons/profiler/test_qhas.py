# SPDX-License-Identifier: Apache-2.0
"""The analysis summary as a page: it stands alone, says why a model is slow, and works in a real browser."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hexforge.addons.profiler.qhas import qhas_page
from hexforge.addons.profiler.record import Activity, Profile
from hexforge.addons.profiler.recording.measured import measured_graph, measured_run
from hexforge.addons.profiler.recording.simulated import profile
from hexforge.addons.profiler.summary import summary
from hexforge.addons.profiler.verdict import bottlenecks, findings
from hexforge.addons.tuning.advice.advise import advise
from hexforge.analysis.timed_graphs import graph_of
from hexforge.backend import KernelTime
from hexforge.model.reader import read
from tests.models import showcase
from tests.report.test_browser import CHROMIUM, opened
from tests.report.test_page import EVIL

BEFORE, AFTER = (profile(model, "SM8650") for model in showcase.sub(128))
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here (apt install chromium)")


def content(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def large(count: int) -> Profile:
    """A profile of so many activities: those of a real one, over and over."""
    graph = BEFORE.graphs[0]
    run, made = graph.runs[0], list[Activity]()
    whole = run.accelerator_us
    while len(made) < count:
        shift = whole * (len(made) // len(run.activities))
        made += [replace(a, start_us=a.start_us + shift, end_us=a.end_us + shift) for a in run.activities]
    longer = replace(run, activities=tuple(made[:count]), accelerator_us=whole * count / len(run.activities))
    return replace(BEFORE, graphs=(replace(graph, runs=(longer,)),))


def named(profile: Profile, name: str) -> Profile:
    """The profile with a name put wherever a model's author could put one."""
    graph = profile.graphs[0]
    ops = tuple(replace(op, name=f"{name}{i}", sources=(name,)) if op.name else op for i, op in enumerate(graph.ops))
    return replace(profile, model=name, graphs=(replace(graph, name=name, ops=ops),))


@pytest.mark.feature("QHAS", guide="2595-2641")
def test_tables_are_the_summarys() -> None:
    page = content(qhas_page(BEFORE))
    expected = summary(BEFORE)
    cycles = [c["name"] for c in page["ops"]["columns"]].index("cycles")
    assert {r[0]: r[cycles] for r in page["ops"]["rows"]} == {r["qnn_op"]: r["cycles"] for r in expected["qnn_ops"]}
    assert len(page["timeline"]["events"]["start"]) == len(expected["htp_ops"])
    assert len(page["timeline"]["critical"]["start"]) == len(expected["dominant_path"])
    assert page["ops"]["filters"]
    assert page["ops"]["pies"]


def test_says_what_bounds_it_and_what_to_try() -> None:
    graph = BEFORE.graphs[0]
    assert graph.ops[bottlenecks(graph, graph.runs[0])[0]].type == "ElementWiseSubtract"
    reasons = findings(BEFORE, graph, graph.runs[0])
    assert "ElementWiseSubtract is the bottleneck" in [r.title for r in reasons[:3]]
    assert all(r.text and r.try_this for r in reasons)
    assert [r.share for r in reasons] == sorted((r.share for r in reasons), reverse=True)
    ideas = advise(showcase.sub(128)[0], "SM8650", verify=False)
    page = qhas_page(BEFORE, advice=ideas)
    lead = content(page)["lead"][0]
    assert lead["title"] == "Why it takes this long"
    steps = [step["title"] for part in lead["parts"] if part["draw"] == "steps" for step in part["steps"]]
    assert "Sub of two branches becomes a convolution with weights +1 and -1" in steps


def test_two_profiles_side_by_side() -> None:
    page = content(qhas_page(AFTER, before=BEFORE, advised=False))
    both = next(section for section in page["lead"] if section["title"] == "Before and after")
    tables = {part["title"]: part["rows"] for part in both["parts"] if part["draw"] == "table"}
    sums = [sum(row[k] for row in tables["Cycles by QNN op type"]) for k in (1, 2)]
    assert sums == [p.graphs[0].runs[0].critical_cycles for p in (BEFORE, AFTER)]
    by_op = {row[0]: row[2:] for row in tables["Cycles by op"]}
    assert by_op["sub"][1] == 0 < by_op["sub"][0]
    assert by_op["convStart"][3] == pytest.approx(1.0, abs=0.02)


def test_names_stay_text() -> None:
    page = qhas_page(named(BEFORE, EVIL))
    assert "<img" not in page
    assert page.count("</script>") == 2
    assert "default-src 'none'" in page


@pytest.mark.parametrize("level", ["basic", "detailed", "linting"])
def test_lower_levels_have_a_page_too(level: str) -> None:
    page = content(qhas_page(profile(showcase.sub(64)[0], "SM8650", level=level)))
    assert bool(page["ops"]["rows"]) == (level != "basic")


ACTIONS = """
const found = {};
addEventListener("error", (event) => (found.error = event.message));
const find = (query) => document.querySelector(query);
const all = (query) => [...document.querySelectorAll(query)];
const cells = (id, n) => all(`#${id} tbody tr:not(.space)`).map((row) => row.cells[n].textContent);
const type = (input, text) => ((input.value = text), input.dispatchEvent(new Event("input")));
const head = (id, name) => all(`#${id} thead tr:first-child th`).findIndex((th) => th.textContent.startsWith(name));
found.sections = all("details.fold > summary h2").map((h) => h.textContent);
found.open = all("details.fold").map((d) => d.open);
// sections fold by keyboard, as every summary does: a click stands for Enter
find("#types summary").click();
found.folded = !find("#types details").open;
find("#types summary").click();
// sort and pie
const cyclesAt = head("types", "cycles");
all("#types thead th button:first-child")[cyclesAt].click();
found.ascending = cells("types", cyclesAt).slice(0, 2);
all("#types .chart")[cyclesAt - 1].click();
found.slices = all("#types .slice").length;
found.parts = cells("types", cyclesAt).filter((text) => text !== "0").length;
found.pie = find("#types .pie h3").textContent;
// several filters at once
const filters = all("#qnn-ops .filters input");
type(filters[0], "conv");
found.one = find("#qnn-ops .count").textContent;
type(filters[head("qnn-ops", "cycles")], "> 1");
found.two = find("#qnn-ops .count").textContent;
found.names = cells("qnn-ops", 0);
// a click on an op shows it in the timeline and in the graph
find("#graph summary").click();
find("#qnn-ops tbody tr").click();
const draw = () => new Promise((done) => setTimeout(done, 50));
(async () => {
  await draw();
  find("#qnn-ops tbody tr").click();
  found.chosen = find("#timeline-fold .details strong").textContent;
  found.row = find("#qnn-ops tr.selected td").title;
  await draw();
  found.inGraph = all(".graph .node.chosen").length;
  find("canvas").dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown", bubbles: true }));
  found.next = find("#timeline-fold .details strong").textContent;
  // a type leads to its ops
  find("#types tbody tr").click();
  found.types = [...new Set(cells("qnn-ops", 1))];
  for (const id of ["htp-ops", "dominant", "services"]) find(`#${id} summary`).click();
  await draw();
  found.htp = find("#htp-ops .count").textContent;
  found.dominant = find("#dominant .count").textContent;
  found.services = all("#services tbody tr").length;
  found.theme = document.documentElement.dataset.theme;
  find("#theme").click();
  found.other = document.documentElement.dataset.theme;
  found.images = all("img").length;
  found.heading = find("h1").textContent;
  const out = document.createElement("pre");
  out.id = "found";
  out.textContent = JSON.stringify(found);
  document.body.append(out);
})();
"""


@pytest.mark.browser
@needs_chromium
def test_interaction(tmp_path: Path) -> None:
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", qhas_page(BEFORE))
    path = tmp_path / "page.html"
    path.write_text(text.replace("</body>", f"<script>{ACTIONS}</script></body>"), "utf-8")
    drawn, log = opened(path)
    shown = re.search(r'<pre id="found">(.*?)</pre>', drawn, re.DOTALL)
    assert shown is not None, log
    found: dict[str, Any] = json.loads(html.unescape(shown[1]))
    assert found["sections"] == [
        "Why it takes this long", "HTP Overall Summary", "Timeline", "QNN Op Types", "QNN Ops", "Graph", "HTP Ops",
        "Dominant Path", "System Services",
    ]  # fmt: skip
    assert found["open"] == [True] * 5 + [False] * 4
    assert found["folded"]
    assert found["ascending"] == ["0", "0"]
    assert found["slices"] == found["parts"] > 2
    assert found["pie"].startswith("cycles: ")
    graph, run = BEFORE.graphs[0], BEFORE.graphs[0].runs[0]
    convs = [i for i, op in enumerate(graph.ops) if "conv" in op.label.lower()]
    assert found["one"].startswith(f"{len(convs)} of ")
    busy = [graph.ops[i].label for i in convs if run.costs[i].cycles > 1]
    assert found["two"].startswith(f"{len(busy)} of ")
    assert found["names"] == busy
    assert found["chosen"] == found["row"] == busy[0]
    assert found["inGraph"] == 1
    assert found["next"] not in ("", found["chosen"])
    assert len(found["types"]) == 1
    assert found["htp"] == f"{len(run.activities)} rows"
    assert found["dominant"].endswith("rows")
    assert found["services"] == 7
    assert (found["theme"], found["other"]) == ("light", "dark")
    assert (found["images"], found["heading"]) == (0, BEFORE.model)
    assert "error" not in found
    assert log == ""


@pytest.mark.browser
@needs_chromium
@pytest.mark.parametrize("made", ["evil", "large", "compared", "basic", "measured"])
def test_draws_without_a_complaint(tmp_path: Path, made: str) -> None:

    if made == "evil":
        text = qhas_page(named(BEFORE, EVIL))
    elif made == "large":
        text = qhas_page(large(50_000))
    elif made == "compared":
        text = qhas_page(AFTER, before=BEFORE)
    elif made == "basic":
        text = qhas_page(profile(showcase.sub(64)[0], "SM8650", level="basic"))
    else:
        source = graph_of(read(showcase.sub(64)[0]), "SM8650")
        graph, ops = measured_graph(source, "cpu", "optrace")
        times = [KernelTime(node.name, "CPU", 1000 * i, 1000 * i + 900) for i, node in enumerate(source)]
        run = measured_run(graph.name, ops, times, 10**6, 10**6, 1, "optrace")
        text = qhas_page(Profile("m", "optrace", "measured", (replace(graph, runs=(run,)),)))
    path = tmp_path / "page.html"
    path.write_text(text, "utf-8")
    drawn, log = opened(path)
    assert 'data-drawn="yes"' in drawn
    assert log == ""
