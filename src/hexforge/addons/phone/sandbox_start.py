# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PTH103, PTH106, PTH110, PTH112, PTH113, PTH114, PTH115, PTH119, PTH120, PTH123, PTH208, PTH211
"""Starts a phone's shell in namespaces of its own; run as a program, with nothing but Python's standard library.

`python -I -S sandbox_start.py ASKED STATUS LIFELINE` reads what is asked (JSON) from one descriptor, says what became
of it on another, and ends when the last is closed. Three processes:

- the **broker** (this one) owns a user namespace in which this user is the phone's, and sees a file system of the
  phone's folders, Python and what Python needs. It runs the phone's programs, which are commands of hexforge.
- the **init** of the phone sees the phone's folders and its system alone, has no network and no process but the
  phone's, and hands the broker the programs that the shell calls, with their descriptors.
- the **shell**, its child, has no capability and can gain none.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import stat
import subprocess
import sys
from typing import Any

NEW_FILES, NEW_NAME, NEW_IPC, NEW_USER, NEW_PIDS, NEW_NET = (
    0x00020000,
    0x04000000,
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
_KEPT = {1: RDONLY, 2: NOSUID, 4: NODEV, 8: NOEXEC, 1024: 1024, 2048: 2048, 4096: 1 << 21}
"""A mount's flags as `statvfs` says them, and as `mount` takes them: none may be taken away in a namespace."""
_DETACH = 2
_DEATH_SIGNAL, _DUMPABLE, _NAME, _DROP_CAPABILITY, _NO_NEW_PRIVILEGES = 1, 4, 15, 24, 38
_LAST_CAPABILITY = 63
_PIDFD_GETFD = 438
_TICK_S = 0.05
_MOST_PROCESSES, _MOST_PIDS = 400, 1024
"""More processes end the shell; more numbers for them there are not, for what is faster than who counts."""
_MOST_REQUEST = 1 << 20
_CALLERS = (6, 7, 8)
"""Where a calling process keeps the descriptors of its program: its first three are others while it calls and waits."""
_SHELL = "/system/bin/sh"
_OWN_FOLDERS = frozenset({"proc", "dev", "sys", "lib", "lib64", "usr", "etc", "bin", "tmp"})
"""Folders of the root that are the system's, whatever a phone's storage has by that name."""
CALLS = "/dev/phone/calls"
"""Where the phone's programs call: a line with the number of the process that wants to be one; it is answered by a pipe
of that number beside it."""
_SHOWN_OF_PROC = frozenset(
    {"self", "thread-self", "stat", "loadavg", "uptime", "mounts", "filesystems", "net", "cmdline"}
)
"""What the phone's /proc keeps beside processes and the files it is given; everything else is empty there."""

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> int:
    given = [a.encode() if isinstance(a, str) else a for a in arguments]
    result = int(getattr(_libc, name)(*given))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}", str(arguments[1] if name == "mount" else arguments[0]))
    return result


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    _call("mount", source, target, kind, ctypes.c_ulong(flags), data)


def _bind(source: str, target: str, flags: int = NOSUID | NODEV) -> None:
    """Let a file or folder be seen at another place, too."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.lexists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    _mount(source, target, None, BIND | REC)
    kept = sum(to for of, to in _KEPT.items() if os.statvfs(target).f_flag & of)
    _mount("none", target, None, BIND | REMOUNT | kept | flags)


def _tmpfs(target: str, flags: int = NOSUID | NODEV) -> None:
    os.makedirs(target, exist_ok=True)
    _mount("tmpfs", target, "tmpfs", flags, "mode=0755,size=64m")


def _read_only(target: str) -> None:
    _mount("none", target, None, BIND | REMOUNT | NOSUID | NODEV | RDONLY)


def _move_into(root: str) -> None:
    """Let a folder be the root of this process's file system; what was the root is gone from it."""
    old = f"{root}/.old"
    os.makedirs(old, exist_ok=True)
    _call("pivot_root", root, old)
    os.chdir("/")


def _forget(old: str) -> None:
    _call("umount2", old, _DETACH)
    os.rmdir(old)


def _die_with_parent() -> None:
    _call("prctl", _DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def _give_up_privileges() -> None:
    """Leave nothing that a program could gain capabilities from."""
    for capability in range(_LAST_CAPABILITY + 1):
        _libc.prctl(_DROP_CAPABILITY, capability, 0, 0, 0)
    _call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)


# -- the broker --------------------------------------------------------------------------------------------------------


