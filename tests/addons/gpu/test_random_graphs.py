# SPDX-License-Identifier: Apache-2.0
"""Random graphs on the gpu backend against the cpu backend: HEXFORGE_GPU_GRAPHS=200 for more of them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyopencl")

from hexforge.ir import DType, Graph, TensorType, Value
from tests.addons.gpu.test_kernels import agree, given, out, read, weight

pytestmark = pytest.mark.gpu

UNARY = (
    "Relu", "Sigmoid", "Tanh", "ElementWiseAbs", "ElementWiseNeg", "HardSwish", "Gelu", "Relu6", "Elu",
    "ElementWiseSoftplus", "ElementWiseSin", "ElementWiseCos", "Relu1",
)  # fmt: skip
BINARY = (
    "ElementWiseAdd", "ElementWiseSubtract", "ElementWiseMultiply", "ElementWiseMaximum", "ElementWiseMinimum",
    "ElementWiseSquaredDifference",
)  # fmt: skip
WHOLE = (
    "ElementWiseAdd", "ElementWiseSubtract", "ElementWiseMultiply", "ElementWiseMaximum", "ElementWiseMinimum",
    "ElementWiseFloorDiv", "ElementWiseAbs", "ElementWiseNeg",
)  # fmt: skip
LARGEST = 20_000


class RandomGraph:
    """A graph in the making: every step picks a value that was made before and does something to it."""

    def __init__(self, g: Graph, rng: np.random.Generator) -> None:
        self.g, self.rng = g, rng
        rank = int(rng.choice([2, 3, 4, 4, 4, 5]))
        shape = [int(n) for n in rng.choice([1, 2, 3, 5, 6, 7, 8, 11, 16], rank)]
        self.inputs = [given(g, *shape), given(g, *shape), given(g, 2, 6, 5, 8)]
        self.values = list(self.inputs)

    def pick(self, *ranks: int) -> Value | None:
        """A value of one of some ranks."""
        fitting = [v for v in self.values if not ranks or len(v.shape) in ranks]
        return fitting[int(self.rng.integers(len(fitting)))] if fitting else None

    def alike(self, x: Value) -> Value:
        """A value of the same shape, often another one."""
        found = [v for v in self.values if v.shape == x.shape]
        return found[int(self.rng.integers(len(found)))]

    def axis(self, x: Value) -> int:
        return int(self.rng.integers(len(x.shape)))

    def choice(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def step(self) -> None:
        """Add a node or a few."""
        kinds = [name for name in dir(self) if name.startswith("add_")]
        made = getattr(self, str(self.rng.choice(kinds)))()
        if made is not None and 0 < made.type.size <= LARGEST and len(made.shape) <= 5:
            self.values.append(made)

    # -- one value to another -----------------------------------------------------------------------------------------

    def add_function(self) -> Value | None:
        x = self.pick()
        return out(self.g, str(self.rng.choice(UNARY)), [x])

    def add_pair(self) -> Value | None:
        x = self.pick()
        assert x is not None
        y = out(self.g, str(self.rng.choice(BINARY)), [x, self.alike(x)])
        return out(self.g, "Tanh", [y]) if self.rng.random() < 0.5 else y

    def add_broadcast(self) -> Value | None:
        """A pair whose second side has ones where the first has more, or fewer axes, and is constant or computed."""
        x = self.pick()
        assert x is not None
        shape = [n if self.rng.random() < 0.5 else 1 for n in x.shape][int(self.rng.integers(len(x.shape))) :]
        other = weight(self.g, self.rng, *shape)
        if self.rng.random() < 0.5:
            other = out(self.g, "Sigmoid", [given(self.g, *shape)])
        sides = [x, other] if self.rng.random() < 0.7 else [other, x]
        return out(self.g, str(self.rng.choice(BINARY)), sides)

    def add_choice(self) -> Value | None:
        """A comparison of what is given with what float16 has too, which all precisions see alike; a choice by it."""
        x = self.inputs[int(self.rng.integers(3))]
        test = out(
            self.g,
            str(self.choice("ElementWiseLess", "ElementWiseGreaterEqual")),
            [x, self.g.static(np.array(0.125, np.float32))],
        )
        return out(self.g, "ElementWiseSelect", [test, self.alike(x), out(self.g, "Gelu", [x])])

    def add_integers(self) -> Value | None:
        """Whole numbers: cast from a product that is exact in float16 too, computed with, and cast back."""
        x = self.inputs[int(self.rng.integers(3))]
        whole = self.g.value(self.g.unique("whole"), TensorType(DType.INT32, x.shape))
        self.g.node("Cast", [out(self.g, "ElementWiseMultiply", [x, self.g.static(np.array(4, np.float32))])], [whole])
        for _ in range(int(self.rng.integers(1, 4))):
            op = str(self.rng.choice(WHOLE))
            three = self.g.static(np.asarray(3, np.int32))
            whole = out(self.g, op, [whole] if op in ("ElementWiseAbs", "ElementWiseNeg") else [whole, three])
        back = self.g.value(self.g.unique("back"), TensorType(DType.FLOAT32, x.shape))
        self.g.node("Cast", [whole], [back])
        return back

    # -- moves --------------------------------------------------------------------------------------------------------

    def add_transpose(self) -> Value | None:
        x = self.pick()
        assert x is not None
        return out(self.g, "Transpose", [x], perm=tuple(int(i) for i in self.rng.permutation(len(x.shape))))

    def add_reshape(self) -> Value | None:
        x = self.pick()
        assert x is not None
        shape, axis = list(x.shape), self.axis(x)
        if len(shape) > 2 and axis:
            shape[axis - 1 : axis + 1] = [shape[axis - 1] * shape[axis]]
        else:
            shape.insert(axis, 1)
        made = self.g.value(self.g.unique("r"), TensorType(DType.FLOAT32, tuple(shape)))
        self.g.node("Reshape", [x], [made])
        return made

    def add_slice(self) -> Value | None:
        x = self.pick()
        assert x is not None
        ranges = []
        for n in x.shape:
            first = int(self.rng.integers(n))
            step = int(self.choice(1, 1, 2))
            last = int(self.rng.integers(first + 1, n + 1))
            ranges.append((first, last, step) if self.rng.random() < 0.5 else (0, n, 1))
        return out(self.g, "StridedSlice", [x], ranges=tuple(ranges))

    def add_pad(self) -> Value | None:
        x = self.pick()
        assert x is not None
        scheme = int(self.choice(0, 3))
        amount = tuple((int(self.rng.integers(3)), int(self.rng.integers(2))) for _ in x.shape)
        return out(self.g, "Pad", [x], scheme=scheme, pad_amount=amount)

    def add_concat(self) -> Value | None:
        """A concatenation, of what kernels write or of anything."""
        x = self.pick()
        assert x is not None
        parts = [x, self.alike(x)]
        if self.rng.random() < 0.5:
            parts = [out(self.g, "Softmax", [p], axis=len(x.shape) - 1) for p in parts]
        if self.rng.random() < 0.3:
            parts.append(weight(self.g, self.rng, *x.shape))
        return out(self.g, "Concat", parts, axis=self.axis(x))

    def add_split(self) -> Value | None:
        x = self.pick()
        assert x is not None
        axis = self.axis(x)
        if x.shape[axis] < 2:
            return None
        at = int(self.rng.integers(1, x.shape[axis]))
        first, second = self.g.node("Split", [x], axis=axis, split_index=(at,)).outputs
        self.values.append(first)
        return second

    def add_gather(self) -> Value | None:
        x = self.pick(2, 3, 4)
        if x is None:
            return None
        axis = self.axis(x)
        indices = self.rng.integers(-x.shape[axis], x.shape[axis], (2, 2)).astype(np.int32)
        return out(self.g, "Gather", [x, self.g.static(indices)], axis=axis)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def add_reduction(self) -> Value | None:
        x = self.pick()
        assert x is not None
        axes = tuple(sorted({self.axis(x), self.axis(x)}))
        kind = str(self.choice("ReduceMax", "ReduceMin", "ReduceMean", "ReduceSum"))
        reduced = out(self.g, kind, [x], axes=axes, keep_dims=True)
        return out(self.g, "ElementWiseSubtract", [x, reduced]) if self.rng.random() < 0.5 else reduced

    def add_softmax(self) -> Value | None:
        x = self.pick()
        assert x is not None
        return out(self.g, str(self.choice("Softmax", "LogSoftmax")), [x], axis=self.axis(x))

    def add_norm(self) -> Value | None:
        x = self.pick(3, 4)
        if x is None or x.type.size // x.shape[0] // x.shape[-1] < 4:
            return None
        n, kind = x.shape[-1], int(self.rng.integers(4))
        two = [weight(self.g, self.rng, n), weight(self.g, self.rng, n)]
        if kind == 0 and n > 3:
            return out(self.g, "LayerNorm", [x, *two], axes=(len(x.shape) - 1,), epsilon=1e-2)
        if kind == 1 and n > 3:
            return out(self.g, "RmsNorm", [x, two[0]], axes=(len(x.shape) - 1,), epsilon=1e-2)
        if kind == 2 and len(x.shape) == 4:
            return out(self.g, "InstanceNorm", [x, *two], epsilon=1e-2)
        return out(self.g, "Batchnorm", [x, *two])

    def add_sums(self) -> Value | None:
        x = self.pick()
        assert x is not None
        return out(self.g, "Tanh", [out(self.g, "CumulativeSum", [x], axis=self.axis(x))])

    # -- products -----------------------------------------------------------------------------------------------------

    def add_convolution(self) -> Value | None:
        """Plain, in groups, with steps, gaps and uneven pads, depthwise, transposed; in three dimensions too."""
        x = self.pick(4, 4, 5)
        if x is None:
            return None
        spatial, channels = len(x.shape) - 2, x.shape[-1]
        taps = [int(self.choice(1, 1, 2, 3)) for _ in range(spatial)]
        if self.rng.random() < 0.3:
            taps = [3] * spatial
        pads = tuple((int(self.rng.integers(t)), t - 1) for t in taps)
        if any(n + sum(p) < t for n, p, t in zip(x.shape[1:-1], pads, taps, strict=True)):
            return None
        stride = tuple(int(self.choice(1, 1, 2)) for _ in taps)
        kind = int(self.rng.integers(4))
        if kind == 0 and spatial == 2:
            w = weight(self.g, self.rng, *taps, 1, channels * int(self.choice(1, 1, 2)))
            y = out(self.g, "DepthWiseConv2d", [x, w], stride=stride, pad_amount=pads)
            last = weight(self.g, self.rng, 1, 1, y.shape[-1], 8)
            return out(self.g, "Conv2d", [out(self.g, "Relu6", [y]), last], stride=(1, 1), pad_amount=((0, 0),) * 2)
        group = int(self.choice(*(n for n in (1, 2, 4) if channels % n == 0)))
        columns = group * int(self.choice(3, 4, 8, 16))
        if kind == 1 and spatial == 2:
            w = weight(self.g, self.rng, *taps, channels, columns // group)
            none = tuple((0, 0) for _ in taps)
            return out(self.g, "TransposeConv2d", [x, w], stride=stride, pad_amount=none, group=group)
        w = weight(self.g, self.rng, *taps, channels // group, columns)
        y = out(
            self.g, f"Conv{spatial}d", [x, w, weight(self.g, self.rng, columns)], stride=stride, pad_amount=pads,
            group=group,
        )  # fmt: skip
        return out(self.g, str(self.rng.choice(UNARY)), [y]) if self.rng.random() < 0.5 else y

    def add_pool(self) -> Value | None:
        x = self.pick(4, 5)
        if x is None or min(x.shape[1:-1]) < 2:
            return None
        dims = len(x.shape) - 2
        kind = str(self.choice("PoolMax", "PoolAvg"))
        stride = tuple(int(self.choice(1, 2)) for _ in range(dims))
        pads = tuple((int(self.rng.integers(2)), 0) for _ in range(dims))
        return out(self.g, f"{kind}{dims}d", [x], filter_size=(2,) * dims, stride=stride, pad_amount=pads)

    def add_product(self) -> Value | None:
        x = self.pick()
        assert x is not None
        n = int(self.choice(5, 8, 19))
        if self.rng.random() < 0.4:
            return out(self.g, "MatMul", [x, weight(self.g, self.rng, x.shape[-1], n)])
        batch = [m if self.rng.random() < 0.6 else 1 for m in x.shape[:-2]]
        other = out(self.g, "Tanh", [given(self.g, *batch, n, x.shape[-1])])
        return out(self.g, "MatMul", [x, other], transpose_in1=True)

    def add_attention(self) -> Value | None:
        """Scores, perhaps scaled and masked, a softmax, and values; heads that transposes split and join."""
        x = self.pick(3, 4)
        if x is None:
            return None
        rank = len(x.shape)
        heads, keys = self.alike(x), self.alike(x)
        turned = (*range(rank - 3), rank - 2, rank - 3, rank - 1)
        if self.rng.random() < 0.5:
            x, heads, keys = (out(self.g, "Transpose", [v], perm=turned) for v in (x, heads, keys))
        scores = out(self.g, "MatMul", [x, keys], transpose_in1=True)
        if self.rng.random() < 0.5:
            scores = out(self.g, "ElementWiseMultiply", [scores, self.g.static(np.array(0.35, np.float32))])
        if self.rng.random() < 0.5:
            mask = weight(self.g, self.rng, *scores.shape[-2:])
            scores = out(self.g, "ElementWiseAdd", [scores, mask])
        mixed = out(self.g, "MatMul", [out(self.g, "Softmax", [scores], axis=rank - 1), heads])
        return out(self.g, "Transpose", [mixed], perm=turned) if self.rng.random() < 0.5 else mixed

    def add_resize(self) -> Value | None:
        x = self.pick(4)
        if x is None:
            return None
        made = self.g.value(self.g.unique("r"), TensorType(DType.FLOAT32, (x.shape[0], 7, 9, x.shape[3])))
        self.g.node("Resize", [x], [made], interpolation_mode=int(self.choice(0, 1)))
        return made


def random_graph(g: Graph, rng: np.random.Generator) -> None:
    """Sixteen steps; what nothing reads is read, and some of the others."""
    graph = RandomGraph(g, rng)
    for _ in range(16):
        graph.step()
    for value in graph.values[3:]:
        if not value.users or rng.random() < 0.15:
            read(g, value)
    if not g.outputs:
        read(g, out(g, "Relu", [graph.inputs[0]]))


GRAPHS = range(int(os.environ.get("HEXFORGE_GPU_GRAPHS", "4")))


@pytest.mark.parametrize("is_processor", [True, False])
@pytest.mark.parametrize("seed", GRAPHS)
def test_random_graphs(seed: int, is_processor: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hexforge.addons.gpu.device.ClDevice.is_processor", property(lambda self: is_processor))
    agree(random_graph, seed=seed, tolerance=1e-4)
