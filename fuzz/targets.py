# SPDX-License-Identifier: Apache-2.0
"""Fuzz targets: each reads bytes as a file; any exception but a HexforgeError is a fault, as is a crash or a hang."""

from __future__ import annotations

import contextlib
import json
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import hexforge.ops  # noqa: F401 - fills the table
from fuzz import language_model_files as language_models
from fuzz import step_wiring as wiring
from fuzz import tflite_files
from fuzz.native_context import native_context
from hexforge.addons.adapters import making
from hexforge.addons.adapters.safetensors import read_arrays
from hexforge.addons.executorch.formats.ptd import read_ptd
from hexforge.addons.executorch.formats.pte import TensorValue, read_pte
from hexforge.addons.executorch.formats.qnn_options import read_options
from hexforge.addons.executorch.running.pte_loading import PteModule
from hexforge.addons.profiler import log
from hexforge.addons.profiler.profile_text import parse_all
from hexforge.backends.htp.backend import HtpBackend
from hexforge.errors import HexforgeError
from hexforge.formats import encodings
from hexforge.formats.adapter import Adapter
from hexforge.formats.container import Container, Writer, checksum
from hexforge.ir import DType, Graph, Role, ScaleOffset, TensorType, text
from hexforge.quant.decide.recipe_reading import recipe
from hexforge.runtime.contexts import adapter_config
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.context_builder import ContextBuilder, PreparedGraph
from tests.addons.executorch.pte_files import delegated, ptd_bytes, pte, viewed
from tests.addons.executorch.test_pte import PLAN
from tests.addons.executorch.test_running import counted
from tests.addons.profiler.test_log import made as made_profile
from tests.digits import MODEL

BACKEND = HtpBackend(threads=1)
U8 = ScaleOffset(0.05, -128)
_PROFILE = made_profile(1)


def graph() -> Graph:
    """A few ops of each kind: a convolution, a table, an index op, a sum."""
    made = Graph("g")
    x = made.value("x", TensorType(DType.UINT8, (1, 4, 4, 4), U8), Role.APP_WRITE)
    weight = (np.arange(3 * 3 * 4 * 4, dtype=np.int64) % 15 - 7).astype(np.int8).reshape(3, 3, 4, 4)
    kernel = made.static(weight, ScaleOffset(0.01), name="w")
    like = TensorType(DType.UINT8, (1, 4, 4, 4), U8)
    conv = made.node("Conv2d", [x, kernel], [made.value("c", like)], stride=(1, 1), pad_amount=((1, 1), (1, 1)))
    rows = made.static(np.array([2, 0, 1, 3], np.int32), name="rows")
    picked = made.node("Gather", [conv.outputs[0], rows], [made.value("p", like)], axis=1)
    y = made.value("y", like, Role.APP_READ)
    made.node("ElementWiseAdd", [picked.outputs[0], conv.outputs[0]], [y])
    return made


def steps_graph() -> Graph:
    """Steps that compute with what tables and indices of the file say: resizes, windows, moves, sorts, recurrences."""
    made = Graph("steps")
    count = iter(range(100))
    x = made.value("x", TensorType(DType.UINT8, (1, 4, 4, 4), U8), Role.APP_WRITE)
    f = made.value("f", TensorType(DType.FLOAT32, (1, 2, 3)), Role.APP_WRITE)

    def node(op: str, ins: list[Any], *types: TensorType, out: bool = False, **params: Any) -> Any:
        role = Role.APP_READ if out else Role.NATIVE
        return made.node(op, ins, [made.value(f"t{next(count)}", t, role) for t in types], **params).outputs[0]

    def u8(*shape: int) -> TensorType:
        return TensorType(DType.UINT8, shape, U8)

    def real(*shape: int) -> TensorType:
        return TensorType(DType.FLOAT32, shape)

    def static(*shape: int) -> Any:
        values = np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
        return made.static(values, name=f"s{next(count)}")

    def indices(values: Any) -> Any:
        return made.static(np.array(values, np.int32), name=f"i{next(count)}")

    large = node("Resize", [x], u8(1, 8, 8, 4), interpolation_mode=1)
    near = node("Resize", [large], u8(1, 3, 3, 4), transformation_mode=3, nearest_mode=2)
    most = node("PoolMax2d", [near], u8(1, 2, 2, 4), filter_size=(2, 2), stride=(1, 1), pad_amount=((0, 0), (0, 0)))
    turned = node("Transpose", [most], u8(1, 4, 2, 2), perm=(0, 3, 1, 2))
    at = node("GatherElements", [turned, indices([[[[1, 0], [0, 1]]]])], u8(1, 1, 2, 2), axis=3)
    nd = node("GatherNd", [x, indices([[0, 1], [0, 3]])], u8(2, 4, 4), batch_dims=0)
    put = node("ScatterNd", [x, indices([[0, 1], [0, 3]]), nd], u8(1, 4, 4, 4))
    soft = node("Softmax", [put], TensorType(DType.UINT8, (1, 4, 4, 4), ScaleOffset(1 / 256)), axis=3)
    node("TopK", [soft], TensorType(DType.UINT8, (1, 4, 4, 2), ScaleOffset(1 / 256)),
         TensorType(DType.INT32, (1, 4, 4, 2)), out=True, k=2)  # fmt: skip
    node("Argmax", [put], TensorType(DType.INT32, (1, 4, 4)), out=True, axis=3)
    node("CumulativeSum", [at], u8(1, 1, 2, 2), out=True, axis=2)
    weights = [static(4, 3) for _ in range(3)], [static(4, 4) for _ in range(3)], [static(4) for _ in range(3)]
    given = [f, *weights[0], *weights[1], *weights[2], *[None] * 6, static(4, 3), static(4, 4), *[None] * 3, static(4)]
    node("Lstm", given, real(1, 2, 4), real(1, 4), real(1, 4), out=True)
    return made


