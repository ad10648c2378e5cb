# SPDX-License-Identifier: Apache-2.0
"""The thresholds that the conformance tables must hold, on the cpu backend and on htp."""

from __future__ import annotations

import pytest
from onnx import TensorProto

import hexforge
from benchmarks.conformance.cases import Case, collect
from benchmarks.conformance.judge import CRASHED, REFUSED, RIGHT, WRONG, Verdict, judge
from hexforge.frontends.onnx import written_ops
from hexforge.frontends.onnx.translate.builder import AROUND

HTP_LIMITS = (
    "HTP has no ReduceProd",
    "HTP has no PoolMax3d",
    "HTP has no IsInf of",
    "HTP takes at most 5",
    "uint64, which HTP has no ops for",
    "bfloat16, which needs v81",
    "HTP activations have",
    "reduction min, HTP has",
    "reduction max, HTP has",
)
"""Why htp may refuse a case that cpu takes."""


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    """Every case, made once; `make test` keeps the tests of a file in one process (--dist loadfile)."""
    return list(collect())


@pytest.fixture(scope="module")
def verdicts(cases: list[Case]) -> list[Verdict]:
    return [judge(case, "cpu") for case in cases]


@pytest.fixture(scope="module")
def on_htp(cases: list[Case]) -> list[Verdict]:
    return [judge(case, "htp") for case in cases]


def _names(verdicts: list[Verdict], outcome: str) -> list[str]:
    return [f"{v.case.name}: {v.reason}" for v in verdicts if v.outcome == outcome]


def test_counts(verdicts: list[Verdict]) -> None:
    seed = [v for v in verdicts if v.case.seed]
    assert len(verdicts) == 1146
    assert len(seed) == 732
    assert sum(v.case.plain for v in seed) == 496
    assert sum(v.case.plain and v.case.has_float32 for v in seed) == 458


def test_plain_cases_of_the_77_ops(verdicts: list[Verdict]) -> None:
    plain = [v for v in verdicts if v.case.seed and v.case.plain and v.case.has_float32]
    refused = _names(plain, REFUSED)
    assert sum(v.outcome == RIGHT for v in plain) >= 445, refused


def test_all_plain_cases_of_the_77_ops(verdicts: list[Verdict]) -> None:
    plain = [v for v in verdicts if v.case.seed and v.case.plain]
    assert sum(v.outcome == RIGHT for v in plain) >= 0.97 * len(plain), _names(plain, REFUSED)


def test_share_of_qnn_typed_cases(verdicts: list[Verdict]) -> None:
    typed = [v for v in verdicts if v.case.qnn_types]
    assert sum(v.outcome == RIGHT for v in typed) >= 0.85 * len(typed), _names(typed, REFUSED)


def test_none_is_wrong(verdicts: list[Verdict]) -> None:
    assert _names(verdicts, WRONG) == []


def test_none_crashes(verdicts: list[Verdict]) -> None:
    assert _names(verdicts, CRASHED) == []


def test_every_refusal_has_a_reason(verdicts: list[Verdict]) -> None:
    refused = [v for v in verdicts if v.outcome == REFUSED]
    assert [v.case.name for v in refused if len(v.reason) < 20] == []


def test_foreign_types_are_named(verdicts: list[Verdict]) -> None:
    foreign = [v for v in verdicts if v.outcome == REFUSED and not v.case.qnn_types]
    unnamed = [v for v in foreign if not any(t in v.reason for t in v.case.foreign_types.split(", "))]
    assert [f"{v.case.name}: {v.reason}" for v in unnamed if v.case.foreign_types != "UNDEFINED"] == []


def test_support_matrix_names_what_nodes_became(verdicts: list[Verdict]) -> None:
    matrix = written_ops.onnx_ops()
    backend = [("QNNExecutionProvider", {"backend_type": "cpu"})]
    options = hexforge.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    silent = set()
    for case in (v.case for v in verdicts if v.outcome == RIGHT and "expanded" not in v.case.name):
        for row in hexforge.InferenceSession(case.model, options, providers=backend).placements:
            op = row.op_type if row.domain in ("", "ai.onnx") else f"{row.domain}:{row.op_type}"
            said = {*matrix[op], *AROUND}
            silent |= {f"{op}: {name}" for name in row.qnn_ops if name not in said}
    assert sorted(silent) == []


def test_htp_none_is_wrong(on_htp: list[Verdict]) -> None:
    assert _names(on_htp, WRONG) == []


def test_htp_none_crashes(on_htp: list[Verdict]) -> None:
    assert _names(on_htp, CRASHED) == []


def test_htp_refuses_what_cpu_takes_only_for_its_limits(verdicts: list[Verdict], on_htp: list[Verdict]) -> None:
    taken = {v.case.name for v in verdicts if v.outcome == RIGHT}
    refused = [v for v in on_htp if v.outcome == REFUSED and v.case.name in taken]
    odd = [v for v in refused if not any(limit in v.reason for limit in HTP_LIMITS)]
    assert [f"{v.case.name}: {v.reason}" for v in odd] == []


def test_htp_places_nearly_as_many_as_cpu(on_htp: list[Verdict]) -> None:
    plain = [v for v in on_htp if v.case.seed and v.case.plain and v.case.has_float32]
    typed = [v for v in on_htp if v.case.qnn_types]
    assert sum(v.outcome == RIGHT for v in plain) >= 443, _names(plain, REFUSED)
    assert sum(v.outcome == RIGHT for v in typed) >= 895, _names(typed, REFUSED)


def test_htp_needs_rounded_inputs_rarely(on_htp: list[Verdict]) -> None:
    rounded = {v.case.name for v in on_htp if v.rounded}
    infinite = {f"test_mod_float_edge_cases_fmod_0_{t}" for t in ("float16", "float32")}  # which no half is
    assert rounded <= {"test_logsoftmax_large_number", "test_softmax_large_number", "test_tan"} | infinite


def test_htp_of_v81_takes_bfloat16(cases: list[Case]) -> None:
    found = [judge(c, "htp", "SC8480XP") for c in cases if TensorProto.BFLOAT16 in c.types and c.qnn_types]
    assert len(found) >= 10
    assert [f"{v.case.name}: {v.reason}" for v in found if v.outcome != RIGHT] == []
