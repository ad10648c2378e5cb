# SPDX-License-Identifier: Apache-2.0
"""Compatibility: QNN's rules by architecture, VTCM and format version; strict and permissive."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hexforge
from hexforge.backend import ContextBackend, Target, Verdict
from hexforge.chips.soc import SOCS
from hexforge.errors import CallError, FormatError, UnsupportedError
from hexforge.formats.container import HEADER, checksum
from hexforge.formats.context import GraphInfo, Info
from hexforge.runtime.contexts.compatibility import (
    BinaryCompatibility,
    chip_backend,
    compare,
    create_context,
    require_compatible,
)
from hexforge.runtime.contexts.compile import compile
from hexforge.runtime.contexts.request import ContextRequest
from tests.ort.models import quantized

OPTIMAL, SUBOPTIMAL, UNSUPPORTED = Verdict


def made_for(*socs: str, vtcm_mb: int = 4, backend: str = "htp") -> Info:
    targets = tuple(target for soc in socs for target in device(soc).targets)
    return Info("p", backend, targets, {}, (GraphInfo("g", (), (), "0", settings={"vtcm_mb": vtcm_mb}),))


def device(soc: str, htp_arch: int = 0) -> ContextBackend:
    found = chip_backend("htp", soc, htp_arch)
    assert isinstance(found, ContextBackend)
    return found


@pytest.mark.feature("Context of another arch", guide="33")
@pytest.mark.parametrize(
    ("made", "on", "verdict", "why"),
    [
        (["SM8650"], "SM8650", OPTIMAL, ""),
        (["SM8550"], "SC8380XP", OPTIMAL, ""),  # the same architecture
        (["SM8550"], "SM8650", SUBOPTIMAL, "made for SM8550 (v73), older than SM8650 (v75)"),
        (["SM8750"], "SM8650", UNSUPPORTED, "made for SM8750 (v79), newer than SM8650 (v75)"),
        (["SM8750", "SM8650"], "SM8650", OPTIMAL, ""),
        (["SM8550", "SM8650", "SM8850"], "SM8750", SUBOPTIMAL, "SM8650 (v75), older"),
        (["SM8750", "SM8850"], "SM8650", UNSUPPORTED, "SM8750 (v79), newer"),
        (["SM8550"], "SXR1230P", UNSUPPORTED, "needs 4 MB of VTCM, SXR1230P (v73) has 2"),
        (["SM8650"], "0", OPTIMAL, ""),
    ],
)
def test_rules(made: list[str], on: str, verdict: Verdict, why: str) -> None:
    found = compare(made_for(*made), device(on))
    assert found.verdict is verdict
    assert why in "; ".join(found.reasons)


@pytest.mark.feature("VTCM in MB", guide="472-481")
def test_a_graph_for_all_vtcm_is_judged_by_how_much_that_was() -> None:
    everything = made_for("SXR1230P", vtcm_mb=0)
    assert compare(everything, device("SXR1230P")).verdict is OPTIMAL
    found = compare(everything, device("SM8550"))
    assert found.verdict is SUBOPTIMAL
    assert "uses the 2 MB of VTCM of SXR1230P (v73), not all of SM8550" in str(found)
    assert compare(made_for("SM8550", vtcm_mb=0), device("SXR1230P")).verdict is UNSUPPORTED
    assert compare(made_for("SXR1230P", vtcm_mb=2), device("SM8550")).verdict is OPTIMAL


def test_an_architecture_alone_and_other_backends() -> None:
    assert compare(made_for("SM8650"), device("0", 75)).verdict is OPTIMAL
    assert compare(made_for("SM8650"), device("0", 79)).verdict is SUBOPTIMAL
    assert "made for the cpu backend, not htp" in str(compare(made_for(backend="cpu"), device("SM8650")))
    assert compare(made_for(backend="cpu"), chip_backend("cpu")).verdict is OPTIMAL
    with pytest.raises(CallError, match="not a known chip"):
        device("SM1")


NAMES = st.sampled_from([s.name for s in SOCS])


@settings(max_examples=40)
@given(st.lists(NAMES, min_size=1, max_size=3, unique=True), NAMES, st.sampled_from([0, 2, 4]))
def test_more_chips_never_make_a_verdict_worse_and_the_own_chip_is_best(made: list[str], on: str, vtcm_mb: int) -> None:
    rank = tuple(Verdict).index
    all_of_them = rank(compare(made_for(*made, vtcm_mb=vtcm_mb), device(on)).verdict)
    alone = [rank(compare(made_for(soc, vtcm_mb=vtcm_mb), device(on)).verdict) for soc in made]
    own = [r for soc, r in zip(made, alone, strict=True) if soc == on]
    assert all_of_them == (own[0] if own else min(alone))
    chip = device(on)
    if vtcm_mb <= chip.targets[0].facts["vtcm_mb"]:
        assert compare(made_for(on, vtcm_mb=vtcm_mb), chip).verdict is OPTIMAL


@pytest.mark.feature("Context binary management", guide="3001-3057")
def test_strict_and_permissive(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    compile(quantized(), path, "SM8550", ContextRequest(graph_names=("q",)))
    assert hexforge.validate(path, "SM8550").verdict is OPTIMAL
    assert hexforge.validate(path, "SM8650").verdict is SUBOPTIMAL
    assert hexforge.validate(path, "SM8450").verdict is UNSUPPORTED
    context, found = create_context(path, "SM8650")
    assert found.verdict is SUBOPTIMAL
    assert context.program("q").graph.name == "q"
    with pytest.raises(UnsupportedError, match="is sub-optimal: it was made for SM8550") as raised:
        create_context(path, "SM8650", "strict")
    assert raised.value.code == 5011  # QNN_CONTEXT_ERROR_BINARY_SUBOPTIMAL
    with pytest.raises(UnsupportedError, match=r"cannot run: .*compile the model with --soc SM8450") as raised:
        create_context(path, "SM8450")
    assert raised.value.code == 5005  # QNN_CONTEXT_ERROR_CREATE_FROM_BINARY
    with pytest.raises(CallError, match="it is permissive or strict"):
        create_context(path, "SM8550", "lenient")
    chip = device("SM8650")
    assert require_compatible(context.info, chip).verdict is SUBOPTIMAL
    with pytest.raises(UnsupportedError, match="sub-optimal"):
        require_compatible(context.info, chip, BinaryCompatibility.STRICT)
    assert require_compatible(context.info, device("SM8550"), BinaryCompatibility.STRICT).verdict is OPTIMAL


def test_versions_and_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    compile(quantized(), path)
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, 8, 5)
    struct.pack_into("<I", data, HEADER.size - 4, checksum(bytes(data[: HEADER.size - 4])))
    found = hexforge.validate(bytes(data), "SM8650")
    assert found.verdict is UNSUPPORTED
    assert "is of format version 5" in found.reasons[0]
    broken = bytearray(path.read_bytes())
    broken[4100] ^= 1
    with pytest.raises(FormatError):
        hexforge.validate(bytes(broken), "SM8650")
    with pytest.raises(FormatError, match="not a hexforge context"):
        hexforge.validate(b"something else", "SM8650")


def test_an_unknown_chip_of_the_file_is_judged_by_its_architecture() -> None:
    info = Info("p", "htp", (Target("", "v73", {"htp_arch": 73}),), {}, (GraphInfo("g", (), (), "0"),))
    found = compare(info, device("SM8650"))
    assert found.verdict is SUBOPTIMAL
    assert found.reasons[0] == "it was made for v73, older than SM8650 (v75)"
