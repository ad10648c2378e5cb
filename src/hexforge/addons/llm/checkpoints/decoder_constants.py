# SPDX-License-Identifier: Apache-2.0
"""DecoderConstants: the weights of an ONNX decoder by the module that they belong to, computed when they are asked for.

onnxruntime-genai's builder and torch's exporter call a node by the path of its module, such as
`/model/layers.0/attn/q_proj/MatMul`, and most constants likewise. What was read so is held against the model itself
afterwards (`onnx_checkpoint`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir
from onnx.reference import ReferenceEvaluator

from hexforge.errors import FormatError, UnsupportedError
from hexforge.frontends.onnx.translate.products_matmul import unpack
from hexforge.ir import Array

_MODULES = (
    "qkv_proj", "q_proj", "k_proj", "v_proj", "o_proj", "gate_up_proj", "gate_proj", "up_proj", "down_proj",
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
    "q_norm", "k_norm", "final_norm_layernorm", "norm", "lm_head", "embed_tokens",
)  # fmt: skip
_OUTER = ("final_norm_layernorm", "norm", "lm_head", "embed_tokens")
_PRODUCTS = ("MatMul", "Gemm", "MatMulNBits", "Gather", "GatherBlockQuantized")
_DEEPEST = 8
"""Nodes between a constant as it is stored and as it is used."""
Place = tuple[int | None, str]
"""The layer, none for what is outside of all, and the module."""


@dataclass(frozen=True, slots=True, eq=False)
class BlockCodes:
    """A matrix [outputs, inputs] as unsigned integers, with a scale and a zero point for each block of inputs."""

    integers: Array
    scales: Array
    zeros: Array
    block: int
    bits: int

    @property
    def real(self) -> Array:
        """The numbers that are meant."""
        rows = len(self.integers)
        wide = np.zeros((rows, self.scales.shape[1] * self.block), np.float32)
        wide[:, : self.integers.shape[1]] = self.integers
        blocks = wide.reshape(rows, -1, self.block) - self.zeros.astype(np.float32)[..., None]
        real: Array = (blocks * self.scales.astype(np.float32)[..., None]).reshape(rows, -1)
        return real[:, : self.integers.shape[1]]


@dataclass(slots=True)
class Module:
    """The nodes of a module that have constants, and its other nodes."""

    product: onnx_ir.Node | None = None
    addend: onnx_ir.Value | None = None
    norm: onnx_ir.Value | None = None
    nodes: list[onnx_ir.Node] = field(default_factory=list)


class DecoderConstants:
    """What the nodes of a graph say of each module."""

    def __init__(self, graph: onnx_ir.Graph, where: str) -> None:
        self.where = where
        self.modules: dict[Place, Module] = {}
        for node in graph:
            self._place(node)

    def _place(self, node: onnx_ir.Node) -> None:
        operands = [value for value in node.inputs if value is not None and is_constant(value)]
        names = [str(value.name) for value in operands] + [node.name or ""]
        place = next((where for name in names if (where := place_of(name)) is not None), None)
        if place is None:
            return
        module = self.modules.setdefault(place, Module())
        module.nodes.append(node)
        if not operands:
            return
        rank = [len(value.shape) if value.shape is not None else -1 for value in operands]
        if node.op_type in _PRODUCTS:
            module.product = module.product or node
        elif node.op_type == "Add" and 1 in rank and "norm" not in place[1]:
            module.addend = operands[rank.index(1)]
        elif (node.op_type == "Mul" or node.op_type.endswith("Normalization")) and 1 in rank and "norm" in place[1]:
            module.norm = operands[rank.index(1)]

    def layers(self) -> int:
        """How many layers have a module here."""
        return len({layer for layer, name in self.modules if layer is not None and name not in _OUTER})

    def has(self, layer: int | None, module: str, part: str = "product") -> bool:
        """Whether a module has a matrix ("product"), a bias ("addend") or the weights of a norm ("norm")."""
        return getattr(self.modules.get((layer, module)), part, None) is not None

    def matrix(self, layer: int | None, module: str) -> Array | BlockCodes:
        """A module's matrix [outputs, inputs], in blocks of integers where it is stored so."""
        node = self._module(layer, module).product
        if node is None:
            raise self._missing(layer, module)
        if node.op_type == "MatMulNBits":
            return self._blocks(node)
        if node.op_type == "GatherBlockQuantized":
            return self._gathered(node)
        table = evaluated(node.inputs[0 if node.op_type == "Gather" else 1], self.where)
        if table.ndim != 2:
            raise FormatError(f"{self.where}: {node.name}: a matrix of shape {list(table.shape)}")
        if node.op_type == "Gemm":
            plain = number(node, "alpha", 1.0) == 1.0 and not number(node, "transA", 0)
            if not plain:
                raise UnsupportedError(f"{self.where}: {node.name}: a Gemm with alpha or transA is not read")
            return table if number(node, "transB", 0) else table.T
        return table if node.op_type == "Gather" else table.T

    def bias(self, layer: int, module: str) -> Array:
        """What a module adds to its product."""
        constants = self._module(layer, module)
        if constants.addend is None:
            raise self._missing(layer, module)
        return evaluated(constants.addend, self.where)

    def norm(self, layer: int | None, module: str) -> Array:
        """The weights of a norm."""
        constants = self._module(layer, module)
        if constants.norm is None:
            raise self._missing(layer, module)
        return evaluated(constants.norm, self.where)

    def shares_its_table(self) -> bool:
        """Whether the head and the embedding are one stored matrix."""
        tables = []
        for module in ("embed_tokens", "lm_head"):
            node = self.modules.get((None, module), Module()).product
            if node is None:
                return False
            tables.append(stored(node.inputs[0 if node.op_type.startswith("Gather") else 1]))
        return tables[0] is not None and tables[0] is tables[1]

    def _module(self, layer: int | None, module: str) -> Module:
        constants = self.modules.get((layer, module))
        if constants is None:
            raise self._missing(layer, module)
        return constants

    def _missing(self, layer: int | None, module: str) -> FormatError:
        at = module if layer is None else f"layers.{layer}.{module}"
        return FormatError(
            f"{self.where}: no node with constants is called {at}; models as onnxruntime-genai's builder and optimum "
            "write them are read"
        )

    def _blocks(self, node: onnx_ir.Node) -> BlockCodes:
        bits, block = int(number(node, "bits", 4)), int(number(node, "block_size", 0))
        depth, rows = int(number(node, "K", 0)), int(number(node, "N", 0))
        packed, scales = (evaluated(node.inputs[i], self.where, real=False) for i in (1, 2))
        if bits not in (2, 4, 8) or min(block, depth, rows) < 1:
            raise UnsupportedError(f"{self.where}: {node.name}: {bits} bits in blocks of {block}")
        blocks = -(-depth // block)
        if packed.size != rows * blocks * (block * bits // 8) or scales.size != rows * blocks:
            raise FormatError(f"{self.where}: {node.name}: its weights do not fit K {depth} and N {rows}")
        given = [evaluated(v, self.where, real=False) if v is not None else None for v in node.inputs[3:5]]
        if len(given) > 1 and given[1] is not None:
            raise UnsupportedError(f"{self.where}: {node.name}: g_idx reorders groups; build without act-order")
        zeros = given[0] if given else None
        integers = unpack(packed.reshape(rows, blocks, -1), bits, block).reshape(rows, -1)[:, :depth]
        if zeros is None:
            zeros = np.full((rows, blocks), 1 << bits - 1, np.uint8)
        elif zeros.dtype == np.uint8:
            zeros = unpack(zeros.reshape(rows, -1), bits, blocks)
        return BlockCodes(integers, scales.reshape(rows, blocks), zeros.reshape(rows, blocks), block, bits)

    def _gathered(self, node: onnx_ir.Node) -> BlockCodes:
        """A table whose rows are gathered: integers in blocks along its last axis."""
        bits, block = int(number(node, "bits", 4)), int(number(node, "block_size", 128))
        table, scales = (evaluated(node.inputs[i], self.where, real=False) for i in (0, 2))
        axes = (int(number(node, "gather_axis", 0)), int(number(node, "quantize_axis", 1)))
        if table.ndim != 2 or axes != (0, 1) or bits not in (4, 8) or block < 1:
            raise UnsupportedError(f"{self.where}: {node.name}: rows in blocks along the last axis are read")
        packed = table.dtype == np.uint8
        rows = len(table)
        integers = unpack(table, bits, table.shape[1] * 8 // bits) if packed else table.astype(np.int16)
        blocks = -(-integers.shape[1] // block)
        given = node.inputs[3] if len(node.inputs) > 3 else None
        if given is None:
            zeros: Array = np.full((rows, blocks), 1 << bits - 1 if packed else 0, np.int16)
        else:
            zeros = evaluated(given, self.where, real=False)
            zeros = unpack(zeros.reshape(rows, -1), bits, blocks) if packed else zeros.astype(np.int16)
        if scales.size != rows * blocks or zeros.size != rows * blocks:
            raise FormatError(f"{self.where}: {node.name}: its scales do not fit a table of {list(integers.shape)}")
        return BlockCodes(integers, scales.reshape(rows, blocks), zeros.reshape(rows, blocks), block, bits)


def place_of(name: str) -> Place | None:
    """Which module a node or a constant belongs to, by the words of its name."""
    words = re.split(r"[./]+", name)
    module = next((word for word in reversed(words) if word in _MODULES), None)
    if module is None:
        return None
    if module in _OUTER:
        return None, {"final_norm_layernorm": "norm"}.get(module, module)
    layer = next((int(b) for a, b in itertools.pairwise(words) if a == "layers" and b.isdigit()), None)
    return None if layer is None else (layer, module)


def number(node: onnx_ir.Node, name: str, default: float) -> float:
    """An attribute that is a number."""
    attribute = node.attributes.get(name)
    return default if attribute is None else float(attribute.value)


def is_constant(value: onnx_ir.Value, depth: int = _DEEPEST) -> bool:
    """Whether a value follows from constants alone, by nodes that are evaluated here."""
    if value.const_value is not None:
        return True
    node = value.producer()
    if node is None or depth == 0 or node.op_type not in _EVALUATED:
        return False
    return all(v is None or is_constant(v, depth - 1) for v in node.inputs)


_MOVES = ("Transpose", "Reshape", "Identity", "Cast", "Unsqueeze", "Squeeze")
_EVALUATED = (*_MOVES, "DequantizeLinear", "Add")


def stored(value: onnx_ir.Value | None) -> onnx_ir.Value | None:
    """The constant that a value is, however it was moved."""
    for _ in range(_DEEPEST):
        node = None if value is None else value.producer()
        if node is None or value is None or value.const_value is not None:
            return value
        if node.op_type not in _MOVES:
            return None
        value = node.inputs[0]
    return None


def evaluated(value: onnx_ir.Value | None, where: str, *, real: bool = True) -> Array:
    """The numbers of a constant, in float32 or (not `real`) in the type that it is stored in."""
    if value is None or not is_constant(value):
        raise FormatError(f"{where}: {value.name if value else 'an operand'} is no constant; export the model again")
    array = _evaluated(value, where)
    return np.asarray(array, np.float32) if real else array


def _evaluated(value: onnx_ir.Value, where: str) -> Array:
    if value.const_value is not None:
        return value.const_value.numpy()
    node = value.producer()
    assert node is not None
    operands = [_evaluated(v, where) if v is not None else None for v in node.inputs]
    if node.op_type == "DequantizeLinear" and len(operands) > 1 and operands[1] is not None:
        operands[1] = operands[1].astype(np.float32)  # float16 is widened first
    alone = onnx_ir.to_proto(node)
    alone.domain = ""
    feeds = {name: array for name, array in zip(alone.input, operands, strict=True) if array is not None}
    try:
        results: Any = ReferenceEvaluator(alone).run([str(value.name)], feeds)
    except (ValueError, TypeError, IndexError, KeyError, RuntimeError, AttributeError) as error:
        raise FormatError(f"{where}: {node.name}: {error}") from None
    return np.asarray(results[0])


def upstream(value: onnx_ir.Value | None, most: int = 6) -> Iterator[onnx_ir.Node]:
    """The nodes that make a value, one after the other along their first operands that are no constants."""
    for _ in range(most):
        node = None if value is None else value.producer()
        if node is None:
            return
        yield node
        value = next((v for v in node.inputs if v is not None and not is_constant(v)), None)
