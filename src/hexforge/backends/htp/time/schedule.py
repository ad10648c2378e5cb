"""Schedule: a QNN graph as the tasks the HTP runs in order, for a precision and a path to the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set

from hexforge.backends.htp.time.tile import CHANNELS, PRECISIONS, Precision, Task, padded, place
from hexforge.backends.htp.time.work import convolution, data, dynamic, other, product, static
from hexforge.errors import CallError
from hexforge.ir import Graph, Node, Role, Value

RUNTIMES = ("qnn_dlc", "onnx", "tflite")
"""Paths to the device. dlc and tflite graphs take and give images channel-last; onnx graphs transpose them."""

CLAMPS = {"Relu", "ReluMinMax", "Relu1", "Relu6"}
"""Applied where the matrix unit or another op writes its result."""
LOOKUPS = {"Sigmoid", "Tanh", "Gelu", "HardSwish", "Elu"} | {
    f"ElementWise{name}" for name in "Neuron Exp Power Log Rsqrt SquareRoot Softplus Sin Cos Asin Atan".split()
}
ARITHMETIC = {
    f"ElementWise{name}": "divide" if name == "Divide" else "add"
    for name in "Add Subtract Multiply Divide Maximum Minimum SquaredDifference Abs Neg Ceil Floor Round Sign".split()
} | {"Prelu": "prelu", "Batchnorm": "affine"}
MOVES = {
    "Concat": "concat",
    "Gather": "gather",
    "GatherElements": "gather",
    "GatherNd": "gather",
    "StridedSlice": "slice",
    "Split": "slice",
    "Pad": "slice",
    "Tile": "slice",
    "DepthToSpace": "depth_to_space",
    "SpaceToDepth": "depth_to_space",
    "BatchToSpace": "depth_to_space",
    "SpaceToBatch": "depth_to_space",
}
NORMS = {"LayerNorm", "L2Norm", "RmsNorm", "Lrn"}
IMAGE_NORMS = {"InstanceNorm", "GroupNorm"}
"""Over the pixels of a channel or a group of them, lane by lane: two sums, and one pass that scales."""
CONVERTS = {"Cast", "Convert", "Quantize", "Dequantize"}
BORDER = ARITHMETIC.keys() | CLAMPS | CONVERTS
"""What a transpose at the graph's border moves past."""
WINDOWED = {"Conv2d", "DepthWiseConv2d", "TransposeConv2d", "PoolMax2d", "PoolAvg2d"}
ATTENTION = {"MatMul", "Softmax", "LogSoftmax"}
"""Each row of the result needs one row of the first operand: with what stands between them, tiled by rows."""
DIFFERENCE = 4.1
"""Published: a difference of two tensors against a sum of two, in cycles of the SDK's own profile of one model."""
LOCAL = WINDOWED | CLAMPS | LOOKUPS | set(ARITHMETIC) | {"Concat", "Tile", "DepthToSpace", "Resize", "Argmax", "Cast"}
TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
SMALL = 4096
"""Elements below which a reshape, or a constant, costs nothing of its own."""


def schedule(graph: Graph, precision: Precision | None, runtime: str, vtcm_bytes: int) -> list[Task]:
    """The tasks of a graph in the order they run; without a precision each node has that of its types."""
    if runtime not in RUNTIMES:
        raise CallError(f"runtime {runtime!r} is not known; it is one of {', '.join(RUNTIMES)}")
    tasks = _Scheduler(graph, precision, runtime).tasks
    place(tasks, vtcm_bytes)
    return tasks


def precision_of(node: Node) -> Precision:
    """The precision a node's types say: that of its widest fixed-point result, float where there is none."""
    bits = max((v.dtype.bits for v in node.outputs if v.encoding is not None), default=0)
    if bits == 0:
        return PRECISIONS["float"]
    if bits <= 8:
        return PRECISIONS["w8a8"]
    weights = [v.dtype.bits for v in node.inputs if v is not None and v.is_static and len(v.shape) > 1]
    return PRECISIONS["w4a16" if weights and min(weights) <= 4 else "w8a16"]


