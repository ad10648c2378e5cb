# SPDX-License-Identifier: Apache-2.0
"""Kernels: operators of a .pte that no delegate took, run by torch; those on plain numbers and shapes run by Python."""

from __future__ import annotations

import functools
import importlib
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hexforge.errors import UnsupportedError
from hexforge.ir import Array

PROVIDERS = {
    "dim_order_ops": ("executorch.exir.passes.dim_order_ops_registry",),  # slow to import: COPIES need it not
    "quantized_decomposed": ("executorch.kernels.quantized", "torch.ao.quantization.fx._decomposed"),
    "torchao": ("torchao",),
    "llama": ("executorch.extension.llm.custom_ops.custom_ops",),
}
"""Modules that tell torch of the operators of a namespace when they are imported."""


def _ratio(a: float, b: float) -> float:
    return a / b


PRIMITIVES: dict[str, Callable[..., Any]] = {
    "add": operator.add, "mul": operator.mul, "sub": operator.sub, "floordiv": operator.floordiv, "truediv": _ratio,
    "mod": operator.mod, "neg": operator.neg, "ceil": math.ceil, "round": round, "trunc": math.trunc,
    "sym_float": float, "sym_int": int, "sym_max": max, "sym_min": min, "sym_not": operator.not_,
    "gt": operator.gt, "lt": operator.lt, "ge": operator.ge, "le": operator.le, "eq": operator.eq, "ne": operator.ne,
    "sym_ite": lambda condition, yes, no: yes if condition else no,
}  # fmt: skip
"""ExecuTorch's operators on numbers (executorch_prim::NAME.Scalar)."""


COPIES = ("dim_order_ops::_to_dim_order_copy.out", "dim_order_ops::_clone_dim_order.out")
"""Operators that copy their first argument into their last, in its type and layout."""


def primitive(name: str) -> Callable[..., Any] | None:
    """The function that computes an operator on plain numbers; None where there is none."""
    if name == "aten::sym_size.int":
        return lambda array, dim: int(array.shape[dim])
    if name == "aten::sym_numel":
        return lambda array: int(array.size)
    if name in ("aten::_local_scalar_dense", "executorch_prim::sym_item"):
        return lambda array: array.reshape(-1)[0].item()
    space, _, rest = name.partition("::")
    return PRIMITIVES.get(rest.removesuffix(".Scalar")) if space == "executorch_prim" else None


class TorchKernel:
    """An operator with output arguments, as torch has it."""

    def __init__(self, name: str, where: str) -> None:
        self.name = name
        self._overload = _overload(name, where)
        schema = self._overload._schema.arguments
        self.count = len(schema)
        self.out = [i for i, a in enumerate(schema) if a.is_out]
        self._names = [a.name if a.kwarg_only else "" for a in schema]

    def __call__(self, arguments: Sequence[Any], fresh: bool) -> list[Array | None]:
        """Run it on arrays and numbers: what its outputs are.

        Where `fresh`, outputs have sizes that are known only then, and are made; None for one that was written.
        """
        import torch

        given = [_tensors(a) for a in arguments]
        if fresh:
            for i in self.out:
                given[i] = _empty(given[i])
        plain = [a for a, name in zip(given, self._names, strict=True) if not name]
        named = {name: a for a, name in zip(given, self._names, strict=True) if name}
        with torch.no_grad():
            self._overload(*plain, **named)
        return [_array(given[i]) if fresh and isinstance(given[i], torch.Tensor) else None for i in self.out]


def require_kernels(names: Sequence[str], where: str) -> None:
    """UnsupportedError naming every operator that nothing here computes."""
    lost: list[str] = []
    why = ""
    for name in dict.fromkeys(names):
        if primitive(name) is None and name not in COPIES and not name.startswith("executorch_prim::et_"):
            try:
                _overload(name, where)
            except UnsupportedError as error:
                lost.append(name)
                why = str(error).rpartition("; ")[2]
    if lost:
        raise UnsupportedError(f"{where}: needs the operators {', '.join(lost)}, which no delegate took; {why}")


@functools.cache
def _overload(name: str, where: str) -> Any:
    try:
        import torch
    except ImportError:
        raise UnsupportedError(
            f"{where}: operator {name} was left to the CPU by the partitioner, and needs torch to run; install "
            "hexforge[executorch]"
        ) from None
    space, _, rest = name.partition("::")
    op, _, overload = rest.partition(".")
    for provider in ("", *PROVIDERS.get(space, ())):
        if provider:
            try:
                importlib.import_module(provider)
            except (ImportError, OSError, RuntimeError):
                continue
        try:
            operator = getattr(getattr(getattr(torch.ops, space), op), overload or "default")
        except (AttributeError, RuntimeError):
            continue
        return operator
    raise UnsupportedError(
        f"{where}: operator {name} is not one that torch knows; import the module that registers it, then load the file"
    )


def _tensors(value: Any) -> Any:
    """Arrays as torch's tensors over the same memory."""
    if isinstance(value, np.ndarray):
        return _tensor(value)
    if isinstance(value, list):
        return [_tensors(v) for v in value]
    return value


def _tensor(array: Array) -> Any:
    import torch

    if array.dtype.kind == "V" or array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    if not array.flags.writeable:
        array = array.view()
        array = np.asarray(_Memory(array))
    return torch.from_numpy(array)


class _Memory:
    """Memory that is only read here, as torch takes it: it knows no arrays that cannot be written."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.__array_interface__["data"][0], False)}


def _empty(tensor: Any) -> Any:
    import torch

    if isinstance(tensor, list):
        return [_empty(t) for t in tensor]
    return torch.empty(0, dtype=tensor.dtype)


def _array(tensor: Any) -> Array:
    import ml_dtypes
    import torch

    if tensor.dtype == torch.bfloat16:
        array: Array = tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return array
    return np.asarray(tensor.numpy())
