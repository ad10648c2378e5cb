# SPDX-License-Identifier: Apache-2.0
"""IOBinding: inputs and outputs bound to buffers once and used by many runs."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import onnxruntime

from hexforge.errors import CallError
from hexforge.ir import Array
from hexforge.options import did_you_mean
from hexforge.ort.signature import NodeArg
from hexforge.ort.values import numpy_dtype, to_ortvalue

NPU = "npu"


class Bindable(Protocol):
    """What an IOBinding needs of its session."""

    def get_inputs(self) -> Sequence[NodeArg]: ...
    def get_outputs(self) -> Sequence[NodeArg]: ...
    def io_binding(self) -> Any: ...
    @property
    def shares_memory(self) -> bool: ...
    def shared_value(self, shape: Sequence[Any], element_type: Any) -> Any: ...
    def run_into(
        self, output_names: Sequence[str], input_feed: Mapping[str, Any], targets: Mapping[str, Any], run_options: Any
    ) -> list[Any]: ...


class IOBinding:
    """What onnxruntime's IOBinding offers, over memory of the CPU."""

    def __new__(cls, session: Bindable) -> Any:
        """An IOBinding of the session's own kind: onnxruntime's where the session is onnxruntime's."""
        if type(session).io_binding is onnxruntime.InferenceSession.io_binding:
            return session.io_binding()
        return super().__new__(cls)

    def __init__(self, session: Bindable) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Array | Any | None] = {}
        self._results: dict[str, Any] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Bind an input to an array; the run reads what the array holds then."""
        self._check(name, "input", [a.name for a in self._session.get_inputs()])
        self._inputs[name] = arr_on_cpu

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Bind an input to memory at an address."""
        self._check_device(device_type)
        self.bind_cpu_input(name, _view(buffer_ptr, element_type, shape))

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        """Bind an input to an OrtValue."""
        self.bind_cpu_input(name, ortvalue)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output: in memory of its own, or at an address."""
        self._check_device(device_type)
        self._check(name, "output", [a.name for a in self._session.get_outputs()])
        if buffer_ptr is None:
            self._outputs[name] = self._shared(name) if device_type.lower() == NPU else None
            return
        if element_type is None or shape is None:
            raise CallError(f"output {name!r}: give element_type and shape with buffer_ptr")
        self._outputs[name] = _view(buffer_ptr, element_type, shape)

    def bind_ortvalue_output(self, name: str, ortvalue: Any) -> None:
        """Have an output written into an OrtValue."""
        self._check(name, "output", [a.name for a in self._session.get_outputs()])
        self._outputs[name] = ortvalue

    def synchronize_inputs(self) -> None:
        """Nothing to wait for: memory of the CPU is always up to date."""

    def synchronize_outputs(self) -> None:
        """Nothing to wait for: memory of the CPU is always up to date."""

    def get_outputs(self) -> list[Any]:
        """The outputs of the last run as OrtValues, in the order they were bound."""
        return [
            bound if bound is not None and not isinstance(bound, np.ndarray) else to_ortvalue(self._results[name])
            for name, bound in self._outputs.items()
            if name in self._results
        ]

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs of the last run as arrays of their own, in the order they were bound."""
        return [np.array(self._results[n]) if isinstance(self._results[n], np.ndarray) else self._results[n]
                for n in self._outputs if n in self._results]  # fmt: skip

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self._outputs.clear()
        self._results.clear()

    def execute(self, run_options: Any = None) -> None:
        """Run the session on what is bound."""
        if not self._outputs:
            raise CallError("no output is bound; call bind_output for each output that is wanted")
        names = list(self._outputs)
        targets = {name: _memory_of(bound) for name, bound in self._outputs.items() if bound is not None}
        results = self._session.run_into(names, self._inputs, targets, run_options)
        for name, result in zip(names, results, strict=True):
            bound = self._outputs[name]
            self._results[name] = result
            if bound is None or result is targets[name]:  # written where it is wanted
                continue
            target = targets[name]
            if target.shape != result.shape or target.dtype != result.dtype:
                raise CallError(
                    f"output {name!r} is bound to {target.dtype.name} {list(target.shape)}, "
                    f"and the model writes {result.dtype.name} {list(result.shape)}; bind a buffer of that kind"
                )
            target[...] = result
            self._results[name] = target

    def _check_device(self, device_type: str) -> None:
        known = ("cpu", NPU) if self._session.shares_memory else ("cpu",)
        if device_type.lower() not in known:
            shared = "" if NPU in known else f", and '{NPU}' with enable_htp_shared_memory_allocator=1"
            raise CallError(f"device {device_type!r}: memory of the CPU can be bound here ('cpu'){shared}")

    def _shared(self, name: str) -> Any:
        """A value for an output in memory that the HTP shares."""
        wanted = next(a for a in self._session.get_outputs() if a.name == name)
        if not all(isinstance(size, int) for size in wanted.shape):
            raise CallError(f"output {name!r} has no fixed shape; bind an OrtValue of its shape")
        return self._session.shared_value(wanted.shape, wanted.dtype)

    def _check(self, name: str, what: str, known: list[str]) -> None:
        if name not in known:
            listed = ", ".join(map(repr, known))
            raise CallError(f"unknown {what} {name!r}; the model's {what}s are {listed}{did_you_mean(name, known)}")


def _memory_of(bound: Any) -> Array:
    """Where a bound output is to be written: an array, or the memory of an OrtValue."""
    if isinstance(bound, np.ndarray):
        return bound
    if not bound.is_tensor() or bound.data_type() == "tensor(string)":
        raise CallError(f"an output is bound to a value of {bound.data_type()}; bind a tensor of numbers")
    return _view(bound.data_ptr(), bound.element_type(), bound.shape())


def _view(address: int, element_type: Any, shape: Sequence[int]) -> Array:
    """The memory at an address as an array."""
    dtype = numpy_dtype(element_type)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if not address and size:
        raise CallError("buffer_ptr is 0; give the address of the buffer, e.g. array.ctypes.data")
    if not size:
        return np.empty(tuple(shape), dtype)
    memory = memoryview((ctypes.c_char * size).from_address(address)).cast("B")
    return np.frombuffer(memory, dtype).reshape(tuple(shape))
