# SPDX-License-Identifier: Apache-2.0
"""Every code that the device says it gives is given, and every call of the table is one that the device has."""

from __future__ import annotations

import inspect

import pytest

from hexforge.addons.device import Qnn
from hexforge.addons.device.codes import Code
from hexforge.addons.device.scenario.steps import STEPS
from hexforge.addons.device.shared.request_fields import ANSWERS, FIELDS
from hexforge.qnn_api.calls import calls, messages
from tests import ROOT


@pytest.mark.feature("Error codes", guide="385, 914, 2763, 3019-3024, 3481-3504")
def test_every_code_is_raised_somewhere() -> None:
    source = "\n".join(p.read_text("utf-8") for p in (ROOT / "src" / "hexforge" / "addons" / "device").rglob("*.py"))
    unused = [code.name for code in Code if f"Code.{code.name}" not in source]
    assert unused == []


def test_every_row_of_the_table_of_calls_is_a_method_with_its_fields() -> None:
    for call in calls():
        parameters = [*inspect.signature(getattr(Qnn, call.name)).parameters.values()][1:]
        assert [field.name for field in call.fields] == [parameter.name for parameter in parameters], call.name
        for field, parameter in zip(call.fields, parameters, strict=True):
            assert field.is_optional == (parameter.default is not parameter.empty), (call.name, field.name)
    qnns_own = ("Qnn", "create", "set", "destroy")
    assert {n for n in vars(Qnn) if n.startswith(qnns_own)} == {c.name for c in calls() if c.name.startswith(qnns_own)}


def test_messages_steps_answers_and_codes_of_the_table_are_known() -> None:
    assert {call.answer for call in messages().values()} <= {*ANSWERS, "contexts"}
    assert {call.step for call in calls()} <= {"", *STEPS}
    assert {number for call in calls() for number in call.codes} == {code.number for code in Code}
    kinds = {field.kind for call in messages().values() for field in call.fields}
    assert {*FIELDS} <= kinds
    assert kinds - {*FIELDS} == {"outputs", "notify"}
