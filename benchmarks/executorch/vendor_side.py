# SPDX-License-Identifier: Apache-2.0
"""A side of `benchmarks.executorch.vendor`: a process that lowers and runs what lines of its input name.

With the argument `hexforge` behind ExecuTorch's front end is hexforge, else the library that its own adaptor finds.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import logging
import os
import resource
import statistics
import sys
import tempfile
import time
import unittest
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.addons.executorch.own_suite.worker import TESTS, declare_torchvision

ADAPTOR = "executorch.backends.qualcomm.python.PyQnnManagerAdaptor"
CLASSES = ("TestQNNQuantizedOperator", "TestQNNFloatingPointOperator")
CALLS = "InitBackend InitContext InitContextCache IsNodeSupportedByBackend Compile Destroy DestroyContext".split()
MODELS = {"mobilenet_v2": 224, "inception_v3": 299, "deeplabv3": 224}
"""Models, and the size of the pictures they are run on."""
MOST_SECONDS = 20.0
"""After which no further inference of a model is begun."""
PARTS = ("compile", "run", "whole")


class Spent:
    """Processor seconds by what they were spent on, and those on the clock."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.seconds = dict.fromkeys((*PARTS, *(f"{part} on the clock" for part in PARTS)), 0.0)

    @contextlib.contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Count what happens meanwhile; garbage of torch's is not collected then, as `timeit` does it."""
        collecting = gc.isenabled()
        if what != "whole":
            gc.disable()
        start, clock = _processor(), time.perf_counter()
        try:
            yield
        finally:
            self.seconds[what] += _processor() - start
            self.seconds[f"{what} on the clock"] += time.perf_counter() - clock
            if collecting:
                gc.enable()


def _processor() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def side(ours: bool) -> None:
    """Run what lines of the input name, and answer each with a line of JSON."""
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if ours:
        import hexforge.addons.executorch

        hexforge.addons.executorch.enable()
    declare_torchvision()
    spent = Spent()
    adaptor = importlib.import_module(ADAPTOR)
    adaptor.QnnManager = _timed(adaptor.QnnManager, spent)  # type: ignore[attr-defined]
    base = importlib.import_module(f"{TESTS}.utils").TestQNN
    base.enable_x86_64, base.backend, base.soc_model, base.build_folder = True, "htp", "SM8650", "build-x86"
    base.verify_output = _verify(ours, spent)
    module = importlib.import_module(f"{TESTS}.test_qnn_delegate")
    answer: Any = {name: unittest.defaultTestLoader.getTestCaseNames(getattr(module, name)) for name in CLASSES}
    while True:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        name = sys.stdin.readline().strip()
        if not name:
            return
        importlib.import_module("torch").manual_seed(0)
        spent.clear()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            answer = _model(name, ours, spent) if name in MODELS else _test(name, module, spent)


def _test(name: str, module: Any, spent: Spent) -> dict[str, Any]:
    result = unittest.TestResult()
    with spent.on("whole"):
        unittest.defaultTestLoader.loadTestsFromName(name, module).run(result)
    why = [trace for _, trace in (*result.errors, *result.failures, *result.skipped)]
    return {"fine": not why, "why": why[:1], **spent.seconds}


def _model(name: str, ours: bool, spent: Spent) -> dict[str, Any]:
    """A model with random weights, quantized to 8 bits, lowered and run as often as there is time for."""
    import torch
    from executorch.backends.qualcomm.quantizer.quantizer import QnnQuantizer
    from executorch.backends.qualcomm.serialization.qc_schema import QcomChipset
    from executorch.backends.qualcomm.utils import utils
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    inputs = (torch.randn(1, 3, MODELS[name], MODELS[name]),)
    htp = utils.generate_htp_compiler_spec(use_fp16=False)
    specs = utils.generate_qnn_executorch_compiler_spec(QcomChipset.SM8650, htp)
    with spent.on("whole"), torch.no_grad():
        prepared = prepare_pt2e(torch.export.export(_made(name), inputs, strict=True).module(), QnnQuantizer())
        prepared(*inputs)
        lowered = utils.to_edge_transform_and_lower_to_qnn(convert_pt2e(prepared), inputs, specs).to_executorch()
    each, end = [], time.monotonic() + MOST_SECONDS
    with _opened(bytes(lowered.buffer), ours) as run:
        run(inputs)
        while not each or (len(each) < 20 and time.monotonic() < end):
            inference = Spent()
            with inference.on("run"):
                run(inputs)
            each.append([inference.seconds["run"], inference.seconds["run on the clock"]])
    spent.seconds["run"], spent.seconds["run on the clock"] = map(statistics.median, zip(*each, strict=True))
    return {"fine": True, "why": [], **spent.seconds}


def _made(name: str) -> Any:
    import torch
    import torchvision

    class Logits(torch.nn.Module):
        """DeepLab without its dictionary."""

        def __init__(self) -> None:
            super().__init__()
            self.net = torchvision.models.segmentation.deeplabv3_resnet101(weights=None, weights_backbone=None)

        def forward(self, x: Any) -> Any:
            """What each pixel may be."""
            return self.net(x)["out"]

    if name == "deeplabv3":
        return Logits().eval()
    more = {"init_weights": False} if name == "inception_v3" else {}
    return getattr(torchvision.models, name)(weights=None, **more).eval()


def _timed(manager: Any, spent: Spent) -> Any:
    """The adaptor's class with its calls counted."""

    def counted(name: str) -> Any:
        def call(self: Any, *rest: Any) -> Any:
            with spent.on("compile"):
                return getattr(manager, name)(self, *rest)

        return call

    return type("QnnManager", (manager,), {name: counted(name) for name in CALLS if hasattr(manager, name)})


def _verify(ours: bool, spent: Spent) -> Any:
    """Load and run a program, instead of the tests' runner and comparison."""

    def verify(test: Any, module: Any, sample_inputs: Any, executorch_prog: Any, *rest: Any, **more: Any) -> None:
        buffer = bytes(executorch_prog.buffer)
        with spent.on("run"), _opened(buffer, ours) as run:
            run(sample_inputs)

    return verify


@contextlib.contextmanager
def _opened(buffer: bytes, ours: bool) -> Iterator[Any]:
    """What runs a program: hexforge's own runner, or ExecuTorch's runtime with the library."""
    if ours:
        import hexforge.addons.executorch as product

        loaded = product.load(buffer)
        yield lambda inputs: loaded.run("forward", list(inputs))
        return
    from executorch.runtime import Runtime

    with tempfile.NamedTemporaryFile(suffix=".pte") as file:
        file.write(buffer)
        file.flush()
        method = Runtime.get().load_program(Path(file.name)).load_method("forward")
        yield lambda inputs: method.execute(list(inputs))


if __name__ == "__main__":
    side(sys.argv[1] == "hexforge")
