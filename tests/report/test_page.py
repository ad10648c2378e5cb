# SPDX-License-Identifier: Apache-2.0
"""The page: its figures add up, it stands alone, and names of a model stay text."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.analysis.estimate import estimate_all_chips
from hexforge.chips.deployment import Deployment
from hexforge.ort.check import check_file
from hexforge.report import Bars, Column, Plot, Section, Series, Table, page, timing
from hexforge.report.page import ASSETS
from tests.digits import MODEL
from tests.report.estimates import demo, made

EVIL = "</script><img src=x onerror=alert(1)><!--{{data}}&amp;\u2028"


class Elements(HTMLParser):
    """Every element with its attributes, and the text in each script and style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, str] = {}
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.inside = f"{tag} {dict(attrs).get('id', '')}".strip()

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        self.text[self.inside] = self.text.get(self.inside, "") + data


def content(text: str) -> dict[str, Any]:
    """The data of a page."""
    return json.loads(Elements(text).text["script data"])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("factor", [1.0, 1.3])
def test_parts_add_up_to_the_latency(threads: int, factor: float) -> None:
    for found in (demo(), made(50)):
        found = replace(found, threads=threads, timeline=replace(found.timeline, factor=factor))
        parts = timing.time_spent(found)
        assert sum(part["us"] for part in parts) == pytest.approx(found.latency_ms * 1e3)
        assert all(part["us"] >= 0 for part in parts)


def test_split_of_a_task() -> None:
    row = replace(made(1).rows[0], us=10.0, wait_us=1.0, hmx_us=6.0, hvx_us=4.0)
    assert timing.split_by_unit(row) == {
        "hmx": 6.0,
        "hvx": 3.0,
        "dma": 1.0,
        "overhead": 0.0,
    }  # 1 µs of HVX is under HMX
    row = replace(row, hmx_us=0.5, hvx_us=2.0)
    assert timing.split_by_unit(row) == {"hvx": 2.0, "hmx": 0.5, "dma": 1.0, "overhead": 6.5}


def test_tables_hold_every_row() -> None:
    found = made(40)
    shown = content(page(found))
    names = [column["name"] for column in shown["ops"]["columns"]]
    column = {name: [row[k] for row in shown["ops"]["rows"]] for k, name in enumerate(names)}
    assert column["task"] == [row.name for row in found.rows]
    assert column["µs"] == [row.us for row in found.rows]
    assert sum(column["share"]) == pytest.approx(1, abs=1e-4)
    assert sum(column["cycles"]) == sum(row.cycles for row in found.rows)
    assert len(names) == 16  # every figure of a Row, and the share
    kinds = {row[0]: row for row in shown["kinds"]["rows"]}
    assert set(kinds) == {row.op for row in found.rows}
    assert sum(row[1] for row in kinds.values()) == 40
    softmax = [row for row in found.rows if row.op == "Softmax"]
    assert kinds["Softmax"][2] == pytest.approx(sum(row.us for row in softmax))


def test_events_know_their_rows() -> None:
    found = made(30)
    line = content(page(found))["timeline"]
    assert line["whole"] == found.timeline.latency_us
    for unit, row, start, us, count in zip(
        *(line["events"][k] for k in ("unit", "row", "start", "us", "bytes")), strict=True
    ):
        task = found.rows[row]
        assert task.start_us <= start <= start + us <= task.start_us + task.us + 1e-4
        assert count == (task.weight_bytes + 10 if line["units"][unit] == "DMA" else 0)
    assert line["critical"]["row"] == list(range(30))


def test_a_task_that_runs_for_each_sample() -> None:
    found = made(2)
    first, second = (replace(row, name="again") for row in found.rows)
    events = tuple(replace(event, name="again") for event in found.timeline.events)
    line = replace(found.timeline, rows=(first, second), events=events, critical=())
    shown = timing.timeline(line)["events"]
    assert sorted(zip(shown["row"], shown["unit"], strict=True)) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


def test_same_work_counts_together() -> None:
    found = made(12)
    same = [
        replace(row, hmx_us=1.0, hvx_us=0.5, weight_bytes=7, op="Softmax", bound="HVX", us=9.0) for row in found.rows
    ]
    line = replace(found.timeline, rows=tuple(same))
    (only,) = timing.bottlenecks(line)
    assert "with 11 more of the same work" in only["text"]
    assert only["row"] == 0
    assert len(timing.bottlenecks(found.timeline)) == timing.TOP


