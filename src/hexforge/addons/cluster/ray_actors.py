# SPDX-License-Identifier: Apache-2.0
"""Ray's actors as workers: what they work with travels through Ray's object store, so no file system is shared."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import hexforge
from hexforge.addons.cluster.ray_data import TaskBlock, blocks, tasks_of, this_machine
from hexforge.analysis.mapped_tasks import RangedTasks, TaskRange
from hexforge.analysis.workers import THIS_MACHINE, Worker, WorkerCode, WorkerDiedError, Workers, results_of
from hexforge.errors import CallError, HexforgeError
from hexforge.model.tensors import external_files

_ADDRESS = "RAY_ADDRESS"
_WORKERS_FOR_A_READER = 4
_READ_AT_ONCE, _READ_BYTES = 256, 4 << 20
"""Tasks that a worker reads before it works on them, and about how many bytes of them, but one at least: by turns,
reading and working of small ones take a third more."""
_REACH_S = 10.0
"""How long the machine of an address may take to answer."""


def actors(
    code: WorkerCode, workers: Workers, tasks: Iterable[Any] = ()
) -> tuple[Callable[[], Worker], int, Iterator[Any] | None]:
    """What starts an actor, how many the cluster has room for, and tasks that are not read by this process.

    Workers read short ranges themselves where they can open the files, and else Ray Data does. A CallError where there
    is no cluster.
    """
    ray = _ray()
    _connect(ray, workers.cluster)
    there = ray.cluster_resources()
    room = int(there.get("CPU", 0) / workers.threads)
    if room < 1:
        raise CallError(
            f"the Ray cluster has {there.get('CPU', 0):g} processors, and a worker takes {workers.threads:g}; start "
            "its nodes with more (ray start --num-cpus)"
        )
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    most = max((machine.get("memory", 0) for machine in machines), default=0)
    if workers.memory_bytes > most:
        raise CallError(
            f"a worker needs {workers.memory_bytes:,} bytes of memory, and no machine of the cluster gives more than "
            f"{int(most):,}; add a larger one, or start it with more (ray start --memory)"
        )
    gpus = int(there.get("GPU", 0)) if workers.gpu else 0
    room = min(room, gpus) if gpus else room
    place: dict[str, Any] = {
        "num_cpus": workers.threads,
        "memory": workers.memory_bytes or None,
        "num_gpus": 1 if gpus else 0,
    }
    count = min(room, workers.jobs) if workers.jobs > 1 else room
    with _room_in_store(ray):
        read, unread = None, None
        if isinstance(tasks, RangedTasks) and tasks.travels:
            tasks = tasks.from_here()
            if tasks.short and (tasks.anywhere or _only_this_machine(ray)):
                read, unread = ray.put(tasks.read), iter(tasks.ranges)
                place |= {} if tasks.anywhere else {"resources": this_machine(ray)}
            else:
                unread = blocks(ray, tasks, max(1, -(-count // _WORKERS_FOR_A_READER)))
        return partial(RayWorker, ray, ray.put(packed(code)), place, read), count, unread


def _only_this_machine(ray: Any) -> bool:
    """Whether the cluster is this machine alone."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    return len(nodes) == 1 and nodes[0]["NodeManagerHostname"] == socket.gethostname()


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise CallError("a cluster needs Ray: pip install 'hexforge[cluster]'") from None
    return ray


def _connect(ray: Any, cluster: bool | str) -> None:
    """Join the cluster that is asked for, unless this process has joined it already."""
    if ray.is_initialized():
        return
    address = cluster if isinstance(cluster, str) else os.environ.get(_ADDRESS) or THIS_MACHINE
    try:
        _require_listener(address)
        ray.init(address=address, logging_level="error", log_to_driver=False, include_dashboard=False)
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CallError(
            f"no Ray cluster at {address!r}: {first}; `ray start --head` starts one, {_ADDRESS} or "
            "--cluster-address names it"
        ) from None


def _require_listener(address: str) -> None:
    """OSError where nothing listens at HOST:PORT: Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), _REACH_S).close()


@dataclass(frozen=True, slots=True)
class Parcel:
    """Something as bytes, and the contents of the files that it names, in the cluster's object store."""

    content: bytes
    files: Mapping[str, Any]
    """By what stands for them among the bytes: folder and name, where files that were side by side still are."""

    def unpacked(self, ray: Any, folder: Path) -> Any:
        """What was packed, its files now in a folder of this machine."""
        for name, content in zip(self.files, ray.get(list(self.files.values())), strict=True):
            _write(folder / name, content)
        return _Unpacking(io.BytesIO(self.content), folder).load()


def packed(thing: Any) -> Parcel:
    """A parcel; the paths of files and folders in it, wherever they are, travel as the files."""
    stream = io.BytesIO()
    packing = _packing(stream)
    packing.dump(thing)
    return Parcel(stream.getvalue(), packing.files)


def _packing(stream: io.BytesIO) -> Any:
    """Ray's pickler, which takes functions of a script too, with paths of files replaced by what stands for them."""
    import ray
    from ray.cloudpickle import CloudPickler

    class Packing(CloudPickler):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(stream)
            self.files: dict[str, Any] = {}

        def persistent_id(self, thing: Any) -> str | None:
            if not isinstance(thing, Path) or not thing.exists():
                return None
            if thing.is_dir():
                name = _name_elsewhere(thing)
                for path in (p for p in thing.rglob("*") if p.is_file()):
                    self.files[f"{name}/{path.relative_to(thing)}"] = ray.put(path.read_bytes())
                return name
            for path in (thing, *external_files(thing)):
                self.files[_name_elsewhere(path)] = ray.put(path.read_bytes())
            return _name_elsewhere(thing)

    return Packing()


