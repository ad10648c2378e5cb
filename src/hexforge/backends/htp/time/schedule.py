# SPDX-License-Identifier: Apache-2.0
"""Schedule: a QNN graph as the tasks the HTP runs in order, for a precision and a path to the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set

from hexforge.backends.htp.activations import follows_convolution
from hexforge.backends.htp.time.mechanisms import added_work
from hexforge.backends.htp.time.tile import (
    CHANNELS,
    PRECISIONS,
    Precision,
    Task,
    flat_elements,
    padded_elements,
    place_in_vtcm,
)
from hexforge.backends.htp.time.work import (
    brings_into_rows,
    convolution,
    convolution_3d,
    data_input,
    dynamic_inputs,
    fixed_cost_share,
    other_op,
    product,
)
from hexforge.chips.deployment import RUNTIMES
from hexforge.chips.graph_config import GraphConfig
from hexforge.errors import CallError
from hexforge.ir import Graph, Node, Role, Value, Work
from hexforge.ops import of_kind

CLAMPS = of_kind(Work.CLAMP)
"""Applied where the matrix unit or another op writes its result."""
LOOKUPS = of_kind(Work.LOOKUP) - {"ElementWiseUnary"}
"""A function of one value, but for a reciprocal, which is timed by its own amounts and fused with nothing."""
ARITHMETIC = {
    **dict.fromkeys(of_kind(Work.ADD, Work.AFFINE), "add"),
    **dict.fromkeys(of_kind(Work.DIVIDE), "divide"),
    **dict.fromkeys(of_kind(Work.PRELU), "lookup"),
}
"""What each op costs as. A learned slope costs as much as a look-up, as measured, but is not fused as one."""
COPIES = of_kind(Work.CONCAT, Work.GATHER, Work.SLICE)
"""Runs of elements go elsewhere as they are."""
SHUFFLES = of_kind(Work.DEPTH_TO_SPACE) | {"Transpose", "Reshape"}
"""Elements change places within tiles."""
IMAGE_NORMS = of_kind(Work.IMAGE_NORM)
"""Over the pixels of a channel or a group of them, lane by lane: two sums, and one pass that scales."""
ROW_NORMS = of_kind(Work.NORM) - {"Lrn"}
POOLS = of_kind(Work.POOL)
REDUCTIONS = of_kind(Work.REDUCE, Work.SEARCH)
SOFTMAXES = of_kind(Work.SOFTMAX)
RESIZES = of_kind(Work.RESIZE)
CUTS = {"Split", "StridedSlice"}
SLICED_ALONE = {("onnx", "float")}
"""Runtimes and rates at which pieces of rows that are cut off cost as a cut, and not as other pieces."""
BORDER = ARITHMETIC.keys() | CLAMPS | of_kind(Work.CONVERT)
"""What a transpose at the graph's border moves past."""
BY_RESULT = dict.fromkeys(LOOKUPS, "lookup") | {
    name: unit
    for kind, unit in ((Work.SOFTMAX, "softmax"), (Work.NORM, "norm"), (Work.RESIZE, "resize"), (Work.CONVERT, "add"))
    for name in of_kind(kind)
}
"""Ops that cost so much for each byte of the result, and of what."""
WINDOWED = {"Conv2d", "DepthWiseConv2d", "TransposeConv2d", "PoolMax2d", "PoolAvg2d"}
DIFFERENCE = 2165162 / 5344081
"""Published: a difference of two tensors against their quotient, in cycles of the SDK's own profiles of one graph with
either. (Against the sum in the same profile it is 4.1, but nine tenths of that sum run beside other ops.)"""
LOCAL = WINDOWED | CLAMPS | LOOKUPS | set(ARITHMETIC) | {"Concat", "Tile", "DepthToSpace", "Resize", "Argmax", "Cast"}
TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
STAYS = 0.5
"""Of VTCM: an 8-bit image up to which, channels padded, an onnx graph normalises channel-last."""
WEIGHTED = (Work.CONV, Work.DEPTHWISE, Work.TRANSPOSED_CONV, Work.FULLY_CONNECTED, Work.MATMUL, Work.RECURRENT)
"""Work of the matrix unit with weights."""
ADDED_AT_ONCE = 3
"""Rows or columns of a window that reaches beyond the image whose average the vector units take at once."""
TILE_AXES = 4
"""Axes of a tile: batch, height, width, depth."""
SMALL = 4096
"""Elements below which a reshape, or a constant, costs nothing of its own."""


