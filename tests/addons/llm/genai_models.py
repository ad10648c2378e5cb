# SPDX-License-Identifier: Apache-2.0
"""The small Llama as onnxruntime-genai's builder writes models: packed products, fused attention and norms."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hexforge.addons.llm.checkpoints.architecture import EMBEDDING, FINAL_NORM
from hexforge.addons.llm.checkpoints.open_checkpoint import open_checkpoint
from tests.addons.llm import SMALL

BLOCK = 32


def write_genai_model(folder: Path, *, bits: int = 0, neighbours: bool = False, **attention: Any) -> Path:
    """A folder with model.onnx and genai_config.json; `neighbours` turn together in a head, where it says so.

    With 4 `bits` products are MatMulNBits with symmetric blocks. `attention` has more attributes of it.
    """
    checkpoint = open_checkpoint(SMALL)
    arch, shape = checkpoint.architecture, checkpoint.architecture.shape
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, onnx.TensorProto] = {}

    def constant(name: str, array: Any) -> str:
        constants[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def node(kind: str, name: str, inputs: list[str], outputs: list[str] | None = None, **attributes: Any) -> str:
        made = outputs or [f"{name}/output_0"]
        fused = kind in ("GroupQueryAttention", "MatMulNBits", "SkipSimplifiedLayerNormalization")
        domain = "com.microsoft" if fused else ""
        nodes.append(helper.make_node(kind, inputs, made, name, domain=domain, **attributes))
        return made[0]

    def product(path: str, matrix: np.ndarray, x: str, output: str = "") -> str:
        name, at = f"/{path.replace('.', '/')}/MatMul".replace("layers/", "layers."), f"{path}.MatMul.weight"
        outputs = [output] if output else None
        if not bits:
            return node("MatMul", name, [x, constant(at, matrix.T)], outputs)
        blocks = matrix.reshape(len(matrix), -1, BLOCK)
        scales = np.maximum(np.abs(blocks).max(-1) / 7, 1e-8).astype(np.float32)
        codes = (np.clip(np.rint(blocks / scales[..., None]), -8, 7) + 8).astype(np.uint8)
        packed = codes[..., ::2] | codes[..., 1::2] << 4
        given = [x, constant(f"{at}_Q4", packed), constant(f"{at}_scales", scales)]
        return node(
            "MatMulNBits", f"{name}_Q4", given, outputs, K=matrix.shape[1], N=len(matrix), bits=4, block_size=BLOCK
        )

    def paired(matrix: np.ndarray) -> np.ndarray:
        """Rows of heads in the order in which neighbours turn together."""
        if not neighbours:
            return matrix
        halves = matrix.reshape(-1, 2, shape.head_dim // 2, matrix.shape[1])
        return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(matrix.shape)

    one = constant("one", np.array([1], np.int64))
    count = node("Sub", "/count", [node("ReduceSum", "/sum", ["attention_mask", one], keepdims=0), one])
    seqlens = node("Cast", "/seqlens", [count], to=TensorProto.INT32)
    length = node("Gather", "/length", [node("Shape", "/shape", ["attention_mask"]), constant("at", np.array(1))])
    total = node("Cast", "/total", [length], to=TensorProto.INT32)
    tables = [constant(f"{name}_cache", t) for name, t in zip(("cos", "sin"), arch.rotation.table(1024), strict=True)]
    embedding = checkpoint.weight(EMBEDDING)
    x = node("Gather", "/model/embed_tokens/Gather", [constant("model.embed_tokens.weight", embedding), "input_ids"])
    added = ""
    caches = []

    def norm(path: str, weight: np.ndarray) -> str:
        nonlocal x, added
        scale = constant(f"{path}.weight", weight)
        name = f"/{path}/"
        if not added:
            return node("SimplifiedLayerNormalization", f"{name}LayerNorm", [x, scale], axis=-1, epsilon=arch.epsilon)
        outputs = [f"{name}output_0", "", "", f"{name}output_3"]
        node("SkipSimplifiedLayerNormalization", f"{name}SkipLayerNorm", [x, added, scale], outputs, epsilon=1e-5)
        x = outputs[3]
        return outputs[0]

    for layer in range(shape.layers):
        at = f"model.layers.{layer}"
        weights = {name: checkpoint.weight(name, layer) for name in checkpoint.names()}
        read = norm(f"{at}.input_layernorm", weights["attention_norm"])
        packed = np.concatenate((paired(weights["query"]), paired(weights["key"]), weights["value"]))
        past = [f"past_key_values.{layer}.{name}" for name in ("key", "value")]
        present = [f"present.{layer}.{name}" for name in ("key", "value")]
        caches.append((past, present))
        given = [product(f"{at}.attn.qkv_proj", packed, read), "", "", *past, seqlens, total, *tables]
        name = f"/model/layers.{layer}/attn/GroupQueryAttention"
        settings = {"do_rotary": 1, "rotary_interleaved": int(neighbours), "scale": 0.125} | attention
        mixed = node(
            "GroupQueryAttention", name, given, [f"{name}/output_0", *present], num_heads=4, kv_num_heads=2, **settings
        )
        added = product(f"{at}.attn.o_proj", weights["output"], mixed)
        read = norm(f"{at}.post_attention_layernorm", weights["feed_norm"])
        gate, up = (product(f"{at}.mlp.{n}_proj", weights[n], read) for n in ("gate", "up"))
        share = node("Sigmoid", f"/{at}/mlp/act_fn/Sigmoid", [gate])
        gated = node("Mul", f"/{at}/mlp/act_fn/Mul", [gate, share])
        added = product(f"{at}.mlp.down_proj", weights["down"], node("Mul", f"/{at}/mlp/Mul", [gated, up]))
    read = norm(f"model.layers.{shape.layers}.final_norm_layernorm", checkpoint.weight(FINAL_NORM))
    product("lm_head", embedding, read, "logits")

    def info(name: str, sizes: list[Any], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, sizes)

    sizes = ["batch_size", shape.kv_heads, "past", shape.head_dim]
    inputs = [
        info("input_ids", ["batch_size", "n"], TensorProto.INT64),
        info("attention_mask", ["batch_size", "all"], TensorProto.INT64),
    ]
    outputs = [info("logits", ["batch_size", "n", shape.vocab])]
    for past, present in caches:
        inputs += [info(name, sizes) for name in past]
        outputs += [info(name, [*sizes[:2], "all", sizes[3]]) for name in present]
    graph = helper.make_graph(nodes, "main", inputs, outputs, list(constants.values()))
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid("com.microsoft", 1)]
    folder.mkdir(parents=True)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), folder / "model.onnx")
    decoder = {"filename": "model.onnx", "head_size": 64, "hidden_size": 256, "num_attention_heads": 4,
               "num_key_value_heads": 2, "num_hidden_layers": 3}  # fmt: skip
    settings = {"type": "llama", "context_length": 1024, "vocab_size": 2048, "eos_token_id": 0, "bos_token_id": 0}
    (folder / "genai_config.json").write_text(json.dumps({"model": settings | {"decoder": decoder}}))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SMALL / name, folder)
    return folder
