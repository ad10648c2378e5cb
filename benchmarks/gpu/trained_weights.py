# SPDX-License-Identifier: Apache-2.0
"""MobileNetV2 with trained weights on the gpu backend: `python -m benchmarks.gpu.trained_weights`.

The npm package nsfwjs (MIT) carries a whole Keras MobileNetV2 (224 x 224, with a head of its own), its weights in 8
bits. It is fetched by name and checked, written as an ONNX model in float32, and run beside onnxruntime's CPU provider.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import re
import sys
import tarfile
import urllib.error
import urllib.request
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import hexforge

ADDRESS = "https://registry.npmjs.org/nsfwjs/-/nsfwjs-4.4.0.tgz"
SHA512 = "krC1fgeTLXtZwgdpKJ0jm7hqv0gTSRQQRL+FhOaxaJ9Wj92t42BO3csO2odwgTAgZgf2RvkwPtp0R8Aa7dc+MA=="
INSIDE = "package/dist/models/mobilenet_v2"
LIMITS = {"user_provided": 1e-4, "fp32": 1e-4, "hybrid": 2e-2, "fp16": 2e-2}
"""How far probabilities may be from onnxruntime's."""


def fetch() -> dict[str, str]:
    """The package's files of the model as text, by name; SystemExit with a message where that does not work."""
    try:
        with urllib.request.urlopen(ADDRESS, timeout=120) as answer:
            data = answer.read()
    except (urllib.error.URLError, TimeoutError) as error:
        raise SystemExit(f"gpu_weights: {ADDRESS} cannot be fetched: {error}") from None
    if base64.b64encode(hashlib.sha512(data).digest()).decode() != SHA512:
        raise SystemExit(f"gpu_weights: {ADDRESS} is not the file it was")
    with tarfile.open(fileobj=BytesIO(data)) as archive:
        files = {m.name: archive.extractfile(m) for m in archive.getmembers() if m.name.startswith(f"{INSIDE}/")}
        return {Path(name).name: file.read().decode() for name, file in files.items() if file is not None}


def _parsed(script: str) -> dict[str, Any]:
    """The object that a script exports: JavaScript's notation as JSON."""
    text = script[script.index("exports={") + len("exports=") : script.rindex("},{}]},{},[1])")]
    text = text.replace("!0", "true").replace("!1", "false")
    text = re.sub(r"([{,])([A-Za-z_]\w*):", r'\1"\2":', text)
    made: dict[str, Any] = json.loads(re.sub(r"(?<![\w.])(-?)\.(\d)", r"\g<1>0.\2", text))
    return made


def _weights(manifest: dict[str, Any], script: str) -> dict[str, np.ndarray]:
    """Weights by name as float32."""
    exported = re.search(r'exports="([A-Za-z0-9+/=]+)"', script)
    assert exported is not None
    data, at = base64.b64decode(exported[1]), 0
    made = {}
    for row in manifest["weights"]:
        steps = row["quantization"]
        count = int(np.prod(row["shape"]))
        numbers = np.frombuffer(data, steps["dtype"], count, at)
        at += numbers.nbytes
        made[row["name"]] = (numbers * steps["scale"] + steps["min"]).reshape(row["shape"]).astype(np.float32)
    return made


