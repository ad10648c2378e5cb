# SPDX-License-Identifier: Apache-2.0
"""Train the demo's night-shot model: a dark, noisy sensor picture in, a bright and clean one out; write it as ONNX.

    pip install torch scikit-learn scikit-image pillow
    python examples/night/train.py [FOLDER]

Writes `night.onnx` (eight residual convolutions, 3 x 256 x 256, 300 KB) and `pictures.npz` (the pictures that the demo
calibrates by and is judged on; the training never sees the latter). The package keeps both in `hexforge/demo`.
It takes ten minutes on two processor cores, and one on a GPU.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import onnx
import skimage.data
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from PIL import Image, ImageDraw
from sklearn.datasets import load_sample_images
from torch import Tensor, nn

from hexforge.demo import EXPOSURE, INPUT, OUTPUT, night_shot

Picture = NDArray[np.float32]
SIZE = 256
SEED = 7
STEPS, BATCH, CROP, RATE = 4000, 8, 64, 2e-3
CHANNELS, BLOCKS = 32, 4
DARKEST = 2.0**-16
"""The least light that is told from none."""
FOLDER = Path(__file__).parents[2] / "src" / "hexforge" / "demo"
SEEN = ("rocket", "retina", "camera", "brick", "grass", "gravel")
"""scikit-image's photographs that are trained on, beside scikit-learn's two."""
HELD_OUT = ("astronaut", "chelsea", "coffee")


class NightNet(nn.Module):
    """The light is amplified and its fourth root taken; residual blocks estimate the noise, to be taken away."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.ModuleList(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1) for _ in range(2)) for _ in range(BLOCKS)
        )
        self.tail = nn.Conv2d(CHANNELS, 3, 3, padding=1)
        for parameter in (*self.tail.parameters(), *(p for _, last in self.blocks for p in last.parameters())):
            nn.init.zeros_(parameter) if parameter.ndim == 1 else parameter.data.mul_(0.1)

    def forward(self, raw: Tensor) -> Tensor:
        """The picture, not clipped yet."""
        noisy = lifted(raw)
        features = torch.relu(self.head(noisy))
        for first, last in self.blocks:
            features = features + last(torch.relu(first(features)))
        return noisy + self.tail(features)


def lifted(raw: Tensor) -> Tensor:
    """The shades that the sensor's light has on a screen, its noise included."""
    return (raw / EXPOSURE).clamp(DARKEST, 1).sqrt().sqrt()


def photographs(names: tuple[str, ...]) -> list[Image.Image]:
    """Photographs of scikit-image."""
    return [Image.fromarray(getattr(skimage.data, name)()).convert("RGB") for name in names]


