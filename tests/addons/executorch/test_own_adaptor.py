# SPDX-License-Identifier: Apache-2.0
"""The wheel's own compiled adaptor and its own C++ runtime over our libQnnHtp.so, instead of the stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hexforge.addons.capi.library import lib_path

pytest.importorskip("torch")
pytest.importorskip("executorch")
pytestmark = [pytest.mark.executorch, pytest.mark.filterwarnings("ignore")]

LOWER = """
    import sys, torch
    import executorch.backends.qualcomm.python.PyQnnManagerAdaptor as adaptor
    from executorch.backends.qualcomm.serialization.qc_schema import QcomChipset
    from executorch.backends.qualcomm.utils.utils import (
        generate_htp_compiler_spec, generate_qnn_executorch_compiler_spec, to_edge_transform_and_lower_to_qnn,
    )

    assert adaptor.__file__.endswith(".so"), adaptor.__file__
    build_id = adaptor.GetQnnSdkBuildId("libQnnHtp.so")
    assert build_id.startswith("v2.48.0.hexforge"), build_id
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU()).eval()
    inputs = (torch.randn(1, 3, 8, 8),)
    spec = generate_qnn_executorch_compiler_spec(QcomChipset.SM8650, generate_htp_compiler_spec(use_fp16=True))
    lowered = to_edge_transform_and_lower_to_qnn(model, inputs, spec).to_executorch()
    calls = [node for node in lowered.exported_program().graph.nodes if node.op == "call_function"]
    assert not [node for node in calls if "convolution" in str(node.target) or "relu" in str(node.target)]
    open(sys.argv[1], "wb").write(lowered.buffer)
    torch.save((inputs, model(*inputs)), sys.argv[1] + ".pt")
"""
RUN = """
    import sys, torch
    from executorch.runtime import Runtime

    inputs, wanted = torch.load(sys.argv[1] + ".pt")
    (made,) = Runtime.get().load_program(sys.argv[1]).load_method("forward").execute(list(inputs))
    assert torch.allclose(made, wanted, atol=5e-3), (made - wanted).abs().max()
"""


def test_the_wheels_adaptor_lowers_and_its_runtime_runs(tmp_path: Path) -> None:
    folder = str(lib_path())
    given = {"LD_LIBRARY_PATH": folder, "QNN_SDK_ROOT": str(tmp_path), "HEXFORGE_PYTHON": sys.executable}
    for script in (LOWER, RUN):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), tmp_path / "model.pte"],
            env={**os.environ, **given}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
