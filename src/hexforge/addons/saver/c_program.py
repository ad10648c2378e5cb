# SPDX-License-Identifier: Apache-2.0
"""Recorded calls as a program in C: real QNN calls that any of its libraries takes, hexforge's or the SDK's.

    cc saver_output.c -I$(hexforge lib-path --include) -ldl -o replay && ./replay libQnnHtp.so

The program loads a backend library, makes the graphs again from `params.bin` beside it, runs what was run, and says of
every output whether its bytes are those of the recording. It needs QNN's headers and nothing of hexforge.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from hexforge.ir import Array, Graph, Node, Value
from hexforge.ir.op import Param
from hexforge.ir.types import AxisScaleOffset, BlockwiseExpansion, DType, Encoding, ScaleOffset

Put = Any
"""Recorder.put: keeps bytes, and gives their place as `params.bin@OFFSET:SIZE`."""

HEAD = """#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "HTP/QnnHtpDevice.h"
#include "QnnInterface.h"

static QNN_INTERFACE_VER_TYPE qnn;
static FILE* params;
static int different;

static void check(Qnn_ErrorHandle_t code, const char* call) {
  if (code == QNN_SUCCESS) return;
  fprintf(stderr, "%s ended with code %llu\\n", call, (unsigned long long)QNN_GET_ERROR_CODE(code));
  exit(1);
}

static inline void* loaded(long long offset, size_t size) {
  void* data = malloc(size ? size : 1);
  if (!data || fseek(params, (long)offset, SEEK_SET) || fread(data, 1, size, params) != size) {
    fprintf(stderr, "params.bin has no %llu bytes at %lld\\n", (unsigned long long)size, offset);
    exit(1);
  }
  return data;
}

static inline Qnn_Tensor_t tensor(const char* name, Qnn_TensorType_t type, Qnn_DataType_t data_type, uint32_t rank,
                                  const uint32_t* dimensions) {
  Qnn_Tensor_t made = QNN_TENSOR_INIT;
  made.v1.name = name;
  made.v1.type = type;
  made.v1.dataType = data_type;
  made.v1.rank = rank;
  made.v1.dimensions = (uint32_t*)dimensions;
  made.v1.memType = QNN_TENSORMEMTYPE_RAW;
  return made;
}

static inline void set_data(Qnn_Tensor_t* into, void* data, uint32_t size) {
  into->v1.memType = QNN_TENSORMEMTYPE_RAW;
  into->v1.clientBuf.data = data;
  into->v1.clientBuf.dataSize = size;
}

static inline Qnn_OpConfig_t op(const char* name, const char* package, const char* type) {
  Qnn_OpConfig_t made = QNN_OPCONFIG_INIT;
  made.v1.name = name;
  made.v1.packageName = package;
  made.v1.typeName = type;
  return made;
}

static inline void compare(const char* graph, int run, const Qnn_Tensor_t* output, long long offset) {
  void* before = loaded(offset, output->v1.clientBuf.dataSize);
  const int same = !memcmp(before, output->v1.clientBuf.data, output->v1.clientBuf.dataSize);
  printf("%s run %d %s: %s\\n", graph, run, output->v1.name, same ? "same" : "different");
  different += !same;
  free(before);
}

