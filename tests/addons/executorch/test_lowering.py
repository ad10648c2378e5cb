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

import hexforge.addons.executorch
from tests import ROOT
from tests.opencl import require_compiler

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
    return np.asarray(hexforge.addons.executorch.load(bytes(program.buffer)).run(method, list(inputs))[0])


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


def test_a_failure_does_not_spoil_what_is_lowered_next(net: tuple[Any, Any]) -> None:
    from executorch.backends.qualcomm import qnn_preprocess

    vars(qnn_preprocess).update(torch.__dict__)  # what ExecuTorch does where it has no builder for an op
    model, x = net
    assert lowered(model, x, spec(fp16=True)).executorch_program.execution_plan[0].delegates


def test_a_float_model_runs(net: tuple[Any, Any]) -> None:
    model, x = net
    wanted = model(*x).detach().numpy()
    assert np.allclose(outputs(lowered(model, x, spec(fp16=True)), x), wanted, atol=2e-3)


def test_bits_of_integers_stay_with_executorch() -> None:
    """It hands them over as logic of booleans, which would be other numbers."""

    class Bits(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return torch.bitwise_xor(x + 1, y)

    x = (torch.arange(6).reshape(2, 3), torch.full((2, 3), 5))
    program = lowered(Bits(), x, spec(fp16=True))
    assert [o.name for o in program.executorch_program.execution_plan[0].operators] == ["aten::bitwise_xor"]
    np.testing.assert_array_equal(outputs(program, x), Bits()(*x).numpy())


@pytest.mark.parametrize("scheme", ["use_8a8w", "use_16a8w", None])
def test_random_numbers_of_8_bits_are_drawn_by_the_delegate(
    scheme: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Others Qualcomm's library refuses."""

    class Noise(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.rand_like(x) + x

    x = (torch.linspace(-1, 1, 240).reshape(2, 3, 40),)
    program = lowered(Noise() if scheme is None else qdq(Noise(), x, scheme), x, spec(fp16=True))
    left = {o.name for o in program.executorch_program.execution_plan[0].operators}
    if scheme != "use_8a8w":
        assert "aten::rand_like" in left
        assert "refuses it: uniform random numbers of more than 8 bits" in caplog.text
        return
    assert not left
    drawn = outputs(program, x) - x[0].numpy()
    assert -0.02 < drawn.min() < 0.1
    assert 0.9 < drawn.max() < 1.02


def test_floats_and_weights_by_block_on_the_oldest_architecture() -> None:
    """SM8350 (v68): both are taken there by the vendor's library, though its documentation has them from v69 on."""
    from executorch.backends.qualcomm.quantizer.quantizer import QnnQuantizer, QuantDtype
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    torch.manual_seed(0)
    model, x = torch.nn.Sequential(torch.nn.Linear(64, 32)).eval(), (torch.randn(4, 64),)
    wanted = model(*x).detach().numpy()
    program = lowered(model, x, spec("SM8350", fp16=True))
    assert np.allclose(outputs(program, x), wanted, atol=2e-3)
    quantizer = QnnQuantizer()
    quantizer.set_default_quant_config(QuantDtype.use_16a4w_block)
    quantizer.set_block_size_map({"linear": (1, 32)})
    prepared = prepare_pt2e(torch.export.export(model, x, strict=True).module(), quantizer)
    prepared(*x)
    program = lowered(convert_pt2e(prepared), x, spec("SM8350"))
    assert not program.executorch_program.execution_plan[0].operators
    assert np.abs(outputs(program, x) - wanted).max() < 0.1 * np.abs(wanted).max()


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

    with caplog.at_level(logging.WARNING, "hexforge.addons.executorch"):
        program = lowered(Activation(), x, spec("QCM6490", fp16=True))
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
    with caplog.at_level(logging.ERROR, "hexforge.addons.executorch"), pytest.raises(RuntimeError):
        lowered(model, x, lpai)
    assert "hexforge has no lpai backend" in caplog.text


@pytest.mark.parametrize("precision", ["kGpuPrecisionUserProvided", "kGpuPrecisionFp16"])
def test_a_gpu_spec_goes_to_the_gpu(net: tuple[Any, Any], precision: str) -> None:
    require_compiler()
    from executorch.backends.qualcomm.serialization.qc_schema import QcomChipset, QnnExecuTorchGpuPrecision
    from executorch.backends.qualcomm.utils.utils import (
        generate_gpu_compiler_spec,
        generate_qnn_executorch_compiler_spec,
    )

    model, x = net
    gpu = generate_gpu_compiler_spec(precision=QnnExecuTorchGpuPrecision[precision])
    program = lowered(model, x, generate_qnn_executorch_compiler_spec(QcomChipset.SM8650, gpu))
    plan = program.executorch_program.execution_plan[0]
    assert [d.id for d in plan.delegates] == ["QnnBackend"]
    assert not plan.operators
    method = hexforge.addons.executorch.load(bytes(program.buffer)).method()
    assert method.delegates[0].context.info.backend == "gpu"
    (found,) = method.run(list(x))
    error = np.abs(found - model(*x).detach().numpy()).max()
    assert error < 1e-5 if precision.endswith("UserProvided") else 1e-6 < error < 5e-3


def test_an_op_package_of_ones_own(tmp_path: Path) -> None:
    from executorch.backends.qualcomm.serialization import qc_schema

    library = torch.library.Library("hexforge_tests", "DEF")
    library.define("swish(Tensor x, float beta) -> Tensor")
    library.impl("swish", lambda x, beta: x * torch.sigmoid(beta * x), "CompositeExplicitAutograd")

    class Own(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.ops.hexforge_tests.swish(x + 1, 1.5) * 2

    package = qc_schema.QnnExecuTorchOpPackageInfo(
        op_package_name="example.activations",
        op_package_path=str(ROOT / "examples" / "op_package" / "swish.py"),
        interface_provider="package",
        target=qc_schema.QnnExecuTorchOpPackageTarget.CPU,
        custom_op_name="hexforge_tests.swish.default",
        qnn_op_type_name="Swish",
        platform=qc_schema.QnnExecuTorchOpPackagePlatform.X86_64,
    )
    options = qc_schema.QnnExecuTorchOpPackageOptions([package])
    x = (torch.randn(1, 4, 8),)
    program = lowered(Own(), x, spec(fp16=True, op_package_options=options))
    plan = program.executorch_program.execution_plan[0]
    assert len(plan.delegates) == 1
    assert not plan.operators
    wanted = Own()(*x).numpy()
    assert np.allclose(outputs(program, x), wanted, atol=1e-2)
    # a process that was not told of the package does not load what a file names; one that was told runs it
    (tmp_path / "own.pte").write_bytes(program.buffer)
    (tmp_path / "x.raw").write_bytes(x[0].numpy().tobytes())
    (tmp_path / "list.txt").write_text("x.raw\n")
    start = "from hexforge.cli import main; main()"
    command = [sys.executable, "-c", start, "executor-runner", "--model_path", "own.pte", "--input_list_path",
               "list.txt"]  # fmt: skip
    refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert refused.returncode
    assert "needs the op 'Swish' of the op package 'example.activations'; register it" in refused.stdout
    told = [*command, "--op-package", f"Swish:{package.op_package_path}:package"]
    subprocess.run(told, cwd=tmp_path, capture_output=True, check=True)
    found = np.fromfile(tmp_path / "outputs" / "output_0_0.raw", np.float32)
    assert np.allclose(found.reshape(wanted.shape), wanted, atol=1e-2)


def test_quantization_aware_training(net: tuple[Any, Any]) -> None:
    from executorch.backends.qualcomm.quantizer.quantizer import QnnQuantizer, QuantDtype
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_qat_pt2e

    _, x = net
    torch.manual_seed(1)
    quantizer = QnnQuantizer()
    quantizer.set_default_quant_config(QuantDtype.use_8a8w, is_qat=True, is_conv_per_channel=True)
    prepared = prepare_qat_pt2e(torch.export.export(Net().train(), x, strict=True).module(), quantizer)
    optimizer = torch.optim.SGD(prepared.parameters(), 0.01)
    for _ in range(3):
        optimizer.zero_grad()
        prepared(*x).square().mean().backward()
        optimizer.step()
    quantized = convert_pt2e(prepared)
    program = lowered(quantized, x, spec())
    assert not program.executorch_program.execution_plan[0].operators
    wanted = quantized(*x).detach().numpy()
    assert np.abs(outputs(program, x) - wanted).max() <= 1.01 * float(np.ptp(wanted)) / 255 + 1e-6


def test_scales_by_sequential_mse(net: tuple[Any, Any]) -> None:
    from executorch.backends.qualcomm._passes.seq_mse import SeqMSE
    from executorch.backends.qualcomm.quantizer.quantizer import QnnQuantizer, QuantDtype
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    model, x = net
    quantizer = QnnQuantizer()
    quantizer.set_default_quant_config(QuantDtype.use_16a4w, is_conv_per_channel=True, is_linear_per_channel=True)
    prepared = prepare_pt2e(torch.export.export(model, x, strict=True).module(), quantizer)
    with SeqMSE(prepared, num_candidates=10):
        prepared(*x)
    quantized = convert_pt2e(prepared)
    wanted = quantized(*x).detach().numpy()
    assert not np.array_equal(
        wanted, qdq(model, x, "use_16a4w", is_conv_per_channel=True, is_linear_per_channel=True)(*x).detach().numpy()
    )
    found = outputs(lowered(quantized, x, spec()), x)
    assert np.abs(found - wanted).max() < 1e-3 * np.abs(wanted).max()


def test_a_script_is_run_as_it_is(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import sys
        from executorch.backends.qualcomm.python import PyQnnManagerAdaptor
        print(PyQnnManagerAdaptor.__spec__.origin, sys.argv[1:])
    """)
    )
    command = [sys.executable, "-m", "hexforge.addons.executorch", str(script), "--flag"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("hexforge ['--flag']")