def mobilenet_v2(path: Path) -> None:
    """Write the model."""
    files = fetch()
    described = _parsed(files["model.min.js"])
    weights = _weights(described["weightsManifest"][0], files["group1-shard1of1.min.js"])
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []
    pads: dict[str, list[int]] = {}
    names: dict[str, str] = {}

    def constant(name: str, array: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def add(op: str, out: str, *inputs: str, **attributes: Any) -> None:
        nodes.append(helper.make_node(op, inputs, [out], out, **attributes))

    for layer in described["modelTopology"]["model_config"]["config"]["layers"]:
        config, kind = layer["config"], layer["class_name"]
        name = config["name"]
        inputs = [names[source[0]] for source in layer["inbound_nodes"][0]] if layer["inbound_nodes"] else []
        names[name] = name
        match kind:
            case "InputLayer" | "Dropout" | "ZeroPadding2D":
                names[name] = inputs[0] if inputs else "image"
                if kind == "ZeroPadding2D":
                    (top, bottom), (left, right) = config["padding"]
                    pads[inputs[0]] = [top, left, bottom, right]
            case "Conv2D" | "DepthwiseConv2D":
                depthwise = kind == "DepthwiseConv2D"
                kernel = weights[f"{name}/{'depthwise_kernel' if depthwise else 'kernel'}"]
                kernel = kernel.transpose(2, 3, 0, 1) if depthwise else kernel.transpose(3, 2, 0, 1)
                around = [config["kernel_size"][0] // 2] * 4 if config["padding"] == "same" else [0] * 4
                add(
                    "Conv", name, inputs[0], constant(f"{name}/w", kernel), strides=config["strides"],
                    pads=pads.pop(inputs[0], around), group=kernel.shape[0] if depthwise else 1,
                )  # fmt: skip
            case "BatchNormalization":
                parts = ("gamma", "beta", "moving_mean", "moving_variance")
                values = [constant(f"{name}/{part}", weights[f"{name}/{part}"]) for part in parts]
                add("BatchNormalization", name, inputs[0], *values, epsilon=config["epsilon"])
            case "ReLU":
                low = constant(f"{name}/low", np.array(0, np.float32))
                add("Clip", name, inputs[0], low, constant(f"{name}/high", np.array(config["max_value"], np.float32)))
            case "Add":
                add("Add", name, *inputs)
            case "AveragePooling2D":
                add("AveragePool", name, inputs[0], kernel_shape=config["pool_size"], strides=config["strides"])
            case "Flatten":
                add("Flatten", name, inputs[0])
            case "Dense":
                matrix, bias = (constant(f"{name}/{part}", weights[f"{name}/{part}"]) for part in ("kernel", "bias"))
                add("Gemm", f"{name}/sum", inputs[0], matrix, bias)
                add({"relu": "Relu", "softmax": "Softmax"}[config["activation"]], name, f"{name}/sum")
            case _:
                raise SystemExit(f"gpu_weights: {kind} {name!r} is no layer of MobileNetV2")
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 224, 224])
    out = helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 5])
    graph = helper.make_graph(nodes, "mobilenet_v2", [image], [out], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


def pictures(count: int) -> np.ndarray:
    """Pictures from 0 to 1 with patches of a few colours, and noise."""
    rng = np.random.default_rng(0)
    coarse = rng.random((count, 3, 7, 7)).repeat(32, 2).repeat(32, 3)
    return np.clip(coarse + 0.1 * rng.standard_normal(coarse.shape), 0, 1).astype(np.float32)


def main() -> int:
    """Print how far each precision is from onnxruntime; exit code 1 where one is too far or not whole on the GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/gpu_models"))
    parser.add_argument("--count", type=int, default=8, help="pictures")
    arguments = parser.parse_args()
    path = arguments.folder / "mobilenet_v2_trained.onnx"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        mobilenet_v2(path)
    images = pictures(arguments.count)
    theirs = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    expected = np.concatenate([theirs.run(None, {"image": image[None]})[0] for image in images])
    far = False
    print(f"| MobileNetV2, trained weights | largest error of {len(images)} pictures | same class |\n|---|---:|---:|")
    for precision, limit in LIMITS.items():
        options = hexforge.SessionOptions()
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        chosen = {"backend_path": "QnnGpu.dll", "gpu_precision": precision}
        ours = hexforge.InferenceSession(str(path), options, providers=[("QNNExecutionProvider", chosen)])
        made = np.concatenate([ours.run(None, {"image": image[None]})[0] for image in images])
        error = float(np.abs(made - expected).max())
        same = int((made.argmax(1) == expected.argmax(1)).sum())
        far |= error > limit
        print(f"| {precision} | {error:.1e} | {same} of {len(images)} |", flush=True)
    return int(far)


if __name__ == "__main__":
    sys.exit(main())
