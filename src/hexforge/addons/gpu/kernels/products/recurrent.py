# SPDX-License-Identifier: Apache-2.0
"""Lstm: the inputs' share of every gate for all times at once, then one kernel that goes through time.

A work-group takes a sequence and keeps its states in local memory; its work-items share the gates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hexforge.addons.gpu.kernels.code import literal
from hexforge.addons.gpu.kernels.launch import Constant, Kernel, Launch
from hexforge.ir import Array, Node, Role, TensorType, Value

MOST_LOCAL_BYTES = 32 << 10
"""Local memory that every OpenCL device has."""


@dataclass(frozen=True, slots=True)
class LstmShape:
    """An Lstm: its inputs by name, its gates, and how large everything is."""

    node: Node
    given: Mapping[str, Value]
    gates: str
    time: int
    batch: int
    features: int
    units: int
    size: int
    """Elements of the hidden state: units, or fewer where they are projected."""

    @classmethod
    def of(cls, node: Node) -> LstmShape:
        """What an Lstm node is."""
        names = [name.rstrip("?") for name in node.op.inputs]
        given = {name: v for name, v in zip(names, node.inputs, strict=False) if v is not None}
        first, second, features = given["in"].shape
        time, batch = (first, second) if node.params["time_major"] else (second, first)
        gates = "".join(g for g in "ifco" if f"W_x{g}" in given)
        return cls(node, given, gates, time, batch, features, *given["W_hf"].shape)

    @property
    def columns(self) -> int:
        """Elements of all gates of a sequence at a time."""
        return len(self.gates) * self.units

    @property
    def local_bytes(self) -> int:
        """Local memory of a sequence: states, gates, and the state before it is projected."""
        return 4 * (2 * self.size + (2 if "W_proj" in self.given else 1) * self.units + self.columns)

    def stacked(self, kind: str) -> Value | None:
        """The weights W_x, W_h or biases b_ of all gates as one constant; None where one is computed."""
        parts = [self.given.get(f"{kind}{gate}") for gate in self.gates]
        if any(p is not None and not p.is_static for p in parts):
            return None
        data: Array = np.concatenate(
            [np.asarray(p.data) if p is not None else np.zeros(self.units, np.float32) for p in parts]
        )
        dtype = self.given["in"].dtype
        return Value(f"{self.node.name}:{kind}", TensorType(dtype, data.shape), Role.STATIC, data.astype(dtype.numpy))

    def projected(self) -> Value:
        """What the inputs give each gate, for every time."""
        shape = (self.time * self.batch, self.columns)
        return Value(f"{self.node.name}:projected", TensorType(self.given["in"].dtype, shape))


def _load(kernel: Kernel, value: Value, at: str) -> str:
    return kernel.source(value).load(at)


def project(kernel: Kernel, lstm: LstmShape, projected: Value, local: int) -> Launch:
    """The inputs' share of the gates where weights are computed: a work-item for each element."""
    code = kernel.code()
    code.item_of(projected.type.size)
    code.add(f"const int row = g / {lstm.columns}, u = g % {lstm.units};")
    code.add("float acc = 0.0f;")
    for i, gate in enumerate(lstm.gates):
        with code.block(f"if (g % {lstm.columns} / {lstm.units} == {i})") as block:
            if f"b_{gate}" in lstm.given:
                block.add(f"acc = {_load(kernel, lstm.given[f'b_{gate}'], 'u')};")
            x = _load(kernel, lstm.given["in"], f"row * {lstm.features} + j")
            w = _load(kernel, lstm.given[f"W_x{gate}"], f"u * {lstm.features} + j")
            block.add(f"for (int j = 0; j < {lstm.features}; j++) acc += {x} * {w};")
    code.add(kernel.target(projected).store("g", "acc"))
    size = projected.type.size
    return kernel.launch_items("Lstm inputs", (lstm.node,), code, (projected,), size, local, 2 * size * lstm.features)