class _Scheduler:
    def __init__(self, graph: Graph, precision: Precision | None, runtime: str) -> None:
        self.tasks: list[Task] = []
        self._asked, self._runtime = precision, runtime
        self._made: dict[Node, int] = {}
        """Which task a node is in."""
        self._skipped: set[Node] = set()
        self._channel_last: set[Node] = set()
        """Nodes of one input that run on the channel-last side of a transpose they were written before or after."""
        self._border: set[Node] = set()
        """Transposes at the graph's border."""
        nodes = graph.nodes
        for node in nodes:
            if not any(dynamic(node)):
                self._skipped.add(node)
            elif node.op.name == "Transpose":
                self._border_transpose(node)
            elif (node.op.name == "Reshape" and _renames(node)) or _stays(node):
                self._skipped.add(node)
        for node in nodes:
            if node not in self._skipped:
                self._add(node)
        for task in self.tasks:
            _whole_gelu(task)

    def _border_transpose(self, node: Node) -> None:
        perm, source = tuple(node.params["perm"]), data(node)
        if perm == TO_LAST:
            chain = _chain(source, lambda v: v.producer, lambda v: v.role is Role.APP_WRITE, BORDER | LOOKUPS)
        elif perm == TO_FIRST:
            chain = _chain(node.outputs[0], _only_user, lambda v: v.role is Role.APP_READ, BORDER)
        else:
            return
        if chain is None:
            return
        self._border.add(node)
        # 8-bit onnx graphs compute what precedes the first layer channel-last, as dlc and tflite graphs do
        eight_bit = self._precision(node).activation_bytes == 1 and perm == TO_LAST and bool(chain)
        if self._runtime != "onnx" or eight_bit:
            self._skipped.add(node)
            self._channel_last.update(chain)

    def _precision(self, node: Node) -> Precision:
        return self._asked or precision_of(node)

    def _task_of(self, value: Value) -> int:
        """The task that makes a value, through what only renames it; -1 for the graph's input."""
        while value.producer is not None and value.producer in self._skipped:
            value = data(value.producer) if any(dynamic(value.producer)) else Value("", value.type)
        return -1 if value.producer is None else self._made[value.producer]

    def _add(self, node: Node) -> None:
        p, op, out = self._precision(node), node.op.name, self._shape(node, node.outputs[0])
        task = Task(node.name, op, p, [node.name], [op], local=_is_local(node, out))
        self._work(task, node, out)
        written = any(v.role is Role.APP_READ or self._leaves(v) for v in node.outputs)
        if written and len(out) == 4:
            task.add("pack", padded(out) * p.activation_bytes / 1e6)
        if op in CLAMPS or op in LOOKUPS or op in ARITHMETIC:
            constant = max((math.prod(v.shape) for v in node.inputs if v is not None and v.is_static), default=0)
            task.weight_bytes = constant * p.activation_bytes if constant > SMALL else 0
        reads = [(self._task_of(v), v.type.size * p.activation_bytes) for v in dynamic(node)]
        size = node.outputs[0].type.size
        last = len(self.tasks) - 1
        joins = (op in CLAMPS or op in LOOKUPS or op in ARITHMETIC) and any(
            index == last >= 0 and v.type.size == size for (index, _), v in zip(reads, dynamic(node), strict=True)
        )
        task.members.append(dict(task.hvx))
        if joins:
            into = self.tasks[last]
            asked = {"chain" if kind == "affine" else kind: amount for kind, amount in task.hvx.items()}
            for kind, amount in () if _gates_itself(node) else asked.items():
                into.add(kind, amount)
            into.members.append(asked)
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

    def _shape(self, node: Node, value: Value) -> tuple[int, ...]:
        shape = value.shape
        return (shape[0], shape[2], shape[3], shape[1]) if node in self._channel_last and len(shape) == 4 else shape

    def _leaves(self, value: Value) -> bool:
        """True where a value leaves the graph through a transpose that was dropped."""
        return any(u in self._skipped and u.outputs[0].role is Role.APP_READ for u in value.users)

    def _work(self, task: Task, node: Node, out: tuple[int, ...]) -> None:
        op, p = node.op.name, task.precision
        source = self._shape(node, data(node))
        size = p.activation_bytes / 1e6
        written, read = padded(out) * size, padded(source) * size
        if op in ("Conv2d", "DepthWiseConv2d", "TransposeConv2d"):
            convolution(task, node, source, out)
            return
        if op in ("FullyConnected", "MatMul"):
            product(task, node, source, out)
            return
        if op in CLAMPS:
            return
        if op in ("Transpose", "Reshape", *MOVES):
            task.add("move_op", 1)
        else:
            task.add("vector_op", 1)
        if op in LOOKUPS:
            task.add("lookup", written)
        elif op in ARITHMETIC:
            difference = op == "ElementWiseSubtract" and len(dynamic(node)) == 2
            task.add(self._arithmetic(node), written * (DIFFERENCE if difference else 1.0))
        elif op == "Split":
            task.add("blocks" if _whole_channels(node) else "slice", read)
        elif op in MOVES:
            whole = op == "StridedSlice" and _whole_channels(node)
            task.add("blocks" if whole else MOVES[op], read if op in ("DepthToSpace", "SpaceToDepth") else written)
        elif op == "Transpose" and node in self._border:
            task.add("border_transpose", math.prod(out) / 1e6)
        elif op == "Transpose":
            whole = node.params["perm"][-1] == len(out) - 1 and out[-1] % CHANNELS == 0
            task.add("blocks" if whole else "transpose", (written + read) / 2)
        elif op == "Reshape":
            whole = out[-1:] != () and source[-1:] != () and out[-1] % CHANNELS == 0 == source[-1] % CHANNELS
            task.add("blocks" if whole else "reshape", (written + read) / 2)
        elif op in ("Softmax", "LogSoftmax"):
            task.add("softmax", written)
        elif op in NORMS:
            task.add("norm", written)
        elif op in IMAGE_NORMS:
            task.add("reduce", 2 * read)
            task.add("affine", written)
        elif op.startswith("Pool"):
            window = node.params.get("filter_size", (1, 1))
            if math.prod(window) > 16:
                task.add("reduce", read)
            else:
                task.add("pool", written * max(window))
        elif op.startswith("Reduce"):
            task.add("reduce", read)
        elif op.startswith("Resize"):
            task.add("resize", written)
        elif op in ("Argmax", "Argmin", "TopK"):
            task.add("argmax", read)
        elif op in CONVERTS:
            task.add("cast", written)
        else:
            other(task, node, written)

    def _arithmetic(self, node: Node) -> str:
        kind = ARITHMETIC[node.op.name]
        alone = sum(1 for _ in dynamic(node)) == 1
        first = alone and len(node.outputs[0].shape) == 4 and self._task_of(data(node)) == -1
        if node in self._channel_last or first:
            # tflite folds an 8-bit normalisation into the input's quantization
            folded = self._runtime == "tflite" and self._precision(node).activation_bytes == 1
            return "divide" if kind == "divide" and not folded else "border"
        return "affine" if alone and kind == "add" else kind


