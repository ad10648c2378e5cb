# SPDX-License-Identifier: Apache-2.0
"""Op packages: ops that a user defines, in Python or in a shared library (hexforge_op_package.h), beside QNN's own.

A package is loaded only because the user names it: `<OpType>:<path>:<interface>[:<target>]`, as QNN's option
op_packages spells it. Its ops are then ops of the table like any other: they are placed, run, timed, kept in contexts.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hexforge.errors import CallError, ModelError, UnsupportedError
from hexforge.ir.layout import BOUND, POINTWISE
from hexforge.ir.op import Call, Measure, Op, Param, declare, known_names, moves, per_element, withdraw
from hexforge.ir.types import Array, TensorType
from hexforge.ir.work import Work
from hexforge.ops import rules
from hexforge.options import did_you_mean

API, MAX_RANK, MOST_OPS = 1, 8, 1024
HEADERS = Path(__file__).parent / "include"


class _Shape(ctypes.Structure):
    _fields_ = (("rank", ctypes.c_int32), ("dims", ctypes.c_int64 * MAX_RANK))


_INFER = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.POINTER(_Shape), ctypes.c_int32, ctypes.POINTER(ctypes.c_double), ctypes.POINTER(_Shape)
)
_FLOATS = ctypes.POINTER(ctypes.POINTER(ctypes.c_float))
_RUN = ctypes.CFUNCTYPE(
    ctypes.c_int32, _FLOATS, ctypes.POINTER(_Shape), ctypes.POINTER(ctypes.c_double), _FLOATS, ctypes.POINTER(_Shape)
)


class _Op(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_char_p) for name in ("type", "inputs", "outputs", "params", "work")),
        ("lanes", ctypes.c_int32),
        ("lookups", ctypes.c_int32),
        ("infer", _INFER),
        ("run", _RUN),
    )


class _Package(ctypes.Structure):
    _fields_ = (
        ("api", ctypes.c_int32),
        ("name", ctypes.c_char_p),
        ("domain", ctypes.c_char_p),
        ("count", ctypes.c_int32),
        ("ops", ctypes.POINTER(_Op)),
    )


def load_library(file: Path, interface: str, make: Callable[[str, str], Any]) -> None:
    """Fill the package of a name and domain that `make` makes with the ops of a shared library."""
    try:
        library = ctypes.CDLL(str(file.resolve()))
    except OSError as error:
        words = f"{file}: cannot be loaded: {error}"
        raise CallError(f"{words}; it must be built for this computer (`hexforge op-package build`)") from None
    try:
        function = getattr(library, interface)
    except AttributeError:
        raise CallError(f'{file}: has no function {interface!r}; is it extern "C"?') from None
    function.restype, function.argtypes = ctypes.POINTER(_Package), []
    given = function()
    if not given:
        raise CallError(f"{file}: {interface} gives no package")
    library_facts = given.contents
    if library_facts.api != API:
        raise UnsupportedError(
            f"{file}: was built for version {library_facts.api} of hexforge_op_package.h; this is {API}"
        )
    if not 0 < library_facts.count <= MOST_OPS:
        raise CallError(f"{file}: says that it has {library_facts.count} ops")
    package = make(_text(library_facts.name, "name", file), _text(library_facts.domain, "domain", file))
    for index in range(library_facts.count):
        _add(package, library_facts.ops[index], file, library)


def _text(given: bytes | None, what: str, file: Path) -> str:
    try:
        return (given or b"").decode("utf-8")
    except UnicodeDecodeError:
        raise CallError(f"{file}: the {what} is no text") from None


def _add(package: Any, op: _Op, file: Path, library: Any) -> None:
    type = _text(op.type, "type of an op", file)
    names = {side: _text(getattr(op, side), side, file).split() for side in ("inputs", "outputs")}
    params = _params(_text(op.params, "params", file), type)
    run, infer, count = op.run, op.infer, len(names["outputs"])
    if not type or not names["inputs"] or not count or not run:
        raise CallError(f"{file}: op {type!r} lacks a name, inputs, outputs or its function run")

    def shape(*shapes: Sequence[int], **given: float) -> list[Sequence[int]]:
        made = (_Shape * count)()
        if infer(_shapes(shapes), len(shapes), _numbers(given), made):
            raise CallError(f"op {type!r}: its package refuses the shapes {[list(s) for s in shapes]}")
        if any(not 0 <= one.rank <= MAX_RANK for one in made):
            raise CallError(f"op {type!r}: its package gives a tensor of {max(m.rank for m in made)} dimensions")
        return [tuple(one.dims[: one.rank]) for one in made]

    def compute(*arrays: Array, **given: float) -> tuple[Array, ...]:
        ready = [np.ascontiguousarray(array, np.float32) for array in arrays]
        shapes = [array.shape for array in ready]
        sizes = shape(*shapes, **given) if infer else [shapes[0]] * count
        outputs = [np.empty(size, np.float32) for size in sizes]
        if run(_pointers(ready), _shapes(shapes), _numbers(given), _pointers(outputs), _shapes(sizes)):
            raise CallError(f"op {type!r}: its package failed to compute it")
        _ = library  # kept open as long as its functions are used
        return tuple(outputs)

    result: Callable[..., Any] = compute if count > 1 else lambda *a, **p: compute(*a, **p)[0]
    package.op(
        type, " ".join(names["inputs"]), " ".join(names["outputs"]), params, shape=shape if infer else None,
        work=_text(op.work, "work", file) or "add", lanes=max(op.lanes, 1), lookups=max(op.lookups, 0),
        doc=f"{type} of {package.name}.",
    )(result)  # fmt: skip


def _params(text: str, type: str) -> list[Param]:
    made = []
    for part in text.split():
        name, equals, value = part.partition("=")
        try:
            made.append(Param(name, "float32", default=float(value)) if equals else Param(name, "float32"))
        except ValueError:
            raise CallError(f"op {type!r}: parameter {part!r}: expected name or name=number") from None
    return made


def _shapes(shapes: Sequence[Sequence[int]]) -> Any:
    made = (_Shape * max(len(shapes), 1))()
    for one, shape in zip(made, shapes, strict=False):
        if len(shape) > MAX_RANK:
            raise CallError(f"a tensor of {len(shape)} dimensions; op packages take up to {MAX_RANK}")
        one.rank = len(shape)
        one.dims[: len(shape)] = list(shape)
    return made


def _numbers(given: dict[str, Any]) -> Any:
    return (ctypes.c_double * max(len(given), 1))(*map(float, given.values()))


def _pointers(arrays: Sequence[Array]) -> Any:
    kind = ctypes.POINTER(ctypes.c_float)
    return (kind * len(arrays))(*(array.ctypes.data_as(kind) for array in arrays))


TARGETS = ("CPU", "HTP")
_SPEC = re.compile(r"([^:,]+):((?:[A-Za-z]:[\\/])?[^:,]+):([^:,]+)(?::([^:,]+))?")
_WHOLE = re.compile(r"((?:[A-Za-z]:[\\/])?[^:,]+):([^:,]+)(?::([^:,]+))?")
_RULES = {"own": rules.OWN, "input": rules.SAME, "never": rules.NEVER}
Shape = tuple[int, ...]
ShapeRule = Callable[..., Any]
"""Shapes of the inputs, then the parameters by name, to the output's shape, or a list of the outputs' shapes."""


@dataclass(frozen=True, slots=True, eq=False)
class CustomOp:
    """An op of a package."""

    op: Op
    package: str
    domain: str
    """The ONNX domain its nodes have."""
    targets: tuple[str, ...] = TARGETS
    """Backends that take it, as QnnBackend_registerOpPackage names them."""
    path: str = ""
    digest: str = ""
    """Of the file it was read from."""


class OpPackage:
    """Ops that belong together, defined by functions over numpy arrays."""

    def __init__(self, name: str, domain: str) -> None:
        if not name or not domain or domain in ("ai.onnx", "com.microsoft"):
            raise CallError(f"op package {name!r}: needs a name, and an ONNX domain of its own, not {domain!r}")
        self.name, self.domain = name, domain
        self.ops: dict[str, CustomOp] = {}

    def op(
        self,
        type: str,
        inputs: str = "in",
        outputs: str = "out",
        params: Sequence[Param] = (),
        *,
        shape: ShapeRule | None = None,
        quant: Literal["own", "input", "never"] = "own",
        work: str = "add",
        lanes: int = 1,
        lookups: int = 0,
        macs: Callable[..., int] | None = None,
        doc: str = "",
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Define an op by its reference: a function of the inputs' arrays and of the parameters by name.

        `shape` gives the outputs' shapes; without it an output has the shape of the first input. `work` is the kind of
        work (`hexforge ops` lists them), `lanes` and `lookups` how much of it each output element is; `macs` counts
        multiply-accumulates from the inputs' shapes and the parameters.
        """
        kinds = {kind.value: kind for kind in Work}
        if work not in kinds:
            listed = f"{', '.join(kinds)}{did_you_mean(work, kinds)}"
            raise CallError(f"op {type!r}: no kind of work {work!r}; there are {listed}")
        if quant not in _RULES:
            raise CallError(f"op {type!r}: quant is {quant!r}; expected {', '.join(_RULES)}")

        def define(function: Callable[..., Any]) -> Callable[..., Any]:
            made = Op(
                type,
                tuple(inputs.split()),
                tuple(outputs.split()),
                tuple(params),
                _infer(shape, len(outputs.split())),
                lambda call, *arrays: function(*arrays, **call.params),
                kinds[work],
                _measure(kinds[work], lanes, lookups, macs),
                _RULES[quant],
                POINTWISE if shape is None and len(outputs.split()) == 1 else BOUND,
                doc or (function.__doc__ or f"{type} of {self.name}.").strip().splitlines()[0],
            )
            self.ops[type] = CustomOp(made, self.name, self.domain)
            return function

        return define


