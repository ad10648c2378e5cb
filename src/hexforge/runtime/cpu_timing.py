# SPDX-License-Identifier: Apache-2.0
"""CPU timing: how long a part of a model takes on one core of this computer, and how fast that core is then.

A part is run in onnxruntime's CPU provider on one thread, as often as a bounded time allows, and the median is kept
for as long as the process lives: the same part has the same time wherever it is met. The thread's own CPU time is
counted, and a piece of reference work is timed in turn with the part, so that other load on this computer, which slows
both, hardly matters.
"""

from __future__ import annotations

import functools
import hashlib
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hexforge.errors import CapacityError
from hexforge.ir import Array
from hexforge.model.load_check import Extract
from hexforge.runtime.cpu_part import CpuPart, with_constants

MOST_RUNS = 15
ENOUGH_SECONDS = 0.3
"""After so long no further run of a part begins."""
MOST_SECONDS = 10.0
"""A single run that takes longer is ended, and the part has no time."""
SMALL_ELEMENTS = 64
"""Constants with at most so many elements (axes, lengths) decide what is computed; of others only the size matters."""


@dataclass(frozen=True, slots=True)
class CoreTime:
    """How long a part took on one core of this computer, and how long the reference work took at the same time."""

    us: float
    reference_us: float
    shares: tuple[float, ...] = ()
    """Of each node in it, the share of the time; empty where that is not known."""


_times: dict[str, CoreTime] = {}


@contextmanager
def one_thread(constants: Mapping[str, Array]) -> Iterator[Any]:
    """onnxruntime's options for one thread, the caller's."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    yield with_constants(options, constants)


def run_bounded(part: CpuPart, feeds: Mapping[str, Any], seconds: float = MOST_SECONDS) -> dict[str, Any]:
    """The part's outputs; CapacityError where it has not ended after so many seconds."""
    import onnxruntime

    options, expired = onnxruntime.RunOptions(), threading.Event()

    def end() -> None:
        expired.set()
        options.terminate = True

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        return part.run(feeds, options)
    except Exception as error:
        if not expired.is_set():
            raise
        raise CapacityError(f"takes more than {seconds:g} seconds on one core of this computer") from error
    finally:
        timer.cancel()


def part_key(cut: Extract) -> str:
    """What decides how long a part takes: its nodes, types and sizes, whatever its tensors are called."""
    names: dict[str, str] = {}
    digest = hashlib.blake2b(digest_size=16)

    def numbered(values: Sequence[str]) -> list[str]:
        return [name and names.setdefault(name, f"t{len(names)}") for name in values]

    graph = cut.proto.graph
    digest.update(repr([(o.domain, o.version) for o in cut.proto.opset_import]).encode())
    for value in graph.input:
        digest.update(repr((numbered([value.name]), value.type.SerializeToString(deterministic=True))).encode())
    for node in graph.node:
        attributes = sorted(a.SerializeToString(deterministic=True) for a in node.attribute)
        digest.update(repr((node.domain, node.op_type, numbered(node.input), attributes)).encode())
        digest.update(repr(numbered(node.output)).encode())
    digest.update(repr([numbered([value.name]) for value in graph.output]).encode())
    for tensor in sorted(graph.initializer, key=lambda t: names.get(t.name, "")):
        size = int(np.prod(tensor.dims)) if tensor.dims else 1
        external = tensor.data_location == TensorProto.EXTERNAL
        small = b"" if size > SMALL_ELEMENTS or external else numpy_helper.to_array(tensor).tobytes()
        digest.update(repr((names.get(tensor.name, ""), tensor.data_type, list(tensor.dims), small)).encode())
    return digest.hexdigest()


def known_time(key: str) -> CoreTime | None:
    """The time of a part that was measured before."""
    return _times.get(key)


