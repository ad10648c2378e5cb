"""Predicted against measured latency, with whole model families held out: `python -m benchmarks.latency`.

A family is predicted with parameters and chip factors fitted without it, and without models that contain it (a detector
with a ResNet in it is not trained on when ResNets are tested). Prints, for every device, precision and runtime, the
median and mean absolute percentage error and the rank correlation, then the worst ten.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fit_latency import DATA, Instances, Measured, fit, measured

FAMILIES: dict[str, tuple[str, ...]] = {
    "resnet": ("resnet18", "resnet50", "resnet101", "wideresnet50", "resnext50", "resnext101", "fcn_resnet50"),
    "detr": ("detr_resnet50",),
    "dla": ("dla102x",),
    "mobilenet": ("mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small", "mnasnet05"),
    "deeplab": ("deeplabv3_plus_mobilenet",),
    "posenet": ("posenet_mobilenet",),
    "yamnet": ("yamnet",),
    "inception": ("googlenet", "inception_v3", "inception_v4"),
    "bert": ("albert_base_v2_hf", "bert_base_uncased_hf", "distil_bert_base_uncased_hf", "minilm_v2"),
    "mobilebert": ("mobile_bert_uncased_google",),
    "vit": ("vit", "beit"),
    "mobilevit": ("mobile_vit",),
    "repvit": ("repvit",),
    "super-resolution": ("quicksrnetlarge", "quicksrnetmedium", "quicksrnetsmall", "sesr_m5", "xlsr"),
    "srgan": ("srgan",),
    "dncnn": ("dncnn",),
    "unet": ("unet_segmentation",),
}
CONTAINED: dict[str, tuple[str, ...]] = {
    "resnet": ("detr_resnet50",),
    "detr": FAMILIES["resnet"],
    "mobilenet": ("deeplabv3_plus_mobilenet", "posenet_mobilenet", "yamnet"),
    "deeplab": FAMILIES["mobilenet"],
    "posenet": FAMILIES["mobilenet"],
    "yamnet": FAMILIES["mobilenet"],
}
"""Models that are not trained on, besides its own, when a family is tested: one contains the other."""
TARGET_DEVICES = ("Samsung Galaxy S24", "Samsung Galaxy S25", "QCS8550 (Proxy)", "Snapdragon X Elite CRD")
PRECISIONS = ("float", "w8a8", "w8a16")


def held_out(instances: Instances, rows: Sequence[Measured]) -> np.ndarray:
    """Each row predicted by a fit without its family, begun from the priors: a fit of all rows knows too much."""
    found = np.zeros(len(rows))
    for family, models in FAMILIES.items():
        left_out = {*models, *CONTAINED.get(family, ())}
        fold = fit(instances, [r for r in rows if r.model not in left_out])
        test = [i for i, r in enumerate(rows) if r.model in models]
        found[test] = fold.us(instances, [rows[i] for i in test])
    return found


def errors(rows: Sequence[Measured], predicted: np.ndarray) -> np.ndarray:
    """Absolute relative errors."""
    return np.asarray(np.abs(predicted / np.array([r.us for r in rows]) - 1))


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's, of numbers that do not repeat much."""
    if len(a) < 3:
        return float("nan")
    return float(np.corrcoef(np.argsort(np.argsort(a)), np.argsort(np.argsort(b)))[0, 1])


def summary(rows: Sequence[Measured], predicted: np.ndarray) -> dict[str, Any]:
    """Error for each precision on the target devices: median, mean, 90th percentile, rank correlation."""
    found: dict[str, Any] = {}
    for precision in PRECISIONS:
        here = [i for i, r in enumerate(rows) if r.precision == precision and r.device in TARGET_DEVICES]
        each, us = errors([rows[i] for i in here], predicted[here]), np.array([rows[i].us for i in here])
        found[precision] = {
            "median": round(float(np.median(each)), 4),
            "mean": round(float(each.mean()), 4),
            "p90": round(float(np.quantile(each, 0.9)), 4),
            "rank": round(rank_correlation(predicted[here], us), 4),
            "rows": len(here),
        }
    return found


def lines(rows: Sequence[Measured], predicted: np.ndarray) -> Iterator[str]:
    """A line for each device, precision and runtime, and one for the runtimes together."""
    for device in (*TARGET_DEVICES, *sorted({r.device for r in rows} - {*TARGET_DEVICES})):
        for precision in PRECISIONS:
            for runtime in ("qnn_dlc", "onnx", "tflite", "all"):
                here = [
                    i
                    for i, r in enumerate(rows)
                    if (r.device, r.precision) == (device, precision) and runtime in (r.runtime, "all")
                ]
                if not here:
                    continue
                each, us = errors([rows[i] for i in here], predicted[here]), np.array([rows[i].us for i in here])
                yield (
                    f"{device:38} {precision:6} {runtime:8} {len(here):4} {100 * np.median(each):7.1f} "
                    f"{100 * each.mean():7.1f} {rank_correlation(predicted[here], us):7.3f}"
                )


def show(rows: Sequence[Measured], predicted: np.ndarray) -> None:
    """Print the table, the worst ten, the target devices together, each device's median."""
    print(f"{'device':38} {'prec.':6} {'runtime':8} {'rows':>4} {'median%':>7} {'mean%':>7} {'rank':>7}")
    for line in lines(rows, predicted):
        print(line)
    each = errors(rows, predicted)
    print("\nworst ten")
    for i in np.argsort(-each)[:10]:
        r = rows[i]
        print(f"{r.model:28} {r.precision:6} {r.runtime:8} {r.device:36} {r.us:10.0f} us {predicted[i]:10.0f} us")
    print("\ndevice, every precision and runtime: median error")
    for device in sorted({r.device for r in rows}):
        print(f"{device:38} {100 * np.median(each[[i for i, r in enumerate(rows) if r.device == device]]):6.1f} %")
    print("\ntarget devices together")
    for precision, found in summary(rows, predicted).items():
        print(precision, found)


def main() -> None:
    """Fit with each family left out in turn, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    given = parser.parse_args()
    rows, instances = measured(given.data), Instances(given.data)
    show(rows, held_out(instances, rows))


if __name__ == "__main__":
    main()