def _become(user: int) -> None:
    """This user, as the phone's user in a namespace of its own."""
    own, group = os.getuid(), os.getgid()
    if not own:
        os.setgroups([])
    _call("unshare", NEW_USER | NEW_FILES)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {own} 1"), ("gid_map", f"{user} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    _mount("none", "/", None, REC | PRIVATE)


def _broker_files(asked: dict[str, Any]) -> None:
    """The broker's file system: the phone's folders, its system, and what Python needs."""
    _tmpfs("/tmp")
    os.makedirs("/tmp/new")
    _move_into("/tmp")
    _tmpfs("/new")
    files = f"/.old{asked['files']}"
    with os.scandir(files) as entries:
        folders = [e.name for e in entries if e.is_dir(follow_symlinks=False) and e.name not in _OWN_FOLDERS]
    for name in folders:
        _bind(f"{files}/{name}", f"/new/{name}")
    asked["folders"] = folders
    os.makedirs(f"{files}/dev/socket", exist_ok=True)
    _bind(f"{files}/dev/socket", "/new/dev/socket")
    _bind(f"/.old{asked['image']}", "/new/.image", NOSUID | NODEV | RDONLY)
    for source, path in asked["python"]:
        if os.path.exists(f"/.old{source}"):
            _bind(f"/.old{source}", f"/new{path}", NOSUID | NODEV | RDONLY)
    for name in ("null", "zero", "full", "random", "urandom"):
        _bind(f"/.old/dev/{name}", f"/new/dev/{name}", NOSUID | RDONLY)
    _mount("/.old/proc", _made("/new/proc"), None, BIND | REC)
    _tmpfs("/new/tmp")
    os.makedirs("/new/dev/shm")
    _move_into("/new")
    _forget("/.old")


def _made(folder: str) -> str:
    os.makedirs(folder, exist_ok=True)
    return folder


class _Program:
    """A program of the phone that runs: its process, and the number that the phone's init knows it by."""

    def __init__(self, number: int, process: subprocess.Popen[bytes]) -> None:
        self.number, self.process = number, process
        self.ended = os.pidfd_open(process.pid)


class _Broker:
    """Runs the phone's programs until its init ends, the phone is unplugged, or nobody wants the shell any more."""

    def __init__(self, asked: dict[str, Any], line: socket.socket, status: int, lifeline: int, folder: int) -> None:
        self._asked, self._line, self._status, self._lifeline, self._folder = asked, line, status, lifeline, folder
        self._programs: list[_Program] = []
        self._shell_ended = False

    def _is_plugged(self) -> bool:
        names = os.listdir(self._folder)
        return self._asked["facts"] in names and self._asked["unplugged"] not in names

    def serve(self, init: int) -> None:
        """Serve until there is nothing left to serve."""
        ended = os.pidfd_open(init)
        while self._is_plugged():
            waited = [ended, self._line.fileno(), *(p.ended for p in self._programs)]
            ready = select.select(waited + ([] if self._shell_ended else [self._lifeline]), [], [], _TICK_S)[0]
            for program in [p for p in self._programs if p.ended in ready]:
                self._end(program)
            if self._line.fileno() in ready:
                self._message()
            if ended in ready or self._lifeline in ready:
                break
        for program in self._programs:
            program.process.kill()
        os.kill(init, signal.SIGKILL)

    def _end(self, program: _Program) -> None:
        code = program.process.wait()
        self._programs.remove(program)
        os.close(program.ended)
        self._line.send(f"{program.number} {128 - code if code < 0 else code}".encode())

    def _message(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._line, _MOST_REQUEST, 3)
        if not data:
            return
        try:
            message = json.loads(data)
            if "code" in message and not self._shell_ended:
                self._shell_ended = True
                os.write(self._status, f"code {int(message['code'])}\n".encode())
                os.close(self._status)
            elif "gone" in message:
                for program in self._programs:
                    if program.number == message["gone"]:
                        program.process.kill()
            elif "program" in message and len(descriptors) == 3:
                self._run(message, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _run(self, message: dict[str, Any], descriptors: list[int]) -> None:
        command = self._asked["programs"].get(message["program"])
        if command is None:
            self._line.send(f"{message['number']} 127".encode())
            return
        try:
            process = subprocess.Popen(
                [*command, *message["arguments"]],
                cwd=message["folder"],
                env={**self._asked["environment"], **message["environment"]},
                stdin=descriptors[0],
                stdout=descriptors[1],
                stderr=descriptors[2],
                preexec_fn=_as_program,
            )
        except OSError as error:
            os.write(descriptors[2], f"{message['program']}: {error.strerror}\n".encode())
            self._line.send(f"{message['number']} 126".encode())
            return
        self._programs.append(_Program(message["number"], process))


def _as_program() -> None:
    _die_with_parent()
    _give_up_privileges()


# -- the phone's init --------------------------------------------------------------------------------------------------


def _phone_files(asked: dict[str, Any]) -> None:
    """What the phone's shell sees: the phone's folders, and a system that it cannot write."""
    root = "/.phone"
    _tmpfs(root)
    for name in os.listdir("/"):
        if name in asked["folders"]:
            _bind(f"/{name}", f"{root}/{name}")
    for name in os.listdir("/.image"):
        source = f"/.image/{name}"
        if name == "bin":
            _bind(source, f"{root}/system/bin", NOSUID | NODEV | RDONLY)
        else:
            _bind(source, f"{root}/{name}", NOSUID | NODEV | RDONLY)
    os.symlink("system/bin", f"{root}/bin")
    _tmpfs(f"{root}/dev")
    _bind("/dev/socket", f"{root}/dev/socket")
    for name in ("null", "zero", "full", "random", "urandom"):
        _bind(f"/dev/{name}", f"{root}/dev/{name}", NOSUID | RDONLY)
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(target, f"{root}/dev/{name}")
    _tmpfs(f"{root}/dev/phone")
    _tmpfs(f"{root}/dev/shm")
    os.mkfifo(f"{root}{CALLS}", 0o600)
    _mount("proc", _made(f"{root}/proc"), "proc", NOSUID | NODEV | NOEXEC)
    with contextlib.suppress(OSError), open(f"{root}/proc/sys/kernel/pid_max", "w") as file:
        file.write(str(_MOST_PIDS))  # of this namespace: since Linux 6.14
    _tmpfs(f"{root}/dev/.texts")
    for path, text in asked["texts"].items():
        place = f"{root}{path}"
        if path.startswith("/proc/"):
            place = f"{root}/dev/.texts{path}"
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "w") as file:
            file.write(text)
    os.makedirs(f"{root}/dev/.texts/empty")
    for name in os.listdir(f"{root}/proc"):
        _show_of_proc(f"{root}/proc/{name}", f"{root}/dev/.texts")
    os.makedirs(f"{root}/sys", exist_ok=True)
    for name in ("dev", "dev/.texts"):
        _read_only(f"{root}/{name}")
    _call("sethostname", "localhost", 9)
    with open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("0")
    _move_into(root)
    _forget("/.old")
    _read_only("/")


