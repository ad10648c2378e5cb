# SPDX-License-Identifier: Apache-2.0
"""CI's faces: SARIF and annotations by other people's models of them, the action's script, the plugin for pytest."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

from hexforge.addons.budgets.gate import content_key
from hexforge.addons.budgets.limits import lines_of
from hexforge.cli.findings import FileFinding, annotation, sarif
from hexforge.demo import MODEL
from tests import ROOT
from tests.cli.test_cli import run

sarif_pydantic = pytest.importorskip("sarif_pydantic")
pytest_plugins = ["pytester"]
BUDGET = """regression_percent: 5
models:
  - soc: SM8650
    model: night.onnx
    precision: w8a8
    latency_ms: {limit}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a model and a budget, which is the working folder."""
    shutil.copy(MODEL, tmp_path)
    (tmp_path / "budget.yaml").write_text(BUDGET.format(limit=10))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_findings_are_sarif_that_others_read() -> None:
    """A log of any findings is one by the published model of SARIF, and names rule, file, line and node."""
    findings = [
        FileFinding("latency_ms", "error", "too slow", Path("budget.yaml"), 7),
        FileFinding("node-on-cpu", "warning", "", Path("a b/m.onnx"), node="x:0"),
        FileFinding("latency_ms", "note", "\x1b[2J\u2028", Path("budget.yaml")),
    ]
    log = sarif_pydantic.Sarif.model_validate(json.loads(json.dumps(sarif(findings))))
    results = log.runs[0].results
    assert [row.rule_id for row in results] == ["latency_ms", "node-on-cpu", "latency_ms"]
    assert results[0].locations[0].physical_location.region.start_line == 7
    assert all(row.message.text for row in results)


def test_annotation_is_one_line_whatever_it_says() -> None:
    """A message cannot end the line, begin a command of its own or pass for another property."""
    hostile = FileFinding(
        "a,b:c", "error", "x\n::set-output name=y::z%0A\r\x1b[2J", Path("f,line=9:.onnx"), 3, node="n"
    )
    text = annotation(hostile)
    assert "\n" not in text
    assert "\r" not in text
    assert "\x1b" not in text
    assert text.startswith("::error file=f%2Cline=9%3A.onnx,line=3,title=a%2Cb%3Ac::n: x%0A::set-output")


def test_gate_names_the_line_of_the_budget(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What is over its budget stands at the line that names the model, in SARIF and beside the change."""
    (folder / "budget.yaml").write_text(BUDGET.format(limit=0.001))
    assert lines_of(folder / "budget.yaml") == {"night.onnx": 4}
    assert run("gate", "budget.yaml", "--sarif", "gate.sarif", "--annotations", "--json") == 1
    out, err = capfd.readouterr()
    assert not json.loads(out)["passes"]
    assert "::error file=budget.yaml,line=4,title=latency_ms::night.onnx: latency_ms on SM8650: " in err
    log = json.loads((folder / "gate.sarif").read_text())
    assert [row["ruleId"] for row in log["runs"][0]["results"]] == ["latency_ms"]


def test_key_changes_with_what_the_figures_depend_on(folder: Path) -> None:
    """The same files have one key, wherever they lie; another budget, model or neighbour's weights have another."""
    key = content_key("budget.yaml")
    shutil.copytree(folder, folder / "elsewhere")
    assert content_key(folder / "elsewhere" / "budget.yaml") == key
    (folder / "notes.txt").write_text("no part of it")
    assert content_key("budget.yaml") == key
    (folder / "night.onnx").write_bytes(MODEL.read_bytes() + b"\0")
    assert content_key("budget.yaml") != key


def test_script_of_the_action(folder: Path) -> None:
    """As a job runs it: a first run keeps a baseline, a regression fails the second, the summary and outputs say so."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "BUDGET": "budget.yaml",
        "RESULTS": "results", "BASELINE": "baseline.json", "PAGE": "night.onnx",
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"), "GITHUB_OUTPUT": str(folder / "output"),
    }  # fmt: skip
    script = ["bash", str(ROOT / "tools" / "gate_in_ci.sh")]
    assert subprocess.run(script, env=environment, capture_output=True, check=False).returncode == 0
    before = json.loads((folder / "baseline.json").read_text())
    assert (folder / "results" / "page.html").read_text().startswith("<!")
    assert ET.parse(folder / "results" / "gate.xml").getroot().find("testsuite").get("failures") == "0"
    faster = {key: value / 2 if "latency" in key else value for key, value in before["figures"].items()}
    (folder / "baseline.json").write_text(json.dumps({"figures": faster}))
    second = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert "::error file=budget.yaml,line=4,title=latency_ms::" in second.stderr
    assert "checks fail" in (folder / "summary.md").read_text()
    assert (folder / "output").read_text().splitlines() == [
        "sarif=results/gate.sarif", "passes=true", "sarif=results/gate.sarif", "passes=false",
    ]  # fmt: skip
    assert json.loads((folder / "baseline.json").read_text())["figures"] == faster  # a run that fails keeps it


def test_action_and_hooks_name_what_is_there() -> None:
    """The action runs the script that is tested here, with variables that it reads; hooks name commands."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    step = next(step for step in action["runs"]["steps"] if step.get("id") == "gate")
    script = (ROOT / "tools" / "gate_in_ci.sh").read_text()
    assert "tools/gate_in_ci.sh" in step["run"]
    assert all(f"${{{name}:-" in script for name in step["env"])
    job = yaml.safe_load((ROOT / "examples" / "ci" / "gitlab.yml").read_text())["hexforge-gate"]
    assert "bash gate_in_ci.sh" in job["script"]
    assert {name for name in job["variables"] if name in ("BUDGET", "RESULTS", "BASELINE")} <= set(step["env"])
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert [hook["id"] for hook in hooks] == ["hexforge-check", "hexforge-gate"]
    assert all("hexforge " in hook["entry"] and hook["language"] == "python" for hook in hooks)


def test_plugin_holds_a_model_to_its_marks(pytester: pytest.Pytester) -> None:
    """A test passes within its limits, fails over them, and the nearest mark counts."""
    pytester.makepyfile(
        f"""
        import pytest

        pytestmark = pytest.mark.hexforge(soc="SM8650", precision="w8a8", latency_ms=10, refused_nodes=0)

        def test_within(hexforge_gate):
            result = hexforge_gate({str(MODEL)!r})
            assert any(check.what == "latency_ms on SM8650" for check in result.checks)

        @pytest.mark.hexforge(latency_ms=0.001)
        def test_over(hexforge_gate):
            hexforge_gate({str(MODEL)!r})

        def test_own_limits(hexforge_gate):
            hexforge_gate({str(MODEL)!r}, soc="SM8750", latency_ms=0.001)

        def test_misspelt(hexforge_gate):
            hexforge_gate({str(MODEL)!r}, latency=1)
        """
    )
    result = pytester.runpytest_subprocess()  # pytest finds the plugin by its entry point
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(["*latency_ms on SM8650: * is above the limit 0.001*"])
    result.stdout.fnmatch_lines(["*latency_ms on SM8750: * is above the limit 0.001*"])
    result.stdout.fnmatch_lines(["*latency*did you mean*"])
