# SPDX-License-Identifier: Apache-2.0
"""Files of ExecuTorch's own writer: leftover operators, buffers, sizes that vary, its runtime, its Inspector."""

from __future__ import annotations

import logging
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexforge
import hexforge.addons.executorch
from hexforge.cli import main
from hexforge.errors import FormatError

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")
pytestmark = [pytest.mark.executorch, pytest.mark.filterwarnings("ignore")]

from hexforge.addons.executorch.formats.pte import KernelCall, read_pte  # noqa: E402
from hexforge.addons.executorch.formats.qnn_options import KEY, GpuOptions, OpPackageOption, read_options  # noqa: E402
from tests.addons.executorch.test_lowering import lowered, qdq, spec  # noqa: E402


class Curve(torch.nn.Module):
    """A sum, an operator that is left alone, a product."""

    def forward(self, x: Any, y: Any) -> Any:
        return torch.relu(torch.sin(x + y)) * x


class Cache(torch.nn.Module):
    """A buffer that every run writes a row of."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(1, 8, 4))

    def forward(self, x: Any, at: Any) -> Any:
        self.rows.index_copy_(1, at, x)
        return self.rows * 2


@pytest.fixture(scope="module", autouse=True)
def quiet() -> None:
    logging.disable(logging.WARNING)


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cut") / "cut.pte"
    inputs = (torch.randn(2, 3), torch.randn(2, 3))
    specs = spec(fp16=True, profile_level=2)
    path.write_bytes(lowered(Curve(), inputs, specs, skip_node_op_set={"aten.sin.default"}).buffer)
    return path


def test_operators_left_to_the_cpu_run_in_torch(cut: Path) -> None:
    (plan,) = read_pte(cut).plans
    assert len(plan.delegates) == 2
    assert [i.operator for i in plan.instructions if isinstance(i, KernelCall)] == ["aten::sin.out"]
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    (found,) = hexforge.addons.executorch.load(cut).run("forward", [x, y])
    np.testing.assert_allclose(found, Curve()(x, y).numpy(), atol=4e-3)  # type: ignore[arg-type]


def test_views_between_a_delegate_and_what_was_left(tmp_path: Path) -> None:
    """Six dimensions are more than the HTP takes; the views beside the transpose are no instructions of the file."""
    from executorch.runtime import Runtime

    class Windows(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.relu(x + 1).view(1, 2, 4, 2, 4, 3).permute(0, 1, 3, 2, 4, 5).reshape(4, 16, 3) * 2

    path = tmp_path / "windows.pte"
    path.write_bytes(lowered(Windows(), (torch.randn(1, 8, 8, 3),), spec(fp16=True)).buffer)
    calls = [i.operator for i in read_pte(path).plans[0].instructions if isinstance(i, KernelCall)]
    assert calls == ["aten::permute_copy.out"]
    module, method = hexforge.addons.executorch.load(path), Runtime.get().load_program(path).load_method("forward")
    for _ in range(2):
        x = torch.randn(1, 8, 8, 3)
        (found,), (theirs,) = module.run("forward", [x]), method.execute((x,))
        np.testing.assert_allclose(found, Windows()(x).numpy(), atol=1e-2)  # type: ignore[arg-type]
        np.testing.assert_array_equal(theirs.numpy(), found)


@pytest.mark.parametrize("quantized", [False, True])
def test_indices_that_are_outputs(tmp_path: Path, quantized: bool) -> None:
    """ExecuTorch declares them as int64, its builder of topk hands over int32; quantized, they come before values."""
    from executorch.runtime import Runtime

    class Top(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            values, at = torch.topk(x, 3)
            least, low = torch.topk(-x, 3)
            return values, at, least, low

    x = torch.arange(32.0)[torch.randperm(32)].reshape(2, 16)
    path = tmp_path / "top.pte"
    model = qdq(Top(), (x,)) if quantized else Top()
    path.write_bytes(lowered(model, (x,), spec(fp16=not quantized)).buffer)
    values, at, least, low = hexforge.addons.executorch.load(path).run("forward", [x])
    theirs = Runtime.get().load_program(path).load_method("forward").execute((x,))
    wanted = [t.numpy() for t in model(x)]
    np.testing.assert_array_equal(at, wanted[1])
    np.testing.assert_array_equal(low, wanted[3])
    np.testing.assert_allclose(values, wanted[0], atol=0.01)  # type: ignore[arg-type]
    np.testing.assert_allclose(least, wanted[2], atol=0.2)  # type: ignore[arg-type]
    np.testing.assert_array_equal(theirs[1].numpy(), at)
    np.testing.assert_array_equal(theirs[0].numpy(), values)


def test_compile_specs_are_read_as_executorch_wrote_them(cut: Path) -> None:
    from executorch.backends.qualcomm.serialization.qc_schema_serialize import flatbuffer_to_option

    data = bytes(read_pte(cut).plans[0].delegates[0].specs[KEY])
    mine, theirs = read_options(data, "cut.pte"), flatbuffer_to_option(data)
    assert mine.soc_model == int(theirs.soc_info.soc_model)
    assert mine.htp_arch == int(theirs.soc_info.htp_info.htp_arch)
    assert mine.vtcm_mb == theirs.soc_info.htp_info.vtcm_size_in_mb
    assert (mine.backend, mine.use_fp16, mine.profile_level) == ("htp", True, 2)
    assert mine.use_fold_relu == theirs.backend_options.htp_options.use_fold_relu


def test_every_option_of_a_compile_spec() -> None:
    from executorch.backends.qualcomm.serialization import qc_schema as schema
    from executorch.backends.qualcomm.serialization.qc_schema_serialize import option_to_flatbuffer

    package = schema.QnnExecuTorchOpPackageInfo(
        "mine", "mine.py", "provider", custom_op_name="my::op", qnn_op_type_name="Op",
        platform=schema.QnnExecuTorchOpPackagePlatform.X86_64,
    )  # fmt: skip
    htp = schema.QnnExecuTorchHtpBackendOptions(
        use_conv_hmx=True, use_fold_relu=False, use_dlbc=True, use_slc_allocator=True
    )
    gpu = schema.QnnExecuTorchGpuBackendOptions(
        precision=schema.QnnExecuTorchGpuPrecision.kGpuPrecisionHybrid, use_weight_sharing=True
    )
    kinds = schema.QnnExecuTorchBackendType
    chip = schema._soc_info_table[schema.QcomChipset.SM8750]
    for chosen in (
        schema.QnnExecuTorchBackendOptions(kinds.kHtpBackend, htp_options=htp),
        schema.QnnExecuTorchBackendOptions(kinds.kGpuBackend, gpu_options=gpu),
    ):
        options = schema.QnnExecuTorchOptions(
            chip, chosen, saver=True, saver_output_dir="calls", online_prepare=True,
            op_package_options=schema.QnnExecuTorchOpPackageOptions([package]),
        )  # fmt: skip
        found = read_options(option_to_flatbuffer(options), "spec")
        assert (found.backend, found.soc_model, found.htp_arch) == (str(chosen.backend_type), 69, 79)
        assert (found.saver_folder, found.online_prepare) == ("calls", True)
        assert found.op_packages == (OpPackageOption("mine", "mine.py", "provider", "Op", "x86_64"),)
        if chosen.gpu_options is None:
            assert (found.use_conv_hmx, found.use_fold_relu) == (True, False)
            assert (found.use_dlbc, found.use_slc_allocator) == (True, True)
            assert found.gpu is None
        else:
            assert found.gpu == GpuOptions(
                "hybrid", gpu.use_memory_optimizations, gpu.use_node_optimizations, gpu.use_queue_recording, True
            )


def test_the_reader_agrees_with_executorchs(cut: Path) -> None:
    from executorch.exir._serialize import _deserialize_pte_binary

    theirs = _deserialize_pte_binary(cut.read_bytes()).program.execution_plan[0]
    (mine,) = read_pte(cut).plans
    assert len(mine.values) == len(theirs.values)
    assert mine.inputs == tuple(theirs.inputs)
    assert mine.outputs == tuple(theirs.outputs)
    assert len(mine.instructions) == len(theirs.chains[0].instructions)
    for value, other in zip(mine.values, theirs.values, strict=True):
        if type(other.val).__name__ == "Tensor":
            assert (value.sizes, int(value.dtype)) == (tuple(other.val.sizes), int(other.val.scalar_type))


def test_a_buffer_in_a_delegate(tmp_path: Path) -> None:
    inputs = (torch.randn(1, 1, 4), torch.tensor([0], dtype=torch.int32))
    path = tmp_path / "cache.pte"
    path.write_bytes(lowered(Cache(), inputs, spec(fp16=True)).buffer)
    module, reference = hexforge.addons.executorch.load(path), Cache()
    for step in range(4):
        row, at = torch.randn(1, 1, 4), torch.tensor([step], dtype=torch.int32)
        (found,) = module.run("forward", [row, at])
        np.testing.assert_allclose(found, reference(row, at.long()).numpy(), atol=4e-3)  # type: ignore[arg-type]


def test_sizes_that_vary(tmp_path: Path) -> None:
    inputs = (torch.randn(1, 2, 3, 8), torch.randn(1, 2, 3, 8))
    size = torch.export.Dim("size", min=1, max=8)

    class Sum(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return torch.relu(x + y) * x

    path = tmp_path / "vary.pte"
    shapes = {"x": {3: size}, "y": {3: size}}
    path.write_bytes(lowered(Sum(), inputs, spec(fp16=True), dynamic_shapes=shapes).buffer)
    module = hexforge.addons.executorch.load(path)
    for count in (8, 5, 1):
        x, y = torch.randn(1, 2, 3, count), torch.randn(1, 2, 3, count)
        (found,) = module.run("forward", [x, y])
        np.testing.assert_allclose(found, Sum()(x, y).numpy(), atol=1e-2)  # type: ignore[arg-type]


def test_in_executorchs_own_runtime(cut: Path) -> None:
    from executorch.runtime import Runtime

    x, y = torch.randn(2, 3), torch.randn(2, 3)
    method = Runtime.get().load_program(cut).load_method("forward")
    (theirs,), (mine,) = method.execute((x, y)), hexforge.addons.executorch.load(cut).run("forward", [x, y])
    np.testing.assert_array_equal(theirs.numpy(), mine)


def test_the_inspector_reads_our_etdump(cut: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from executorch.devtools import Inspector

    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["executor-runner", "--model_path", str(cut), "--dump_intermediate_outputs"])
    assert not ended.value.code
    assert struct.unpack("<I", Path("etdump.etdp").read_bytes()[:4])[0] == Path("etdump.etdp").stat().st_size - 4
    events = Inspector(etdump_path="etdump.etdp", debug_buffer_path="debug_output.bin").to_dataframe()
    names = set(events["event_name"])
    assert {"Method::execute", "Program::load_method"} <= names
    assert any("aten_add_tensor" in name and "(cycles)" in name for name in names)


def test_tensors_kept_in_another_file(tmp_path: Path) -> None:
    from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower

    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2).eval()
    made = to_edge_transform_and_lower(torch.export.export(model, (torch.randn(4, 3),)))
    program = made.to_executorch(ExecutorchBackendConfig(external_constants=True))
    program.save(str(tmp_path / "model.pte"))
    program.write_tensor_data_to_file(str(tmp_path))
    (data,) = tmp_path.glob("*.ptd")
    x = torch.randn(4, 3)
    (y,) = hexforge.addons.executorch.load(tmp_path / "model.pte", data=[data]).run("forward", [x])
    np.testing.assert_allclose(y, model(x).detach().numpy(), rtol=1e-6)  # type: ignore[arg-type]
    with pytest.raises(FormatError, match=r"keeps tensor 'weight' in another file \(.ptd\)"):
        hexforge.addons.executorch.load(tmp_path / "model.pte")
    whole = data.read_bytes()
    for cut in range(0, len(whole), 7):
        with pytest.raises(FormatError):
            hexforge.addons.executorch.load(tmp_path / "model.pte", data=[whole[:cut]])


def test_an_exported_program_is_timed() -> None:
    exported = torch.export.export(torch.nn.Conv2d(3, 8, 3).eval(), (torch.randn(1, 3, 16, 16),))
    assert 0 < hexforge.estimate(exported, soc="SM8650").latency_ms < 1


def test_loops_of_torch(tmp_path: Path) -> None:
    from executorch.exir import to_edge
    from functorch.experimental.control_flow import map as mapped

    class Rows(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return mapped(lambda row, z: row * z + 1, x, y)

    x, y = torch.randn(5, 3), torch.randn(3)
    program = to_edge(torch.export.export(Rows(), (x, y))).to_executorch()
    (found,) = hexforge.addons.executorch.load(program.buffer).run("forward", [x, y])
    np.testing.assert_allclose(found, (x * y + 1).numpy(), rtol=1e-6)  # type: ignore[arg-type]


def test_every_op_of_a_delegate_is_profiled(cut: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from executorch.devtools import Inspector
    from executorch.devtools.inspector import TimeScale

    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["executor-runner", "--model_path", str(cut), "--iteration", "3", "--profile_level", "2"])
    assert not ended.value.code
    scale = TimeScale.CYCLES
    inspector = Inspector(etdump_path="etdump.etdp", source_time_scale=scale, target_time_scale=scale)
    found: dict[str, list[float]] = {}
    for block in inspector.event_blocks:
        for event in block.events:
            found.setdefault(event.name, []).extend(event.perf_data.raw)
    assert len(found["Method::execute"]) == 3  # one for each inference
    assert len(found["native_call_sin.out"]) == 3  # what was left to the CPU
    delegates = hexforge.addons.executorch.load(cut).method().delegates
    for delegate, op in zip(delegates, ("add_tensor", "relu_default"), strict=True):
        chip: Any = delegate.context.schematic("forward")
        cycles = round(chip["accelerator_us"] * chip["core_mhz"])
        assert cycles in found["Accelerator (execute) time (cycles)"]  # of microseconds that are rounded
        assert [0 < n <= cycles + 1 for n in found[f"aten_{op}:OpId_4 (cycles)"]] == [True] * 3
