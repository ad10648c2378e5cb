# SPDX-License-Identifier: Apache-2.0
"""A phone's shell as a real one, in namespaces where it sees the phone's folder alone: `sandbox_start` makes them.

Processes that a shell leaves in the background go on until they end or the phone is unplugged.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from hexforge.addons.phone import android, phones
from hexforge.addons.phone.phones import Phone
from hexforge.addons.phone.programs import HEXFORGE, RUNNERS, SOC, Sink, Streams, program_environment
from hexforge.addons.phone.system_image import LISTENER, NoShellError, system_image
from hexforge.errors import HexforgeError

HOME = "/"
DEVICE = "HEXFORGE_DEVICE"
_NEEDED = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sys", "/etc/ld.so.cache", "/etc/OpenCL", "/etc/localtime",
           "/nix/store")  # fmt: skip
"""What Python and its packages read of a computer; programs of the phone see it read-only, its shell does not."""
_START = Path(__file__).with_name("sandbox_start.py")
_WAIT_S = 0.05
_QUIET_S = 0.2


class NoSandboxError(Exception):
    """This computer has no sandbox, and why."""


def run_sandboxed(phone: Phone, text: str | None, streams: Streams) -> int:
    """Run commands in the phone's real shell, or what it reads; the exit code.

    NoSandboxError before anything ran, UnpluggedError where the phone is unplugged before the end.
    """
    phone.require_plugged()
    if not sys.platform.startswith("linux"):
        raise NoSandboxError("only Linux has the namespaces that a phone's shell is kept in")
    try:
        asked = json.dumps(_asked(phone, text))
    except NoShellError as error:
        raise NoSandboxError(str(error)) from None
    read, write = os.pipe()
    lifeline_read, lifeline_write = os.pipe()
    with (
        tempfile.TemporaryFile("w+") as given,
        os.fdopen(read, "r") as said,
        os.fdopen(write, "w") as saying,
        os.fdopen(lifeline_read, "r") as watched,
        os.fdopen(lifeline_write, "w"),  # whatever goes wrong here: closed, it ends the shell
    ):
        given.write(asked)
        given.seek(0)
        descriptors = [file.fileno() for file in (given, saying, watched)]
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_START), *map(str, descriptors)],
            stdin=subprocess.PIPE if streams.descriptor is None else streams.descriptor,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if streams.err is streams.out else subprocess.PIPE,
            env={},
            start_new_session=True,
            pass_fds=descriptors,
        )
        saying.close()
        watched.close()
        began = said.readline()
        if began != "ready\n":
            process.communicate()
            raise NoSandboxError(began.strip().removeprefix("failed ") or "its start ended without a word")
        # It is waited for, however this ends: what runs in the background may last.
        threading.Thread(target=process.wait, daemon=True).start()
        return _follow(phone, process, said, streams)


def _follow(phone: Phone, process: subprocess.Popen[bytes], said: IO[str], streams: Streams) -> int:
    """Hand on what comes in and out until the shell has ended."""
    if process.stdin is not None:
        threading.Thread(target=_feed, args=(process.stdin, streams), daemon=True).start()
    pairs = ((process.stdout, streams.out), (process.stderr, streams.err))
    copies = [_Copy(stream, sink) for stream, sink in pairs if stream is not None]
    while not select.select([said], [], [], _WAIT_S)[0]:
        phone.require_plugged()
    word, _, code = said.readline().partition(" ")
    if word != "code":
        phone.require_plugged()
        raise HexforgeError(f"{phone.serial}: the phone's shell was ended from outside")
    ended = time.monotonic()
    for copy in copies:
        # What runs on in the background may keep the streams: then what was said until now is all that there is.
        while copy.is_alive() and (process.poll() is not None or time.monotonic() - max(copy.last, ended) < _QUIET_S):
            copy.join(_WAIT_S)
    return int(code)


class _Copy(threading.Thread):
    """Copies a stream as it comes."""

    def __init__(self, stream: IO[bytes], sink: Sink) -> None:
        super().__init__(daemon=True)
        self._stream, self._sink = stream, sink
        self.last = time.monotonic()
        self.start()

    def run(self) -> None:
        """Copy until the stream ends, or nobody takes it."""
        with self._stream, suppress(OSError):
            while chunk := os.read(self._stream.fileno(), 1 << 16):
                self._sink.write(chunk)
                self.last = time.monotonic()


def _feed(stream: IO[bytes], streams: Streams) -> None:
    with suppress(OSError), stream:
        stream.write(streams.read())


def _asked(phone: Phone, text: str | None) -> Mapping[str, object]:
    """What `sandbox_start` is asked for."""
    programs = {name: [phone.soc.name if word == SOC else word for word in words] for name, words in RUNNERS.items()}
    root = phone.is_root
    return {
        "files": str(phone.storage.folder),
        "folder": str(phone.folder),
        "facts": phones.FACTS,
        "unplugged": phones.UNPLUGGED,
        "image": str(system_image()),
        "user": android.ROOT if root else android.SHELL,
        "texts": android.texts(phone),
        "words": [] if text is None else ["-c", text],
        "variables": {
            "HOME": HOME, "PATH": "/system/bin:/vendor/bin", "TMPDIR": "/data/local/tmp", "ANDROID_ROOT": "/system",
            "ANDROID_DATA": "/data", "EXTERNAL_STORAGE": "/sdcard", "USER": "root" if root else "shell", "TERM": "dumb",
        },
        "python": _needed_paths(),
        "programs": {
            **{name: [*HEXFORGE, *words] for name, words in programs.items()},
            LISTENER: [sys.executable, "-P", "-m", "hexforge.addons.phone.protocol.port_listener"],
        },
        "environment": {**program_environment(), "HOME": "/tmp", "TMPDIR": "/tmp", "XDG_CACHE_HOME": "/tmp/cache"},
    }  # fmt: skip


def _needed_paths() -> list[tuple[str, str]]:
    """What programs of the phone need of this computer: each place, and where it is seen."""
    own = [sys.prefix, sys.base_prefix, *sys.path, str(Path(__file__).parents[3])]
    own += os.environ.get("PYTHONPATH", "").split(os.pathsep)
    device = os.environ.get(DEVICE, "")
    own += [str(Path(part).parent) for part in re.findall(r"(?:unix:|token_file=)([^?]+)", device)]
    wanted = {os.path.abspath(path) for path in own if path and os.path.exists(path)} | set(_NEEDED)  # noqa: PTH100, PTH110
    wanted |= {os.path.realpath(path) for path in wanted}
    chosen: list[str] = []
    for path in sorted(wanted):
        if not any(path.startswith(f"{known}/") and os.path.realpath(path).startswith(f"{os.path.realpath(known)}/")
                   for known in chosen):  # fmt: skip
            chosen.append(path)
    return [(os.path.realpath(path), path) for path in chosen]
