# SPDX-License-Identifier: Apache-2.0
"""Process: the worker with Qualcomm's package, with limits of time and memory; whatever happens, it is gone after."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from hexforge.addons.vendor.package import PACKAGE, WANTED, InstalledPackage, find_package, require_package
from hexforge.errors import CapacityError, ModelError, PackageError
from hexforge.request_fields import option
from hexforge.results import Key, Result
from hexforge.runtime import registry

WORKER = Path(__file__).with_name("worker.py")
_SAID_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What one thing that is asked of the package may take."""

    seconds: float = option(600.0, "Seconds that Qualcomm's package may take for one thing.", "--timeout", min=1)
    memory_bytes: int = option(
        16 << 30,
        "MB that the package's process may have; 0: no limit.",
        "--memory-mb",
        given=16 << 10,
        read=lambda megabytes: megabytes << 20,
        min=0,
    )
    """Address space of the whole process."""


DEFAULT_LIMITS = ProcessLimits()


class VendorProcess:
    """A process with the package, started when it is first asked; leaving the block ends it."""

    def __init__(self, package: InstalledPackage | None = None, limits: ProcessLimits = DEFAULT_LIMITS) -> None:
        self.package = require_package() if package is None else package
        self.limits = limits
        self.scratch = Path(tempfile.mkdtemp(prefix="hexforge-vendor-"))
        """A folder for what goes in and out; it goes with the process."""
        weakref.finalize(self, shutil.rmtree, self.scratch, ignore_errors=True)
        self._child: subprocess.Popen[str] | None = None
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._errors: Any = None
        self._lock = threading.Lock()  # threads ask one after the other

    def __enter__(self) -> VendorProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_child", None) is not None:
            self._stop()

    def close(self) -> None:
        """End the process and remove its folder."""
        self._stop()
        shutil.rmtree(self.scratch, ignore_errors=True)

    @property
    def running(self) -> bool:
        """True where the process is there."""
        return self._child is not None and self._child.poll() is None

    def ask(self, do: str, about: str, **given: Any) -> dict[str, Any]:
        """What the worker answers; `about` says what is done to what, for messages.

        ModelError where the package refuses, CapacityError where memory ends, PackageError where it dies or hangs.
        After a death or a hang the next question starts a new process.
        """
        with self._lock:
            return self._asked(do, about, given)

    def _asked(self, do: str, about: str, given: Mapping[str, Any]) -> dict[str, Any]:
        child = self._started()
        assert child.stdin is not None
        job = {"do": do, "with": given, "most_s": self.limits.seconds, "most_bytes": self.limits.memory_bytes}
        try:
            child.stdin.write(json.dumps(job) + "\n")
            child.stdin.flush()
            line = self._answers.get(timeout=self.limits.seconds)
        except queue.Empty:
            self._stop()
            raise PackageError(
                f"{about}: {PACKAGE} gave no answer within {self.limits.seconds:g} s and was ended; give it more time "
                "with --timeout, or a smaller model"
            ) from None
        except BrokenPipeError:
            line = None
        except BaseException:  # an interrupt: nothing of it is left running
            self._stop()
            raise
        if line is None:
            raise self._died(child, about)
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise self._refused(answer, about)
        return answer

    def _refused(self, answer: Mapping[str, str], about: str) -> Exception:
        said = " ".join(answer["error"].split())
        if answer["kind"] == "MemoryError" or "bad_alloc" in said or "bad allocation" in said:
            return CapacityError(f"{about}: {PACKAGE} ran out of {self.limits.memory_bytes >> 20} MiB: {said}")
        if answer["kind"] in ("ImportError", "ModuleNotFoundError", "AttributeError", "PackageNotFoundError"):
            return PackageError(f"{about}: {PACKAGE} in {self.package.python} does not work: {said}")
        return ModelError(f"{about}: {PACKAGE} {self.package.version} refuses it: {said}")

    def _died(self, child: subprocess.Popen[str], about: str) -> Exception:
        code = child.wait()
        said = self._last_words()
        self._stop()
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return PackageError(f"{about}: the process of {PACKAGE} {how}" + (f"; it said: {said}" if said else ""))

    def _last_words(self) -> str:
        if self._errors is None:
            return ""
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - _SAID_BYTES))
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return " ".join(lines[-1].split()) if lines else ""

    def _started(self) -> subprocess.Popen[str]:
        if self._child is None:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed with the process
            self._answers = queue.SimpleQueue()
            environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
            try:
                self._child = subprocess.Popen(
                    [self.package.python, "-I", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=self._errors, text=True, cwd=self.scratch, env=environment,
                    start_new_session=sys.platform != "win32",
                )  # fmt: skip
            except OSError as error:
                raise PackageError(f"{self.package.python}: cannot be run: {error.strerror}") from None
            assert self._child.stdout is not None
            threading.Thread(target=_read, args=(self._child.stdout, self._answers), daemon=True).start()
        return self._child

    def _stop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with suppress(OSError):
                if sys.platform != "win32":
                    os.killpg(child.pid, signal.SIGKILL)
                else:
                    child.kill()
            child.wait()
            assert child.stdin is not None
            with suppress(OSError):
                child.stdin.close()
        if self._errors is not None:
            self._errors.close()
            self._errors = None


def _read(lines: Iterable[str], answers: queue.SimpleQueue[str | None]) -> None:
    with suppress(ValueError, OSError):
        for line in lines:
            answers.put(line)
    answers.put(None)
    with suppress(OSError):
        lines.close()  # type: ignore[attr-defined]


# -- what the package can do -----------------------------------------------------------------------------------------

_STARTING = ProcessLimits(seconds=120.0)


def _if_known(name: str) -> Key:
    return Key(name, of=lambda found: getattr(found, name) or None)


@dataclass(frozen=True, slots=True)
class VendorAbilities(Result):
    """The installed package and what it can do; `reason` says why it cannot be used."""

    python: str = ""
    version: str = ""
    onnxruntime: str = ""
    backends: tuple[str, ...] = ()
    """Its backend libraries that are there."""
    devices: tuple[str, ...] = ()
    """Kinds of devices that it offers here; CPU alone: it emulates."""
    reason: str = ""

    described = (
        Key("package", of=lambda found: PACKAGE),
        Key("wanted", of=lambda found: WANTED),
        "usable",
        *map(_if_known, ("reason", "python", "version", "onnxruntime")),
        "backends devices",
        Key("compiles_contexts", of=lambda found: found.usable and registry.DEFAULT in found.backends),
        "emulates",
    )

    @property
    def usable(self) -> bool:
        """True where contexts can be made and run."""
        return not self.reason

    @property
    def emulates(self) -> bool:
        """True where there is no NPU here, so that its results come from its emulator."""
        return self.usable and "NPU" not in self.devices


def vendor_abilities() -> VendorAbilities:
    """What is installed and what it can do; no error where nothing is."""
    try:
        package = find_package()
    except PackageError as error:
        return VendorAbilities(reason=str(error))
    python, version, onnxruntime = (
        ("", "", "") if package is None else (str(package.python), package.version, package.onnxruntime)
    )
    try:
        with VendorProcess(require_package(), _STARTING) as process:
            said = process.ask("about", PACKAGE)
    except PackageError as error:
        return VendorAbilities(python, version, onnxruntime, reason=str(error))
    backends = tuple(name for name, there in said["backends"].items() if there)
    return VendorAbilities(python, version, onnxruntime, backends, tuple(said["devices"]))
