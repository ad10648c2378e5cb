# SPDX-License-Identifier: Apache-2.0
"""The replaced module without ExecuTorch: wrappers, blobs, compiling, and errors in words."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from hexforge.addons.executorch import adaptor, blob
from hexforge.addons.executorch.compilation import compile_graphs
from hexforge.addons.qnn_graphs.compiling import refusal
from hexforge.addons.qnn_graphs.graph import build_graph
from hexforge.backend import ContextBackend
from hexforge.errors import CallError, FormatError, ModelError, UnsupportedError
from hexforge.runtime import registry

UNDEFINED = adaptor.Qnn_QuantizationEncoding_t.QNN_QUANTIZATION_ENCODING_UNDEFINED
SCALE_OFFSET = adaptor.Qnn_QuantizationEncoding_t.QNN_QUANTIZATION_ENCODING_SCALE_OFFSET
KINDS, TYPES = adaptor.Qnn_TensorType_t, adaptor.Qnn_DataType_t


def wrapper(name: str, shape: tuple[int, ...], kind: str = "NATIVE", data: Any = (), **quant: Any) -> Any:
    dtype = TYPES.QNN_DATATYPE_UFIXED_POINT_8 if quant else TYPES.QNN_DATATYPE_FLOAT_32
    return adaptor.TensorWrapper(
        name, KINDS[f"QNN_TENSOR_TYPE_{kind}"], dtype, SCALE_OFFSET if quant else UNDEFINED, quant, len(shape),
        list(shape), [], np.asarray(data), True,
    )  # fmt: skip


def relu(x: Any, y: Any, op: str = "Relu", name: str = "relu") -> Any:
    made = adaptor.PyQnnOpWrapper(name, "qti.aisw", op)
    made.AddInputTensors([x])
    made.AddOutputTensors([y])
    return made


def compiled(*graphs: str, weight_sharing: bool = False) -> bytes:
    """A context whose graphs multiply by the same large weights."""
    weights = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    ops = {}
    for name in graphs:
        made = adaptor.PyQnnOpWrapper("fc", "qti.aisw", "FullyConnected")
        made.AddInputTensors(
            [wrapper("input_0_x@0", (1, 256), "APP_WRITE"), wrapper("w", (256, 256), "STATIC", weights)]
        )
        made.AddOutputTensors([wrapper("output_fc@0", (1, 256), "APP_READ")])
        ops[name] = [made.declaration]
    return compile_graphs(ops, registry.backend("htp", {"soc_model": "57"}), weight_sharing)


def test_a_blob_has_its_header_and_opens() -> None:
    context = compiled("forward")
    data = blob.wrap_context(context)
    magic, _, size = struct.unpack_from("<IQQ", data)
    assert (magic, size, data[256:]) == (0x5678ABCD, len(context), context)
    assert data == blob.wrap_context(context)
    assert adaptor.StripProtocol(data) == context
    assert adaptor.StripProtocol(context) == b""
    row = blob.open_blob(data).graph("forward")
    assert (row.inputs[0][0], row.outputs[0][0]) == ("input_0_x@0", "output_fc@0")


def test_shared_weights_are_stored_once() -> None:
    alone, apart, shared = compiled("a"), compiled("a", "b"), compiled("a", "b", weight_sharing=True)
    weights = 256 * 256 * 2  # in float16
    assert len(apart) - len(alone) > weights
    assert len(shared) - len(alone) < weights // 4
    context = blob.open_blob(shared)
    x = np.ones((1, 256), np.float32)
    results = [context.program(name).run({"input_0_x@0": x})["output_fc@0"] for name in ("a", "b")]
    assert np.array_equal(*results)  # type: ignore[arg-type]


@pytest.mark.parametrize("cut", [10, 300])
def test_a_blob_cut_short_is_refused(cut: int) -> None:
    with pytest.raises(FormatError):
        blob.open_blob(blob.wrap_context(compiled("forward"))[:cut])


def test_another_makers_context_is_refused() -> None:
    with pytest.raises(FormatError, match="hexforge did not make"):
        blob.open_blob(blob.wrap_context(b"\x02\x00" * 100))


def test_a_refusal_says_what_and_why() -> None:
    backend = registry.backend("htp", {"soc_model": "57"})
    x, y = wrapper("x", (2,)), wrapper("y", (2,))
    assert refusal([relu(x, y).declaration], backend) is None
    assert "no QNN op is named 'Relux'" in (refusal([relu(x, y, "Relux").declaration], backend) or "")
    deep = relu(wrapper("x", (1,) * 6), wrapper("y", (1,) * 6), name="deep").declaration
    assert "op 'deep' (Relu): tensor 'x' has 6 dimensions" in (refusal([deep], backend) or "")
    old = registry.backend("htp", {"soc_model": "93"})
    assert "no float math" in (refusal([relu(x, y).declaration], old) or "")


@pytest.mark.parametrize(("op", "told"), [("Tanh", "is float32, not uint8"), ("Transpose", "give it an encoding")])
def test_a_node_that_no_graph_can_have_is_refused(op: str, told: str) -> None:
    """ExecuTorch shows nodes one by one: what would spoil the whole graph is left to the CPU instead."""
    node = relu(wrapper("x", (1, 2), scale=0.5, offset=-3), wrapper("y", (1, 2)), op)
    if op == "Transpose":
        node.AddTensorParam("perm", TYPES.QNN_DATATYPE_UINT_32, 1, [2], np.array([0, 1], np.uint32), True)
    reason = refusal([node.declaration], registry.backend("htp", {"soc_model": "57"})) or ""
    assert told in reason
    with pytest.raises(ModelError, match=told):
        compile_graphs({"forward": [node.declaration]}, registry.backend("htp", {"soc_model": "57"}))


def test_what_the_backend_refuses_is_not_compiled() -> None:
    deep = relu(wrapper("x", (1,) * 6, "APP_WRITE"), wrapper("y", (1,) * 6, "APP_READ")).declaration
    with pytest.raises(UnsupportedError, match="refuses 1 of 1 nodes"):
        compile_graphs({"forward": [deep]}, registry.backend("htp", {"soc_model": "57"}))


def test_wrappers_say_what_they_are() -> None:
    tensor = wrapper("x", (1, 2), scale=0.5, offset=-3)
    seen = adaptor.PyQnnTensorWrapper(tensor)
    assert (seen.GetName(), seen.GetDims(), seen.GetDataType()) == ("x", [1, 2], TYPES.QNN_DATATYPE_UFIXED_POINT_8)
    assert seen.GetEncodings().data["offset"].tolist() == [-3]
    config = relu(tensor, wrapper("y", (1, 2))).GetOpConfig()
    assert (config["typeName"], config["numOfInputs"]) == ("Relu", 1)
    assert f"{config['inputTensors'][0].v2.dataType}" == "Qnn_DataType_t.QNN_DATATYPE_UFIXED_POINT_8"
    assert config["inputTensors"][0].v2.quantizeParams.scaleOffsetEncoding.scale == 0.5


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: wrapper("bad", (2,), scale=1.0), "'bad': its QNN_QUANTIZATION_ENCODING_SCALE_OFFSET is malformed"),
        (lambda: adaptor.TensorWrapper("bad", 3, 0x0232, UNDEFINED, {}, 2, [1], [], np.array([]), False), "rank 2"),  # type: ignore[arg-type]
        (
            lambda: adaptor.PyQnnOpWrapper("op", "p", "t").AddTensorParam("axes", 0x0132, 1, [2], np.zeros(3), True),  # type: ignore[arg-type]
            "'op': parameter axes has 3 elements",
        ),
        (lambda: adaptor.PyQnnOpWrapper("op", "p", "t").AddScalarParam("axis", 0x0132, {}), "'op': parameter axis"),  # type: ignore[arg-type]
        (lambda: adaptor.PyQnnTensorWrapper(None), "does not declare"),
    ],
)
def test_bad_wrappers_are_refused_by_name(make: Any, told: str) -> None:
    with pytest.raises(CallError) as error:
        make()
    assert told in str(error.value)


def test_the_version_is_one_that_executorch_reads() -> None:
    assert adaptor.GetQnnSdkBuildId().startswith("v2.")
    assert adaptor.GetQNNCtxBinAlignment() == 256


def test_a_manager_of_no_compile_spec(caplog: pytest.LogCaptureFixture) -> None:
    manager = adaptor.QnnManager(b"this is no flatbuffer")
    assert manager.InitBackend() == adaptor.Error.NotSupported
    assert "the compile spec" in caplog.text


def test_a_small_graph_is_timed_when_someone_asks() -> None:
    assert blob.open_blob(compiled("forward")).container.names("schematic") == ["SM8650/forward"]
    backend = registry.backend("htp", {"soc_model": "57"})
    assert isinstance(backend, ContextBackend)
    ops = [relu(wrapper("x", (1, 64), "APP_WRITE"), wrapper("y", (1, 64), "APP_READ")).declaration]
    context = blob.open_blob(compile_graphs({"forward": ops}, backend))
    assert not context.container.names("schematic")
    row = context.graph("forward")
    eager = backend.schematic(backend.compile(build_graph("forward", ops)).graph, backend.targets[0], row.settings)
    assert eager is not None
    assert context.schematic("forward") == eager.data
    assert row.spill_fill_bytes == eager.spill_fill_bytes == 0
    assert context.schematic("forward", "SM8550") is None


def test_small_graphs_spill_nothing_on_any_chip() -> None:
    for chip, side in (("SM8650", 200), ("SM8850", 60)):
        backend = registry.backend("htp", {"soc_model": chip})
        assert isinstance(backend, ContextBackend)
        x, y = wrapper("x", (1, side, side), "APP_WRITE"), wrapper("y", (1, side, side), "APP_READ")
        for fits, ops in (
            (False, [relu(x, y)]),
            (True, [relu(wrapper("x", (1, side, 8), "APP_WRITE"), wrapper("y", (1, side, 8), "APP_READ"))]),
        ):
            graph = backend.compile(build_graph("forward", [op.declaration for op in ops])).graph
            assert backend.fits(graph) == fits
            found = backend.schematic(graph, backend.targets[0], backend.graph_settings())
            assert found is not None
            assert not (fits and found.spill_fill_bytes)
