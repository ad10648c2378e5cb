# SPDX-License-Identifier: Apache-2.0
"""The adb of a test's own phones, in this process."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from hexforge.addons.phone import adb as adb_module


class Answer(NamedTuple):
    """What a call of adb gave."""

    code: int
    out: str
    err: str


Adb = Callable[..., Answer]


@pytest.fixture
def adb(phones: Path) -> Adb:
    def call(*words: str, stdin: bytes = b"") -> Answer:
        out, err = io.BytesIO(), io.BytesIO()
        try:
            code = adb_module.run(list(words), io.BytesIO(stdin), out, err)
        except adb_module.AdbError as error:
            err.write(f"{error}\n".encode())
            code = error.code
        return Answer(code, out.getvalue().decode(), err.getvalue().decode())

    return call