def context_bytes(of: Callable[[], Graph] = graph, **more: Any) -> bytes:
    """A small context."""
    builder = ContextBuilder("htp")
    program = BACKEND.compile(of())
    builder.add(PreparedGraph(program.graph.name, program, **more))
    return builder.writer().to_bytes()


_WHOLE = context_bytes()
_PARTS = Container(_WHOLE)
_INFO, _PROGRAM = (bytes(_PARTS.section(k, n)) for k, n in (("info", ""), ("program", "0")))
_WEIGHTS = bytes(_PARTS.section("weights", ""))
_FEEDS = {"x": np.arange(64, dtype=np.uint8).reshape(1, 4, 4, 4)}
_STEPS = Container(context_bytes(steps_graph))
_BASE = Context(context_bytes(updatable=("w",)))
_WANTED = _BASE.program("g", BACKEND).run(_FEEDS)["y"]
_FOLDER = tempfile.TemporaryDirectory()
_FILE = Path(_FOLDER.name) / "input"


def container(data: bytes) -> None:
    """A file as it is: almost always stopped by a checksum."""
    _run(data)


def context(data: bytes) -> None:
    """Contents with right checksums: the graph table, the program and the weights, split by NUL NUL."""
    parts = [*data.split(b"\0\0", 2), b"", b""]
    made = Writer()
    made.add("info", "", parts[0] or _INFO)
    made.add("program", "0", parts[1] or _PROGRAM)
    made.add("weights", "", parts[2] or _WEIGHTS)
    _run(made.to_bytes())