int main(int argc, char** argv) {
  const char* library = argc > 1 ? argv[1] : "libQnnHtp.so";
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  Qnn_ErrorHandle_t (*providers)(const QnnInterface_t***, uint32_t*) = NULL;
  const QnnInterface_t** list = NULL;
  uint32_t count = 0;
  if (handle) *(void**)&providers = dlsym(handle, "QnnInterface_getProviders");
  params = fopen(argc > 2 ? argv[2] : "params.bin", "rb");
  if (!providers || !params) {
    fprintf(stderr, "usage: %s [LIBRARY [params.bin]]: %s cannot be loaded\\n", argv[0],
            providers ? "params.bin" : library);
    return 1;
  }
  check(providers(&list, &count), "QnnInterface_getProviders");
  if (!count) return 1;
  qnn = list[0]->QNN_INTERFACE_VER_NAME;
"""
TAIL = "  return different ? 2 : 0;\n}\n"


class CProgram:
    """What recorded calls are in C: texts for the recorder, and the names of what they declare."""

    def __init__(self, put: Put) -> None:
        self._put = put
        self._tensors: dict[str, dict[str, str]] = {}
        self._types: dict[str, dict[str, Value]] = {}
        self._runs: dict[str, int] = {}

    def context(self, settings: Mapping[str, str]) -> str:
        """A backend, the device of a chip where one is named, and a context."""
        chip = settings.get("soc_model", "0")
        lines = [
            "Qnn_BackendHandle_t backend = NULL;",
            'check(qnn.backendCreate(NULL, NULL, &backend), "QnnBackend_create");',
            "Qnn_DeviceHandle_t device = NULL;",
        ]
        if chip.isdigit() and int(chip):
            lines += [
                "QnnHtpDevice_CustomConfig_t chip;", "memset(&chip, 0, sizeof chip);",
                "chip.option = QNN_HTP_DEVICE_CONFIG_OPTION_SOC;", f"chip.socModel = {int(chip)};",
                "QnnDevice_Config_t chip_config = QNN_DEVICE_CONFIG_INIT;",
                "chip_config.option = QNN_DEVICE_CONFIG_OPTION_CUSTOM;", "chip_config.customConfig = &chip;",
                "const QnnDevice_Config_t* chip_configs[] = {&chip_config, NULL};",
                'check(qnn.deviceCreate(NULL, chip_configs, &device), "QnnDevice_create");',
            ]  # fmt: skip
        lines += ["Qnn_ContextHandle_t context_0 = NULL;",
                  'check(qnn.contextCreate(backend, device, NULL, &context_0), "QnnContext_create");']  # fmt: skip
        return _lines(lines)

    def graph(self, handle: str, graph: Graph) -> str:
        """A graph that is begun."""
        self._tensors[handle], self._types[handle], self._runs[handle] = {}, {}, 0
        name = literal(graph.name)
        return _lines([
            f"Qnn_GraphHandle_t {handle} = NULL;",
            f'check(qnn.graphCreate(context_0, {name}, NULL, &{handle}), "QnnGraph_create");',
        ])  # fmt: skip

    def tensor(self, handle: str, value: Value) -> str:
        """A tensor of a graph, with its data where it is static."""
        own = f"{handle}_{len(self._tensors[handle])}"
        self._tensors[handle][value.name], self._types[handle][value.name] = own, value
        data = None if value.data is None else _bytes_of(value.data, value.dtype)
        return self._declared(handle, own, value.name, value.role.value, value.type.shape, value.dtype,
                              value.type.encoding, data)  # fmt: skip

    def node(self, handle: str, node: Node, package: str) -> str:
        """An op of a graph, its tensors of parameters before it."""
        own = f"{handle}_op{len(self._tensors[handle])}_{self._runs[handle]}"
        self._runs[handle] += 1
        lines, params = [], []
        declared = {param.name: param for param in node.op.params}
        for key, value in node.params.items():
            if value is None:
                continue
            param = declared.get(key) or Param(key, _type_of_number(value))
            if param.rank == 0:
                params.append((key, f"QNN_PARAMTYPE_SCALAR, {_scalar(param.type, value)}"))
                continue
            array = np.asarray(value, _NUMPY[param.type])
            tensor = f"{own}_{re.sub(r'[^A-Za-z0-9_]', '_', key)}"
            lines.append(self._declared(handle, tensor, f"{node.name}_{key}", "STATIC", array.shape,
                                        DType(_NUMPY[param.type]), None, array.tobytes()))  # fmt: skip
            params.append((key, tensor))
        made = [f"Qnn_OpConfig_t {own} = op({literal(node.name)}, {literal(package)}, {literal(node.op.name)});"]
        made += self._side(
            own, "inputs", "Inputs", "inputTensors", [v.name if v else None for v in node.inputs], handle
        )
        made += self._side(own, "outputs", "Outputs", "outputTensors", [v.name for v in node.outputs], handle)
        if params:
            made.append(f"Qnn_Param_t {own}_params[{len(params)}];")
        for place, (key, text) in enumerate(params):
            made += _param(f"{own}_params[{place}]", key, text)
        if params:
            made += [f"{own}.v1.numOfParams = {len(params)};", f"{own}.v1.params = {own}_params;"]
        made.append(f'check(qnn.graphAddNode({handle}, {own}), "QnnGraph_addNode");')
        return "".join(lines) + _lines(made)

    def finalize(self, handle: str) -> str:
        """A graph that is prepared."""
        self._runs[handle] = 0
        return _lines([f'check(qnn.graphFinalize({handle}, NULL, NULL), "QnnGraph_finalize");'])

    def execute(self, handle: str, feeds: Mapping[str, Array], outputs: Mapping[str, Array]) -> str:
        """An execution, and what its outputs were then."""
        types, names, run = self._types[handle], self._tensors[handle], self._runs[handle]
        self._runs[handle] += 1
        reads, writes = (", ".join(names[name] for name in side) for side in (feeds, outputs))
        lines = ["{", f"  Qnn_Tensor_t in[] = {{{reads}}};", f"  Qnn_Tensor_t out[] = {{{writes}}};"]
        for place, (name, array) in enumerate(feeds.items()):
            at, size = self._place(_bytes_of(array.astype(types[name].dtype.numpy), types[name].dtype))
            lines.append(f"  set_data(&in[{place}], loaded({at}, {size}), {size});")
        places = []
        for place, (name, array) in enumerate(outputs.items()):
            at, size = self._place(_bytes_of(array.astype(types[name].dtype.numpy), types[name].dtype))
            places.append(at)
            lines.append(f"  set_data(&out[{place}], calloc(1, {max(size, 1)}), {size});")
        lines.append(
            f"  check(qnn.graphExecute({handle}, in, {len(feeds)}, out, {len(outputs)}, NULL, NULL), "
            '"QnnGraph_execute");'
        )
        lines += [f'  compare("{handle}", {run}, &out[{place}], {at});' for place, at in enumerate(places)]
        lines += [f"  free(in[{place}].v1.clientBuf.data);" for place in range(len(feeds))]
        lines += [f"  free(out[{place}].v1.clientBuf.data);" for place in range(len(outputs))]
        return _lines([*lines, "}"])

    def _declared(
        self, handle: str, own: str, name: str, role: str, shape: tuple[int, ...], dtype: DType,
        encoding: Encoding | None, data: bytes | None,
    ) -> str:  # fmt: skip
        sizes = ", ".join(map(str, shape or (1,)))
        kind = dtype.qnn_name(fixed_point=encoding is not None)
        lines = [
            f"static const uint32_t {own}_dims[] = {{{sizes}}};",
            f"Qnn_Tensor_t {own} = tensor({literal(name)}, QNN_TENSOR_TYPE_{role}, {kind}, "
            f"{len(shape or (1,))}, {own}_dims);",
            *_encoded(own, encoding),
        ]
        if data is not None:
            at, size = self._place(data)
            lines.append(f"set_data(&{own}, loaded({at}, {size}), {size});")
        lines.append(f'check(qnn.tensorCreateGraphTensor({handle}, &{own}), "QnnTensor_createGraphTensor");')
        return _lines(lines)

    def _side(self, own: str, side: str, of: str, member: str, names: list[str | None], handle: str) -> Iterator[str]:
        if not names:
            return
        tensors = [self._tensors[handle][name] if name is not None else None for name in names]
        listed = ", ".join(
            each or 'tensor("", QNN_TENSOR_TYPE_NULL, QNN_DATATYPE_UNDEFINED, 0, NULL)' for each in tensors
        )
        yield f"Qnn_Tensor_t {own}_{side}[] = {{{listed}}};"
        yield f"{own}.v1.numOf{of} = {len(names)};"
        yield f"{own}.v1.{member} = {own}_{side};"

    def _place(self, data: bytes) -> tuple[int, int]:
        offset, size = self._put(data).rpartition("@")[2].split(":")
        return int(offset), int(size)


_NUMPY = {"bool": "bool", "int32": "int32", "uint32": "uint32", "float32": "float32", "uint8": "uint8"}
_SCALARS = {
    "bool": ("QNN_DATATYPE_BOOL_8", "bool8Value"), "int32": ("QNN_DATATYPE_INT_32", "int32Value"),
    "uint32": ("QNN_DATATYPE_UINT_32", "uint32Value"), "float32": ("QNN_DATATYPE_FLOAT_32", "floatValue"),
    "uint8": ("QNN_DATATYPE_UINT_8", "uint8Value"),
}  # fmt: skip


def literal(text: str) -> str:
    """A text as a literal of C: printable ASCII as it is, other bytes of its UTF-8 in octal."""
    plain = {ord('"'): '\\"', ord("\\"): "\\\\"}
    return '"' + "".join(
        plain.get(byte) or (chr(byte) if 32 <= byte < 127 and byte != ord("?") else f"\\{byte:03o}")
        for byte in text.encode("utf-8", "surrogatepass")
    ) + '"'  # fmt: skip


def _lines(lines: list[str]) -> str:
    return "".join(f"  {line}\n" for line in lines)


def _type_of_number(value: Any) -> Any:
    return "bool" if isinstance(value, bool) else "int32" if isinstance(value, int) else "float32"


def _scalar(type: str, value: Any) -> str:
    kind, member = _SCALARS[type]
    return f"{kind}, {member}, {_number(value) if type == 'float32' else int(value)}"


def _number(value: float) -> str:
    """A float32 that C reads back to the bit."""
    value = float(np.float32(value))
    if value != value or value in (float("inf"), float("-inf")):
        return "(0.0f / 0.0f)" if value != value else f"({'-' if value < 0 else ''}1.0f / 0.0f)"
    return f"{value.hex()}f"


def _param(into: str, key: str, text: str) -> Iterator[str]:
    yield f"{into}.name = {literal(key)};"
    if not text.startswith("QNN_PARAMTYPE_SCALAR"):
        yield from (f"{into}.paramType = QNN_PARAMTYPE_TENSOR;", f"{into}.tensorParam = {text};")
        return
    _, kind, member, value = text.split(", ", 3)
    yield from (f"{into}.paramType = QNN_PARAMTYPE_SCALAR;", f"{into}.scalarParam.dataType = {kind};",
                f"{into}.scalarParam.{member} = {value};")  # fmt: skip


def _pairs(scales: Any, offsets: Any) -> str:
    return ", ".join(f"{{{_number(scale)}, {int(offset)}}}" for scale, offset in zip(scales, offsets, strict=True))


def _encoded(own: str, encoding: Encoding | None) -> Iterator[str]:
    """An encoding of a tensor, as assignments to its structure."""
    if encoding is None:
        return
    to = f"{own}.v1.quantizeParams"
    bits = getattr(encoding, "bitwidth", 0)
    yield f"{to}.encodingDefinition = QNN_DEFINITION_DEFINED;"
    kind = f"{to}.quantizationEncoding = QNN_QUANTIZATION_ENCODING_"
    match encoding:
        case ScaleOffset():
            name = "bwScaleOffsetEncoding" if bits else "scaleOffsetEncoding"
            yield f"{kind}{'BW_' if bits else ''}SCALE_OFFSET;"
            if bits:
                yield f"{to}.{name}.bitwidth = {bits};"
            yield f"{to}.{name}.scale = {_number(encoding.scale)};"
            yield f"{to}.{name}.offset = {encoding.offset};"
        case AxisScaleOffset() if bits:
            yield f"static float {own}_scales[] = {{{', '.join(map(_number, encoding.scales))}}};"
            yield f"static int32_t {own}_offsets[] = {{{', '.join(map(str, encoding.offsets))}}};"
            yield f"{kind}BW_AXIS_SCALE_OFFSET;"
            for member, value in (("bitwidth", bits), ("axis", encoding.axis), ("numElements", len(encoding.scales)),
                                  ("scales", f"{own}_scales"), ("offsets", f"{own}_offsets")):  # fmt: skip
                yield f"{to}.bwAxisScaleOffsetEncoding.{member} = {value};"
        case AxisScaleOffset():
            yield f"static Qnn_ScaleOffset_t {own}_scales[] = {{{_pairs(encoding.scales, encoding.offsets)}}};"
            yield f"{kind}AXIS_SCALE_OFFSET;"
            for member, value in (("axis", encoding.axis), ("numScaleOffsets", len(encoding.scales)),
                                  ("scaleOffset", f"{own}_scales")):  # fmt: skip
                yield f"{to}.axisScaleOffsetEncoding.{member} = {value};"
        case BlockwiseExpansion():
            yield f"static Qnn_ScaleOffset_t {own}_scales[] = {{{_pairs(encoding.scales, encoding.offsets)}}};"
            yield f"static uint8_t {own}_blocks[] = {{{', '.join(str(int(s)) for s in encoding.block_scales)}}};"
            yield f"static Qnn_BlockwiseExpansion_t {own}_expansion;"
            blocks = len(encoding.block_scales) // len(encoding.scales)
            for member, value in (
                ("axis", encoding.axis), ("scaleOffsets", f"{own}_scales"), ("numBlocksPerAxis", blocks),
                ("blockScaleBitwidth", encoding.block_scale_bitwidth),
                ("blockScaleStorageType", "QNN_BLOCKWISE_EXPANSION_BITWIDTH_SCALE_STORAGE_8"),
                ("blocksScale8", f"{own}_blocks"),
            ):  # fmt: skip
                yield f"{own}_expansion.{member} = {value};"
            yield f"{kind}BLOCKWISE_EXPANSION;"
            yield f"{to}.blockwiseExpansion = &{own}_expansion;"
        case _:
            raise NotImplementedError(f"{encoding} has no structure in QNN's headers here")


def _bytes_of(array: Array, dtype: DType) -> bytes:
    """Elements as QNN's calls take them: those of fewer than eight bits have a byte each."""
    plain = np.ascontiguousarray(array)
    return plain.astype(np.int8).tobytes() if dtype.bits < 8 and dtype is not DType.BOOL else plain.tobytes()
