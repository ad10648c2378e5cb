# SPDX-License-Identifier: Apache-2.0
"""PyTorch models through ExecuTorch on hexforge: `python -m benchmarks.executorch.models deeplab|decoder`.

deeplab  DeepLabV3-ResNet101 (random weights), 8a8w, 224 x 224 as in ExecuTorch's tutorial: seconds of one inference,
         beside torch's own QDQ model in the same run, and the signal-to-noise ratio between the two
decoder  a llama-shaped decoder (random weights) as kv and as hybrid (prefill and kv in one .pte, weights shared): the
         tokens of 64 steps beside those of torch's QDQ model, and the bytes of weights in the file
"""

from __future__ import annotations

import argparse
import itertools
import logging
import math
import statistics
import sys
import time
import warnings
from typing import Any

import numpy as np

import hexforge.addons.executorch

hexforge.addons.executorch.enable()

import torch  # noqa: E402
from torch import nn  # noqa: E402

CHIP = "SM8650"
TARGET_SECONDS = 0.5


# -- models -----------------------------------------------------------------------------------------------------------


class Bottleneck(nn.Module):
    """A block of ResNet-101."""

    def __init__(self, inputs: int, width: int, stride: int, dilation: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, dilation, dilation, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width * 4, 1, bias=False), nn.BatchNorm2d(width * 4),
        )  # fmt: skip
        self.short = None
        if stride != 1 or inputs != width * 4:
            self.short = nn.Sequential(nn.Conv2d(inputs, width * 4, 1, stride, bias=False), nn.BatchNorm2d(width * 4))
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block's output."""
        return self.relu(self.body(x) + (x if self.short is None else self.short(x)))


