# SPDX-License-Identifier: Apache-2.0
"""Method: an entry point of a .pte that runs: its values, and its instructions one after the other."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from hexforge.addons.executorch.formats.pte import (
    Delegate,
    DelegateCall,
    Dynamism,
    ExecutionPlan,
    FreeCall,
    IntList,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    TensorList,
    TensorValue,
)
from hexforge.addons.executorch.running.delegate import QnnDelegate, convert_border_type, output_order
from hexforge.addons.executorch.running.kernels import COPIES, TorchKernel, primitive, require_kernels
from hexforge.addons.executorch.running.planned_memory import constant, with_dim_order, written_in_place
from hexforge.errors import CallError, FormatError, HexforgeError
from hexforge.ir import Array

MemoryPools = dict[int, Array]
"""Planned memories by their numbers; methods that share them share their buffers."""
MOST_INSTRUCTIONS = 10_000_000
"""How many instructions of a loop a run may take before it counts as endless: as many as in ExecuTorch's runtime."""
Result = Array | int | float | bool | str | None


class Observer(Protocol):
    """Told what a run does, instruction by instruction."""

    def kernel(self, index: int, name: str, start_ns: int, end_ns: int, outputs: Sequence[Array]) -> None:
        """An operator was run."""

    def delegate(self, index: int, delegate: QnnDelegate, start_ns: int, end_ns: int, outputs: Sequence[Array]) -> None:
        """A delegate was run."""


