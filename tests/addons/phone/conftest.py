# SPDX-License-Identifier: Apache-2.0
"""The adb of a test's own phones, in this process, and the two roads of their shell."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from hexforge.addons.phone import adb as adb_module
from hexforge.addons.phone import shell as shell_module
from hexforge.addons.phone.phones import Phone
from hexforge.addons.phone.programs import Streams
from hexforge.addons.phone.sandbox import NoSandboxError, run_sandboxed


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


@pytest.fixture
def sandbox(phone: Phone) -> None:
    """Skips where this computer has no sandbox, saying why."""
    try:
        run_sandboxed(phone, "true", Streams(bytes, io.BytesIO(), io.BytesIO()))
    except NoSandboxError as error:
        pytest.skip(f"no sandbox here: {error}")


def _without(*words: object) -> int:
    raise NoSandboxError("this test takes it away")


@pytest.fixture
def few_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell that a computer without a sandbox gives a phone."""
    monkeypatch.setattr(shell_module, "run_sandboxed", _without)


@pytest.fixture(params=["sandbox", "few_words"])
def road(request: pytest.FixtureRequest) -> str:
    """Each of the two shells."""
    request.getfixturevalue(request.param)
    return str(request.param)
