# SPDX-License-Identifier: Apache-2.0
"""AIMET's side of `benchmarks.quality.aimet`, run by the Python of its own environment: nothing of hexforge is here.

    python aimet_side.py MODEL CALIBRATION UNSEEN OUTPUTS WEIGHT_BITS ACTIVATION_BITS WAY [ITERATIONS]

CALIBRATION and UNSEEN are npz files with each input's samples stacked; OUTPUTS gets the outputs of the simulated model.
Prints the processor seconds of quantizing as the last line.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import onnx


def samples(file: str) -> list[dict[str, Any]]:
    """The samples of a file."""
    with np.load(file, allow_pickle=False) as data:
        arrays = {name: data[name] for name in data.files}
    return [{name: array[i] for name, array in arrays.items()} for i in range(len(next(iter(arrays.values()))))]


def main() -> int:
    """Quantize, simulate, write."""
    from aimet_onnx import (  # type: ignore[import-not-found]
        QuantizationSimModel,
        apply_adaround,
        apply_seq_mse,
        batch_norm_fold,
        compute_encodings,
        qtype,
    )

    model_file, calibration, unseen, target, weight_bits, activation_bits, way, *rest = sys.argv[1:]
    given, asked = samples(calibration), samples(unseen)
    start = time.process_time()
    model = onnx.load(model_file)
    names = [output.name for output in model.graph.output]
    batch_norm_fold.fold_all_batch_norms_to_weight(model)
    sim = QuantizationSimModel(
        model, param_type=qtype.int(int(weight_bits)), activation_type=qtype.int(int(activation_bits)),
        config_file="htp_v75", providers=["CPUExecutionProvider"],
    )  # fmt: skip
    if way == "adaround":
        apply_adaround(sim, given, *map(int, rest))
    elif way == "seqmse":
        apply_seq_mse(sim, given)
    with compute_encodings(sim):
        for feeds in given:
            sim.session.run(None, feeds)
    seconds = time.process_time() - start
    outputs = [sim.session.run(None, feeds) for feeds in asked]
    arrays = {name: np.stack([o[i] for o in outputs]) for i, name in enumerate(names)}
    np.savez(target, **arrays)  # type: ignore[arg-type]
    print(f"{seconds:.3f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
