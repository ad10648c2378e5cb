# SPDX-License-Identifier: Apache-2.0
"""CpuPart: nodes that no backend takes: conversions by native kernels, all else in onnxruntime's CPU provider."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import onnx

from hexforge.backend import Spinning
from hexforge.errors import CallError, ModelError
from hexforge.ir import Array
from hexforge.model.load_check import Extract
from hexforge.runtime.conversions import TYPES, Conversion, Conversions

CPU = "CPUExecutionProvider"
QNN = "QNNExecutionProvider"

DEFAULT_SPINNING = Spinning()

OptionsOf = Callable[[Mapping[str, Array]], AbstractContextManager[Any]]
"""Gives onnxruntime's session options for a part that has these constants outside its protobuf."""


@contextmanager
def plain_options(constants: Mapping[str, Array]) -> Iterator[Any]:
    """onnxruntime's default options, with the constants added; it does not warn of lengths that depend on the data."""
    import onnxruntime

    chosen = onnxruntime.SessionOptions()
    chosen.log_severity_level = 3
    yield with_constants(chosen, constants)


def with_constants(options: Any, constants: Mapping[str, Array]) -> Any:
    """The options, which supply constants that a model's protobuf leaves out."""
    import onnxruntime

    if constants:
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in constants.values()]
        options.add_external_initializers(list(constants), values)
    return options


class CpuPart:
    """Nodes of a model that stay with the CPU.

    Nothing but QuantizeLinear and DequantizeLinear is computed by native kernels, with the threads that graphs have;
    all else by an onnxruntime session with the CPU provider.
    """

    def __init__(
        self,
        cut: Extract,
        nodes: Sequence[str],
        options: OptionsOf = plain_options,
        threads: int = 0,
        spinning: Spinning = DEFAULT_SPINNING,
    ) -> None:
        self.nodes = tuple(nodes)
        self.conversions = None if (rows := _conversions(cut)) is None else Conversions(rows, threads, spinning)
        """What computes the part where it only converts."""
        self.states = states_of(cut.proto.graph)
        """What onnxruntime can write in place: outputs by name, and the inputs that they are the next state of."""
        self._narrow: dict[str, tuple[Any, Any]] = {}
        if self.conversions is not None:
            return
        # onnxruntime's own, whatever stands in for it; only where nodes stay with the CPU: loading it takes a while
        from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession

        self._narrow = _widen(cut.proto)
        try:
            with options(cut.constants) as chosen:
                self._session = InferenceSession(cut.proto.SerializeToString(), chosen, providers=[CPU])
        except Exception as error:  # onnxruntime's errors have no class in common
            raise ModelError(f"{self._where()}: {_explain(str(error))}") from error

    def run(self, feeds: Mapping[str, Any], run_options: Any = None) -> dict[str, Any]:
        """Outputs by name for inputs by name."""
        if self.conversions is not None:
            return self.conversions.run(feeds)
        sent = {}
        for name, value in feeds.items():
            wide = self._narrow.get(name)
            sent[_wide(name) if wide else name] = np.asarray(value).astype(wide[0]) if wide else value
        try:
            results = self._session.run(None, sent, run_options)
        except Exception as error:  # onnxruntime's errors have no class in common
            raise ModelError(f"{self._where()}: onnxruntime failed: {error}") from error
        outputs = {}
        for output, result in zip(self._session.get_outputs(), results, strict=True):
            name = output.name.removesuffix(_SUFFIX)
            narrow = self._narrow.get(name)
            outputs[name] = np.asarray(result).astype(narrow[1]) if narrow else result
        return outputs

    def run_into(self, feeds: Mapping[str, Any], targets: Mapping[str, Array]) -> dict[str, Any]:
        """As `run`; a state whose target is the memory of its input is written there."""
        held = {
            output: feeds[past]
            for output, past in self.states.items()
            if output in targets and _same_memory(feeds.get(past), targets[output])
        }
        if not held or self._narrow or not all(isinstance(value, np.ndarray) for value in feeds.values()):
            return self.run(feeds)
        binding = self._session.io_binding()
        for name, value in feeds.items():
            if value.dtype.hasobject:
                binding.bind_cpu_input(name, value)
            else:
                dense = np.ascontiguousarray(value) if value.ndim else value
                feeds = {**feeds, name: dense}  # it lives as long as the run
                binding.bind_input(name, "cpu", 0, dense.dtype, dense.shape, dense.ctypes.data)
        names = [output.name for output in self._session.get_outputs()]
        for name in names:
            place = (
                {}
                if name not in held
                else {"element_type": held[name].dtype, "shape": held[name].shape, "buffer_ptr": held[name].ctypes.data}
            )
            binding.bind_output(name, "cpu", 0, **place)
        try:
            self._session.run_with_iobinding(binding)
        except Exception as error:  # onnxruntime's errors have no class in common
            raise ModelError(f"{self._where()}: onnxruntime failed: {error}") from error
        results = dict(zip(names, binding.get_outputs(), strict=True))
        return {name: targets[name] if name in held else value.numpy() for name, value in results.items()}

    def end_profiling(self) -> str:
        """The file of onnxruntime's profile, where its options ask for one; empty where native kernels compute."""
        return "" if self.conversions is not None else str(self._session.end_profiling())

    def _where(self) -> str:
        shown = ", ".join(self.nodes[:8]) + (f" and {len(self.nodes) - 8} more" if len(self.nodes) > 8 else "")
        return f"on the CPU: {'node' if len(self.nodes) == 1 else 'nodes'} {shown}"


