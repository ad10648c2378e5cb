# SPDX-License-Identifier: Apache-2.0
"""onnxruntime's keys for threads that wait reach the programs of a session, and change no bit."""

from __future__ import annotations

import numpy as np
import pytest

import hexforge
from hexforge.backend import Spinning
from hexforge.backends.htp.numbers.program import HtpProgram
from hexforge.errors import CallError
from tests.ort.models import quantized


def session(**entries: str) -> hexforge.InferenceSession:
    options = hexforge.SessionOptions()
    options.intra_op_num_threads = 2
    for key, value in entries.items():
        options.add_session_config_entry(key.replace("__", "."), value)
    return hexforge.InferenceSession(quantized(), options, providers=["QNNExecutionProvider"])


def spinning(made: hexforge.InferenceSession) -> Spinning:
    (program,) = [s.runner for s in made.stages if isinstance(s.runner, HtpProgram)]
    return program.running.spinning


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({}, Spinning()),
        ({"session__intra_op__allow_spinning": "0"}, Spinning(0, 0)),
        ({"session__intra_op__spin_duration_us": "50"}, Spinning(50, 50)),
        ({"session__force_spinning_stop": "1"}, Spinning(1000, 0)),
    ],
)
def test_keys_reach_the_program_and_keep_the_bits(entries: dict[str, str], expected: Spinning) -> None:
    plain, chosen = session(), session(**entries)
    assert spinning(chosen) == expected
    feed = {a.name: np.full(a.shape, 0.25, np.float32) for a in plain.get_inputs()}
    for ours, theirs in zip(plain.run(None, feed), chosen.run(None, feed), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_duration_is_a_number() -> None:
    with pytest.raises(CallError, match="expected microseconds"):
        session(session__intra_op__spin_duration_us="long")
