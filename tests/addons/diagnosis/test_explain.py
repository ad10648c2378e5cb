# SPDX-License-Identifier: Apache-2.0
"""Every documented code and what people quoted in public issues is explained; what is not known says so."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import pytest
import yaml
from onnx import TensorProto, helper

import hexforge
from hexforge.addons.device.codes import Code
from hexforge.addons.diagnosis.explain import Explanation, explain
from hexforge.addons.diagnosis.reading import HINTS, known_lines
from hexforge.qnn_api.error_codes import code_named, codes_of, error_codes, parse_number
from tests.digits import MODEL

LOGS: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("public_logs.yaml").read_text("utf-8"))
HELD_OUT: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("held_out_logs.yaml").read_text("utf-8"))


def ids(explanation: Explanation) -> list[str]:
    return list(dict.fromkeys(finding.id for finding in explanation.findings))


@pytest.mark.parametrize("log", LOGS, ids=lambda log: f"{log['source'].partition('.com/')[2]} {log['ids'][0]}")
def test_what_people_quoted_is_explained(log: dict[str, Any]) -> None:
    found = explain(log["text"])
    assert ids(found) == log["ids"]
    assert found.of("unknown") == ()
    numbers = {code.number for finding in found.findings for code in finding.codes}
    assert set(log.get("codes", ())) <= numbers
    for finding in found.findings:
        assert finding.happened.endswith((".", "?")), finding.happened
        assert finding.would_work
        assert "…" not in finding.happened, f"a value of the line is missing: {finding.happened}"
        assert finding.sources


def test_every_pattern_has_a_word_that_makes_a_line_worth_looking_at() -> None:
    for row in known_lines():
        assert any(hint in row.pattern.pattern.lower() for hint in (*HINTS, "done\\. status")), row.id


def test_there_are_enough_logs_of_different_issues() -> None:
    assert len(LOGS) >= 40
    assert len({log["source"] for log in LOGS}) >= 40


def test_logs_kept_aside_were_no_sources_and_say_what_was_recognised_at_first() -> None:
    """Before any pattern was added for them 22 of their 39 lines were recognised and 3 said to be unknown."""
    sources = {log["source"] for log in HELD_OUT}
    assert len(sources) == len(HELD_OUT) >= 20
    assert not sources & {log["source"] for log in LOGS}
    first = Counter(outcome for log in HELD_OUT for outcome in log["first"])
    assert first == {"recognised": 22, "unknown": 3, "missed": 14}
    assert all(len(log["first"]) == len(log["text"].splitlines()) for log in HELD_OUT)


@pytest.mark.parametrize("log", HELD_OUT, ids=lambda log: log["source"].partition(".com/")[2])
def test_logs_that_were_kept_aside_are_explained_now(log: dict[str, Any]) -> None:
    explained = explain(log["text"])
    assert explained.of("unknown") == ()
    assert sum(finding.times for finding in explained.findings) >= len(log["first"])
    for finding in explained.findings:
        assert "…" not in finding.happened, f"a value of the line is missing: {finding.happened}"
        assert finding.would_work


def test_every_line_of_the_table_is_explained_by_a_quoted_log_or_names_its_source() -> None:
    quoted = {id for log in LOGS for id in log["ids"]}
    for row in known_lines():
        assert row.sources, row.id
        assert all(source.startswith("https://github.com/") for source in row.sources), row.id
    assert len(quoted) >= 60


@pytest.mark.parametrize("code", error_codes(), ids=lambda code: code.name)
def test_every_documented_code_is_explained(code: Any) -> None:
    for given in (str(code.number), hex(code.number), code.name, code.name.lower()):
        (finding,) = explain(given).findings
        assert finding.kind == "code", given
        assert code in finding.codes
        assert finding.would_work
        assert finding.happened


@pytest.mark.feature("Error codes", guide="385, 914, 2763, 3019-3024, 3481-3504")
def test_the_devices_codes_are_those_of_the_table() -> None:
    for code in Code:
        known = code_named(code.name)
        assert known is not None, f"error_codes.csv lacks {code.name}"
        assert known.number == code.number


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("0x138d", "QNN_CONTEXT_ERROR_CREATE_FROM_BINARY"),
        ("0X138D", "QNN_CONTEXT_ERROR_CREATE_FROM_BINARY"),
        (" 5005 ", "QNN_CONTEXT_ERROR_CREATE_FROM_BINARY"),
        ("-5005", "QNN_CONTEXT_ERROR_CREATE_FROM_BINARY"),
        ("4294972301", "QNN_CONTEXT_ERROR_CREATE_FROM_BINARY"),
        ("QAIRT_GRAPH_ERROR_INVALID_CONTEXT", "QNN_GRAPH_ERROR_INVALID_CONTEXT"),
        ("0x80000406", "AEE_EUNABLETOLOAD"),
        ("-2147482618", "AEE_EUNABLETOLOAD"),
        ("0xffffffff", "GENIE_STATUS_ERROR_GENERAL"),
    ],
)
def test_numbers_are_read_as_they_are_printed(given: str, name: str) -> None:
    (finding,) = explain(given).findings
    assert finding.codes[0].name == name


@pytest.mark.parametrize("given", ["5999", "0x1770f", "123456789", "-77", "999999999999999999", "QNN_GRAPH_ERROR_NO"])
def test_what_is_not_known_says_so(given: str) -> None:
    (finding,) = explain(given).findings
    assert finding.kind == "unknown"
    assert given in finding.happened
    assert finding.codes == ()


def test_an_unknown_code_in_a_log_is_told_beside_known_ones() -> None:
    found = explain("QnnDsp <E> something new failed with error 6777\nQnnDsp <E> other thing failed, err 1007")
    assert [(f.kind, f.line) for f in found.findings] == [("unknown", 1), ("code", 2)]
    assert "range of QNN's graph component" in found.findings[0].happened
    assert found.first_cause is found.findings[1]


def test_an_error_line_that_nobody_knows_is_told() -> None:
    line = "[ ERROR ] QnnDsp <E> Nobody has seen this"
    found = explain(f"0.1ms {line}\n<I> fine\n 9.9ms {line}")
    (finding,) = found.findings
    assert (finding.kind, finding.times) == ("unknown", 2)
    assert finding.happened == "This error line is not known, and has no code."


def test_words_that_are_no_errors_are_not_codes() -> None:
    text = "Loaded 1002 tensors in 5005 ms\nerror: no file\nprogress 6001 of 14001\nstatus 0\n"
    assert explain(text).findings == ()


def test_the_first_cause_comes_before_what_follows_from_it() -> None:
    text = next(log["text"] for log in LOGS if log["ids"][0] == "graph-memory")
    found = explain(f"QnnDsp <W> Initializing HtpProvider\n{text}")
    first = found.first_cause
    assert first is not None
    assert first.id == "graph-memory"
    assert first.line == 2
    assert "2.61 GiB" in first.happened
    assert "2.00 GiB" in first.happened
    assert found.to_json()["first_cause"] == 1


def test_a_line_that_repeats_stands_there_once() -> None:
    line = "12:00:0{} QnnDsp <E> Failed to load skel, error: 4000"
    (finding,) = explain("\n".join(line.format(i) for i in range(5))).findings
    assert finding.times == 5


def test_the_split_fits_and_names_what_crosses() -> None:
    log = "graph requires estimated allocation of 40 KB, limit is 30 KB"
    proof = explain(log, model=MODEL).findings[0].proof
    assert "23.8 KiB of weights (largest: conv2.weight_t 18.0 KiB" in proof[0]
    assert proof[1].startswith("Cut after ")
    assert proof[-1].endswith("each below 30.0 KiB.")
    assert "pieces then need about" in proof[-1]


def test_a_log_of_another_model_is_told() -> None:
    log = "graph requires estimated allocation of 2347229 KB, limit is 2097152 KB"
    assert "is of another model" in explain(log, model=MODEL).findings[0].proof[-1]
    smallest = "graph requires estimated allocation of 40 KB, limit is 2 KB"
    assert "No cut between nodes" in explain(smallest, model=MODEL).findings[0].proof[-1]


def test_a_context_for_another_chip_is_proved(tmp_path: Path) -> None:
    path = tmp_path / "newer.bin"
    hexforge.compile(MODEL, path, "SM8750")
    proof = explain("err 5005", context=path, soc="SM8650").findings[0].proof
    assert proof[0].startswith("SM8650 is SoC 57")
    assert "was made for SM8750 (v79); on SM8650 it is unsupported" in proof[1]
    assert "fits an empty session" in " ".join(explain("1002", context=path).findings[0].proof)
    (not_ours,) = explain("5005", context=MODEL).findings
    assert "the vendor's files are not read here" in not_ours.proof[1]


def test_nodes_that_are_refused_are_named(tmp_path: Path) -> None:
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 4])
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "d")]
    nodes = [helper.make_node("Relu", ["x"], ["y"], "relu"), helper.make_node("Det", ["y"], ["d"], "/head/Det")]
    model = helper.make_model(helper.make_graph(nodes, "g", [given], made), opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, tmp_path / "det.onnx")
    log = "Failed to validate op _head_Det with error 0xc26"
    (finding,) = explain(log, model=tmp_path / "det.onnx").findings
    assert finding.proof[0].startswith("'/head/Det' (Det) is refused on SM8650: ")
    assert "hexforge refuses no node" in explain("3110", model=MODEL).findings[0].proof[0]
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"\x00\x01")
    assert "cannot be looked at" in explain("3110", model=broken).findings[0].proof[0]


def test_vtcm_is_compared_with_the_chips() -> None:
    log = '"relu1" generated: Requires 0x2400000 bytes of TCM, which is greater than the TCM size of 0x400000!'
    proof = explain(log, model=MODEL).findings[0].proof
    assert proof[0] == "The graph has 4.0 MiB, and SM8650 has 8.0 MiB: take all of it (vtcm_mb 0)."
    assert "largest tensors" in proof[1] or "relu1" in proof[1]


def test_json_holds_everything() -> None:
    written = json.loads(json.dumps(explain("Could not create context from binary : err 5005").to_json()))
    (finding,) = written["findings"]
    assert finding["codes"] == [{"name": "QNN_CONTEXT_ERROR_CREATE_FROM_BINARY", "number": 5005}]
    assert finding["sources"][0].startswith("https://")


def test_long_and_odd_lines_take_no_time_and_no_harm() -> None:
    odd = ["error " * 50_000, '"' * 100_000, "A single op, " + '"x' * 20_000, "\x00\x1b[2J failed with error 5005"]
    odd += [f"create context from binary {'x' * 1500}" * 3, "err: " + "9" * 5000, "failed: 0x" + "f" * 300]
    found = explain("\n".join(odd))
    assert [f.codes[0].number for f in found.of("code")] == [5005]


def test_numbers_and_ranges() -> None:
    assert parse_number("12x") is None
    assert parse_number("1" * 30) is None
    assert codes_of(5005).reading == ""
    assert codes_of(0x58, fastrpc=False).codes == ()
    assert "interface" in codes_of(60001).reading


NEWER: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("newer_logs.yaml").read_text("utf-8"))


def test_newer_logs_were_kept_aside_and_say_what_was_recognised_at_first() -> None:
    """Of lines of LiteRT, Windows ML and FastRPC 7 of 43 were recognised before; later 21 of 39, and 24 of 60."""
    sources = {log["source"] for log in NEWER}
    assert len(sources) == len(NEWER)
    assert not sources & {log["source"] for log in (*LOGS, *HELD_OUT)}
    first = {
        number: Counter(o for log in NEWER if log["patterns"] == number for o in log["first"])
        for number in (97, 128, 140)
    }
    assert {number: outcomes["recognised"] for number, outcomes in first.items()} == {97: 7, 128: 21, 140: 24}
    assert sum(outcomes.total() for outcomes in first.values()) >= 60


def test_four_of_five_newer_lines_are_explained_now() -> None:
    lines = [line for log in NEWER for line in log["text"].splitlines()]
    explained = [line for line in lines if any(finding.kind != "unknown" for finding in explain(line).findings)]
    assert len(explained) == len(lines), set(lines) - set(explained)
