# SPDX-License-Identifier: Apache-2.0
"""Language models of known shapes with random 4-bit weights: as ONNX for hexforge and onnxruntime, and as GGUF."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BLOCK = 32
"""Inputs that have a scale in common."""
_MASKED = -65504.0
_DATA = "weights.data"
"""The file of the constants, which models of one shape and context in one folder have in common."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a decoder is made of."""

    architecture: str
    layers: int
    hidden: int
    heads: int
    groups: int
    """Heads of keys and values."""
    head: int
    inner: int
    vocabulary: int
    normed_heads: bool = False
    """Whether queries and keys are normalized."""

    def matrices(self) -> dict[str, tuple[int, int]]:
        """Outputs and inputs of a layer's products, by name."""
        return {
            "q": (self.heads * self.head, self.hidden), "k": (self.groups * self.head, self.hidden),
            "v": (self.groups * self.head, self.hidden), "o": (self.hidden, self.heads * self.head),
            "gate": (self.inner, self.hidden), "up": (self.inner, self.hidden), "down": (self.hidden, self.inner),
        }  # fmt: skip

    @property
    def weights(self) -> int:
        """Weights that a token is multiplied with: those of all layers, and of the head."""
        return self.layers * sum(n * k for n, k in self.matrices().values()) + self.vocabulary * self.hidden

    @property
    def packed_bytes(self) -> int:
        """These in 4 bits, with a scale of 16 bits for each block."""
        return self.weights // 2 + self.weights // BLOCK * 2


SHAPES = {
    "llama-3.2-1b": Shape("llama", 16, 2048, 32, 8, 64, 8192, 128256),
    "qwen3-0.6b": Shape("qwen3", 28, 1024, 16, 8, 128, 3072, 151936, True),
    "tiny": Shape("llama", 2, 64, 4, 2, 16, 128, 96),
}


