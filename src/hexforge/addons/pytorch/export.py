# SPDX-License-Identifier: Apache-2.0
"""Export: modules and exported programs of torch become ONNX models by torch's own exporter.

Nodes have the names of the modules that they come from, such as `encoder.layer.3.attn/matmul`; inputs, outputs and
sizes that stay open have the names that the program gives them.
"""

from __future__ import annotations

import ast
import hashlib
import logging
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from hexforge.addons.pytorch.archive import read_program
from hexforge.errors import CallError, CapacityError, ModelError, UnsupportedError
from hexforge.ir import Array

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_SCOPES = "pkg.torch.onnx.name_scopes"
"""The property of a node in which torch's exporter keeps the modules that the node lies in, and its op."""
_MODULE = "torch.nn.modules.module.Module"
_last: dict[bytes, bytes] = {}
"""The file that was converted last, by its digest: commands read a model more than once."""


def onnx_of_file(data: bytes, where: str, member: str = "") -> onnx.ModelProto:
    """The ONNX model of a .pt2."""
    if member:
        raise CallError(f"{where}: holds one program, so nothing is named by #{member}")
    digest = hashlib.sha256(data).digest()
    made = onnx.ModelProto()
    if digest in _last:
        made.ParseFromString(_last[digest])
        return made
    made = _exported(read_program(data, where), where)
    _last.clear()
    _last[digest] = made.SerializeToString()
    return made


def onnx_of_program(program: Any) -> onnx.ModelProto | None:
    """The ONNX model of an exported program, or of a module and its example inputs; None for anything else."""
    if isinstance(program, tuple) and len(program) == 2 and _MODULE in _kinds(program[0]):
        return onnx_model(*program)
    kinds = _kinds(program)
    if _MODULE in kinds:
        raise CallError(
            "a module of torch is exported with example inputs: give (module, example_inputs) as the model, or "
            "torch.export.export(module, example_inputs)"
        )
    return _exported(program, "program") if "torch.export.exported_program.ExportedProgram" in kinds else None


def _kinds(value: Any) -> set[str]:
    """The names of the classes of a value, which torch need not be imported for."""
    return {f"{kind.__module__}.{kind.__qualname__}" for kind in type(value).__mro__}


def onnx_model(
    module: Any,
    example_inputs: tuple[Any, ...] = (),
    example_keywords: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> onnx.ModelProto:
    """The ONNX model of a torch module, traced with example inputs; it is taken wherever a model is."""
    import torch

    if isinstance(module, torch.export.ExportedProgram):
        return _exported(module, "program")
    if not isinstance(module, torch.nn.Module):
        raise CallError(f"onnx_model takes a module of torch or an exported program, not {type(module).__name__}")
    if not isinstance(example_inputs, tuple):
        raise CallError("example_inputs is a tuple with an input for each argument of the module's forward")
    training = module.training
    try:
        with _quiet():
            program = torch.export.export(
                module.eval(), example_inputs, dict(example_keywords or {}), dynamic_shapes=dynamic_shapes
            )
    except Exception as error:  # torch has many classes for what it cannot export
        raise UnsupportedError(f"{type(module).__name__}: torch cannot export it: {_first_line(error)}") from error
    finally:
        module.train(training)
    return _exported(program, type(module).__name__)


def compare(data: bytes, where: str, member: str, made: bytes, tolerance: float) -> str:
    """How far the program in torch and its ONNX model in onnxruntime are apart, in words; ModelError where too far."""
    import onnxruntime
    import torch

    program = read_program(data, where)
    torch.manual_seed(0)
    arguments, keywords = torch.utils._pytree.tree_map(_random_like, program.example_inputs)
    with torch.no_grad():
        given = torch.utils._pytree.tree_leaves((arguments, keywords))
        wanted = torch.utils._pytree.tree_leaves(program.module(check_guards=False)(*arguments, **keywords))
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    tensors = [value.numpy() for value in given if isinstance(value, torch.Tensor)]
    got = session.run(None, {i.name: values for i, values in zip(session.get_inputs(), tensors, strict=True)})
    worst = max((_apart(w.numpy(), g) for w, g in zip(wanted, got, strict=True)), default=0.0)
    if not worst <= tolerance:
        raise ModelError(f"{where}: its ONNX model differs from torch by {worst:.2g} of the largest; please report it")
    return f"both were run, and differ by {worst:.2g} of the largest number at most"


def _random_like(value: Any) -> Any:
    import torch

    return torch.rand_like(value) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _apart(wanted: Array, got: Array) -> float:
    if wanted.shape != got.shape:
        return float("inf")
    apart = np.abs(wanted.astype(np.float64) - got.astype(np.float64))
    return float(apart.max(initial=0) / max(float(np.abs(wanted.astype(np.float64)).max(initial=0)), 1e-2))


def _exported(program: ExportedProgram, where: str) -> onnx.ModelProto:
    import torch

    try:
        with _quiet():
            program = program.run_decompositions({})  # without ops that change their operands
    except Exception as error:  # torch has many classes for what it cannot trace
        raise UnsupportedError(f"{where}: torch cannot export it: {_first_line(error)}") from error
    signature = program.graph_signature
    changed = sorted((*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()))
    if changed:
        raise UnsupportedError(
            f"{where}: changes {', '.join(changed[:5])} while it runs, which an ONNX model cannot; make "
            "it an input and an output"
        )
    try:
        with _quiet():
            made = torch.onnx.export(program, dynamo=True, verbose=False)
    except ImportError as error:
        raise CallError(f"{where}: torch's exporter needs {error.name}; `pip install onnxscript`") from None
    except Exception as error:  # torch has many classes for what it cannot write as ONNX
        raise UnsupportedError(f"{where}: torch cannot write it as ONNX: {_reason(error)}") from error
    assert made is not None
    try:
        proto: onnx.ModelProto = made.model_proto
    except ValueError:  # protobuf's own limit
        raise CapacityError(f"{where}: has 2 GB and more; export it by torch.onnx.export with external data") from None
    _name_nodes(proto)
    return proto


def _name_nodes(proto: onnx.ModelProto) -> None:
    """A node's name is the module that it comes from, and its op."""
    taken: Counter[str] = Counter()
    for node in proto.graph.node:
        scopes = next((p.value for p in node.metadata_props if p.key == _SCOPES), "")
        try:
            *modules, _ = ("", *map(str, ast.literal_eval(scopes or "[]")))
        except (ValueError, SyntaxError):
            modules = [""]
        name = "/".join(filter(None, (modules[-1] if modules else "", node.op_type)))
        taken[name] += 1
        node.name = name if taken[name] == 1 else f"{name}_{taken[name]}"


def _reason(error: BaseException) -> str:
    """The cause of what the exporter says, which stands behind its advice on reports."""
    while error.__cause__ is not None:
        error = error.__cause__
    return _first_line(error)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of torch about itself."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