def schedule(
    graph: Graph, precision: Precision | None, runtime: str, vtcm_bytes: int, config: GraphConfig | None = None
) -> list[Task]:
    """The tasks of a graph in the order they run; without a precision, a node's types decide its precision.

    `vtcm_bytes` is what the chip has: what tasks there are does not depend on how much of it a graph may use.
    """
    if runtime not in RUNTIMES:
        raise CallError(f"runtime {runtime!r} is not known; it is one of {', '.join(RUNTIMES)}")
    tasks = _Scheduler(graph, precision, runtime, int(vtcm_bytes * STAYS), config or GraphConfig()).tasks
    place_in_vtcm(tasks, vtcm_bytes)
    return tasks


def precision_of(node: Node) -> Precision:
    """The precision of a node's widest fixed-point result; float where it has none."""
    bits = max((v.dtype.bits for v in node.outputs if v.encoding is not None), default=0)
    if bits == 0:
        return PRECISIONS["float"]
    if bits <= 8:
        return PRECISIONS["w8a8"]
    weights = [v.dtype.bits for v in node.inputs if v is not None and v.is_static and len(v.shape) > 1]
    if weights and min(weights) <= 4:
        return PRECISIONS["w4a16"]
    return PRECISIONS["w16a16" if weights and node.op.kind in WEIGHTED and min(weights) > 8 else "w8a16"]