def steps(data: bytes) -> None:
    """A program with other numbers: each 11 bytes are a place, a kind and a value."""
    program = _STEPS.json("program", "0")
    arrays = bytearray(_STEPS.section("weights", ""))
    places = list(_numbers(program["stages"]))
    for place, kind, value in struct.iter_unpack("<HBq", data[: len(data) // 11 * 11]):
        if kind % 8 > 3:  # of a table
            struct.pack_into("<q", arrays, place * 4 % (len(arrays) - 8), value)
            continue
        within, key = places[place % len(places)]
        number = (value, value % 256 - 16, 1 << value % 63, -(1 << value % 64))[kind % 8]
        within[key] = number
    made = Writer()
    made.add("info", "", _STEPS.section("info", ""))
    made.add_json("program", "0", program)
    made.add("weights", "", arrays)
    _run(made.to_bytes())


def _numbers(data: Any) -> Iterator[tuple[Any, Any]]:
    """Where the integers of plain data are."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        if type(value) is int:
            yield data, key
        elif isinstance(value, dict | list):
            yield from _numbers(value)


def _run(data: bytes) -> None:
    try:
        found = Context(data)
        for row in found.graphs:
            program = found.program(row.name, BACKEND)
            if sum(type.size for _, type in (*row.inputs, *row.outputs)) < 1 << 20:
                program.run({n: np.zeros(t.shape, t.dtype.numpy) for n, t in row.inputs})
    except HexforgeError:
        pass


def adapter(data: bytes) -> None:
    """An adapter's table and arrays with right checksums, split by NUL NUL, applied to a context."""
    parts = [*data.split(b"\0\0", 1), b""]
    made = Writer()
    made.add("adapter", "", parts[0])
    made.add("weights", "", parts[1])
    base = _BASE.program("g", BACKEND)
    with contextlib.suppress(HexforgeError):
        _BASE.apply(Adapter(made.to_bytes()))
        base.run(_FEEDS)
    _BASE.remove_adapters()
    assert np.array_equal(base.run(_FEEDS)["y"], _WANTED), "the base is not what it was"


def lora_config(data: bytes) -> None:
    """A LoRA config file."""
    _FILE.write_bytes(data)
    with contextlib.suppress(HexforgeError):
        adapter_config.read_config(_FILE)


def safetensors(data: bytes) -> None:
    """A file of adapter weights."""
    _FILE.write_bytes(data)
    with contextlib.suppress(HexforgeError):
        read_arrays(_FILE)


def graph_text(data: bytes) -> None:
    """The text form of a graph."""
    with contextlib.suppress(HexforgeError):
        text.loads(
            data.decode("utf-8", "replace"),
            lambda offset, size: memoryview(bytes(size))[:size] if size < 1 << 16 else memoryview(b""),
        )


def encodings_file(data: bytes) -> None:
    """An AIMET encodings file."""
    with contextlib.suppress(HexforgeError):
        encodings.parse(data, {}, {"x": (1, 4), "w": (4, 4)}, "fuzz")


def recipe_text(data: bytes) -> None:
    """A recipe in a line, or a file."""
    with contextlib.suppress(HexforgeError):
        recipe(data.decode("utf-8", "replace"))


def onnx_model(data: bytes) -> None:
    """An ONNX model, EPContext or not, through a session."""
    import hexforge as product

    try:
        product.InferenceSession(data, providers=[("QNNExecutionProvider", {"backend_type": "htp"})])
    except HexforgeError:
        pass
    except Exception as error:  # onnxruntime's own, of a part left to the CPU
        if not type(error).__module__.startswith("onnxruntime"):
            raise


def seeds(target: str) -> Iterable[bytes]:
    """Files a target begins with."""
    if target == "container":
        yield _WHOLE
    elif target in ("context", "native_context"):
        yield _INFO + b"\0\0" + _PROGRAM
        yield b"\0\0" + _PROGRAM
        yield _INFO
    elif target == "steps":
        for kind in range(5):
            yield struct.pack("<HBqHBq", 100 * kind, kind, 1 << kind, 31 * kind, kind, -kind)
    elif target == "step_wiring":
        yield from wiring.seeds()
    elif target == "adapter":
        yield adapter_table()
    elif target == "tflite_file":
        yield from sorted(set(tflite_files.seeds()), key=len)[:100]
    elif target == "profile_log":
        whole = log.to_bytes(_PROFILE)
        yield whole
        contents, at = b"", 16
        while at < len(whole):
            raw = zlib.decompress(whole[at + 16 : (at := at + 16 + struct.unpack_from("<I", whole, at + 4)[0])])
            contents += struct.pack("<H", len(raw)) + raw
        yield contents
    elif target == "pte_program":
        yield pte(PLAN)
        yield pte(delegated())
        yield pte(counted(9))
        yield pte(viewed())
    elif target == "ptd_file":
        yield ptd_bytes()
    elif target == "compile_spec":
        yield bytes(PLAN.specs["qnn_compile_spec"]).ljust(64, b"\0")
        yield struct.pack("<IHHHHiI", 12, 8, 8, 4, 0, 8, 0) + bytes(32)
    elif target == "profile_text":
        yield (Path("tests") / "formats" / "profile" / "published_reports.txt").read_bytes()[:9000]
    elif target == "lora_config":
        yield b"g;adapter.bin\nh ; /adapters/other.bin\r\n"
    elif target == "safetensors":
        header = b'{"a":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]},"__metadata__":{}}'
        yield len(header).to_bytes(8, "little") + header + bytes(8)
        with tempfile.TemporaryDirectory() as folder:
            np.savez(Path(folder) / "a.npz", a=np.arange(4))
            yield (Path(folder) / "a.npz").read_bytes()
    elif target == "graph_text":
        yield text.dumps(graph()).encode()
    elif target == "encodings_file":
        one = {
            "bitwidth": 8,
            "dtype": "int",
            "is_symmetric": "False",
            "max": 1.0,
            "min": -1.0,
            "offset": -128,
            "scale": 0.1,
        }
        yield json.dumps(
            {"version": "0.6.1", "activation_encodings": {"x": [one]}, "param_encodings": {"w": [one] * 4}}
        ).encode()
        new = {
            "name": "x",
            "bw": 8,
            "dtype": "INT",
            "enc_type": "PER_TENSOR",
            "is_sym": False,
            "offset": [-128],
            "scale": [0.1],
        }
        yield json.dumps({"version": "1.0.0", "activation_encodings": [new], "param_encodings": []}).encode()
    elif target == "recipe_text":
        yield b"w8a8+percentile=99.9+equalize; MatMul=w8a16; /enc/*=w4a16_block[32]; tensor:out=a16; /head/*=float"
    elif hasattr(language_models, target):
        yield from language_models.seeds(target)
    elif target == "onnx_model":
        yield MODEL.read_bytes()
        with tempfile.TemporaryDirectory() as folder:
            yield context_model(Path(folder))


def adapter_table() -> bytes:
    """An adapter for the small context, its table and arrays."""
    changed = graph()
    weight = changed.values["w"]
    assert weight.data is not None
    weight.data = weight.data[::-1].copy()
    maker = making.AdapterBuilder(_BASE)
    maker.add("g", BACKEND.compile(changed), ["w"])
    found = Container(maker.writer().to_bytes())
    return bytes(found.section("adapter", "")) + b"\0\0" + bytes(found.section("weights", ""))


def context_model(folder: Path) -> bytes:
    """The digit classifier with its context embedded."""
    import hexforge as product

    options = product.SessionOptions()
    for key, value in (
        ("ep.context_enable", "1"),
        ("ep.context_embed_mode", "1"),
        ("ep.context_file_path", str(folder / "c.onnx")),
    ):
        options.add_session_config_entry(key, value)
    product.InferenceSession(MODEL, options, providers=[("QNNExecutionProvider", {"backend_type": "htp"})])
    return (folder / "c.onnx").read_bytes()


def profile_log(data: bytes) -> None:
    """A profiling log: its frames' contents behind right checksums, then all views of what is read."""
    from hexforge.addons.profiler.profile_text import average_reports

    frames, at = [log.to_bytes(_PROFILE)[:16]], 0
    for kind in (b"PROF", b"GRPH", b"RUN_"):
        (size,) = struct.unpack("<H", data[at : at + 2].ljust(2, b"\0"))
        stored = zlib.compress(data[at + 2 : at + 2 + size], 1)
        frames.append(struct.pack("<4sIII", kind, len(stored), len(data[at + 2 : at + 2 + size]), checksum(stored)))
        frames.append(stored)
        at += 2 + size
    for file in (data, b"".join(frames)):
        with contextlib.suppress(HexforgeError):
            read = log.from_bytes(file)
            assert log.from_bytes(log.to_bytes(read)) == read
            for report in average_reports(read):
                str(report)


def profile_text(data: bytes) -> None:
    """The text of a profile."""
    with contextlib.suppress(HexforgeError):
        for report in parse_all(data.decode("utf-8", "replace")):
            str(report)


def pte_program(data: bytes) -> None:
    """A .pte: what it says, the compile specs in it, and its methods run, on inputs that fit."""
    with contextlib.suppress(HexforgeError):
        file = read_pte(data)
        for plan in file.plans:
            for delegate in plan.delegates:
                for spec in delegate.specs.values():
                    with contextlib.suppress(HexforgeError):
                        read_options(spec, "fuzz")
        module = PteModule(file, threads=1, max_instructions=1000)
        for name in module.names:
            with contextlib.suppress(HexforgeError):
                method = module.method(name)
                tensors = [v for v in file.plan(name).values if isinstance(v, TensorValue)]
                if sum(t.nbytes for t in tensors) < 1 << 20:
                    method.run(
                        [np.zeros(v.sizes, v.dtype.numpy) if isinstance(v, TensorValue) else v for v in method.inputs]
                    )


def ptd_file(data: bytes) -> None:
    """A .ptd: tensors beside a program."""
    with contextlib.suppress(HexforgeError):
        read_ptd(data)


def compile_spec(data: bytes) -> None:
    """The compile spec of a delegate."""
    with contextlib.suppress(HexforgeError):
        read_options(data, "fuzz")


TARGETS: dict[str, Callable[[bytes], None]] = {
    f.__name__: f
    for f in (
        container,
        context,
        steps,
        wiring.step_wiring,
        native_context,
        adapter,
        lora_config,
        safetensors,
        graph_text,
        encodings_file,
        recipe_text,
        onnx_model,
        profile_log,
        profile_text,
        pte_program,
        ptd_file,
        compile_spec,
        language_models.gguf_file,
        language_models.checkpoint_files,
        language_models.peft_adapter,
        language_models.bundle_description,
        tflite_files.tflite_file,
    )
}