def measure(key: str, cut: Extract, nodes: Sequence[str], feeds: Mapping[str, Any]) -> CoreTime:
    """The time of a part on one core of this computer; CapacityError where a run takes too long."""
    known = _times.get(key)
    if known is None:
        whole = None
        if len(nodes) > 1:  # a part may change what it is made of
            whole = Extract(onnx.ModelProto(), cut.constants)
            whole.proto.CopyFrom(cut.proto)
        known = _timed(CpuPart(cut, nodes, one_thread), feeds)
        if whole is not None and known.us < MOST_SECONDS * 1e6 / 2:
            known = replace(known, shares=_node_shares(whole, nodes, feeds))
        _times[key] = known
    return known


def _node_shares(cut: Extract, nodes: Sequence[str], feeds: Mapping[str, Any]) -> tuple[float, ...]:
    """The share of each node in the time of a part, by a run that onnxruntime profiles; empty where it tells none.

    What a Loop's body takes is in the time of the Loop.
    """
    with tempfile.TemporaryDirectory() as folder:

        @contextmanager
        def profiled(constants: Mapping[str, Array]) -> Iterator[Any]:
            import onnxruntime

            with one_thread(constants) as options:
                options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
                options.enable_profiling, options.profile_file_prefix = True, str(Path(folder) / "part")
                yield options

        part = CpuPart(cut, nodes, profiled)
        run_bounded(part, feeds)  # memory is taken and caches are filled
        run_bounded(part, feeds)
        written = part.end_profiling()
        events = json.loads(Path(written).read_bytes()) if written else []
    names = [node.name for node in cut.proto.graph.node]
    us = dict.fromkeys(names, 0.0)
    for event in events:
        name, _, what = event.get("name", "").rpartition("_kernel_time")
        if event.get("cat") == "Node" and not what and name in us:
            us[name] = float(event["dur"])  # the last run's
    total = sum(us.values())
    return tuple(us[name] / total for name in names) if total and len(us) == len(names) else ()


def _timed(part: CpuPart, feeds: Mapping[str, Any]) -> CoreTime:
    """The medians of a part and of the reference work, run in turn; a part that takes long is run once."""
    reference, given = _reference_part(), {"x": _reference_input()}
    reference.run(given)
    first = _seconds(lambda: run_bounded(part, feeds))  # memory is taken and caches are filled
    times, references = [first], [_seconds(lambda: reference.run(given))]
    if first < ENOUGH_SECONDS:
        times = []
    while first < ENOUGH_SECONDS and len(times) < MOST_RUNS and sum(times) < ENOUGH_SECONDS:
        times.append(_seconds(lambda: part.run(feeds)))
        references.append(_seconds(lambda: reference.run(given)))
    return CoreTime(statistics.median(times) * 1e6, statistics.median(references) * 1e6)


def _seconds(call: Callable[[], object]) -> float:
    start = time.thread_time()
    call()
    return time.thread_time() - start


# -- the reference work -----------------------------------------------------------------------------------------------

_ROWS = 256


def _reference_model() -> Extract:
    """A product, activations, a search and a running sum: some of what NPUs leave to the CPU, each a good part."""
    tensor = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT)
    weight = np.random.default_rng(0).standard_normal((_ROWS, _ROWS)).astype(np.float32) / 16
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Sigmoid", ["product"], ["activated"]),
        helper.make_node("TopK", ["activated", "k"], ["largest", "at"]),
        helper.make_node("CumSum", ["largest", "axis"], ["sums"]),
    ]
    constants = [
        numpy_helper.from_array(weight, "w"),
        numpy_helper.from_array(np.array([16]), "k"),
        numpy_helper.from_array(np.array(1), "axis"),
    ]
    shape = [_ROWS, _ROWS]
    graph = helper.make_graph(nodes, "reference", [tensor("x", shape=shape)], [tensor("sums", shape=None)], constants)
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)])
    return Extract(onnx.shape_inference.infer_shapes(model))


@functools.cache
def _reference_part() -> CpuPart:
    return CpuPart(_reference_model(), ("reference",), one_thread)


@functools.cache
def _reference_input() -> Array:
    return np.random.default_rng(1).standard_normal((_ROWS, _ROWS)).astype(np.float32)