def _infer(shape: ShapeRule | None, count: int) -> Callable[[Call], tuple[TensorType, ...]]:
    def infer(call: Call) -> tuple[TensorType, ...]:
        first = call.input(0)
        if shape is None:
            return (TensorType(first.dtype, first.shape),) * count
        inferred = shape(*(None if t is None else t.shape for t in call.ins), **call.params)
        shapes = (
            [inferred]
            if count == 1 and (not inferred or not isinstance(inferred[0], (list, tuple)))
            else list(inferred)
        )
        if len(shapes) != count or not all(isinstance(d, (int, np.integer)) and d >= 0 for s in shapes for d in s):
            raise call.fail(f"the shape rule gives {inferred!r}; expected {count} shapes of whole numbers")
        return tuple(TensorType(first.dtype, tuple(int(d) for d in s)) for s in shapes)

    return infer


def _measure(kind: Work, lanes: int, lookups: int, macs: Callable[..., int] | None) -> Measure:
    if macs is not None:
        count = macs

        def counted(call: Call) -> int:
            return int(count(*(None if t is None else t.shape for t in call.ins), **call.params))

        return replace(per_element(lanes, lookups), macs=counted)
    return moves if kind in (Work.MOVE, Work.RESHAPE, Work.TRANSPOSE) else per_element(lanes, lookups)


