# SPDX-License-Identifier: Apache-2.0
"""Every product of some models in many tiles on one device: `python -m benchmarks.gpu.tile_variants [--model NAME]`.

What the rules of `backends/gpu/kernel_launches.py` were chosen by; a figure of one device says nothing about another.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from benchmarks.models.gpu_architectures import MODELS
from hexforge.addons.gpu.building import builder
from hexforge.addons.gpu.config import GpuConfig
from hexforge.addons.gpu.device import choose
from hexforge.addons.gpu.kernel_launches import GpuLowering
from hexforge.addons.gpu.kernels.launch import Epilogue, Launch, Machine
from hexforge.addons.gpu.kernels.products.product import Product
from hexforge.addons.gpu.kernels.products.tiles import ProductTile
from hexforge.addons.gpu.tuning import measure
from hexforge.errors import HexforgeError
from hexforge.ir import Graph
from hexforge.runtime.prepare import prepare_model
from hexforge.runtime.registry import backend

SHAPES = (
    (128, 128, 8, 8), (128, 64, 8, 4), (64, 128, 4, 8), (64, 64, 4, 4), (64, 64, 8, 4), (64, 32, 4, 4), (32, 64, 4, 4),
    (32, 32, 4, 4), (32, 32, 2, 4), (16, 64, 4, 4), (16, 32, 2, 4),
)  # fmt: skip


def candidates(product: Product, machine: Machine, local_bytes: int) -> list[ProductTile]:
    """Every tile worth trying."""
    tiles = []
    for bm, bn, tm, tn in SHAPES:
        for bk in (8, 16, 32):
            for slices in (1, 2, 4, 8):
                for parts in (1, 4, 8, 16):
                    tile = ProductTile(bm, bn, bk, tm, tn, slices, parts)
                    groups = -(-product.m // bm) * -(-product.n // bn) * product.batch[0] * parts
                    steps = -(-product.k // bk) / (slices * parts)
                    local = slices * 2 * bk * (bm + bn + 8) * 4
                    small = groups < machine.units // 4 or groups > 24 * machine.units
                    few = steps < 2 and slices * parts > 1
                    if tile.threads not in (64, 128, 256, 512) or local > local_bytes or few or small or bk == 32:
                        continue
                    if slices > 1 and groups > 3 * machine.units:
                        continue
                    tiles.append(tile)
    return tiles


def graph_of(path: Path) -> Graph:
    """The graph of a model that is taken whole."""
    gpu = backend("gpu")
    parts = prepare_model(path, gpu)
    graph = parts.graph(parts.parts[0], "graph")
    graph.sort()
    return graph


def main() -> None:
    """Print the best tiles of each product."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append")
    parser.add_argument("--folder", type=Path, default=Path("build/gpu-models"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--limit", type=float, default=180.0, help="seconds altogether")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.limit
    device = choose()
    made = builder(device)
    machine = Machine(False, device.units, device.local_bytes, device.most_items)
    figures: dict[str, dict[str, float]] = {}
    for model in MODELS:
        if not any(part in model.name for part in arguments.model or ("resnet_50_fp32", "google_bert", "mobilenet")):
            continue
        lowering = GpuLowering(graph_of(model.at(arguments.folder)), GpuConfig(), machine)
        tried: list[tuple[str, Product, list[tuple[ProductTile, list[Launch]]]]] = []

        def ways(self: GpuLowering, product: Product, epilogue: Epilogue, tried: list[Any] = tried) -> list[Launch]:
            if product.key not in {key for key, _, _ in tried} and product.key not in figures:
                all_tiles = candidates(product, machine, min(device.local_bytes, 48 << 10))
                tried.append((product.key, product, [(t, self.tiled(product, epilogue, t)) for t in all_tiles]))
            return []

        GpuLowering._product = ways  # type: ignore[method-assign]
        lowering.launches()
        every = [launch for _, _, choices in tried for _, launches in choices for launch in launches]
        begin = time.monotonic()
        made.build(every)
        print(
            f"{model.name}: {len(tried)} products, {len(every)} kernels built in {time.monotonic() - begin:.1f} s",
            flush=True,
        )
        for key, product, choices in tried:
            if time.monotonic() > end:
                print("out of time")
                break
            times = {}
            for tile, launches in choices:
                try:
                    name = f"{tile.name} s{tile.slices} p{tile.parts}"
                    times[name] = measure(made, launches, lowering.storage, 4)
                except HexforgeError as error:
                    times[name] = float("inf")
                    print(name, str(error)[:80])
            figures[key] = times
            best = sorted(times.items(), key=lambda item: item[1])[:6]
            rate = product.flops / max(best[0][1], 1e-9) / 1e6 if best else 0.0
            listed = "  ".join(f"{name} {us:.1f}" for name, us in best)
            print(f"  {key}: {rate:.1f} TFLOP/s: {listed}", flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
