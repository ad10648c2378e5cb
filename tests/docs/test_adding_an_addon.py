# SPDX-License-Identifier: Apache-2.0
"""docs/adding_an_addon.md: the package that it shows is installed as it stands there, and its commands are run."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from onnx import TensorProto, helper, save_model

from tests import ROOT

PAGE = (ROOT / "docs" / "adding_an_addon.md").read_text("utf-8")
FILES = dict(re.findall(r"^```(?:python|toml)\n# (\S+)\n(.*?)^```", PAGE, re.M | re.S))
LINES = re.findall(r"^\$ hexforge (.*)$", PAGE, re.M)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with a model, and the package in `packages` as pip would put it there."""
    packages = tmp_path / "packages"
    for name, text in FILES.items():
        file = packages / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    facts = packages / f"{project['name']}-{project['version']}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in names.items())
        for group, names in project["entry-points"].items()
    )
    (facts / "entry_points.txt").write_text(points)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 8)) for name in "xy")
    nodes = [helper.make_node("Relu", ["x"], ["r"], "relu"), helper.make_node("Sigmoid", ["r"], ["y"], "sigmoid")]
    graph = helper.make_graph(nodes, "net", [x], [y])
    save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "model.onnx"
    )
    return tmp_path


def hexforge(folder: Path, line: str) -> str:
    """What a command prints in the folder, where the package is installed."""
    path = os.pathsep.join([str(folder / "packages"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "hexforge", *shlex.split(line)]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_package_is_short() -> None:
    code = [line for text in FILES.values() for line in text.splitlines() if line and '"""' not in line]
    assert len(code) <= 62


def test_every_line_runs(installed: Path) -> None:
    shown = [hexforge(installed, line) for line in LINES]
    assert "counting" in shown[0]
    assert "Sigmoid" in shown[1]
    page = (installed / "page.html").read_text("utf-8")
    assert '"title":"Counted"' in page
    assert json.loads(hexforge(installed, "count model.onnx --json")) == {"Relu": 1, "Sigmoid": 1}
    assert "count " in hexforge(installed, "--help")


def test_what_is_no_add_on_is_said(installed: Path) -> None:
    (installed / "packages" / "counting" / "__init__.py").write_text("ADDON = 'counting'\n")
    with pytest.raises(AssertionError, match=r"counting:ADDON is no add-on: it must be a hexforge\.addon\.Addon"):
        hexforge(installed, "addons")
