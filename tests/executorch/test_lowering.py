# SPDX-License-Identifier: Apache-2.0
"""Models through ExecuTorch's own quantizer, partitioner and writer on hexforge, beside torch's QDQ models."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexforge.executorch

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")
pytestmark = [pytest.mark.executorch, pytest.mark.filterwarnings("ignore")]


class Net(torch.nn.Module):
    """Two convolutions, a shortcut, a mean and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.Conv2d(16, 16, 3, padding=1)
        self.last = torch.nn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        a = torch.relu(self.first(x))
        return self.last((a + torch.relu(self.second(a))).mean([2, 3]))


def spec(chip: str = "SM8650", fp16: bool = False, **options: Any) -> Any:
    from executorch.backends.qualcomm.serialization.qc_schema import QcomChipset
    from executorch.backends.qualcomm.utils.utils import (
        generate_htp_compiler_spec,
        generate_qnn_executorch_compiler_spec,
    )

    sharing = options.pop("weight_sharing", False)
    htp = generate_htp_compiler_spec(use_fp16=fp16, use_weight_sharing=sharing)
    return generate_qnn_executorch_compiler_spec(QcomChipset[chip], htp, **options)


def lowered(model: Any, inputs: Any, specs: Any, **more: Any) -> Any:
    from executorch.backends.qualcomm.utils.utils import to_edge_transform_and_lower_to_qnn

    return to_edge_transform_and_lower_to_qnn(model, inputs, specs, **more).to_executorch()


def qdq(model: Any, inputs: Any, scheme: str = "use_8a8w", **config: Any) -> Any:
    from executorch.backends.qualcomm.quantizer.quantizer import QnnQuantizer, QuantDtype
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = QnnQuantizer()
    quantizer.set_default_quant_config(QuantDtype[scheme], **config)
    prepared = prepare_pt2e(torch.export.export(model, inputs, strict=True).module(), quantizer)
    prepared(*inputs)
    return convert_pt2e(prepared)


@pytest.fixture(scope="module")
def net() -> tuple[Any, Any]:
    torch.manual_seed(0)
    return Net().eval(), (torch.randn(1, 3, 16, 16),)


def outputs(program: Any, inputs: Any, method: str = "forward") -> np.ndarray[Any, Any]:
    return np.asarray(hexforge.executorch.load(bytes(program.buffer)).run(method, list(inputs))[0])


def test_a_quantized_model_gives_torchs_numbers(net: tuple[Any, Any]) -> None:
    model, x = net
    quantized = qdq(model, x)
    program = lowered(quantized, x, spec())
    plan = program.executorch_program.execution_plan[0]
    assert [d.id for d in plan.delegates] == ["QnnBackend"]
    assert not plan.operators
    wanted = quantized(*x).detach().numpy()
    step = float(np.ptp(wanted)) / 255
    assert np.abs(outputs(program, x) - wanted).max() <= 1.01 * step


@pytest.mark.parametrize("scheme", ["use_16a16w", "use_16a8w", "use_16a4w", "use_8a4w", "use_16a2w", "use_fp16a8w"])
def test_every_scheme_runs(net: tuple[Any, Any], scheme: str) -> None:
    model, x = net
    config = {"is_conv_per_channel": True, "is_linear_per_channel": True}
    quantized = qdq(model, x, scheme, **config)
    program = lowered(quantized, x, spec(fp16=scheme == "use_fp16a8w"))
    assert [d.id for d in program.executorch_program.execution_plan[0].delegates] == ["QnnBackend"]
    wanted = quantized(*x).detach().numpy()
    assert np.abs(outputs(program, x) - wanted).max() < 0.01 * np.abs(wanted).max()


def test_a_float_model_runs(net: tuple[Any, Any]) -> None:
    model, x = net
    wanted = model(*x).detach().numpy()
    assert np.allclose(outputs(lowered(model, x, spec(fp16=True)), x), wanted, atol=2e-3)


def test_methods_share_their_weights(net: tuple[Any, Any]) -> None:
    model, x = net
    wide = (torch.randn(1, 3, 32, 16),)
    methods, given = {"small": model, "wide": model}, {"small": x, "wide": wide}
    shared = lowered(methods, given, dict.fromkeys(methods, spec(fp16=True, weight_sharing=True)))
    for name, inputs in given.items():
        assert np.allclose(outputs(shared, inputs, name), model(*inputs).detach().numpy(), atol=2e-3)


def test_what_the_chip_lacks_stays_with_executorch(net: tuple[Any, Any], caplog: pytest.LogCaptureFixture) -> None:
    _, x = net

    class Activation(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.relu(x)

    with caplog.at_level(logging.WARNING, "hexforge.executorch"):
        program = lowered(Activation(), x, spec("SM8350", fp16=True))
    assert not program.executorch_program.execution_plan[0].delegates
    assert "has no float math" in caplog.text


def test_lpai_is_refused_with_the_reason(net: tuple[Any, Any], caplog: pytest.LogCaptureFixture) -> None:
    from executorch.backends.qualcomm.serialization.qc_schema import QcomChipset
    from executorch.backends.qualcomm.utils.utils import (
        generate_lpai_compiler_spec,
        generate_qnn_executorch_compiler_spec,
    )

    model, x = net
    lpai = generate_qnn_executorch_compiler_spec(QcomChipset.SM8850, generate_lpai_compiler_spec())
    with caplog.at_level(logging.ERROR, "hexforge.executorch"), pytest.raises(RuntimeError):
        lowered(model, x, lpai)
    assert "hexforge has no lpai backend" in caplog.text


def test_a_script_is_run_as_it_is(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import sys
        from executorch.backends.qualcomm.python import PyQnnManagerAdaptor
        print(PyQnnManagerAdaptor.__spec__.origin, sys.argv[1:])
    """)
    )
    command = [sys.executable, "-m", "hexforge.executorch", str(script), "--flag"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("hexforge ['--flag']")
