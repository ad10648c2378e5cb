# SPDX-License-Identifier: Apache-2.0
"""Measured rows and families: those of the checkout are whole, and bad files are refused with the line that is bad."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from hexforge.addons.latency.measurements import (
    DATA,
    MEASURED_PRECISIONS,
    TARGET_DEVICES,
    Measurement,
    read_families,
    read_measurements,
)
from hexforge.errors import CallError, FormatError
from tests import ROOT

ROWS = "model,precision,device,soc_model,runtime,inference_ms\n"
FAMILIES = "model,family,fold,kinds,aside\n"


def test_every_measured_model_has_a_family_and_a_graph() -> None:
    rows, families = read_measurements(), read_families()
    assert {row.model for row in rows} == families.keys()
    assert {path.stem for path in (DATA / "topologies").glob("*.onnx")} == families.keys()
    assert {row.precision for row in rows} == {*MEASURED_PRECISIONS}
    assert {row.device for row in rows} >= {*TARGET_DEVICES}


def test_packages_leave_the_data_out() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]
    assert DATA.relative_to(ROOT).as_posix() in build["sdist"]["exclude"]


def test_a_row_is_read_with_the_name_of_its_chip(tmp_path: Path) -> None:
    (tmp_path / "measured.csv").write_text(f"{ROWS}net,w8a8,a phone,57,onnx,1.5\n")
    assert read_measurements(tmp_path) == [Measurement("net", "w8a8", "onnx", "a phone", "SM8650", 1500.0)]


def test_data_that_is_not_there_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(CallError, match="not in packages: give the folder"):
        read_measurements(tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("model,precision\n", "has no column device"),
        (f"{ROWS}net,float,a phone,57,onnx,fast\n", "csv:2: inference_ms is 'fast'"),
        (f"{ROWS}net,float,a phone,57,onnx,-1\n", "csv:2: inference_ms is '-1'"),
        (f"{ROWS}net,float,a phone,57,onnx,nan\n", "csv:2: inference_ms is 'nan'"),
        (f"{ROWS}net,float,a phone,57,onnx,1\nnet,float\n", "csv:3: has fewer columns"),
    ],
)
def test_bad_rows_are_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "measured.csv").write_text(text)
    with pytest.raises(FormatError, match=why):
        read_measurements(tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{FAMILIES}a,nets,0,net,0\nb,nets,1,net,0\n", "csv:3: nets is in the folds 0 and 1"),
        (f"{FAMILIES}a,nets,first,net,0\n", "csv:2: fold is 'first'"),
    ],
)
def test_bad_families_are_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "families.csv").write_text(text)
    with pytest.raises(FormatError, match=why):
        read_families(tmp_path)