def test_stands_alone() -> None:
    text = page(
        demo(),
        check_file(MODEL, {"backend_type": "htp"}).to_json(),
        others=estimate_all_chips(MODEL, Deployment(precision="float")),
    )
    elements = Elements(text)
    assert not [tag for tag, _ in elements.found if tag in ("link", "img", "iframe", "object", "embed", "base")]
    assert not [
        a for _, attributes in elements.found for a in attributes if a in ("src", "style") or a.startswith("on")
    ]
    for asset in ASSETS.iterdir():
        written = asset.read_text("utf-8").replace('"http://www.w3.org/2000/svg"', "")  # a name, never fetched
        assert not re.search(
            r"https?:|//[a-z]+\.|url\(|@import|fetch\(|XMLHttp|innerHTML|eval\(|document\.write", written
        ), asset
    policy = next(a["content"] for tag, a in elements.found if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    for kind, key in (("script", "script"), ("style", "style")):
        digest = base64.b64encode(hashlib.sha256(elements.text[key].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_names_stay_text() -> None:
    plain, evil = (
        Elements(page(made(3))),
        page(made(3, EVIL, EVIL), sections=[Section(EVIL, [Bars([EVIL], [1])], EVIL)]),
    )
    elements = Elements(evil)
    assert [tag for tag, _ in elements.found] == [tag for tag, _ in plain.found]
    assert content(evil)["summary"]["model"] == EVIL
    assert content(evil)["timeline"]["names"][0] == f"/{EVIL}/0"
    assert elements.text["title"].startswith(EVIL)
    assert "onerror=alert(1)>" not in evil


@settings(max_examples=40)
@given(st.text())
def test_any_name_comes_back(name: str) -> None:
    text = page(made(1, name, name))
    assert content(text)["summary"]["model"] == name
    text.encode("utf-8", "strict")


def test_a_name_that_is_no_text() -> None:
    page(made(1, "bad\udcff")).encode()


def test_sections_are_plain_data() -> None:
    section = Section(
        "Quality",
        [
            Bars(["a", "b"], [1.5, math.nan], "dB", low=[1, 1], high=[2, 2], mark=0),
            Plot("x", "y", [Series("s", [(0, 1), (1, math.inf), (2, 3)], ["p", "q", "r"])], lines=True),
            Table((Column("name"), Column("n", "number", 0, "sum")), [("a", 1), ("b", None)], sort=1),
        ],
        "Words.",
    )
    (shown,) = content(page(made(2), sections=[section]))["sections"]
    bars, plot, table = shown["parts"]
    assert (shown["title"], shown["note"]) == ("Quality", "Words.")
    assert bars["values"] == [1.5, None]
    assert plot["series"] == [{"name": "s", "points": [[0, 1, "p"], [2, 3, "r"]], "line": True, "large": False}]
    assert table["rows"] == [["a", 1], ["b", None]]
    assert [part["draw"] for part in (bars, plot, table)] == ["bars", "plot", "table"]


def test_placement_and_chips() -> None:
    placement = check_file(MODEL, {"backend_type": "htp", "soc_model": "QCS6490"}).to_json()
    shown = content(page(demo(), placement, others=estimate_all_chips(MODEL, Deployment(precision="float"))))[
        "sections"
    ]
    chips, placed = shown
    bars, refused = chips["parts"]
    assert bars["values"] == sorted(bars["values"])
    assert bars["labels"][bars["mark"]] == "SM8650"
    assert all(low < value < high for low, value, high in zip(bars["low"], bars["values"], bars["high"], strict=True))
    assert "has no float math" in dict(refused["rows"])["QCS6490"]
    (nodes,) = placed["parts"]
    assert {row[2] for row in nodes["rows"]} == {"CPU"}  # a chip without float takes none of them
    assert all("no float math" in row[4] for row in nodes["rows"])
    assert "0 nodes on QNN" in placed["note"]


def test_a_graph_without_tasks() -> None:
    shown = content(page(made(0)))
    assert shown["ops"]["rows"] == []
    assert shown["summary"]["bottlenecks"] == []
    assert "host" in shown["summary"]["bound"]