def run_states(kernel: Kernel, lstm: LstmShape, projected: Value, hidden: Constant | None, wg: int) -> Launch:
    """The states through time; `hidden` has the weights of all gates as [size, gates * units]."""
    node, given, units, size, columns = lstm.node, lstm.given, lstm.units, lstm.size, lstm.columns
    code = kernel.code()
    code.add("const int b = get_group_id(0), lane = get_local_id(0);")
    code.add(f"local float h[{2 * size}], c[{units}], gates[{columns}]{f', m[{units}]' if 'W_proj' in given else ''};")
    for name, count in (("h", size), ("c", units)):
        start = _load(kernel, given[f"{name}0"], f"b * {count} + i") if f"{name}0" in given else "0.0f"
        code.add(f"for (int i = lane; i < {count}; i += {wg}) {name}[i] = {start};")
    code.add("barrier(CLK_LOCAL_MEM_FENCE);")
    reverse = node.params["direction"] == 1
    with code.block(f"for (int step = 0; step < {lstm.time}; step++)") as step:
        step.add(f"const int t = {f'{lstm.time - 1} - step' if reverse else 'step'};")
        step.add(f"const int row = {f't * {lstm.batch} + b' if node.params['time_major'] else f'b * {lstm.time} + t'};")
        step.add(f"local const float* now = h + (step & 1) * {size};")
        step.add(f"local float* next = h + (1 - (step & 1)) * {size};")
        given_here = _load(kernel, projected, f"row * {columns} + n")
        if hidden is not None and wg == 1:  # a row of weights at a time, which processors take as vectors
            weights = kernel.source(hidden).load(f"j * {columns} + n")
            step.add(f"for (int n = 0; n < {columns}; n++) gates[n] = {given_here};")
            step.add(f"for (int j = 0; j < {size}; j++) {{ const float v = now[j];")
            step.add(f"  for (int n = 0; n < {columns}; n++) gates[n] += v * {weights}; }}")
        elif hidden is not None:
            weights = kernel.source(hidden).load(f"j * {columns} + n")
            with step.block(f"for (int n = lane; n < {columns}; n += {wg})") as block:
                block.add(f"float acc = {given_here};")
                block.add(f"for (int j = 0; j < {size}; j++) acc += now[j] * {weights};")
                block.add("gates[n] = acc;")
        else:
            for i, gate in enumerate(lstm.gates):
                with step.block(f"for (int u = lane; u < {units}; u += {wg})") as block:
                    block.add(f"const int n = {i * units} + u;")
                    block.add(f"float acc = {given_here};")
                    weights = _load(kernel, given[f"W_h{gate}"], f"u * {size} + j")
                    block.add(f"for (int j = 0; j < {size}; j++) acc += now[j] * {weights};")
                    block.add("gates[n] = acc;")
        step.add("barrier(CLK_LOCAL_MEM_FENCE);")
        with step.block(f"for (int u = lane; u < {units}; u += {wg})") as block:
            for i, gate in enumerate(lstm.gates):
                block.add(f"float a_{gate} = gates[{i * units} + u];")
            for gate in "if":
                if f"W_c{gate}" in given and gate in lstm.gates:
                    block.add(f"a_{gate} += {_load(kernel, given[f'W_c{gate}'], 'u')} * c[u];")
            block.add("const float forget = 1.0f / (1.0f + exp(-a_f));")
            admit = "1.0f / (1.0f + exp(-a_i))" if "i" in lstm.gates else "1.0f - forget"
            cell = f"forget * c[u] + ({admit}) * tanh(a_c)"
            block.add(f"const float cell = {_clipped_state(kernel, cell, node.params['cell_clip_threshold'])};")
            if "W_co" in given:
                block.add(f"a_o += {_load(kernel, given['W_co'], 'u')} * cell;")
            block.add("c[u] = cell;")
            state = _clipped_state(kernel, "tanh(cell) / (1.0f + exp(-a_o))", 0.0)
            block.add(f"{'m' if 'W_proj' in given else 'next'}[u] = {state};")
        step.add("barrier(CLK_LOCAL_MEM_FENCE);")
        if "W_proj" in given:
            with step.block(f"for (int i = lane; i < {size}; i += {wg})") as block:
                block.add(f"float acc = {_load(kernel, given['b_proj'], 'i') if 'b_proj' in given else '0.0f'};")
                weights = _load(kernel, given["W_proj"], f"i * {units} + u")
                block.add(f"for (int u = 0; u < {units}; u++) acc += m[u] * {weights};")
                block.add(f"next[i] = {_clipped_state(kernel, 'acc', node.params['output_clip_threshold'])};")
            step.add("barrier(CLK_LOCAL_MEM_FENCE);")
        store = kernel.target(node.outputs[0]).store(f"(row * {size} + i)", "next[i]")
        step.add(f"for (int i = lane; i < {size}; i += {wg}) {{ {store} }}")
    last = f"h[{(lstm.time & 1) * size} + i]"
    for value, count, what, name in ((node.outputs[1], units, "c[i]", "cells"), (node.outputs[2], size, last, "state")):
        store = kernel.target(value, name).store(f"(b * {count} + i)", what)
        code.add(f"for (int i = lane; i < {count}; i += {wg}) {{ {store} }}")
    flops = 2 * lstm.time * lstm.batch * columns * size
    return kernel.launch("Lstm", (node,), code, tuple(node.outputs), (lstm.batch * wg,), (wg,), flops)


def _clipped_state(kernel: Kernel, value: str, limit: float) -> str:
    """A state as it is kept: within a limit where there is one, rounded where every result is."""
    if limit > 0:
        value = f"clamp({value}, {literal(-limit, 'float')}, {literal(limit, 'float')})"
    return f"round_half({value})" if kernel.elements.round_half else value
