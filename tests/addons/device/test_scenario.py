# SPDX-License-Identifier: Apache-2.0
"""Scenarios: scripts are checked whole, played, shown; random ones lose nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hexforge.addons.device.contexts.binary import Binary
from hexforge.addons.device.scenario.play import PlayedScenario, play
from hexforge.addons.device.scenario.script import parse_script, read_script
from hexforge.cli import app
from hexforge.errors import CallError, FormatError
from tests import ROOT
from tests.addons.device import tiny
from tests.addons.device.random_scripts import Undisturbed, lost, random_script

EXAMPLES = sorted((ROOT / "examples" / "device").glob("*.json"))


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Binary]:
    return tiny.binaries(tmp_path_factory.mktemp("contexts"))


def played(steps: list[Any], binaries: dict[str, Any] | None = None, **more: Any) -> PlayedScenario:
    data = {
        "binaries": binaries or {"m": {"graphs": [{"name": "g", "weights_mb": 10, "us": 500}]}},
        "processes": [{"threads": [steps]}],
        **more,
    }
    return play(parse_script(data))


@pytest.mark.feature("SubSystem Restart", guide="2729-2731", door="tools")
@pytest.mark.feature("Multiple cDSP sessions", guide="3095-3139", door="tools")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_go_as_they_say(path: Path, tmp_path: Path) -> None:
    page, log = tmp_path / "page.html", tmp_path / "log.jsonl"
    result = CliRunner().invoke(app, ["device", str(path), "--report", str(page), "--log", str(log)])
    assert result.exit_code == 0, result.output
    assert "every step went as the script says" in result.output
    assert "Occupancy" in page.read_text("utf-8")
    assert all(json.loads(line)["memory_bytes"] >= 0 for line in log.read_text("utf-8").splitlines())
    found = json.loads(CliRunner().invoke(app, ["device", str(path), "--json"]).output)
    assert found["steps"]


@pytest.mark.feature("Multiple cDSP sessions", guide="3095-3139")
def test_the_sessions_of_the_guide() -> None:
    contexts = play(read_script(EXAMPLES[1])).device.clients["app"].contexts.values()
    assert [c.session.index for c in contexts if c.session] == [0, 0, 1, 1, 0]


def test_a_step_that_goes_otherwise_is_told() -> None:
    steps = [
        {"do": "create", "context": "c", "binary": "m", "config": {"memory_limit_hint": 1}},
        {"do": "create", "context": "d", "binary": "m", "expect": "QNN_CONTEXT_ERROR_MEM_ALLOC"},
    ]
    found = played(steps)
    assert [s.code for s in found.unexpected] == ["QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE", ""]


def test_threads_switches_buffers_and_votes_play() -> None:
    binaries = {
        "m": {"graphs": [{"name": n, "weights_mb": 10, "us": 500, "adapter_mb": 1} for n in "ab"], "shared_mb": 3}
    }
    steps = [
        {"do": "create_list", "contexts": [{"context": "x", "binary": "m"}, {"context": "y", "binary": "m"}],
         "share_resources": True, "optimization_type": "SEQUENTIAL_WITHOUT_VA_OPTIMIZATION"},
        {"do": "register", "context": "x", "buffer": "dummy", "size_mb": 100},
        {"do": "deregister", "buffer": "dummy"},
        {"do": "apply", "graph": "x/a", "adapter": "style"},
        {"do": "profile", "profile": "power_saver"},
        {"do": "execute", "graph": "x/a", "times": 2, "batch": 3},
        {"do": "reserve_vtcm", "size_mb": 1},
        {"do": "release_vtcm", "size_mb": 1},
        {"do": "priority", "context": "y", "priority": "LOW"},
        {"do": "execute", "graph": "y/b", "timeout_us": 10, "expect": "QNN_GRAPH_ERROR_TIMED_OUT"},
        {"do": "fault", "kind": "pd"},
        {"do": "recover", "context": "y"},
        {"do": "execute", "graph": "y/b", "note": "after the crash"},
        {"do": "sleep", "us": 5},
        {"do": "free", "context": "x"},
        {"do": "free", "context": "y"},
    ]  # fmt: skip
    found = played(steps, binaries)
    assert found.unexpected == []
    assert found.device.memory.used_bytes == 0
    assert [e["state"] for e in found.device.log.of("power_state")][:2] == ["power_saver", "RELEASED_POWER_STATE"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "scenario: processes: is missing"),
        ({"processes": []}, "one or more"),
        ({"processes": [], "proceses": 1}, "proceses: unknown key; did you mean 'processes'"),
        ({"processes": [{"threads": []}], "sok": "SM8650"}, "sok: unknown key; did you mean 'soc'"),
        ({"processes": [{"threads": [[{"do": "exec"}]]}]}, "did you mean 'execute'"),
        ({"processes": [{"threads": [[{"do": "sleep", "uss": 1}]]}]}, "uss: unknown key; did you mean 'us'"),
        ({"processes": [{"threads": [[{"do": "create", "context": "c", "binary": "x"}]]}]}, "no binary 'x'"),
        ({"processes": [{"threads": [[{"do": "sleep", "expect": "OK"}]]}]}, "expect is 'OK'"),
        ({"processes": [{"threads": [{}]}]}, r"threads\[0\] is {}: expected a list"),
        ({"binaries": {"b": {"graphs": [{"name": "g", "weights_mb": -1}]}}, "processes": []}, "at least 0"),
        ({"binaries": {"b": {"graphs": [{"name": "g", "us": True}]}}, "processes": []}, "us is True"),
        ({"binaries": {"b": {"file": "none.bin"}}, "processes": []}, "there is no file"),
        ({"processes": [{"threads": []}], "faults": [{"at_us": 1, "kind": "fire"}]}, "kind is 'fire'"),
        ({"platform": "amiga", "processes": []}, "platform is 'amiga'"),
        ({"soc": "SM9999", "processes": []}, "SM9999"),
    ],
)
def test_a_fault_in_a_script_is_told_before_it_is_played(data: Any, message: str) -> None:
    with pytest.raises(CallError, match=message):
        parse_script(data)


def test_what_is_no_object_is_no_scenario() -> None:
    with pytest.raises(FormatError, match=r"scenario: is \[\]: expected an object with processes"):
        parse_script([])


def test_what_cannot_be_known_before_is_told_then(tmp_path: Path) -> None:
    with pytest.raises(CallError, match="has created no context 'c'"):
        played([{"do": "execute", "graph": "c/g"}])
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    with pytest.raises(FormatError, match="line 1, column 2: not JSON"):
        read_script(bad)
    result = CliRunner().invoke(app, ["device", str(bad)])
    assert result.exit_code != 0
    assert "Traceback" not in result.output


def test_a_script_runs_real_contexts(binaries: dict[str, Binary], tmp_path: Path) -> None:
    source = binaries["dense"].source
    assert isinstance(source, Path)
    (tmp_path / "m.bin").write_bytes(source.read_bytes())
    script = {
        "soc": tiny.SOC,
        "binaries": {"m": {"file": "m.bin"}, "e": {"file": "m.bin", "embedded": True}},
        "processes": [{"threads": [[
            {"do": "create", "context": "c", "binary": "m"}, {"do": "create", "context": "d", "binary": "e"},
            {"do": "register", "graph": "c/model_0", "buffer": "b"},
            {"do": "execute", "graph": "c/model_0", "seed": 5}, {"do": "execute", "graph": "d/model_0", "seed": 5},
            {"do": "execute", "graph": "c/model_0", "seed": 5, "shared": "b"},
        ]]}],
    }  # fmt: skip
    (tmp_path / "s.json").write_text(json.dumps(script))
    digests = [s.digests[0] for s in play(read_script(tmp_path / "s.json")).steps if s.digests]
    assert len(digests) == 3
    assert set(digests) == {Undisturbed(binaries).digest("dense", "model_0", 5, 1)}


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_random_scenarios_lose_nothing(binaries: dict[str, Binary], first: int) -> None:
    undisturbed = Undisturbed(binaries)
    runs = faults = 0
    for seed in range(first, first + 50):
        found = play(parse_script(random_script(seed, binaries), known=binaries))
        runs += sum(map(len, found.executed.values()))
        faults += len(found.device.log.of("fault"))
        assert lost(found, undisturbed) == [], f"seed {seed}"
    assert runs > 300
    assert faults > 10


def test_other_bits_and_leaks_would_be_found(binaries: dict[str, Binary]) -> None:
    undisturbed = Undisturbed(binaries)
    found = play(parse_script(random_script(1, binaries), known=binaries))
    at = next(i for i, s in enumerate(found.steps) if s.digests)
    from dataclasses import replace

    found.steps[at] = replace(found.steps[at], digests=("0" * 24,))
    assert any("other bits" in line for line in lost(found, undisturbed))
    found = play(parse_script(random_script(1, binaries), known=binaries))
    session = found.device.process("leaky").open_session()
    session.allocate("nobody", "leak", 7)
    assert any("7 bytes are left" in line for line in lost(found, undisturbed))


def test_the_same_seed_gives_the_same_events(binaries: dict[str, Binary]) -> None:
    one, two = (play(parse_script(random_script(11, binaries), known=binaries)) for _ in range(2))
    strip = lambda found: [{k: v for k, v in e.items() if k != "fd"} for e in found.device.log.entries]  # noqa: E731
    assert strip(one) == strip(two)
