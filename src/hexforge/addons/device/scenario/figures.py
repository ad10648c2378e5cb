# SPDX-License-Identifier: Apache-2.0
"""What the models of a scenario cost together, for a budget."""

from __future__ import annotations

from pathlib import Path

from hexforge.addons.device.scenario.play import play
from hexforge.addons.device.scenario.script import read_script
from hexforge.analysis.gate import ScenarioFigures


def scenario_figures(path: Path) -> ScenarioFigures:
    """What the models of a scenario's file cost together, played on the simulated device."""
    played = play(read_script(path))
    device = played.device
    wrong = tuple(f"{step.step.do}: {step.message}" for step in played.unexpected)
    power = device.energy_uj / 1e3 / (max(device.clock.now_us, 1.0) / 1e6)
    return ScenarioFigures(device.log.peak_bytes, power, played.responses_by_context(), wrong)