def _is_local(node: Node, out: Sequence[int]) -> bool:
    op = node.op.name
    if op in ATTENTION:
        along = node.params.get("axis", len(out) - 1) == len(out) - 1
        return along and static(node) is None and not node.params.get("transpose_in0")
    return op in LOCAL and len(out) == 4


def _only_user(value: Value) -> Node | None:
    return next(iter(value.users)) if len(value.users) == 1 else None


def _chain(
    value: Value, step: Callable[[Value], Node | None], done: Callable[[Value], bool], ops: Set[str]
) -> list[Node] | None:
    """Element-wise nodes of one input from a value to the graph's border, None where others come first."""
    found: list[Node] = []
    while not done(value):
        node = step(value)
        if node is None or node.op.name not in ops or len(dynamic(node)) != 1:
            return None
        found.append(node)
        value = data(node) if node.outputs[0] is value else node.outputs[0]
    return found


def _gates_itself(node: Node) -> bool:
    """True for x times a function of x (SiLU, Mish, Gelu by Sigmoid): one look-up does both."""
    found = dynamic(node)
    return node.op.name == "ElementWiseMultiply" and len(found) == 2 and (_leads(*found) or _leads(*reversed(found)))


def _leads(start: Value, value: Value) -> bool:
    """True where a value is a function of another by look-ups and constants alone."""
    lookups = 0
    while value is not start:
        node = value.producer
        if node is None or node.op.name not in LOOKUPS | ARITHMETIC.keys() or len(dynamic(node)) != 1:
            return False
        lookups += node.op.name in LOOKUPS
        value = data(node)
    return lookups > 0


def _stays(node: Node) -> bool:
    """True for a resize to the size there was."""
    return node.op.name.startswith("Resize") and node.outputs[0].shape == data(node).shape


def _renames(node: Node) -> bool:
    """True for a reshape that only adds or drops axes of 1, or is too small to matter."""
    before, after = data(node).shape, node.outputs[0].shape
    return [d for d in before if d != 1] == [d for d in after if d != 1] or math.prod(after) <= SMALL


def _whole_channels(node: Node) -> bool:
    """True where a cut takes whole tiles of channels, or whole images: nothing moves within a tile."""
    source = data(node).shape
    if node.op.name == "Split":
        axis = node.params["axis"]
        return axis < len(source) - 3 or (
            axis == len(source) - 1 and not any(i % CHANNELS for i in node.params["split_index"])
        )
    if len(node.outputs[0].shape) != len(source):
        return False
    cut = [a for a, (n, m) in enumerate(zip(source, node.outputs[0].shape, strict=True)) if n != m]
    begin, _, step = node.params["ranges"][cut[0]] if len(cut) == 1 else (1, 0, 0)
    return step == 1 and (cut[0] < len(source) - 3 or (cut[0] == len(source) - 1 and begin % CHANNELS == 0))


def _whole_gelu(task: Task) -> None:
    """Gelu written out with Tanh and a cube (a power, or two products) is recognised and runs as one look-up."""
    lookups = sum(kind in LOOKUPS for kind in task.kinds)
    if "Tanh" not in task.kinds or not ("ElementWisePower" in task.kinds or _products(task) >= 5):
        return
    amount = task.hvx["lookup"] / lookups
    for kind in ("chain", "affine", "add"):
        task.hvx.pop(kind, None)
    task.hvx["lookup"], task.hvx["vector_op"] = amount, 1.0


def _products(task: Task) -> int:
    return task.kinds.count("ElementWiseMultiply")