class _Writer:
    """Nodes and constants of a model; large constants lie in a file beside it, which is written if it is not there."""

    def __init__(self, data: IO[bytes] | None, fused: bool) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._data, self._end, self._fused = data, 0, fused

    def constant(self, name: str, array: np.ndarray[Any, Any]) -> str:
        if array.nbytes < 1024:
            self.constants.append(numpy_helper.from_array(array, name))
            return name
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor = TensorProto(name=name, data_type=kind, dims=array.shape, data_location=TensorProto.EXTERNAL)
        offset = -(-self._end // 4096) * 4096
        if self._data is not None:
            self._data.write(bytes(offset - self._end))
            self._data.write(np.ascontiguousarray(array).data)
        self._end = offset + array.nbytes
        for key, value in (("location", _DATA), ("offset", offset), ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        self.constants.append(tensor)
        return name

    def add(self, kind: str, inputs: list[str], output: str = "", domain: str = "", **attributes: Any) -> str:
        name = f"{kind}_{len(self.nodes)}"
        output = output or name
        self.nodes.append(helper.make_node(kind, inputs, [output], name, domain=domain, **attributes))
        return output

    def several(self, kind: str, inputs: list[str], outputs: list[str], domain: str, **attributes: Any) -> None:
        self.nodes.append(
            helper.make_node(kind, inputs, outputs, f"{kind}_{len(self.nodes)}", domain=domain, **attributes)
        )

    def integers(self, *values: int) -> str:
        name = f"int{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def shaped(self, value: str, *shape: int) -> str:
        return self.add("Reshape", [value, self.integers(*shape)])

    def product(self, value: str, name: str, outputs: int, inputs: int, random: np.random.Generator) -> str:
        codes, scales = random_weights(random, outputs, inputs)
        names = [
            self.constant(f"{name}.weight", codes),
            self.constant(f"{name}.scales", scales.astype(np.float32).reshape(-1)),
        ]
        return self.add("MatMulNBits", [value, *names], "", "com.microsoft", K=inputs, N=outputs, bits=4,
                        block_size=BLOCK, accuracy_level=4)  # fmt: skip

    def norm(self, value: str, name: str, size: int) -> str:
        scale = self.constant(name, np.ones(size, np.float32))
        kind = "SimplifiedLayerNormalization" if self._fused else "RMSNormalization"
        return self.add(kind, [value, scale], axis=-1, epsilon=1e-5, stash_type=1)


def random_weights(
    random: np.random.Generator, outputs: int, inputs: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Codes of 4 bits, two to a byte, [outputs, blocks, bytes], and scales of float16 [outputs, blocks]."""
    codes = np.frombuffer(random.bytes(outputs * inputs // 2), np.uint8).reshape(outputs, inputs // BLOCK, BLOCK // 2)
    step = 0.2 / inputs**0.5
    scales = random.uniform(0.5 * step, 1.5 * step, (outputs, inputs // BLOCK)).astype(np.float16)
    return codes, scales


def _tables(context: int, head: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Cosines and sines of the rotation of every position, for half a head."""
    angles = np.arange(context)[:, None] / 500000.0 ** (np.arange(0, head, 2) / head)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def write_onnx(path: Path, shape: Shape, tokens: int, context: int, fused: bool = False) -> None:
    """A decoder that reads some tokens at a time beside a cache of `context` rows; the logits of the last.

    Attention is written with MatMul, a mask and Softmax, as HTP takes it, or `fused` as GroupQueryAttention, as
    onnxruntime's own kernels take it, for any number of tokens. The embedding is 4-bit too.
    """
    random = np.random.default_rng(0)
    heads, groups, head = shape.heads, shape.groups, shape.head
    n: Any = -1 if fused else tokens
    each = heads // groups
    inputs = [helper.make_tensor_value_info("tokens", TensorProto.INT64, [1, "n" if fused else n])]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 1, shape.vocabulary])]
    beside = path.with_name(_DATA)
    with contextlib.nullcontext() if beside.exists() else beside.open("wb") as data:
        w = _Writer(data, fused)
        codes, scales = random_weights(random, shape.vocabulary, shape.hidden)
        table = w.constant("embedding", codes.reshape(shape.vocabulary, -1))
        of_table = w.constant("embedding.scales", scales.astype(np.float32))
        x = w.add("GatherBlockQuantized", [table, "tokens", of_table], domain="com.microsoft", bits=4, block_size=BLOCK,
                  gather_axis=0, quantize_axis=1)  # fmt: skip
        cosines, sines = (w.constant(k, v) for k, v in zip(("cos", "sin"), _tables(context, head), strict=True))
        rows = w.constant("rows", np.arange(context, dtype=np.int64).reshape(1, context))
        if fused:
            inputs += [
                helper.make_tensor_value_info(k, TensorProto.INT32, s) for k, s in (("last", [1]), ("total", [1]))
            ]
        else:
            inputs.append(helper.make_tensor_value_info("position", TensorProto.INT64, [n]))
            turns = [w.shaped(w.add("Gather", [t, "position"], axis=0), 1, 1, n, head // 2) for t in (cosines, sines)]
            kept = w.add("LessOrEqual", [rows, w.shaped("position", n, 1)])
            bounds = [w.constant(f"mask{i}", np.array(v, np.float32)) for i, v in enumerate((0.0, _MASKED))]
            mask = w.shaped(w.add("Where", [kept, *bounds]), 1, 1, 1, n, context)
            places = {
                "key": w.add("Expand", [w.shaped("position", 1, 1, 1, n), w.integers(1, groups, head, n)]),
                "value": w.add("Expand", [w.shaped("position", 1, 1, n, 1), w.integers(1, groups, n, head)]),
            }
            scale = w.constant("scale", np.array(head**-0.5, np.float32))
        middle, end = w.integers(head // 2), w.integers(head)
        start, last = w.integers(0), w.integers(3)

        def turned(value: str) -> str:
            low, high = w.add("Slice", [value, start, middle, last]), w.add("Slice", [value, middle, end, last])
            products = [w.add("Mul", [part, turn]) for part in (low, high) for turn in turns]
            parts = [w.add("Sub", [products[0], products[3]]), w.add("Add", [products[2], products[1]])]
            return w.add("Concat", parts, axis=3)

        for layer in range(shape.layers):
            made = {}
            normed = w.norm(x, f"{layer}.norm", shape.hidden)
            for name in ("q", "k", "v"):
                count = heads if name == "q" else groups
                value = w.product(normed, f"{layer}.{name}", *shape.matrices()[name], random)
                if shape.normed_heads and name != "v":
                    value = w.norm(w.shaped(value, 1, n, count, head), f"{layer}.{name}_norm", head)
                    value = w.shaped(value, 1, n, count * head)
                made[name] = value
            caches = {
                f"{when}_{what}_{layer}": [1, groups, context, head]
                if what == "value" or fused
                else [1, groups, head, context]
                for when in ("past", "present")
                for what in ("key", "value")
            }
            for name, size in caches.items():
                (inputs if name.startswith("past") else outputs).append(
                    helper.make_tensor_value_info(name, TensorProto.FLOAT, size)
                )
            past, present = ([f"{when}_{what}_{layer}" for what in ("key", "value")] for when in ("past", "present"))
            if fused:
                mixed = f"{layer}.mixed"
                operands = [*made.values(), *past, "last", "total", cosines, sines]
                sizes = {"num_heads": heads, "kv_num_heads": groups, "do_rotary": 1}
                w.several("GroupQueryAttention", operands, [mixed, *present], "com.microsoft", **sizes)
            else:
                query, key, value = (
                    w.add("Transpose", [w.shaped(made[k], 1, n, c, head)], perm=[0, 2, 1, 3])
                    for k, c in (("q", heads), ("k", groups), ("v", groups))
                )
                key = w.add("Transpose", [turned(key)], perm=[0, 1, 3, 2])
                w.add("ScatterElements", [past[0], places["key"], key], present[0], axis=3)
                w.add("ScatterElements", [past[1], places["value"], value], present[1], axis=2)
                query = w.shaped(w.add("Mul", [turned(query), scale]), 1, groups, each * n, head)
                scores = w.shaped(w.add("MatMul", [query, present[0]]), 1, groups, each, n, context)
                shares = w.add("Softmax", [w.add("Add", [scores, mask])], axis=-1)
                mixed = w.add("MatMul", [w.shaped(shares, 1, groups, each * n, context), present[1]])
                mixed = w.add("Transpose", [w.shaped(mixed, 1, heads, n, head)], perm=[0, 2, 1, 3])
                mixed = w.shaped(mixed, 1, n, heads * head)
            x = w.add("Add", [x, w.product(mixed, f"{layer}.o", *shape.matrices()["o"], random)])
            normed = w.norm(x, f"{layer}.inner_norm", shape.hidden)
            gate, up = (w.product(normed, f"{layer}.{k}", *shape.matrices()[k], random) for k in ("gate", "up"))
            inner = w.add("Mul", [w.add("Mul", [gate, w.add("Sigmoid", [gate])]), up])
            x = w.add("Add", [x, w.product(inner, f"{layer}.down", *shape.matrices()["down"], random)])
        x = w.add("Slice", [x, w.integers(-1), w.integers(np.iinfo(np.int64).max), w.integers(1)])
        x = w.norm(x, "norm", shape.hidden)
        names = [w.constant("head.weight", codes), w.constant("head.scales", scales.astype(np.float32).reshape(-1))]
        w.add("MatMulNBits", [x, *names], "logits", "com.microsoft", K=shape.hidden, N=shape.vocabulary, bits=4,
              block_size=BLOCK, accuracy_level=4)  # fmt: skip
    graph = helper.make_graph(w.nodes, shape.architecture, inputs, outputs, w.constants)
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=11).SerializeToString())
