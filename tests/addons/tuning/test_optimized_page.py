# SPDX-License-Identifier: Apache-2.0
"""The page of `optimize`: its subject on top, the graph with times and SQNR, what to change with gains."""

from __future__ import annotations

from pathlib import Path

import pytest

from hexforge.addons.tuning.optimize import OptimizeResult, optimize
from hexforge.addons.tuning.optimized_page import optimized_page
from hexforge.addons.tuning.requests import OptimizeRequest
from hexforge.analysis.estimate import estimate
from hexforge.chips.deployment import Deployment
from hexforge.report import Figure, Figures, Section, Step, Steps, page
from hexforge.report.graph import MOST_NODES, graph_section, onnx_name, picture, sqnr_by_node
from tests.digits import MODEL, held_out
from tests.report.estimates import made
from tests.report.test_page import EVIL, Elements, content


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> OptimizeResult:
    feeds = [{"image": picture} for picture in held_out()[0][:24]]
    return optimize(MODEL, tmp_path_factory.mktemp("out"), OptimizeRequest(feeds, samples=8, budget=8, groups=3))


def test_the_subject_comes_first(found: OptimizeResult) -> None:
    shown = content(optimized_page(found))
    assert shown["summary"]["model"] == "digits.onnx"
    titles = ["Recommendation", "Decisions", "Speed and quality", "What to change", "Files"]
    assert [s["title"] for s in shown["lead"]] == titles
    figures = shown["lead"][0]["parts"][0]
    assert figures["figures"][0]["value"] == f"{found.after.latency_ms:.3f} ms"
    assert found.recommendation.reason in figures["verdict"]
    plot, front = shown["lead"][2]["parts"]
    series = {one["name"]: one for one in plot["series"]}
    assert series["recommended"]["large"]
    assert sum(len(one["points"]) for one in plot["series"]) >= len(found.searched.mixes.points)
    assert sum(row[0] == "→" for row in front["rows"]) == 1
    assert {row[0] for row in shown["lead"][4]["parts"][0]["rows"]} >= {"digits.qdq.onnx", "digits.bin"}
    assert [s["title"] for s in shown["sections"]][-1] == "Graph"


def test_the_graph_has_every_task_with_its_sqnr(found: OptimizeResult) -> None:
    known = sqnr_by_node(found.folder.quantized, found.comparison)
    drawn = picture(found.after, known)
    assert [node.name for node in drawn.nodes] == [row.name for row in found.after.rows]
    by_name = {onnx_name(node.name): node for node in drawn.nodes}
    worst = {row.name: row.sqnr_db for row in found.comparison.tensors}
    assert by_name["conv1"].sqnr_db == worst["relu1"]  # a fused node's tensor is the task's
    assert by_name["fc"].sqnr_db == found.comparison.outputs[0].sqnr_db
    # a chain: each reads the one before it, one layer down
    assert list(drawn.edges) == [(i, i + 1) for i in range(len(drawn.nodes) - 1)]
    assert [node.y for node in drawn.nodes] == list(range(len(drawn.nodes)))
    assert {node.x for node in drawn.nodes} == {0}


def test_boxes_do_not_lie_on_each_other() -> None:
    timed = estimate(MODEL, Deployment(precision="float"))
    drawn = picture(timed, {})
    assert len({(round(node.x, 3), node.y) for node in drawn.nodes}) == len(drawn.nodes)
    assert all(drawn.nodes[a].y < drawn.nodes[b].y for a, b in drawn.edges)
    assert graph_section(made(MOST_NODES + 1)) is None


def test_names_in_the_new_parts_stay_text(tmp_path: Path) -> None:
    lead = Section(EVIL, [Figures([Figure(EVIL, EVIL, EVIL)], EVIL), Steps([Step(EVIL, EVIL, EVIL, EVIL)], EVIL)])
    text = page(made(3), lead=[lead], title=EVIL)
    tags = [tag for tag, _ in Elements(text).found]
    assert "img" not in tags
    assert content(text)["lead"][0]["title"] == EVIL