class _Scheduler:
    def __init__(
        self, graph: Graph, precision: Precision | None, runtime: str, stays_bytes: int, config: GraphConfig
    ) -> None:
        self.tasks: list[Task] = []
        self._config = config
        self._asked, self._runtime, self._stays_bytes = precision, runtime, stays_bytes
        self._made: dict[Node, int] = {}
        """Which task a node is in."""
        self._skipped: set[Node] = set()
        self._channel_last: set[Node] = set()
        """Nodes of one input that run on the channel-last side of a transpose they were written before or after."""
        self._border: set[Node] = set()
        """Transposes at the graph's border."""
        nodes = graph.nodes
        for node in nodes:
            if not any(dynamic_inputs(node)):
                self._skipped.add(node)
            elif node.op.name == "Transpose":
                self._border_transpose(node, tuple(node.params["perm"]))
            elif node.op.name == "Reshape" and (perm := _transposes_one_channel(node)) is not None:
                self._border_transpose(node, perm)
                self._skipped.add(node)
            elif (node.op.name == "Reshape" and _only_renames(node)) or _keeps_size(node) or _pads_a_window(node):
                self._skipped.add(node)
        for node in nodes:
            if node not in self._skipped:
                self._add(node)
        for task in self.tasks:
            _whole_gelu(task)

    def _border_transpose(self, node: Node, perm: tuple[int, ...]) -> None:
        source = data_input(node)
        if perm == TO_LAST:
            chain = _chain(source, lambda v: v.producer, lambda v: v.role is Role.APP_WRITE, BORDER | LOOKUPS)
        elif perm == TO_FIRST:
            chain = _chain(node.outputs[0], _only_user, lambda v: v.role is Role.APP_READ, BORDER)
        else:
            return
        if chain is None:
            return
        self._border.add(node)
        # 8-bit onnx graphs compute what precedes the first layer channel-last, as dlc and tflite graphs do, where the
        # image stays in VTCM with its channels padded
        eight_bit = self._precision(node).activation_bytes == 1 and perm == TO_LAST and bool(chain)
        image = node.outputs[0] if perm == TO_LAST else source
        stays = padded_elements(image.shape) * self._precision(node).activation_bytes <= self._stays_bytes
        if self._runtime != "onnx" or (eight_bit and stays):
            self._skipped.add(node)
            self._channel_last.update(chain)
        elif stays and self._precision(node).rate == "float":
            self._skipped.add(node)

    def _precision(self, node: Node) -> Precision:
        return self._asked or precision_of(node)

    def _task_of(self, value: Value) -> int:
        """The task that makes a value, through what only renames it; -1 for the graph's input."""
        while value.producer is not None and value.producer in self._skipped:
            value = data_input(value.producer) if any(dynamic_inputs(value.producer)) else Value("", value.type)
        return -1 if value.producer is None else self._made[value.producer]

    def _add(self, node: Node) -> None:
        p, op, out = self._precision(node), node.op.name, self._shape(node, node.outputs[0])
        own = self._asked is None
        task = Task(
            node.name, op, p, [node.name], [op], local=_is_local(node, out, p, self._stays_bytes), own_types=own
        )
        self._work(task, node, out)
        if p.passes > 1:
            task.hmx = {kind: p.passes * amount for kind, amount in task.hmx.items()}
        brings_into_rows(task, node)
        written = any(v.role is Role.APP_READ or self._leaves(v) for v in node.outputs)
        if written and len(out) == 4:
            task.add("pack", padded_elements(out) * p.activation_bytes / 1e6)
        if op in CLAMPS or op in LOOKUPS or op in ARITHMETIC:
            constant = max((math.prod(v.shape) for v in node.inputs if v is not None and v.is_static), default=0)
            task.weight_bytes = constant * p.activation_bytes if constant > SMALL else 0
        reads = [(self._task_of(v), self._read_bytes(v, p)) for v in dynamic_inputs(node)]
        size = node.outputs[0].type.size
        last = len(self.tasks) - 1
        joins = (
            (op in CLAMPS or op in LOOKUPS or op in ARITHMETIC)
            and not self._stands_alone(node)
            and any(
                index == last >= 0 and v.type.size == size
                for (index, _), v in zip(reads, dynamic_inputs(node), strict=True)
            )
        )
        task.members.append(dict(task.hvx))
        if joins:
            into = self.tasks[last]
            for kind, amount in () if _gates_itself(node) else task.hvx.items():
                into.add(kind, amount)
            into.members.append(dict(task.hvx))
            into.ops.append(node.name)
            into.kinds.append(op)
            into.weight_bytes += task.weight_bytes
            into.reads += [read for read in reads if read[0] != last]
            into.out_bytes = size * p.activation_bytes
            self._made[node] = last
            return
        task.reads, task.out_bytes = reads, size * p.activation_bytes
        self._made[node] = len(self.tasks)
        self.tasks.append(task)

    def _read_bytes(self, value: Value, p: Precision) -> int:
        """Bytes of an operand: a code of 8 bits beside ones of 16, as a KV cache, takes one."""
        own = self._asked is None and value.encoding is not None
        return value.type.size * (min(p.activation_bytes, value.dtype.bits // 8) if own else p.activation_bytes)

    def _shape(self, node: Node, value: Value) -> tuple[int, ...]:
        shape = value.shape
        return (shape[0], shape[2], shape[3], shape[1]) if node in self._channel_last and len(shape) == 4 else shape

    def _leaves(self, value: Value) -> bool:
        """True where a value leaves the graph through a transpose that was dropped."""
        return any(u in self._skipped and u.outputs[0].role is Role.APP_READ for u in value.users)

    def _work(self, task: Task, node: Node, out: tuple[int, ...]) -> None:
        op, p = node.op.name, task.precision
        source = self._shape(node, data_input(node))
        size = p.activation_bytes / 1e6
        written, read = padded_elements(out) * size, padded_elements(source) * size
        for kind, amount in added_work(node, p, self._stays_bytes):
            task.add(kind, amount)
        if op in ("Conv2d", "DepthWiseConv2d", "TransposeConv2d"):
            convolution(task, node, source, out, on_hvx=self._config.short_depth_conv_on_hmx_off)
            return
        if op == "Conv3d":
            convolution_3d(task, node, out)
            return
        if op in ("FullyConnected", "MatMul"):
            product(task, node, source, out)
            return
        if op in CLAMPS:
            if self._stands_alone(node):
                task.add("vector_op", fixed_cost_share(written * 1e6))
                task.add("add", written)
            return
        task.add("handover" if op in COPIES | SHUFFLES else "vector_op", fixed_cost_share(max(written, read) * 1e6))
        if op in BY_RESULT:
            task.add(BY_RESULT[op], written)
            if op in SOFTMAXES and math.prod(out[-2:]) * p.activation_bytes > self._stays_bytes:
                task.add("large_attention", written)
            if op in SOFTMAXES and not _along_last(node):
                task.add("shuffle", 2 * written)  # the axis becomes the last, and goes back
        elif op == "Batchnorm" and p.rate != "float":
            task.add("add", written)
            task.add("batchnorm", written)
        elif op in ARITHMETIC:
            difference = op == "ElementWiseSubtract" and len(dynamic_inputs(node)) == 2
            task.add("divide" if difference else self._arithmetic(node), written * (DIFFERENCE if difference else 1.0))
        elif op in COPIES:
            task.add("copy", read if op == "Split" else written)
            task.add("piece", _pieces(node) / 1e3)
            if op in CUTS and (self._runtime, p.rate) in SLICED_ALONE:
                task.add("cut", _pieces(node) / 1e3)
            if op == "Split" and p.rate == "float" and len(out) != 4 and out[-1] != source[-1]:
                task.add("split", read)
        elif op == "Transpose" and node in self._border:
            task.add("shuffle", math.prod(out) * size)
            task.add("border_transpose", math.prod(out) * size)
        elif op in ("Transpose", "Reshape"):
            moved = (flat_elements(out) + flat_elements(source)) / 2
            # a tile has four axes: a tensor of more lies as it is, without any padding
            task.add("shuffle", (math.prod(out) if max(len(out), len(source)) > TILE_AXES else moved) * size)
        elif op in SHUFFLES:
            task.add("shuffle", read if op in ("DepthToSpace", "SpaceToDepth") else written)
        elif op in IMAGE_NORMS:
            task.add("reduce", 2 * read)
            task.add("across", 2 * read)
            task.add("add", written)
        elif op in POOLS:
            window = node.params.get("filter_size", (1, 1))
            if _adds_one_by_one(node, p):
                task.add("scalar", math.prod(out) * math.prod(window) / 1e3)
            elif math.prod(window) > 16:
                task.add("reduce", read)
                task.add("across", read)
            else:
                task.add("pool", read)
        elif op in REDUCTIONS:
            task.add("reduce", read)
            if not _along_last(node):
                task.add("across", read)
        else:
            other_op(task, node, written, whole_sequence=self._config.monolithic_lstm)

    def _stands_alone(self, node: Node) -> bool:
        """True for an activation after a convolution that is not folded into it."""
        return not self._config.folds_activations and follows_convolution(node)

    def _arithmetic(self, node: Node) -> str:
        kind = ARITHMETIC[node.op.name]
        alone = sum(1 for _ in dynamic_inputs(node)) == 1
        if node in self._channel_last or (alone and len(node.outputs[0].shape) == 4 and self._begins(node)):
            # tflite folds an 8-bit normalisation into the input's quantization; dividing by one number is multiplying
            folded = self._runtime == "tflite" and self._precision(node).activation_bytes == 1
            one = all(v.type.size == 1 for v in node.inputs if v is not None and v.is_static)
            return "divide" if kind == "divide" and not (folded or one) else "add"
        return kind

    def _begins(self, node: Node) -> bool:
        """True for a node that reads the graph's input, in dlc and tflite graphs through element-wise nodes, too."""
        source = data_input(node)
        if self._runtime == "onnx" or self._task_of(source) == -1:
            return self._task_of(source) == -1
        return _chain(source, lambda v: v.producer, lambda v: v.role is Role.APP_WRITE, BORDER | LOOKUPS) is not None


def _is_local(node: Node, out: Sequence[int], p: Precision, stays_bytes: int) -> bool:
    op = node.op.name
    if op in SOFTMAXES | {"MatMul"} and len(out) > 1:  # tiled by heads, where one of them stays
        tiled = _along_last(node) if op in SOFTMAXES else len(dynamic_inputs(node)) > 1
        return tiled and math.prod(out[-2:]) * p.activation_bytes <= stays_bytes
    if op in ROW_NORMS:  # a pixel's norm needs that pixel alone
        return len(out) == 4 and tuple(node.params.get("axes", (3,))) == (3,)
    if op in CUTS:  # a cut of channels keeps every pixel where it is
        return len(out) == 4 and tuple(out[:-1]) == data_input(node).shape[:-1]
    return op in LOCAL and len(out) == 4


def _adds_one_by_one(node: Node, precision: Precision) -> bool:
    """True for averages of integers over large windows that reach beyond the image."""
    beyond = any(side for sides in node.params.get("pad_amount", ()) for side in sides)
    return (
        node.op.name == "PoolAvg2d"
        and precision.rate != "float"
        and beyond
        and max(node.params["filter_size"]) > ADDED_AT_ONCE
    )


def _along_last(node: Node) -> bool:
    """True for an op that goes along the last axis of what it reads."""
    rank = len(data_input(node).shape)
    axes = node.params.get("axes", (node.params.get("axis", -1),))
    return rank == 0 or rank - 1 in [int(axis) % rank for axis in axes]


def _pieces(node: Node) -> int:
    """Pieces of rows that are no whole tiles, and so go one by one: of a join of rows, of cuts of them."""
    op, source = node.op.name, data_input(node).shape
    if op == "Concat":
        rank = len(node.outputs[0].shape)
        parts: Sequence[Value] = (
            dynamic_inputs(node) if node.params.get("axis", rank - 1) % max(1, rank) == rank - 1 else []
        )
    else:
        parts = node.outputs if op in CUTS and node.outputs[0].shape[-1:] != source[-1:] else []
    cut = any(v.shape and v.shape[-1] % CHANNELS for v in parts)
    return sum(math.prod(v.shape[:-1]) for v in parts if len(v.shape) > 1) if cut else 0


def _transposes_one_channel(node: Node) -> tuple[int, ...] | None:
    """The transpose that a reshape of an image of one channel is, None for another reshape."""
    before, after = data_input(node).shape, node.outputs[0].shape
    if len(before) != 4 or len(after) != 4 or math.prod(before) <= SMALL:
        return None
    if before[1] == 1 and after == (before[0], *before[2:], 1):
        return TO_LAST
    return TO_FIRST if before[3] == 1 and after == (before[0], 1, *before[1:3]) else None


def _only_user(value: Value) -> Node | None:
    return next(iter(value.users)) if len(value.users) == 1 else None


def _chain(
    value: Value, step: Callable[[Value], Node | None], done: Callable[[Value], bool], ops: Set[str]
) -> list[Node] | None:
    """Element-wise nodes of one input from a value to the graph's border, None where others come first."""
    nodes: list[Node] = []
    while not done(value):
        node = step(value)
        if node is None or node.op.name not in ops or len(dynamic_inputs(node)) != 1:
            return None
        nodes.append(node)
        value = data_input(node) if node.outputs[0] is value else node.outputs[0]
    return nodes


def _gates_itself(node: Node) -> bool:
    """True for x times a function of x (SiLU, Mish, Gelu by Sigmoid): one look-up does both."""
    factors = dynamic_inputs(node)
    return (
        node.op.name == "ElementWiseMultiply"
        and len(factors) == 2
        and (_is_function_of(*factors) or _is_function_of(*reversed(factors)))
    )


def _is_function_of(start: Value, value: Value) -> bool:
    """True where a value is a function of another by look-ups and constants alone."""
    lookups = 0
    while value is not start:
        node = value.producer
        if node is None or node.op.name not in LOOKUPS | ARITHMETIC.keys() or len(dynamic_inputs(node)) != 1:
            return False
        lookups += node.op.name in LOOKUPS
        value = data_input(node)
    return lookups > 0


def _keeps_size(node: Node) -> bool:
    """True for a resize that keeps the size."""
    return node.op.name in RESIZES and node.outputs[0].shape == data_input(node).shape


def _only_renames(node: Node) -> bool:
    """True for a reshape that only adds or drops axes of 1, or is too small to matter."""
    before, after = data_input(node).shape, node.outputs[0].shape
    return [d for d in before if d != 1] == [d for d in after if d != 1] or math.prod(after) <= SMALL


def _pads_a_window(node: Node) -> bool:
    """True for zeros around an image that only windows read: they pad as they read."""
    result = node.outputs[0]
    return (
        node.op.name == "Pad"
        and len(result.shape) == 4
        and result.shape[-1] == data_input(node).shape[-1]
        and result.role is not Role.APP_READ
        and all(user.op.name in WINDOWED for user in result.users)
    )


def _whole_gelu(task: Task) -> None:
    """Gelu written out with Tanh and a cube (a power, or two products) is recognised and runs as one look-up."""
    lookups = sum(kind in LOOKUPS for kind in task.kinds)
    if "Tanh" not in task.kinds or not ("ElementWisePower" in task.kinds or _products(task) >= 5):
        return
    amount = task.hvx["lookup"] / lookups
    task.hvx.pop("add", None)
    task.hvx["lookup"], task.hvx["vector_op"] = amount, fixed_cost_share(amount * 1e6)


def _products(task: Task) -> int:
    return task.kinds.count("ElementWiseMultiply")