# -- what is registered -----------------------------------------------------------------------------------------------

_REGISTERED: dict[tuple[str, str], CustomOp] = {}
_BY_NAME: dict[str, CustomOp] = {}


def custom_op(domain: str, type: str) -> CustomOp | None:
    """The registered op of an ONNX node, or None."""
    return _REGISTERED.get((domain, type))


def custom_named(name: str) -> CustomOp | None:
    """The registered op of a QNN name, None for QNN's own."""
    return _BY_NAME.get(name)


def registered_ops() -> tuple[CustomOp, ...]:
    """Every op of a package."""
    return tuple(_BY_NAME.values())


def register_op_package(spec: str) -> CustomOp:
    """Load an op of a package, `<OpType>:<path>:<interface>[:<target>]`; the same one again changes nothing.

    `path` is a Python file, and `interface` the OpPackage in it; or a shared library, and `interface` its function.
    """
    match = _SPEC.fullmatch(spec.strip())
    if match is None:
        raise CallError(f"op package {spec!r}: expected <OpType>:<path>:<interface>[:<target>]")
    type, path, interface, target = match.groups()
    package, of = _read(Path(path), interface, target, spec)
    if type not in package.ops:
        listed = ", ".join(package.ops) or "none"
        raise CallError(
            f"op package {spec!r}: {package.name} has no op {type!r}; it has {listed}{did_you_mean(type, package.ops)}"
        )
    return _register(replace(package.ops[type], **of))


def register_whole_package(spec: str) -> tuple[CustomOp, ...]:
    """Load every op of a package, `<path>:<interface>[:<target>]`, as QNN's tools name packages."""
    match = _WHOLE.fullmatch(spec.strip())
    if match is None:
        raise CallError(f"op package {spec!r}: expected <path>:<interface>[:<target>]")
    path, interface, target = match.groups()
    package, of = _read(Path(path), interface, target, spec)
    return tuple(_register(replace(op, **of)) for op in package.ops.values())