class WholeOnCpu:
    """A whole model in onnxruntime's CPU provider, as its file is."""

    def __init__(self, source: str | os.PathLike[str] | bytes, name: str, threads: int = 0) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # between samples others compute
        path_or_bytes = source if isinstance(source, bytes) else os.fspath(source)
        self._name = name
        try:
            self._session = onnxruntime.InferenceSession(path_or_bytes, options, providers=[CPU])
        except OSError:
            raise
        except Exception as error:  # onnxruntime's errors have no class in common
            raise ModelError(f"{name}: onnxruntime cannot load it: {error}") from None
        self._outputs = [output.name for output in self._session.get_outputs()]

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs by name for inputs by name."""
        try:
            results = self._session.run(None, dict(feeds))
        except Exception as error:  # onnxruntime's errors have no class in common
            raise CallError(f"{self._name}: onnxruntime cannot run the sample: {error}") from None
        return dict(zip(self._outputs, results, strict=True))


def _same_memory(past: Any, target: Array) -> bool:
    """True for one array, dense and of the same type, by two names."""
    if not isinstance(past, np.ndarray) or (past.dtype, past.shape) != (target.dtype, target.shape):
        return False
    dense = past.flags.c_contiguous and target.flags.c_contiguous and target.flags.writeable
    return dense and past.ctypes.data == target.ctypes.data


def states_of(graph: onnx.GraphProto) -> dict[str, str]:
    """Outputs of GroupQueryAttention that are the next state of an input, where no other node reads that input.

    Its kernel finds that past and present are one buffer, and copies nothing then.
    """
    inputs, outputs = {value.name for value in graph.input}, {value.name for value in graph.output}
    reads = Counter(_reads(graph))
    return {
        present: past
        for node in graph.node
        if node.op_type == "GroupQueryAttention" and node.domain == "com.microsoft"
        for past, present in zip(node.input[3:5], node.output[1:3], strict=False)
        if past in inputs and reads[past] == 1 and present in outputs
    }


def _reads(graph: onnx.GraphProto) -> Iterator[str]:
    """The name of each tensor as often as a node reads it, in subgraphs, too."""
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            for subgraph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _reads(subgraph)


def _conversions(cut: Extract) -> list[Conversion] | None:
    """The conversions that a part consists of; None where it has anything else, or what onnxruntime would fuse."""
    graph = cut.proto.graph
    inputs = {value.name: value.type.tensor_type for value in graph.input if value.type.HasField("tensor_type")}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    rows = [_conversion(node, inputs, constants) for node in graph.node]
    return None if cut.constants or not rows or None in rows else [row for row in rows if row is not None]


def _conversion(
    node: onnx.NodeProto, inputs: Mapping[str, onnx.TypeProto.Tensor], constants: Mapping[str, onnx.TensorProto]
) -> Conversion | None:
    """A node as a conversion of an input of its part; None where it is something else or has a form that is rare."""
    if node.op_type not in ("QuantizeLinear", "DequantizeLinear") or node.domain not in ("", "com.microsoft"):
        return None
    attributes = {a.name: a.i for a in node.attribute}
    names = [*node.input, ""][:3]
    if names[0] not in inputs or not inputs[names[0]].HasField("shape"):
        return None
    if any(name and name not in constants for name in names[1:]):
        return None
    if attributes.get("block_size") or attributes.get("precision"):
        return None
    shape = tuple(d.dim_value for d in inputs[names[0]].shape.dim)
    scale = onnx.numpy_helper.to_array(constants[names[1]])
    quantizes = node.op_type == "QuantizeLinear"
    kind = inputs[names[0]].elem_type
    if quantizes:
        real, kind = kind, attributes.get("output_dtype", 0) or onnx.TensorProto.UINT8
        kind = constants[names[2]].data_type if names[2] else kind
    else:
        real = attributes.get("output_dtype", 0) or onnx.TensorProto.FLOAT
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind))
    zero = onnx.numpy_helper.to_array(constants[names[2]]) if names[2] else np.zeros(scale.shape, dtype)
    if real != onnx.TensorProto.FLOAT or scale.dtype != np.float32 or dtype.name not in TYPES:
        return None
    if not all(d > 0 for d in shape) or zero.dtype != dtype or zero.shape != scale.shape or scale.ndim > 1:
        return None
    axis = attributes.get("axis", 1)
    axis += len(shape) if axis < 0 else 0
    if scale.size != 1 and not (0 <= axis < len(shape) and shape[axis] == scale.size):
        return None
    return Conversion(names[0], node.output[0], shape, quantizes, dtype, scale, zero, axis)


_SUFFIX = "__as_wide"  # tensors of types numpy lacks enter and leave a CPU part under this name, in a wider type


def _wide(name: str) -> str:
    return name + _SUFFIX


def _widen(model: onnx.ModelProto) -> dict[str, tuple[Any, Any]]:
    """Let tensors of types that Python cannot hand to onnxruntime cross the border in a wider type (exactly)."""
    widened: dict[str, tuple[Any, Any]] = {}
    casts: list[tuple[bool, onnx.NodeProto]] = []
    for values, entering in ((model.graph.input, True), (model.graph.output, False)):
        for value in values:
            kind = value.type.tensor_type.elem_type if value.type.HasField("tensor_type") else 0
            if not kind or kind == onnx.TensorProto.STRING:
                continue
            dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind))
            if dtype.isbuiltin == 1:
                continue
            wide = np.dtype("int32") if "int" in dtype.name else np.dtype("float32")
            widened[value.name] = (wide, dtype)
            ends = (_wide(value.name), value.name) if entering else (value.name, _wide(value.name))
            wide_kind = onnx.helper.np_dtype_to_tensor_dtype(wide)
            target = kind if entering else wide_kind
            casts.append((entering, onnx.helper.make_node("Cast", [ends[0]], [ends[1]], to=target)))
            value.name = _wide(value.name)
            value.type.tensor_type.elem_type = wide_kind
    nodes = [n for e, n in casts if e] + list(model.graph.node) + [n for e, n in casts if not e]
    if casts:
        del model.graph.node[:]
        model.graph.node.extend(nodes)
    return widened


def _explain(message: str) -> str:
    import onnxruntime

    version = onnxruntime.__version__
    if "is not a registered function/op" in message:
        remedy = "neither QNN nor onnxruntime knows the op; SessionOptions.register_custom_ops_library adds ops"
    elif "opset" in message.lower() and "support" in message.lower():
        remedy = f"onnxruntime {version} does not know the opset; convert the model to an older one"
    elif "Unsupported model IR version" in message:
        remedy = f"onnxruntime {version} does not know the IR version; save the model with an older one"
    elif "NOT_IMPLEMENTED" in message:
        remedy = f"onnxruntime {version} has no CPU kernel for it; rewrite it with ops that have one (hexforge ops)"
    else:
        remedy = "onnxruntime refuses it"
    return f"{remedy} ({message})"