class Method:
    """A method with memory of its own: buffers stay from run to run. Runs of one method follow each other."""

    def __init__(
        self,
        plan: ExecutionPlan,
        where: str,
        open_delegate: Callable[[Delegate, str, str], QnnDelegate],
        pools: MemoryPools | None = None,
        max_instructions: int = MOST_INSTRUCTIONS,
    ) -> None:
        self.plan, self.name, self.where = plan, plan.name, f"{where}: method {plan.name!r}"
        self.max_instructions = max_instructions
        require_kernels([i.operator for i in plan.instructions if isinstance(i, KernelCall)], self.where)
        self.delegates = [
            open_delegate(d, plan.name, f"{self.where}: delegate {i}") for i, d in enumerate(plan.delegates)
        ]
        self._pools: MemoryPools = {} if pools is None else pools
        self._kernels: dict[str, TorchKernel] = {}
        self._values: list[Any] = [self._tensor(v) if isinstance(v, TensorValue) else v for v in plan.values]
        self._written: set[int] = set()
        self._steps = [self._step(i) for i in plan.instructions]
        self._in_place = written_in_place(plan, self._written)
        self._lock = threading.Lock()

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What it takes: tensors, and now and then numbers."""
        return tuple(self.plan.values[i] for i in self.plan.inputs)

    @property
    def outputs(self) -> tuple[Any, ...]:
        """What it gives."""
        return tuple(self.plan.values[i] for i in self.plan.outputs)

    # -- running -----------------------------------------------------------------------------------------------------

    def run(self, inputs: Sequence[Any], observer: Observer | None = None) -> list[Result]:
        """Outputs for inputs (arrays, or what numpy makes arrays of); inputs are read where they lie."""
        arguments = self._checked(inputs)
        with self._lock:
            values = self._values
            for index, argument in zip(self.plan.inputs, arguments, strict=True):
                if index in self._in_place:
                    values[index][...] = argument
                else:
                    values[index] = argument
            at, count, left = 0, len(self._steps), self.max_instructions
            while at < count:
                following = self._steps[at](observer, at)
                if following is not None and following <= at:  # a loop: torch's map, scan and while_loop
                    left -= at - following + 1
                    if left < 0:
                        raise CallError(
                            f"{self.where}: went on for more than {self.max_instructions} instructions in loops, "
                            "without end as it seems; load it with a larger max_instructions if it is sound"
                        )
                at = at + 1 if following is None else following
            return [self._given(index) for index in self.plan.outputs]

    def reset(self) -> None:
        """Let every buffer be what it was when the method was loaded."""
        with self._lock:
            for pool in self._pools.values():
                pool.fill(0)
            for value, buffer in zip(self.plan.values, self._values, strict=True):
                if isinstance(value, TensorValue) and value.data is not None and value.allocation is not None:
                    buffer[...] = constant(value)
            for delegate in self.delegates:
                delegate.reset()

    def _given(self, index: int) -> Result:
        """An output that later runs leave alone."""
        result: Any = self._values[index]
        if not isinstance(result, np.ndarray):
            return result  # type: ignore[no-any-return]
        own = result.base is not None or not result.flags.writeable or index in self.plan.inputs
        return result.copy() if own else result

    def _checked(self, inputs: Sequence[Any]) -> list[Any]:
        expected = self.inputs
        if len(inputs) != len(expected):
            raise CallError(f"{self.where}: takes {len(expected)} inputs, {len(inputs)} were given")
        wrong: list[str] = []
        values: list[Any] = []
        for i, (value, given) in enumerate(zip(expected, inputs, strict=True)):
            if not isinstance(value, TensorValue):
                if given != value:
                    wrong.append(f"input {i} was exported with the value {value!r}; it cannot be {given!r}")
                values.append(value)
                continue
            array = _as_array(given)
            if array.dtype != value.dtype.numpy:
                wrong.append(f"input {i} is {array.dtype.name}, it must be {value}")
            elif not _fits(array.shape, value):
                bound = " or less" if value.dynamism else ""
                wrong.append(f"input {i} has the sizes {list(array.shape)}, it must be {value}{bound}")
            values.append(array)
        if wrong:
            raise CallError(f"{self.where}: {'; '.join(wrong)}")
        return values

    # -- values ------------------------------------------------------------------------------------------------------

    def _tensor(self, value: TensorValue) -> Array | None:
        """Where a tensor lies: in the file, in planned memory, or nowhere yet."""
        if value.is_constant:
            return constant(value)
        if value.allocation is None:
            return None
        number = value.allocation.memory
        if number not in self._pools:
            self._pools[number] = np.zeros(self.plan.memory_bytes[number] + 64, np.uint8)  # pages come when written
        pool, at = self._pools[number], value.allocation.offset
        if at + value.nbytes > len(pool):
            raise FormatError(f"{self.where}: shares a memory that is smaller than it needs")
        array = with_dim_order(pool[at : at + value.nbytes].view(value.dtype.numpy), value)
        if value.data is not None:
            array[...] = constant(value)
        return array

    def _argument(self, index: int) -> Any:
        """A value as a kernel takes it."""
        value = self._values[index]
        if isinstance(value, TensorList):
            return [None if i == -1 else self._argument(i) for i in value.items]
        if isinstance(value, IntList):
            return [self._values[i] for i in value.items]
        if value is None and isinstance(self.plan.values[index], TensorValue):
            tensor: TensorValue = self.plan.values[index]  # type: ignore[assignment]
            value = self._values[index] = np.zeros(tensor.sizes, tensor.dtype.numpy)
        return list(value) if isinstance(value, tuple) else value

    def _put(self, index: int, array: Array) -> None:
        """Let a tensor be an array; a buffer that outlives the run, or that others share, is written instead."""
        value = self.plan.values[index]
        if not isinstance(value, TensorValue):
            raise FormatError(f"{self.where}: value {index} is written as a tensor, and is none")
        array = convert_border_type(array, value.dtype.numpy, f"{self.where}: value {index}")
        if not value.dynamism and array.shape != value.sizes:
            if array.size != math.prod(value.sizes):
                raise self._misfit(index, array.shape, value.sizes)
            array = array.reshape(value.sizes)
        place = value.allocation
        if place is not None and (index in self._in_place or place.memory > 1 or value.data is not None):
            held = self._values[index]
            if held.shape != array.shape:
                raise self._misfit(index, array.shape, held.shape)
            held[...] = array
        else:
            self._values[index] = array

    def _misfit(self, index: int, given: Sequence[int], wanted: Sequence[int]) -> FormatError:
        """What the file says of a tensor contradicts what computes it."""
        return FormatError(f"{self.where}: value {index} is to be {list(wanted)}, and {list(given)} is written to it")

    # -- instructions ------------------------------------------------------------------------------------------------

    def _step(self, instruction: Any) -> Callable[[Observer | None, int], int | None]:
        if isinstance(instruction, KernelCall):
            return self._kernel_step(instruction)
        if isinstance(instruction, DelegateCall):
            return self._delegate_step(instruction)
        if isinstance(instruction, MoveCall):
            self._written.add(instruction.target)
            return lambda observer, at: self._values.__setitem__(instruction.target, self._values[instruction.source])
        if isinstance(instruction, JumpFalseCall):
            return lambda observer, at: None if self._truth(instruction.condition) else instruction.destination
        assert isinstance(instruction, FreeCall)
        if self.plan.values[instruction.value] is not None and self._values[instruction.value] is None:
            return lambda observer, at: self._values.__setitem__(instruction.value, None)
        return lambda observer, at: None

    def _truth(self, index: int) -> bool:
        value = self._values[index]
        return bool(value.all()) if isinstance(value, np.ndarray) else bool(value)

    def _delegate_step(self, call: DelegateCall) -> Callable[[Observer | None, int], None]:
        delegate = self.delegates[call.delegate]
        count = len(delegate.inputs)
        if len(call.args) != count + len(delegate.outputs):
            raise FormatError(
                f"{delegate.where}: is called with {len(call.args)} tensors; its graph has {count} inputs and "
                f"{len(delegate.outputs)} outputs"
            )
        ins, outs = call.args[:count], call.args[count:]
        self._written.update(outs)
        tensors = [v for i in outs if isinstance(v := self.plan.values[i], TensorValue)]
        slots = [(v.dtype.numpy, math.prod(v.sizes)) for v in tensors]

        def run(observer: Observer | None, at: int) -> None:
            start = time.perf_counter_ns()
            results = delegate.run([self._argument(i) for i in ins])
            for index, array in zip(outs, output_order(results, slots), strict=True):
                self._put(index, array)
            if observer is not None:
                observer.delegate(at, delegate, start, time.perf_counter_ns(), results)

        return run

    def _kernel_step(self, call: KernelCall) -> Callable[[Observer | None, int], None]:
        compute = self._shape_step(call) or self._torch_step(call)

        def run(observer: Observer | None, at: int) -> None:
            start = time.perf_counter_ns()
            try:
                compute()
            except HexforgeError:
                raise
            except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
                raise FormatError(f"{self.where}: operator {call.operator}: {str(error).splitlines()[0]}") from None
            if observer is not None:
                out = self._values[call.args[-1]] if call.args else None
                observer.kernel(
                    at, call.operator, start, time.perf_counter_ns(), [out] if isinstance(out, np.ndarray) else []
                )

        return run

    def _shape_step(self, call: KernelCall) -> Callable[[], None] | None:
        """Operators on numbers and on how memory is looked at."""
        args = call.args
        if call.operator.startswith("executorch_prim::et_view"):
            self._written.add(args[2])

            def view() -> None:
                source, sizes = self._argument(args[0]), self._argument(args[1])
                self._values[args[2]] = np.ascontiguousarray(source).reshape(sizes)

            return view
        if call.operator.startswith("executorch_prim::et_copy_index"):
            self._written.add(args[0])

            def copy_index() -> None:
                stack, piece, row = self._values[args[0]], self._argument(args[1]), self._argument(args[2])
                if stack is None or row == 0 or row >= len(stack):
                    grown = np.zeros((row + 1, *piece.shape), piece.dtype)
                    if row and stack is not None:
                        grown[:row] = stack[:row]
                    stack = self._values[args[0]] = grown
                stack[row] = piece

            return copy_index
        if call.operator in COPIES:
            self._written.add(args[-1])

            def copy() -> None:
                source, value = self._argument(args[0]), self.plan.values[args[-1]]
                if isinstance(value, TensorValue) and value.dynamism:
                    self._put(args[-1], source.astype(value.dtype.numpy))
                else:
                    self._argument(args[-1])[...] = source

            return copy
        compute = primitive(call.operator)
        if compute is None:
            return None
        return lambda: self._values.__setitem__(args[-1], compute(*(self._argument(i) for i in args[:-1])))

    def _torch_step(self, call: KernelCall) -> Callable[[], None]:
        kernel = self._kernels.setdefault(call.operator, TorchKernel(call.operator, self.where))
        if len(call.args) < kernel.count:
            raise FormatError(f"{self.where}: operator {call.operator} is called with {len(call.args)} arguments")
        args = call.args[: kernel.count]
        outs = [args[i] for i in kernel.out]
        tensors = [self.plan.values[i] for i in outs]
        self._written.update(i for o in outs for i in getattr(self.plan.values[o], "items", (o,)))
        fresh = any(isinstance(t, TensorValue) and t.dynamism is not Dynamism.STATIC for t in tensors)

        def run() -> None:
            for index, array in zip(outs, kernel([self._argument(i) for i in args], fresh), strict=True):
                if array is not None:
                    self._put(index, array)

        return run


def _as_array(given: Any) -> Array:
    """A numpy array, or a torch tensor's memory as one."""
    detach = getattr(given, "detach", None)
    return np.asarray(given if detach is None else detach().numpy())


def _fits(shape: tuple[int, ...], value: TensorValue) -> bool:
    if value.dynamism is Dynamism.UNBOUND:
        return len(shape) == len(value.sizes)
    if value.dynamism is Dynamism.BOUND:
        return len(shape) == len(value.sizes) and all(a <= b for a, b in zip(shape, value.sizes, strict=True))
    return shape == value.sizes