def _read(file: Path, interface: str, target: str | None, spec: str) -> tuple[OpPackage, dict[str, Any]]:
    """A package from its file, and what is known of each of its ops then."""
    if target is not None and target.upper() not in TARGETS:
        raise CallError(f"op package {spec!r}: target {target!r}: expected {' or '.join(TARGETS)}")
    if not file.is_file():
        raise CallError(f"op package {spec!r}: there is no file {file}")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    package = _python(file, interface, spec) if file.suffix == ".py" else _library(file, interface, spec)
    targets = TARGETS if target is None else (target.upper(),)
    return package, {"targets": targets, "path": str(file), "digest": digest}


def _register(custom: CustomOp) -> CustomOp:
    before = _BY_NAME.get(custom.op.name)
    if before is not None:
        if (before.digest, before.package) == (custom.digest, custom.package):
            targets = tuple(t for t in TARGETS if t in (*before.targets, *custom.targets))
            custom = replace(before, targets=targets)
        else:
            withdraw(before.op)  # another version of it, or another package: the newest registration holds
            del _REGISTERED[before.domain, before.op.name]
            declare(custom.op)
    elif custom.op.name in known_names():
        raise CallError(f"op package {custom.package!r}: QNN has an op {custom.op.name!r} of its own; use another name")
    else:
        declare(custom.op)
    _REGISTERED[custom.domain, custom.op.name] = _BY_NAME[custom.op.name] = custom
    return custom


def unregister(name: str) -> None:
    """Forget an op of a package, as its backend's end does."""
    custom = _BY_NAME.pop(name, None)
    if custom is not None:
        del _REGISTERED[custom.domain, name]
        withdraw(custom.op)


def _python(file: Path, interface: str, spec: str) -> OpPackage:
    """The package that a Python file defines; an error in the file is reported with its line."""
    module_spec = importlib.util.spec_from_file_location(f"hexforge_op_package_{file.stem}", file)
    if module_spec is None or module_spec.loader is None:
        raise CallError(f"op package {spec!r}: {file} cannot be imported")
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except CallError:
        raise
    except Exception as error:
        line = next((f" line {e.tb_lineno}" for e in _frames(error) if e.tb_frame.f_code.co_filename == str(file)), "")
        raise CallError(f"op package {spec!r}: {file}{line}: {error.__class__.__name__}: {error}") from error
    package = getattr(module, interface, None)
    if not isinstance(package, OpPackage):
        packages = [name for name, value in vars(module).items() if isinstance(value, OpPackage)]
        listed = f"; it has {', '.join(packages)}" if packages else ""
        raise CallError(f"op package {spec!r}: {file} has no OpPackage named {interface!r}{listed}")
    return package


def _frames(error: BaseException) -> list[Any]:
    frames, at = [], error.__traceback__
    while at is not None:
        frames.append(at)
        at = at.tb_next
    return frames[::-1]


def _library(file: Path, interface: str, spec: str) -> OpPackage:
    made: list[OpPackage] = []

    def make(name: str, domain: str) -> OpPackage:
        made.append(OpPackage(name, domain))
        return made[0]

    try:
        load_library(file, interface, make)
    except (CallError, UnsupportedError) as error:
        raise type(error)(f"op package {spec!r}: {error}") from None
    return made[0]


def require_registered(wanted: Mapping[str, Mapping[str, str]], where: str) -> None:
    """ModelError naming the packages that a file needs and that are not registered, or are another version."""
    for name, facts in wanted.items():
        custom = _BY_NAME.get(name)
        if custom is None:
            raise ModelError(
                f"{where}: needs the op {name!r} of the op package {facts.get('package')!r}; register it: "
                f"op_packages={name}:<path>:<interface>"
            )
        if facts.get("digest") and custom.digest and facts["digest"] != custom.digest:
            raise ModelError(
                f"{where}: was made with another version of the op package {custom.package!r} than {custom.path}; "
                "register that one, or make the context again"
            )


def needed_packages(ops: Sequence[str]) -> dict[str, dict[str, str]]:
    """The ops among these that belong to packages, with the record that a file keeps of each."""
    by_name = {name: _BY_NAME[name] for name in ops if name in _BY_NAME}
    return {name: {"package": custom.package, "digest": custom.digest} for name, custom in by_name.items()}
