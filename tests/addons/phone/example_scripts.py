# SPDX-License-Identifier: Apache-2.0
"""ExecuTorch's example scripts, from the installed wheel and unchanged, on a virtual phone, from export to result.

    python -m tests.addons.phone.example_scripts {mobilenet_v2,deeplab_v3} [--phone SERIAL] [--soc SM8650] FOLDER

What is not the script's own, and is said: where weights cannot be downloaded the model's are random ones, and the
pictures are random, in folders such as the script reads. So top-1 and mIoU mean nothing; that the script goes on from
the export to its last line does. FOLDER gets the pictures and the script's files.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.addons.phone.phones import add_phone, list_phones
from hexforge.addons.phone.script_folders import EXECUTORCH_BUILD, adb_folder, sdk_root

PICTURES = 100
"""How many the scripts ask for."""


def write_pictures(folder: Path) -> None:
    """Random pictures as ImageFolder reads them: a folder for each class."""
    from PIL import Image

    random = np.random.default_rng(0)
    for number in range(PICTURES):
        path = folder / f"class_{number % 10}" / f"{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (64, 64, 3), np.uint8)).save(path)


def write_segmentations(folder: Path) -> None:
    """Random pictures with masks, as VOCSegmentation reads them."""
    from PIL import Image

    root = folder / "voc_image" / "VOCdevkit" / "VOC2012"
    random = np.random.default_rng(0)
    for name in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for number in range(PICTURES):
        Image.fromarray(random.integers(0, 256, (64, 64, 3), np.uint8)).save(root / f"JPEGImages/{number:03}.jpg")
        mask = Image.fromarray(random.integers(0, 21, (64, 64), np.uint8))
        mask.save(root / f"SegmentationClass/{number:03}.png")
    names = "".join(f"{number:03}\n" for number in range(PICTURES))
    (root / "ImageSets/Segmentation/val.txt").write_text(names)


def replace_downloads() -> None:
    """Give random weights where a model's are downloaded, and say so."""
    import torch
    from torchvision import models

    def random_weights(url: str, *rest: Any, **more: Any) -> Any:
        print(f"stand-in: {url} is not downloaded, the weights are random", flush=True)
        torch.manual_seed(0)
        if "deeplabv3_resnet101" in url:
            build = models.segmentation.deeplabv3_resnet101
            return build(weights=None, weights_backbone=None, aux_loss=True).state_dict()
        assert "mobilenet_v2" in url, url
        return models.mobilenet_v2(weights=None).state_dict()

    torch.hub.load_state_dict_from_url = random_weights
    import torchvision.models._api as api

    api.load_state_dict_from_url = random_weights


def run_script(name: str, folder: Path, serial: str, soc: str, more: Sequence[str] = ()) -> None:
    """Run an example script on a phone, which is added where there is none."""
    if serial not in [phone.serial for phone in list_phones()]:
        add_phone(serial, soc)
    os.environ["PATH"] = f"{adb_folder()}{os.pathsep}{os.environ['PATH']}"
    os.environ["QNN_SDK_ROOT"] = str(sdk_root())
    folder.mkdir(parents=True, exist_ok=True)
    artifact = folder / name
    if name == "mobilenet_v2":
        write_pictures(folder / "pictures")
        more = (*more, "-d", str(folder / "pictures"))
    else:
        write_segmentations(artifact)
    from hexforge.addons.executorch import enable

    enable()
    replace_downloads()
    build = sdk_root() / EXECUTORCH_BUILD
    sys.argv = [name, "--build_folder", str(build), "--soc_model", soc, "--device", serial, "-a", str(artifact), *more]
    print(f"{name}.py {' '.join(sys.argv[1:])}", flush=True)
    runpy.run_module(f"executorch.examples.qualcomm.scripts.{name}", run_name="__main__", alter_sys=False)


def main() -> None:
    """Run the script that is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("script", choices=("mobilenet_v2", "deeplab_v3"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--phone", default="example")
    parser.add_argument("--soc", default="SM8650")
    given = parser.parse_args()
    run_script(given.script, given.folder.absolute(), given.phone, given.soc)


if __name__ == "__main__":
    main()
