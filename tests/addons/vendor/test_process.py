# SPDX-License-Identifier: Apache-2.0
"""The package's process: what dies, hangs or refuses is an error by name, and nothing is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hexforge.addons.vendor import process as process_module
from hexforge.addons.vendor.process import ProcessLimits, VendorProcess
from hexforge.errors import CapacityError, ModelError, PackageError
from tests.addons.vendor import HERE, write_worker


def started(monkeypatch: pytest.MonkeyPatch, folder: Path, body: str, seconds: float = 30.0) -> VendorProcess:
    monkeypatch.setattr(process_module, "WORKER", write_worker(folder, body))
    return VendorProcess(HERE, ProcessLimits(seconds=seconds))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_answer_comes_back_and_the_process_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with started(monkeypatch, tmp_path, "def answer(job): return {'pid': os.getpid(), 'got': job['with']}") as process:
        said = process.ask("open", "m.onnx", number=3)
        assert said["got"] == {"number": 3}
        scratch = process.scratch
        assert scratch.is_dir()
    assert not alive(said["pid"])
    assert not scratch.exists()


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        ("def answer(job): return {'error': 'no  such\\nop', 'kind': 'Fail'}", ModelError, "refuses it: no such op"),
        ("def answer(job): return {'error': 'std::bad_alloc', 'kind': 'Fail'}", CapacityError, "ran out of"),
        ("def answer(job): return {'error': 'no', 'kind': 'ImportError'}", PackageError, "does not work: no"),
        ("def answer(job): os.kill(os.getpid(), signal.SIGKILL)", PackageError, "was ended by SIGKILL"),
        ("def answer(job): sys.exit('library missing')", PackageError, "exit code 1; it said: library missing"),
    ],
)
def test_what_goes_wrong_has_a_name(
    body: str, error: type[Exception], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(monkeypatch, tmp_path, body) as process, pytest.raises(error, match=r"^m\.onnx: ") as raised:
        process.ask("open", "m.onnx")
    assert words in str(raised.value)


def test_a_hang_is_ended_and_the_next_question_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "def answer(job):\n    if job['do'] == 'hang':\n        time.sleep(600)\n    return {'pid': os.getpid()}"
    with started(monkeypatch, tmp_path, body) as process:
        first = process.ask("open", "m.onnx")["pid"]
        process.limits = ProcessLimits(seconds=0.2)
        with pytest.raises(PackageError, match=r"gave no answer within 0\.2 s and was ended"):
            process.ask("hang", "m.onnx")
        assert not alive(first)
        process.limits = ProcessLimits(seconds=30)
        assert process.ask("open", "m.onnx")["pid"] != first


def test_an_interrupt_leaves_nothing_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = tmp_path / "ready"
    body = f"def answer(job):\n    open({str(ready)!r}, 'w').write(str(os.getpid()))\n    time.sleep(600)"
    process = started(monkeypatch, tmp_path, body)

    def send() -> None:
        while not ready.exists() or not ready.read_text():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send)
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        process.ask("open", "m.onnx")
    sender.join()
    assert not alive(int(ready.read_text()))
    process.close()


def test_the_worker_ends_with_who_started_it() -> None:
    """The worker itself, by its own Python: end of input is end of work."""
    done = subprocess.run([sys.executable, process_module.WORKER], input="", text=True, timeout=60, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_python_that_is_not_there(tmp_path: Path) -> None:
    with (
        VendorProcess(replace(HERE, python=tmp_path / "python")) as process,
        pytest.raises(PackageError, match="cannot"),
    ):
        process.ask("about", "x")