def drawn(random: np.random.Generator) -> Image.Image:
    """A gradient with discs, boxes and lines on it: smooth areas and hard edges, in all colours and shades."""
    corners = random.uniform(0, 1, (2, 2, 3)) * random.uniform(0.2, 1)
    image = Image.fromarray((corners * 255).astype(np.uint8)).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    pen = ImageDraw.Draw(image)
    for _ in range(random.integers(4, 24)):
        x, y, w, h = (int(v) for v in random.integers(0, SIZE, 4) // (1, 1, 2, 2))
        colour = tuple(int(v) for v in random.integers(0, 256, 3))
        shape = random.integers(3)
        if shape == 0:
            pen.ellipse((x, y, x + w, y + h), fill=colour)
        elif shape == 1:
            pen.rectangle((x, y, x + w, y + h), fill=colour)
        else:
            pen.line((x, y, x + w, y - h), fill=colour, width=int(random.integers(1, 6)))
    return image


def crops(sources: list[Image.Image], random: np.random.Generator, count: int) -> Picture:
    """Parts of pictures [n, 3, CROP, CROP], at several scales, turned over and with their colours mixed and dimmed."""
    batch = []
    for _ in range(count):
        image = sources[random.integers(len(sources))] if random.random() < 0.7 else drawn(random)
        side = int(min(CROP * random.uniform(1, 2.5), *image.size))
        left, top = random.integers(image.width - side + 1), random.integers(image.height - side + 1)
        part = image.resize((CROP, CROP), Image.Resampling.BOX, (left, top, left + side, top + side))  # type: ignore[arg-type]
        pixels = np.asarray(part, np.float32)[:, :, random.permutation(3)] / 255
        pixels = pixels * random.uniform(0.3, 1) * random.uniform(0.7, 1, 3)
        batch.append(np.rot90(pixels, random.integers(4)).transpose(2, 0, 1))
    return np.stack(batch).astype(np.float32)


def train(steps: int) -> NightNet:
    """Adam with a rate that falls along a cosine; the error is the mean absolute one."""
    random = np.random.default_rng(SEED)
    torch.manual_seed(SEED)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sources = [Image.fromarray(image) for image in load_sample_images().images] + photographs(SEEN)
    net = NightNet().to(device)
    optimizer = torch.optim.Adam(net.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.05)
    start, running = time.perf_counter(), 0.0
    for step in range(1, steps + 1):
        clean = crops(sources, random, BATCH)
        raw, target = (torch.from_numpy(a).to(device) for a in (night_shot(clean, random), clean))
        loss = (net(raw) - target).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        running += (loss.item() - running) / min(step, 100)
        if step % 100 == 0:
            print(f"step {step} of {steps}: error {running:.4f}, {time.perf_counter() - start:.0f} s", flush=True)
    return net.cpu().eval()


def model(net: NightNet) -> onnx.ModelProto:
    """The net as ONNX, one picture at a time."""
    data: dict[str, NDArray[np.float32]] = {
        "gain": np.array(1 / EXPOSURE, np.float32),
        "darkest": np.array(DARKEST, np.float32),
        "black": np.array(0, np.float32),
        "white": np.array(1, np.float32),
    }
    nodes = []

    def add(op: str, name: str, *inputs: str) -> str:
        nodes.append(helper.make_node(op, list(inputs), [name], name))
        return name

    def conv(name: str, layer: nn.Module, value: str) -> str:
        data[f"{name}.weight"] = layer.weight.detach().numpy()
        data[f"{name}.bias"] = layer.bias.detach().numpy()
        made = add("Conv", name, value, f"{name}.weight", f"{name}.bias")
        nodes[-1].attribute.append(helper.make_attribute("pads", [1, 1, 1, 1]))
        return made

    light = add("Clip", "light", add("Mul", "amplify", INPUT, "gain"), "darkest", "white")
    noisy = add("Sqrt", "fourth_root", add("Sqrt", "root", light))
    features = add("Relu", "head_relu", conv("head", net.head, noisy))
    for i, (first, last) in enumerate(net.blocks, 1):
        middle = add("Relu", f"block{i}_relu", conv(f"block{i}_first", first, features))
        features = add("Add", f"block{i}_sum", features, conv(f"block{i}_last", last, middle))
    clean = add("Add", "denoise", noisy, conv("tail", net.tail, features))
    nodes.append(helper.make_node("Clip", [clean, "black", "white"], [OUTPUT], "clip"))
    graph = helper.make_graph(
        nodes,
        "night",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, [1, 3, SIZE, SIZE])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, [1, 3, SIZE, SIZE])],
        [numpy_helper.from_array(array, name) for name, array in data.items()],
    )
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="hexforge examples/night"
    )
    onnx.checker.check_model(made, full_check=True)
    return made


def squares(images: list[Image.Image]) -> NDArray[np.uint8]:
    """The middle of each image [n, SIZE, SIZE, 3]."""
    made = []
    for image in images:
        side = min(image.size)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        made.append(image.resize((SIZE, SIZE), Image.Resampling.LANCZOS, (left, top, left + side, top + side)))
    return np.stack([np.asarray(image) for image in made])


def steps_along_rows(pictures: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """What each pixel differs by from the one to its left, modulo 256: photographs become a fifth smaller so."""
    return np.diff(pictures, axis=2, prepend=np.zeros_like(pictures[:, :, :1]))


def psnr(net: NightNet, pictures: Picture) -> list[tuple[float, float]]:
    """For each picture the peak signal to noise ratio of the amplified raw picture and of the net's, in dB."""
    random, ratios = np.random.default_rng(SEED), []
    for clean in pictures:
        raw = torch.from_numpy(night_shot(clean[None], random))
        with torch.no_grad():
            answers = lifted(raw), net(raw).clamp(0, 1)
        errors = [float((answer[0] - torch.from_numpy(clean)).square().mean()) for answer in answers]
        ratios.append((-10 * np.log10(errors[0]), -10 * np.log10(errors[1])))
    return ratios


def main() -> None:
    """Train, write, and say how good it is on photographs that it never saw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    random = np.random.default_rng(SEED)
    calibration = squares([*photographs(SEEN[:2]), drawn(random), drawn(random)])
    held_out = squares(photographs(HELD_OUT))
    net = train(arguments.steps)
    onnx.save(model(net), arguments.folder / "night.onnx")
    np.savez_compressed(
        arguments.folder / "pictures.npz",
        calibration=steps_along_rows(calibration),
        held_out=steps_along_rows(held_out),
    )
    clean = held_out.transpose(0, 3, 1, 2).astype(np.float32) / 255
    for name, (before, after) in zip(HELD_OUT, psnr(net, clean), strict=True):  # type: ignore[arg-type]
        print(f"{name}: {before:.2f} dB amplified, {after:.2f} dB by the model")


if __name__ == "__main__":
    main()