def _show_of_proc(path: str, texts: str) -> None:
    name = os.path.basename(path)
    if name.isdigit() or name in _SHOWN_OF_PROC or os.path.islink(path):
        if name == "cmdline":
            _bind("/dev/null", path, NOSUID | RDONLY)
        return
    own = f"{texts}/proc/{name}"
    if os.path.isdir(path):
        _bind(own if os.path.isdir(own) else f"{texts}/empty", path, NOSUID | NODEV | RDONLY)
    else:
        _bind(own if os.path.isfile(own) else "/dev/null", path, NOSUID | RDONLY)


class _Call:
    """A process of the phone that wants to be a program."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ended = os.pidfd_open(pid)
        self.descriptors = [_call("syscall", _PIDFD_GETFD, self.ended, number, 0) for number in _CALLERS]

    def message(self) -> bytes:
        """What the broker is told of it."""
        with open(f"/proc/{self.pid}/cmdline", "rb") as file:
            words = [os.fsdecode(word) for word in file.read(_MOST_REQUEST // 2).split(b"\0")[1:-1]]
        with open(f"/proc/{self.pid}/environ", "rb") as file:
            given = dict(os.fsdecode(pair).partition("=")[::2] for pair in file.read().split(b"\0") if b"=" in pair)
        return json.dumps(
            {
                "number": self.pid,
                "program": os.path.basename(words[0]),
                "arguments": words[1:],
                "folder": os.readlink(f"/proc/{self.pid}/cwd"),
                "environment": {k: v for k, v in given.items() if k in ("HOME", "TMPDIR")},
            }
        ).encode()


class _Init:
    """The phone's first process: it starts the shell, hands on calls of programs, and takes what ended."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._calls: dict[int, _Call] = {}
        self._shell: int | None = None
        self._shell_ended = -1
        self._pipe = os.open(CALLS, os.O_RDWR | os.O_NONBLOCK)
        self._rest = b""

    def serve(self, shell: int) -> None:
        """Until the last process of the phone has ended."""
        self._shell, self._shell_ended = shell, os.pidfd_open(shell)
        while True:
            own = [] if self._shell is None else [self._shell_ended]
            calls = [call.ended for call in self._calls.values()]
            ready = select.select([self._pipe, self._line.fileno(), *own, *calls], [], [], _TICK_S)[0]
            for call in [c for c in self._calls.values() if c.ended in ready]:
                self._line.send(json.dumps({"gone": call.pid}).encode())
                self._let_go(call)
            if self._line.fileno() in ready:
                self._answer()
            if self._pipe in ready:
                self._take()
            if not self._take_ended():
                return
            if sum(name.isdigit() for name in os.listdir("/proc")) > _MOST_PROCESSES:
                os.write(2, b"/system/bin/sh: too many processes: all of them were ended\n")
                self._line.send(json.dumps({"code": 137}).encode())
                return

    def _take_ended(self) -> bool:
        """Take what has ended, of which the shell's code is said; whether processes are left."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return True
                if pid == self._shell:
                    self._shell = None
                    code = os.waitstatus_to_exitcode(status)
                    self._line.send(json.dumps({"code": 128 - code if code < 0 else code}).encode())
        except ChildProcessError:
            return False

    def _take(self) -> None:
        *lines, self._rest = (self._rest + os.read(self._pipe, 4096)).split(b"\n")
        self._rest = self._rest[-32:]
        for line in lines:
            pid = int(line) if line.isdigit() and len(line) < 10 else 0
            if not pid or pid in self._calls:
                continue
            try:
                call = _Call(pid)
                socket.send_fds(self._line, [call.message()], call.descriptors)
            except (OSError, IndexError):
                self._write(pid, 126)
                continue
            for descriptor in call.descriptors:
                os.close(descriptor)
            self._calls[pid] = call

    def _answer(self) -> None:
        data = self._line.recv(64)
        if not data:
            os._exit(1)
        pid, code = map(int, data.split())
        if pid in self._calls:
            self._let_go(self._calls[pid])
            self._write(pid, code)

    def _let_go(self, call: _Call) -> None:
        del self._calls[call.pid]
        os.close(call.ended)

    def _write(self, pid: int, code: int) -> None:
        try:
            pipe = os.open(f"/dev/phone/{pid}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError:
            return  # it waits no longer
        try:
            if stat.S_ISFIFO(os.fstat(pipe).st_mode):
                os.write(pipe, f"{code}\n".encode())
        finally:
            os.close(pipe)


def _hide_name() -> None:
    """Be called `init`, without the paths of this computer that Python was started with."""
    _call("prctl", _NAME, ctypes.c_char_p(b"init"), 0, 0, 0)
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, b"init", 4)


def _start_init(asked: dict[str, Any], line: socket.socket, ready: int) -> None:
    """Become the phone's first process; it never returns."""
    _die_with_parent()
    _call("unshare", NEW_FILES | NEW_PIDS | NEW_NET | NEW_IPC | NEW_NAME)
    child = os.fork()
    if child:
        os.closerange(0, 3)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os._exit(code if code >= 0 else 1)
    _die_with_parent()
    os.setsid()  # of this process, not of the shell: mksh loses signals where it is first in its group
    _hide_name()
    _phone_files(asked)
    _call("prctl", _DUMPABLE, 0, 0, 0, 0)
    shell = os.fork()
    if not shell:
        line.close()
        os.closerange(3, 256)
        _give_up_privileges()
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python
            signal.signal(ignored, signal.SIG_DFL)
        most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        most = _MOST_PIDS if most == resource.RLIM_INFINITY else min(most, _MOST_PIDS)
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.execve(_SHELL, [_SHELL, *asked["words"]], asked["variables"])
    os.write(ready, b"ready\n")
    os.close(ready)
    empty = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1):
        os.dup2(empty, number)
    _Init(line).serve(shell)
    os._exit(0)


def main() -> None:
    """Start the shell that is asked for, and stay until all of it has ended."""
    given, status, lifeline = map(int, sys.argv[1:])
    with open(given) as file:
        asked = json.load(file)
    folder = os.open(asked["folder"], os.O_RDONLY | os.O_DIRECTORY)
    broker, init = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ready, said = os.pipe()
    try:
        _become(asked["user"])
        _broker_files(asked)
        child = os.fork()
        if not child:
            try:
                for descriptor in (folder, lifeline, ready, status):
                    os.close(descriptor)
                broker.close()
                _start_init(asked, init, said)
            except BaseException as error:
                os.write(said, f"failed {error}\n".encode())
                os._exit(1)
        os.close(said)
        init.close()
        began = os.read(ready, 4096) or b"failed without a word\n"
    except OSError as error:
        began = f"failed {error}\n".encode()
    os.write(status, began)
    if began != b"ready\n":
        sys.exit(1)
    empty = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(empty, number)
    _Broker(asked, broker, status, lifeline, folder).serve(child)


if __name__ == "__main__":
    main()
