# SPDX-License-Identifier: Apache-2.0
"""Sentence encoder: BERT's graph written as ONNX around the weights of a safetensors file, as transformers exports it.

Word pieces and an attention mask go in, padding is taken out by adding the least float32 before each Softmax, and the
mean of the words that are left comes out with length 1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, checker, helper, numpy_helper, save
from safetensors.numpy import load_file


def sentence_encoder(weights: Path, length: int, heads: int, target: Path) -> None:
    """Write the encoder for texts of a length."""
    arrays = load_file(weights)
    width = arrays["embeddings.word_embeddings.weight"].shape[1]
    layers = 1 + max(int(name.split(".")[2]) for name in arrays if name.startswith("encoder.layer."))
    constants = {
        "split": np.array([1, length, heads, width // heads]),
        "joined": np.array([1, length, width]),
        "root": np.float32(np.sqrt(width // heads)),
        "one": np.float32(1),
        "half": np.float32(0.5),
        "root_of_2": np.float32(np.sqrt(2)),
        "lowest": np.finfo(np.float32).min,
        "heads_of_mask": np.array([1, 2]),
        "last": np.array([-1]),
        "words": np.array([1]),
        "places": arrays["embeddings.position_embeddings.weight"][None, :length]
        + arrays["embeddings.token_type_embeddings.weight"][0],
    }
    nodes: list[NodeProto] = []

    def add(op: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, list(inputs), [f"{op}_{len(nodes)}"], f"{op}_{len(nodes)}", **attributes))
        return str(nodes[-1].output[0])

    def linear(x: str, name: str) -> str:
        constants[f"{name}.matrix"] = np.ascontiguousarray(arrays[f"{name}.weight"].T)
        constants[f"{name}.bias"] = arrays[f"{name}.bias"]
        return add("Add", add("MatMul", x, f"{name}.matrix"), f"{name}.bias")

    def norm(x: str, name: str) -> str:
        constants.update({f"{name}.{part}": arrays[f"{name}.{part}"] for part in ("weight", "bias")})
        return add("LayerNormalization", x, f"{name}.weight", f"{name}.bias", epsilon=1e-12)

    constants["embeddings"] = arrays["embeddings.word_embeddings.weight"]
    there = add("Cast", "attention_mask", to=TensorProto.FLOAT)
    mask = add("Mul", add("Sub", "one", add("Unsqueeze", there, "heads_of_mask")), "lowest")
    hidden = norm(add("Add", add("Gather", "embeddings", "input_ids"), "places"), "embeddings.LayerNorm")
    for layer in range(layers):
        at = f"encoder.layer.{layer}"
        query, key, value = (
            add("Transpose", add("Reshape", linear(hidden, f"{at}.attention.self.{part}"), "split"), perm=perm)
            for part, perm in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3]))
        )
        scores = add("Div", add("MatMul", query, key), "root")
        mixed = add("MatMul", add("Softmax", add("Add", scores, mask), axis=-1), value)
        joined = add("Reshape", add("Transpose", mixed, perm=[0, 2, 1, 3]), "joined")
        hidden = norm(
            add("Add", linear(joined, f"{at}.attention.output.dense"), hidden), f"{at}.attention.output.LayerNorm"
        )
        up = linear(hidden, f"{at}.intermediate.dense")
        erf = add("Add", add("Erf", add("Div", up, "root_of_2")), "one")
        gelu = add("Mul", add("Mul", up, erf), "half")
        hidden = norm(add("Add", linear(gelu, f"{at}.output.dense"), hidden), f"{at}.output.LayerNorm")
    counted = add("Unsqueeze", there, "last")
    total = add("ReduceSum", add("Mul", hidden, counted), "words", keepdims=0)
    mean = add("Div", total, add("ReduceSum", counted, "words", keepdims=0))
    add("LpNormalization", mean, axis=-1, p=2)
    nodes[-1].output[0] = "sentence"
    graph = helper.make_graph(
        nodes,
        "sentence_encoder",
        [helper.make_tensor_value_info(n, TensorProto.INT64, [1, length]) for n in ("input_ids", "attention_mask")],
        [helper.make_tensor_value_info("sentence", TensorProto.FLOAT, [1, width])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    checker.check_model(model, full_check=True)
    part = target.with_suffix(".part")
    save(model, part)
    part.rename(target)
