# SPDX-License-Identifier: Apache-2.0
"""Searching: scattered updates and the k largest, where a work-item looks through all that may be its own."""

from __future__ import annotations

import numpy as np

from hexforge.addons.gpu.kernels.code import C_TYPES, Index, strides
from hexforge.addons.gpu.kernels.launch import Kernel, Launch
from hexforge.ir import Node


def scatter(kernel: Kernel, node: Node, local: int) -> Launch:
    """Updates put into a copy of the input, in their order: each element looks through the updates for its own.

    Slow for many updates, and the same every time, which atomics are not.
    """
    x, indices, updates = node.operands(3)
    out = node.outputs[0]
    elements = kernel.elements
    code = kernel.code()
    type = C_TYPES[out.dtype]
    code.item_of(out.type.size)
    at = code.axes(Index(out.shape, "g"))
    code.add(f"{type} value = {elements.element(code, x, Index(x.shape, 'g'))};")
    reduction = node.params["reduction"]
    combine = (
        "value = u;",
        "value += u;",
        "value *= u;",
        "value = value >= u ? value : u;",
        "value = value <= u ? value : u;",
    )[reduction]
    rank = len(out.shape)
    if node.op.name == "ScatterElements":
        axis = node.params["axis"] % rank
        bounds = [f"{at[i]} < {indices.shape[i]}" for i in range(rank) if i != axis and indices.shape[i] < out.shape[i]]
        inside = " && ".join(["1", *bounds])
        with code.block(f"if ({inside}) for (int j = 0; j < {indices.shape[axis]}; j++)") as inner:
            place = (*at[:axis], "j", *at[axis + 1 :])
            position = elements.element(inner, indices, Index(indices.shape, None, place))
            target = elements.bounded(inner, node, position, out.shape[axis])
            with inner.block(f"if ({target} == {at[axis]})") as hit:
                hit.add(f"const {type} u = {elements.element(hit, updates, Index(updates.shape, None, place))};")
                hit.add(combine)
    else:
        depth, count = indices.shape[-1], indices.type.size // max(indices.shape[-1], 1)
        with code.block(f"for (int j = 0; j < {count}; j++)") as inner:
            tests = []
            for i in range(depth):
                position = elements.element(
                    inner, indices, Index(indices.shape, inner.let("int", f"j * {depth} + {i}"))
                )
                tests.append(f"{elements.bounded(inner, node, position, out.shape[i])} == {at[i]}")
            with inner.block(f"if ({' && '.join(tests)})") as hit:
                rest = " + ".join(["0", *(f"{at[i]} * {s}" for i, s in enumerate(strides(out.shape)) if i >= depth)])
                size = int(np.prod(out.shape[depth:]))
                slot = Index(updates.shape, hit.let("int", f"j * {size} + {rest}"))
                hit.add(f"const {type} u = {elements.element(hit, updates, slot)};")
                hit.add(combine)
    code.add(kernel.target(out).store("g", "value"))
    return kernel.launch_items(node.op.name, (node,), code, (out,), out.type.size, local)


def top_k(kernel: Kernel, node: Node) -> Launch:
    """The k largest or smallest of each row, by selection: of equals the first."""
    (x,), (values, indices) = node.inputs[:1], node.outputs
    assert x is not None
    length, k = x.shape[-1], node.params["k"]
    type, code, source = C_TYPES[x.dtype], kernel.code(), kernel.source(x)
    first, second = kernel.target(values, "values"), kernel.target(indices, "indices")
    before = ">" if node.params["largest"] else "<"
    code.add("const int row = get_global_id(0);")
    code.add(f"{type} last = 0; int last_index = -1;")
    code.add(f"for (int i = 0; i < {k}; i++) {{")
    code.add(f"  {type} best = 0; int index = -1;")
    code.add(f"  for (int j = 0; j < {length}; j++) {{")
    code.add(f"    const {type} v = {source.load(f'(row * {length} + j)')};")
    code.add(f"    const int left = last_index < 0 || last {before} v || (v == last && j > last_index);")
    code.add(f"    if (left && (index < 0 || v {before} best)) {{ best = v; index = j; }}")
    code.add("  }")
    code.add("  last = best; last_index = index;")
    code.add(f"  {first.store(f'(row * {k} + i)', 'best')}")
    code.add(f"  {second.store(f'(row * {k} + i)', f'({second.storage.type})index')}")
    code.add("}")
    rows = x.type.size // max(length, 1)
    return kernel.launch("TopK", (node,), code, (values, indices), (rows,), (1,), rows * length * k)