class Pyramid(nn.Module):
    """The atrous pyramid of DeepLabV3, with its image pooling."""

    def __init__(self, inputs: int, width: int = 256) -> None:
        super().__init__()

        def branch(kernel: int, dilation: int) -> nn.Module:
            pad = dilation if kernel == 3 else 0
            conv = nn.Conv2d(inputs, width, kernel, 1, pad, dilation, bias=False)
            return nn.Sequential(conv, nn.BatchNorm2d(width), nn.ReLU())

        self.branches = nn.ModuleList([branch(1, 1), branch(3, 12), branch(3, 24), branch(3, 36)])
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), branch(1, 1))
        self.project = nn.Sequential(nn.Conv2d(5 * width, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The branches side by side, projected."""
        pooled = nn.functional.interpolate(self.pool(x), size=x.shape[-2:], mode="bilinear", align_corners=False)
        return self.project(torch.cat([*(branch(x) for branch in self.branches), pooled], 1))


class DeepLab(nn.Module):
    """DeepLabV3 on a ResNet-101 whose last two stages are dilated instead of strided."""

    def __init__(self, classes: int = 21) -> None:
        super().__init__()
        stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        blocks: list[nn.Module] = []
        inputs = 64
        for width, count, stride, dilation in ((64, 3, 1, 1), (128, 4, 2, 1), (256, 23, 1, 2), (512, 3, 1, 4)):
            for i in range(count):
                reach = max(1, dilation // 2) if i == 0 else dilation
                blocks.append(Bottleneck(inputs, width, stride if i == 0 else 1, reach))
                inputs = width * 4
        self.backbone = nn.Sequential(*stem, *blocks)
        self.head = nn.Sequential(
            Pyramid(inputs), nn.Conv2d(256, 256, 3, padding=1, bias=False), nn.BatchNorm2d(256), nn.ReLU(),
            nn.Conv2d(256, classes, 1),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The logits of each pixel."""
        return nn.functional.interpolate(
            self.head(self.backbone(x)), size=x.shape[-2:], mode="bilinear", align_corners=False
        )


def folded(model: nn.Module) -> nn.Module:
    """The model with its batch norms in the convolutions before them, which is what quantizing does first."""
    for _, parent in model.named_modules():
        if isinstance(parent, nn.Sequential):
            names = list(parent._modules)
            for first, second in itertools.pairwise(names):
                if isinstance(parent[int(first)], nn.Conv2d) and isinstance(parent[int(second)], nn.BatchNorm2d):
                    fused = nn.utils.fusion.fuse_conv_bn_eval(parent[int(first)], parent[int(second)])
                    parent[int(first)], parent[int(second)] = fused, nn.Identity()
    return model


# -- through ExecuTorch -----------------------------------------------------------------------------------------------


def quantized(model: nn.Module, inputs: tuple[Any, ...], calibration: list[tuple[Any, ...]]) -> Any:
    """The QDQ model of the stock quantizer, 8a8w."""
    from executorch.backends.qualcomm.quantizer.quantizer import QnnQuantizer
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    exported = torch.export.export(model.eval(), inputs, strict=True).module()
    prepared = prepare_pt2e(exported, QnnQuantizer())
    with torch.no_grad():
        for sample in calibration:
            prepared(*sample)
    return convert_pt2e(prepared)


def lowered(models: dict[str, Any], inputs: dict[str, tuple[Any, ...]], weight_sharing: bool = False) -> bytes:
    """The .pte of one or several methods."""
    from executorch.backends.qualcomm.serialization.qc_schema import QcomChipset
    from executorch.backends.qualcomm.utils.utils import (
        generate_htp_compiler_spec,
        generate_qnn_executorch_compiler_spec,
        to_edge_transform_and_lower_to_qnn,
    )

    options = generate_htp_compiler_spec(use_fp16=False, use_weight_sharing=weight_sharing)
    spec = generate_qnn_executorch_compiler_spec(QcomChipset[CHIP], options)
    specs = dict.fromkeys(models, spec)
    return bytes(to_edge_transform_and_lower_to_qnn(models, inputs, specs).to_executorch().buffer)


def sqnr_db(output: np.ndarray, wanted: np.ndarray) -> float:
    """Signal to noise of one result against another."""
    noise = float(np.square(output.astype(np.float64) - wanted).sum())
    return math.inf if noise == 0 else 10 * math.log10(float(np.square(wanted.astype(np.float64)).sum()) / noise)


def deeplab(repeats: int) -> int:
    """Seconds of an inference, beside torch's."""
    torch.manual_seed(0)
    model, x = folded(DeepLab().eval()), (torch.randn(1, 3, 224, 224),)
    began = time.perf_counter()
    qdq = quantized(model, x, [x])
    between = time.perf_counter()
    file = lowered({"forward": qdq}, {"forward": x})
    print(f"quantizing {between - began:.0f} s, lowering {time.perf_counter() - between:.0f} s, {len(file) >> 20} MB")
    module = hexforge.addons.executorch.load(file, threads=2)
    times: dict[str, list[float]] = {"hexforge": [], "torch QDQ": []}
    busy_times: list[float] = []
    out = np.asarray(module.run("forward", list(x))[0])
    torch.set_num_threads(2)
    with torch.no_grad():
        wanted = qdq(*x).numpy()
        for _ in range(repeats):  # interleaved: what else the machine does falls on both
            busy, start = time.process_time(), time.perf_counter()
            module.run("forward", list(x))
            middle = time.perf_counter()
            busy_times.append(time.process_time() - busy)
            qdq(*x)
            times["hexforge"].append(middle - start)
            times["torch QDQ"].append(time.perf_counter() - middle)
    best = {name: min(values) for name, values in times.items()}
    print(f"{'DeepLabV3-ResNet101 8a8w 224':<32} {'best s':>8} {'median s':>9}")
    for name, values in times.items():
        print(f"{name:<32} {best[name]:>8.3f} {statistics.median(values):>9.3f}")
    print(f"ratio to torch's QDQ model {best['torch QDQ'] / best['hexforge']:.1f}, SQNR {sqnr_db(out, wanted):.1f} dB")
    print(f"hexforge keeps its two threads busy for {min(busy_times):.2f} s of processor time")
    print(f"under {TARGET_SECONDS} s: {'yes' if best['hexforge'] < TARGET_SECONDS else 'no'}")
    return int(best["hexforge"] >= TARGET_SECONDS)


def main() -> int:
    """Run what is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["deeplab", "decoder"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    if given.what == "deeplab":
        return deeplab(given.repeats)
    from benchmarks.executorch.decoder import decoder

    return decoder(given.tokens)


if __name__ == "__main__":
    sys.exit(main())
