# SPDX-License-Identifier: Apache-2.0
"""Archive: a .pt2 that nobody vouches for becomes an exported program, and no code of the file is run.

torch reads formulas of sizes by `eval`, imports what enumerations name, runs libraries that were compiled into the
file, and falls back to unpickling anything. So the file is read here first, and formulas that are more than arithmetic,
enumerations, libraries and targets that are no ops are refused; pickles are read as tensors only. torch is given an
archive of what was checked, and never the file.
"""

from __future__ import annotations

import ast
import io
import json
import logging
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hexforge.errors import CallError, CapacityError, FormatError, UnsupportedError

MOST_BYTES = 2**31 - 1
"""Of an archive's members together, since an ONNX model of more needs files beside it."""
_FUNCTIONS = frozenset(
    """
    Symbol Integer Float Rational Add Mul Pow Max Min Mod Abs And Or Not Xor Equality Unequality Eq Ne Lt Le Gt Ge
    StrictLessThan LessThan StrictGreaterThan GreaterThan Piecewise ExprCondPair floor ceiling true false True False
    Infinity NegativeInfinity IntInfinity NegativeIntInfinity int_oo oo Identity Where FloorDiv CleanDiv CeilDiv
    PythonMod CeilToInt FloorToInt RoundToInt RoundDecimal TruncToInt TruncToFloat ToFloat IntTrueDiv FloatTrueDiv
    ModularIndexing PowByNatural FloatPow LShift RShift BitwiseFn_bitwise_and BitwiseFn_bitwise_or
    """.split()
)
"""What formulas of sizes call by name."""
_POWERS = {"Pow", "PowByNatural", "FloatPow", "LShift"}
_SYMBOL = re.compile(r"[a-z]{1,2}\d+")
_ASSUMED = re.compile(
    r"precision|(non|extended_)?(positive|negative|integer|real|zero|finite|infinite|rational|commutative)"
)
_FORMULA = (
    *(ast.Expression, ast.Call, ast.keyword, ast.Name, ast.Load, ast.Constant, ast.UnaryOp, ast.BinOp, ast.Compare),
    *(ast.Tuple, ast.operator, ast.unaryop, ast.cmpop),
)
"""The parts of a formula."""
MOST_FORMULA, MOST_POWER = 4096, 64
_TARGET = re.compile(
    r"torch\.ops\.(aten|prims|quantized_decomposed|torchao|torchvision|onnx)\.(?!_?from_file)\w+(\.\w+)?"
    r"|torch\.ops\.higher_order\.(cond|while_loop|scan|associative_scan|map(_impl)?|wrap_with_\w+|invoke_subgraph)"
    r"|_operator\.(eq|ne|le|ge|lt|gt|neg|pos|and_|or_|not_|add|sub|mul|mod|pow|floordiv|truediv|[lr]shift|getitem)"
    r"|math\.(trunc|ceil|floor|sqrt)|torch\.(sym_\w+|_sym_\w+)"
)
"""What a node of a program may call."""
_CODE = re.compile(r"aotinductor|custom_obj|\.(so|pyd|dll|dylib|cubin|py)$")
"""Members that hold code, or objects that code makes."""


def read_program(data: bytes, where: str) -> Any:
    """The exported program in an archive; errors name the member that is refused."""
    torch = _torch(where)
    checked, containers = _checked(data, where)
    _know_containers(containers, torch.utils._pytree)
    with _only_tensors():
        try:
            program = torch.export.load(io.BytesIO(checked))
        except Exception as error:  # torch has no class for a file that it cannot read
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise FormatError(f"{where}: torch {torch.__version__} cannot read it: {reason}") from None
    program._guards_code = []  # what it asks of sizes as Python's code, which torch would run
    return program