class _Unpacking(pickle.Unpickler):
    """Reads a parcel of this job's own driver; files are no pickles."""

    def __init__(self, stream: io.BytesIO, folder: Path) -> None:
        super().__init__(stream)
        self.folder = folder

    def persistent_load(self, name: str) -> Path:
        return self.folder / name


def _name_elsewhere(path: Path) -> str:
    return f"{hashlib.sha256(str(path.parent.resolve()).encode()).hexdigest()[:16]}/{path.name}"


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(path.parent).free < len(content):
        raise HexforgeError(
            f"{path.name}: needs {len(content):,} bytes in {path.parent}, and there is less; free some, or set TMPDIR"
        )
    path.write_bytes(content)


@contextmanager
def _room_in_store(ray: Any) -> Iterator[None]:
    """An error of ours where the object store and the disk behind it are full."""
    try:
        yield
    except (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError) as error:
        raise HexforgeError(
            f"the cluster's object store is full: {str(error).strip().splitlines()[0]}; start Ray with a larger "
            "--object-store-memory, free the disk that it spills to, or ask for fewer jobs"
        ) from None


def _deaths(errors: Any) -> tuple[type[Exception], ...]:
    return errors.RayActorError, errors.WorkerCrashedError, errors.NodeDiedError


class RayWorker:
    """An actor on some machine of a cluster."""

    def __init__(self, ray: Any, code: Any, place: Mapping[str, Any], read: Any = None) -> None:
        """`read` is what reads ranges of tasks, in the object store, where the actor reads them itself."""
        self._ray, self._read = ray, read
        remote = ray.remote(max_restarts=0, **place)(_Actor)
        self._actor = remote.remote(code, hexforge.__version__)

    def wait(self) -> None:
        """Wait until a machine has room for the actor."""
        errors = self._ray.exceptions
        try:
            self._ray.get(self._actor.ready.remote())
        except _deaths(errors) as error:
            raise WorkerDiedError(str(error).strip().splitlines()[0]) from None

    def run(self, tasks: Sequence[Any]) -> list[Any]:
        """The results of some tasks."""
        errors = self._ray.exceptions
        try:
            with _room_in_store(self._ray):
                if self._read is not None:
                    return list(self._ray.get(self._actor.read_and_work.remote([self._read], tasks)))
                if isinstance(tasks, TaskBlock):
                    return list(self._ray.get(self._actor.work_on.remote(tasks.reference, tasks.first, tasks.rows)))
                return list(self._ray.get(self._actor.work.remote(packed(tasks))))
        except errors.RayTaskError as error:  # the code's own fault, not the machine's
            raise error.cause if isinstance(error.cause, HexforgeError) else error from None
        except (*_deaths(errors), errors.ObjectLostError, errors.OutOfMemoryError) as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, HexforgeError):
                raise cause from None
            raise WorkerDiedError(str(error).strip().splitlines()[0]) from None

    def close(self) -> None:
        """End the actor."""
        self._ray.kill(self._actor)


def end_with_parent(every_s: float = 1.0) -> None:
    """End this process when the one that started it is gone, whatever it works on: a node that ends leaves nothing."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(every_s)
        os._exit(1)

    if parent > 1:
        threading.Thread(target=watch, name="parent", daemon=True).start()


class _Actor:
    """Works on tasks in a process of Ray's."""

    def __init__(self, code: Parcel, version: str) -> None:
        self._code = code
        self._function: Callable[[Any], Any] | None = None
        self._read: Callable[[TaskRange], Iterable[Any]] | None = None
        self._other_version = hexforge.__version__ if hexforge.__version__ != version else ""
        self._driver_version = version
        self._folder = tempfile.TemporaryDirectory(prefix="hexforge-worker-")
        end_with_parent()

    def ready(self) -> None:
        """The actor runs."""

    def work(self, tasks: Parcel) -> list[Any]:
        """The results of some tasks."""
        import ray

        function = self._made()
        with tempfile.TemporaryDirectory(dir=self._folder.name) as folder:
            return results_of(function, tasks.unpacked(ray, Path(folder)))

    def work_on(self, block: Any, first: int, count: int) -> list[Any]:
        """The results of some tasks of a block."""
        return results_of(self._made(), tasks_of(block, first, count))

    def read_and_work(self, read: list[Any], tasks: TaskRange) -> list[Any]:
        """The results of some tasks that are read here."""
        import ray

        function = self._made()
        if self._read is None:
            self._read = ray.get(read[0])
        left, results, count = iter(self._read(tasks)), list[Any](), 1
        while some := list(islice(left, count)):
            if not results:
                count = max(1, min(_READ_AT_ONCE, _READ_BYTES // len(pickle.dumps(some[0]))))
            results += results_of(function, some)
        return results

    def _made(self) -> Callable[[Any], Any]:
        import ray

        if self._other_version:
            raise HexforgeError(
                f"a machine of the cluster has hexforge {self._other_version}, and this one {self._driver_version}: "
                "results might differ; install one version everywhere"
            )
        if self._function is None:
            code = self._code.unpacked(ray, Path(self._folder.name))
            self._function = code.make(*code.arguments)
        return self._function
