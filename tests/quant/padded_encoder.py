# SPDX-License-Identifier: Apache-2.0
"""A small text encoder as ALBERT's exporters write it: one layer used twice, padding masked by -3.4e38 or a Where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, checker, helper, numpy_helper

from hexforge.ir import Array

LENGTH, WORDS, WIDTH, HEADS, LAYERS = 16, 64, 32, 2, 2
LOWEST = float(np.finfo(np.float32).min)


MASKS = ("multiplied", "chosen", "by ids", "boolean", "summed", "expanded", "filled", "filled by boolean")
"""What is added: the lowest number times the inverted mask; that chosen by a Where; by where tokens are 0; by a boolean
input; with a causal mask; as large as the scores. Or scores are replaced, by an inverted mask or by a boolean input."""


def padded_encoder(mask: str = "multiplied", *, taken_out_by: float = LOWEST, seed: int = 0) -> ModelProto:
    """Tokens and an attention mask to one vector; `mask`, one of MASKS, is how padding is taken out."""
    random = np.random.default_rng(seed)

    def weights(*shape: int, gain: float = 1.0) -> Array:
        return (gain * random.normal(0, 1 / np.sqrt(shape[0]), shape)).astype(np.float32)

    constants: dict[str, Array] = {
        "words": random.normal(0, 1, (WORDS, WIDTH)).astype(np.float32),
        "places": random.normal(0, 0.5, (1, LENGTH, WIDTH)).astype(np.float32),
        "one": np.ones((), np.float32),
        "lowest": np.asarray(taken_out_by, np.float32),
        "middle": np.array([1, 2], np.int64),
        "heads": np.array([1, LENGTH, HEADS, WIDTH // HEADS], np.int64),
        "joined": np.array([1, LENGTH, WIDTH], np.int64),
        "root": np.asarray(np.sqrt(WIDTH // HEADS), np.float32),
        "query": weights(WIDTH, WIDTH, gain=2.5),
        "key": weights(WIDTH, WIDTH, gain=2.5),
        "value": weights(WIDTH, WIDTH),
        "out": weights(WIDTH, WIDTH),
        "up": weights(WIDTH, 4 * WIDTH),
        "down": weights(4 * WIDTH, WIDTH),
        "scale": np.ones(WIDTH, np.float32),
        "shift": np.zeros(WIDTH, np.float32),
        "first": np.zeros((), np.int64),
        "pool": weights(WIDTH, WIDTH),
        "pad": np.zeros((), np.int64),
        "zero": np.zeros((), np.float32),
        "scores_like": np.array([1, HEADS, LENGTH, LENGTH], np.int64),
        "causal": np.triu(np.full((1, 1, LENGTH, LENGTH), taken_out_by, np.float32), 12),
    }
    nodes: list[NodeProto] = []

    def add(op: str, inputs: list[str], out: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [out], f"{out}_node", **attributes))
        return out

    added, padding = _mask(add, mask)
    hidden = add("Add", [add("Gather", ["words", "tokens"], "embedded"), "places"], "hidden_0")
    for layer in range(LAYERS):
        parts = {}
        for part, perm in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
            product = add("MatMul", [hidden, part], f"{part}_{layer}")
            shaped = add("Reshape", [product, "heads"], f"{part}_{layer}_heads")
            parts[part] = add("Transpose", [shaped], f"{part}_{layer}_turned", perm=perm)
        scores = add("MatMul", [parts["query"], parts["key"]], f"scores_{layer}")
        scores = add("Div", [scores, "root"], f"scaled_{layer}")
        if mask.startswith("filled"):
            scores = add("Where", [padding, "lowest", scores], f"masked_{layer}")
        else:
            scores = add("Add", [scores, added], f"masked_{layer}")
        chances = add("Softmax", [scores], f"chances_{layer}", axis=-1)
        mixed = add("MatMul", [chances, parts["value"]], f"mixed_{layer}")
        turned = add("Transpose", [mixed], f"mixed_{layer}_turned", perm=[0, 2, 1, 3])
        product = add("MatMul", [add("Reshape", [turned, "joined"], f"joined_{layer}"), "out"], f"attended_{layer}")
        total = add("Add", [hidden, product], f"total_{layer}")
        normed = add("LayerNormalization", [total, "scale", "shift"], f"normed_{layer}")
        up = add("Relu", [add("MatMul", [normed, "up"], f"up_{layer}")], f"relu_{layer}")
        total = add("Add", [normed, add("MatMul", [up, "down"], f"down_{layer}")], f"whole_{layer}")
        hidden = add("LayerNormalization", [total, "scale", "shift"], f"hidden_{layer + 1}")
    first = add("Gather", [hidden, "first"], "token", axis=1)
    add("Tanh", [add("MatMul", [first, "pool"], "pooled")], "sentence")
    kinds = {
        "tokens": TensorProto.INT64,
        "attention_mask": TensorProto.BOOL if "boolean" in mask else TensorProto.INT64,
    }
    read = {name for node in nodes for name in node.input}
    inputs = [helper.make_tensor_value_info(n, kind, [1, LENGTH]) for n, kind in kinds.items() if n in read]
    graph = helper.make_graph(
        nodes,
        "encoder",
        inputs,
        [helper.make_tensor_value_info("sentence", TensorProto.FLOAT, [1, WIDTH])],
        [numpy_helper.from_array(array, name) for name, array in constants.items() if name in read],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    checker.check_model(model, full_check=True)
    return model


def _mask(add: Callable[..., str], mask: str) -> tuple[str, str]:
    """What is added to scores, and where there is padding."""
    if mask == "by ids":
        padding = add("Equal", [add("Unsqueeze", ["tokens", "middle"], "tokens_4d"), "pad"], "padding")
        return add("Where", [padding, "lowest", "zero"], "mask"), padding
    unsqueezed = add("Unsqueeze", ["attention_mask", "middle"], "mask_4d")
    if "boolean" in mask:
        padding = add("Not", [unsqueezed], "padding")
        return add("Where", [padding, "lowest", "zero"], "mask"), padding
    inverted = add("Sub", ["one", add("Cast", [unsqueezed], "mask_float", to=TensorProto.FLOAT)], "inverted")
    if mask == "multiplied":
        return add("Mul", [inverted, "lowest"], "mask"), ""
    padding = add("Cast", [inverted], "padding", to=TensorProto.BOOL)
    if mask == "filled":
        return "", padding
    chosen = add("Where", [padding, "lowest", inverted], "mask" if mask == "chosen" else "own")
    if mask == "summed":
        return add("Max", [add("Add", [chosen, "causal"], "both"), "lowest"], "mask"), ""
    return add("Expand", [chosen, "scores_like"], "mask") if mask == "expanded" else chosen, ""


def texts(count: int, *, padded: bool, seed: int = 0) -> list[dict[str, Array]]:
    """Random tokens; padded ones fill a part of the length, and token 0 the rest."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        tokens, mask = random.integers(1, WORDS, (1, LENGTH)), np.ones((1, LENGTH), np.int64)
        if padded:
            length = random.integers(3, LENGTH - 2)
            tokens[:, length:] = 0
            mask[:, length:] = 0
        found.append({"tokens": tokens.astype(np.int64), "attention_mask": mask})
    return found
