# SPDX-License-Identifier: Apache-2.0
"""Lost devices and full ones: calls of OpenCL fail beneath pyopencl, and every session but the one at fault goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyopencl")

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.addons.gpu.backend import GpuBackend
from hexforge.addons.gpu.device import choose
from hexforge.errors import UnsupportedError
from hexforge.ir import DType, Graph, Role, TensorType
from tests import ROOT

pytestmark = pytest.mark.gpu
SCENARIOS = ("sessions", "runs", "loads", "compiles", "tuned", "gone", "threads", "damaged")


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layer of the loader that fails on demand."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("no C++ compiler for Linux")
    made = tmp_path_factory.mktemp("layer") / "failing.so"
    source = Path(__file__).with_name("failing_opencl.cpp")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-std=c++17", str(source), "-o", str(made)], check=True)
    return made


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_failures_lose_no_other_session(scenario: str, layer: Path, tmp_path: Path) -> None:
    """No crash, no hang, no wrong number, nothing left behind; the other session is right after each failure."""
    environment = os.environ | {
        "OPENCL_LAYERS": str(layer),
        "HEXFORGE_GPU_CACHE": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.addons.gpu.failing", scenario], capture_output=True, text=True, check=False,
        env=environment, cwd=ROOT, timeout=1800,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout


def _scaled(factor: float, name: str) -> Graph:
    g = Graph(name)
    x = g.value("x", TensorType(DType.FLOAT32, (64, 64)), Role.APP_WRITE)
    y = g.value("y", TensorType(DType.FLOAT32, (64, 64)), Role.APP_READ)
    g.node("ElementWiseMultiply", [x, g.static(np.array(factor, np.float32))], [y])
    return g


def test_a_wild_kernel_loses_no_other_session() -> None:
    """A kernel that writes where it must not, on a GPU for real; on a processor it would end the process."""
    if choose().is_processor:
        pytest.skip("a processor's kernels run inside this process")
    if choose().platform == "NVIDIA CUDA":
        pytest.xfail("NVIDIA's driver makes no other context in a process whose kernel wrote to a wild address")
    wild, other = (GpuBackend().compile(_scaled(f, n)) for f, n in ((2.0, "wild"), (3.0, "other")))
    x = np.ones((64, 64), np.float32)
    good = wild.launches[0]
    assert wild._layout is not None
    body = "*(global volatile float*)(((ulong)get_global_id(0) << 40) | 0x7000000000000000ul) = 1.0f;"
    head, _, rest = good.source.partition("void run(")
    arguments = rest.partition(") {")[0]
    source = f"{head}void run({arguments}) {{ {body} }}"
    wild.launches[0] = replace(good, source=source)
    wild.forget()
    with pytest.raises(UnsupportedError, match="graph 'wild'"):
        wild.run({"x": x})
    np.testing.assert_array_equal(other.run({"x": x})["y"], 3 * x)
    wild.launches[0] = good
    wild.forget()
    np.testing.assert_array_equal(wild.run({"x": x})["y"], 2 * x)
