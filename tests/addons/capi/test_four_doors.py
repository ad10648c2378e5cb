# SPDX-License-Identifier: Apache-2.0
"""The same scenario through Python, a shared device, a script and a program in C: the same codes, numbers and log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.addons.capi import four_doors
from tests.addons.capi.conftest import Compile


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> four_doors.Scene:
    return four_doors.Scene.made(tmp_path_factory.mktemp("contexts"))


@pytest.fixture(scope="module")
def program(compile_c: Compile) -> Path:
    return compile_c(four_doors.SOURCE)


@pytest.mark.parametrize("seed", range(3))
def test_a_scenario_has_one_log(
    seed: int, scene: four_doors.Scene, program: Path, libraries: Path, tmp_path: Path
) -> None:
    assert four_doors.differences(seed, scene, program, libraries, tmp_path) == []
