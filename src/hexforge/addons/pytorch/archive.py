# SPDX-License-Identifier: Apache-2.0
"""Archive: a .pt2 that nobody vouches for becomes an exported program, and no code of the file is run.

torch reads formulas of sizes by `eval`, imports what enumerations name, runs libraries that were compiled into the
file, and falls back to unpickling anything. So the file is read here first, and formulas that are more than arithmetic,
enumerations, libraries and targets that are no ops are refused; pickles are read as tensors only.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hexforge.errors import CallError, CapacityError, FormatError, UnsupportedError

MOST_BYTES = 2**31 - 1
"""Of an archive's members together, since an ONNX model of more needs files beside it."""
_FUNCTIONS = """
    Symbol Integer Float Rational Add Mul Pow Max Min Mod Abs And Or Not Xor Equality Unequality Eq Ne Lt Le Gt Ge
    StrictLessThan LessThan StrictGreaterThan GreaterThan Piecewise ExprCondPair floor ceiling true false True False
    Infinity NegativeInfinity IntInfinity NegativeIntInfinity int_oo oo Identity Where FloorDiv CleanDiv CeilDiv
    PythonMod CeilToInt FloorToInt RoundToInt RoundDecimal TruncToInt TruncToFloat ToFloat IntTrueDiv FloatTrueDiv
    ModularIndexing PowByNatural FloatPow LShift RShift BitwiseFn_bitwise_and BitwiseFn_bitwise_or
"""
_WORDS = "|".join((*_FUNCTIONS.split(), r"[a-z]{1,2}\d+", "precision", *(f"(?:non|extended_)?{w}" for w in (
    "positive", "negative", "integer", "real", "zero", "finite", "infinite", "rational", "commutative"))))  # fmt: skip
_FORMULA = re.compile(rf"(?:[\s()*/+\-,<>=!&|~%]|(?<![\w.])\d+(?:\.\d*)?|\b(?:{_WORDS})\b|'[a-z]{{1,2}}\d+'|'-?[\d.]+'"
                      r")*")  # fmt: skip
"""A formula of sizes as torch writes it: numbers, symbols such as s0, and functions by name."""
_TARGET = re.compile(
    r"torch\.ops\.(aten|prims|higher_order|quantized_decomposed|torchao|torchvision|onnx)\.(?!from_file)\w+(\.\w+)?"
    r"|(_operator|math)\.\w+|torch\.(sym_\w+|_sym_\w+)"
)
"""What a node of a program may call."""
_LIBRARY = re.compile(r"aotinductor|\.(so|pyd|dll|dylib|cubin|py)$")


def read_program(data: bytes, where: str) -> Any:
    """The exported program in an archive; errors name the member that is refused."""
    torch = _torch(where)
    _know_containers(_containers(data, where), torch.utils._pytree)
    with _only_tensors():
        try:
            program = torch.export.load(io.BytesIO(data))
        except Exception as error:  # torch has no class for a file that it cannot read
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise FormatError(f"{where}: torch {torch.__version__} cannot read it: {reason}") from None
    program._guards_code = []  # what it asks of sizes as Python's code, which torch would run
    return program


def _containers(data: bytes, where: str) -> set[str]:
    """The types of the containers of a program's inputs and outputs; errors where the archive is refused."""
    containers = set()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > min(MOST_BYTES, 4 * len(data) + (1 << 20)):
                raise CapacityError(
                    f"{where}: holds 2 GB and more, or far more than its size; torch.onnx.export writes what is large "
                    "beside the model"
                )
            for member in members:
                if _LIBRARY.search(member.filename):
                    raise UnsupportedError(
                        f"{where}: holds compiled code ({member.filename!r}), which is never run here; save the "
                        "program itself by torch.export.save"
                    )
                if member.filename.endswith(".json"):
                    containers |= _checked_json(archive.read(member), f"{where}: {member.filename!r}")
    except (zipfile.BadZipFile, NotImplementedError, EOFError, OSError, UnicodeDecodeError) as error:
        raise FormatError(f"{where}: is cut off or damaged ({error}); get the file again") from None
    return containers


def _checked_json(text: bytes, where: str) -> set[str]:
    if b"__enum__" in text:
        raise UnsupportedError(f"{where}: names an enumeration of Python, which torch would import; export it without")
    try:
        values = list(_named_texts(json.loads(text)))
        containers = [json.loads(value) for name, value in values if name in ("in_spec", "out_spec") and value]
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where}: is no JSON ({error}); get the file again") from None
    for name, value in values:
        if name == "expr_str" and not _FORMULA.fullmatch(value):
            raise FormatError(f"{where}: the formula {value[:60]!r} is more than arithmetic; the file is damaged")
        if name == "target" and "." in value and not _TARGET.fullmatch(value):
            raise UnsupportedError(
                f"{where}: calls {value[:60]!r}, which is no op that a program exported by torch has"
            )
    return {value for name, value in _named_texts(containers) if name == "type"}


def _know_containers(names: set[str], pytree: Any) -> None:
    """Let torch read containers of packages that are not imported, such as the outputs of transformers, as tuples."""
    for name in names - pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.keys():
        pytree.register_pytree_node(
            type(name, (tuple,), {}),
            lambda values: (list(values), None),
            lambda values, context: tuple(values),
            serialized_type_name=name,
        )


def _named_texts(value: Any) -> Iterator[tuple[str, str]]:
    """Every text in what a JSON file says, with its name."""
    todo = [value]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            yield from ((name, text) for name, text in value.items() if isinstance(text, str))
            todo += value.values()
        elif isinstance(value, list):
            todo += value


@contextmanager
def _only_tensors() -> Iterator[None]:
    """Pickles are read as tensors and nothing else meanwhile, whatever torch asks for."""
    name, logger = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", logging.getLogger("torch")
    before, level = os.environ.get(name), logger.level
    os.environ[name] = "1"
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
        os.environ.pop(name) if before is None else os.environ.__setitem__(name, before)


def _torch(where: str) -> Any:
    try:
        import torch
    except ImportError:
        raise CallError(
            f"{where}: is an exported program of torch, which torch reads; `pip install torch onnxscript`, or give the "
            "ONNX model that `torch.onnx.export(torch.export.load('FILE'), f='model.onnx', dynamo=True)` makes of it"
        ) from None
    return torch
