# SPDX-License-Identifier: Apache-2.0
"""Every operator against what LiteRT's reference kernels computed, and that against LiteRT where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

from hexforge.addons.tflite.commands import DELEGATED
from hexforge.addons.tflite.convert import TRANSLATIONS
from hexforge.addons.tflite.model_file import OPERATORS
from hexforge.addons.tflite.operators_control import CONTROL
from tests.addons.tflite.cases import FLOAT, QUANTIZED, Case
from tests.addons.tflite.judged import every_case, judge, of_litert, recorded, run_npu
from tests.addons.tflite.operator_cases import CASES

WITHOUT_CASE = {"BITCAST", "DENSIFY", "NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5", *CONTROL}
"""Operators that LiteRT has no plain kernel for, or that have tests of their own."""


FIRST_INTEGERS = list(
    {
        (case.operator, kind): pytest.param(number, case, kind, id=f"{case.operator}-{kind}")
        for number, case, kind in every_case()
        if kind in QUANTIZED
    }.values()
)
"""A case of each operator and type."""
EVERY = [pytest.param(n, c, k, id=f"{c.operator}-{k}") for n, c, k in every_case()]


@pytest.mark.parametrize(("number", "case", "kind"), EVERY)
def test_an_operator_computes_what_litert_computed(number: int, case: Case, kind: str) -> None:
    record = recorded()
    verdict = judge(case, kind, record[number, kind], record.get((number, FLOAT)))
    assert verdict.word in ("agrees", "coarse"), verdict


@pytest.mark.parametrize(("number", "case", "kind"), FIRST_INTEGERS)
def test_the_npu_computes_integers_that_litert_computed(number: int, case: Case, kind: str) -> None:
    record = recorded()
    verdict = judge(case, kind, record[number, kind], record.get((number, FLOAT)), run_npu)
    assert verdict.word in ("agrees", "coarse"), verdict


@pytest.mark.litert
@pytest.mark.parametrize(("number", "case", "kind"), EVERY)
def test_the_record_is_what_litert_computes(number: int, case: Case, kind: str) -> None:
    for kept, computed in zip(recorded()[number, kind], of_litert(case, kind), strict=True):
        np.testing.assert_array_equal(kept, computed)


def test_every_translated_operator_has_a_case() -> None:
    own = {name for name in TRANSLATIONS if not name.startswith("STABLEHLO_")}
    assert own - {case.operator for case in CASES} == WITHOUT_CASE - {"STABLEHLO_COMPOSITE"}


def test_names_are_of_the_schema() -> None:
    assert TRANSLATIONS.keys() <= set(OPERATORS)
    assert set(OPERATORS) >= DELEGATED


def test_what_the_delegate_takes_is_translated() -> None:
    assert TRANSLATIONS.keys() >= DELEGATED