def _checked(data: bytes, where: str) -> tuple[bytes, set[str]]:
    """An archive of the members that were checked, which torch reads in place of the file, since it reads archives by
    other code; and the types of the containers of the program's inputs and outputs."""
    containers: set[str] = set()
    copy = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(copy, "w") as made:
            members = archive.infolist()
            if sum(member.file_size for member in members) > min(MOST_BYTES, 4 * len(data) + (1 << 20)):
                raise CapacityError(
                    f"{where}: holds 2 GB and more, or far more than its size; torch.onnx.export writes what is large "
                    "beside the model"
                )
            names = [member.filename for member in members]
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise FormatError(f"{where}: holds {twice!r} twice; the file is damaged")
            for member in members:
                if _CODE.search(member.filename):
                    raise UnsupportedError(
                        f"{where}: holds compiled code ({member.filename!r}), which is never run here; save the "
                        "program itself by torch.export.save"
                    )
                content = archive.read(member)
                if member.filename.endswith(".json"):
                    content, types = _checked_json(content, f"{where}: {member.filename!r}")
                    containers |= types
                made.writestr(member.filename, content)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise FormatError(f"{where}: is cut off or damaged ({error}); get the file again") from None
    return copy.getvalue(), containers


def _checked_json(text: bytes, where: str) -> tuple[bytes, set[str]]:
    """The same JSON written anew, and the types of containers in it."""
    try:
        whole = json.loads(text)
        values = list(_named_texts(whole))
        containers = [json.loads(value) for name, value in values if name in ("in_spec", "out_spec") and value]
        written = json.dumps(whole).encode()
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where}: is no JSON ({error}); get the file again") from None
    if b"__enum__" in written:
        raise UnsupportedError(f"{where}: names an enumeration of Python, which torch would import; export it without")
    for name, value in values:
        if name == "expr_str" and not _is_arithmetic(value):
            raise FormatError(f"{where}: the formula {value[:60]!r} is more than arithmetic; the file is damaged")
        if name == "target" and "." in value and not _TARGET.fullmatch(value):
            raise UnsupportedError(
                f"{where}: calls {value[:60]!r}, which is no op that a program exported by torch has"
            )
    return written, {value for name, value in _named_texts(containers) if name == "type"}


def _is_arithmetic(formula: str) -> bool:
    """Whether a formula has nothing but numbers, symbols of sizes and functions by name, and no huge powers."""
    if len(formula) > MOST_FORMULA:
        return False
    try:
        parts = list(ast.walk(ast.parse(formula.strip(), mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(isinstance(part, _FORMULA) and _is_allowed(part) for part in parts)


def _is_allowed(part: ast.AST) -> bool:
    if isinstance(part, ast.Name):
        return part.id in _FUNCTIONS or _SYMBOL.fullmatch(part.id) is not None
    if isinstance(part, ast.Constant):
        return isinstance(part.value, int | float) or bool(re.fullmatch(r"[a-z]{1,2}\d+|-?[\d.]+", str(part.value)))
    if isinstance(part, ast.keyword):
        return _ASSUMED.fullmatch(part.arg or "") is not None
    if isinstance(part, ast.Call):
        name = part.func.id if isinstance(part.func, ast.Name) else ""
        return bool(name) and (name not in _POWERS or (len(part.args) == 2 and _is_small(part.args[1])))
    if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Pow | ast.LShift):
        return _is_small(part.right)
    return True


def _is_small(power: ast.expr) -> bool:
    """Whether an exponent is a small number; Integer(2) and Rational(1, 2) are numbers, too."""
    if isinstance(power, ast.Call):
        numbers = isinstance(power.func, ast.Name) and power.func.id in ("Integer", "Rational", "Float")
        return numbers and bool(power.args) and all(_is_small(part) for part in power.args)
    if isinstance(power, ast.UnaryOp):
        return _is_small(power.operand)
    value = power.value if isinstance(power, ast.Constant) else None
    return (
        isinstance(value, int | float | str)
        and re.fullmatch(r"-?\d{1,2}(\.\d*)?", str(value)) is not None
        and (abs(float(value)) <= MOST_POWER)
    )


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
