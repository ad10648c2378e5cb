# SPDX-License-Identifier: Apache-2.0
"""Core files: the kinds of files that the core opens, and those of others that it names; see `formats.file_kinds`.

A row stands before those that are less sure. Kinds of add-ons are in their `addon.py`, between the two tables.
"""

from dataclasses import replace

from hexforge.addon import FileKind

_ANALYSIS, _CLI = "hexforge.analysis", "hexforge.cli"
_CONTAINER = rb"HXFCTX\r\n"

OURS = (
    FileKind(
        "an adapter",
        "`hexforge lora info` says what it changes, and of which context",
        start=_CONTAINER,
        end=rb'\[\["adapter",""',
    ),
    FileKind(
        "a context",
        "`hexforge wrap` makes an ONNX model of it, `hexforge info` says what is in it",
        start=_CONTAINER,
        does={
            "info": f"{_CLI}.commands.info:print_context",
            "run": f"{_CLI}.runnable:open_context",
            "show": f"{_CLI}.commands.info:show_context",
            "estimate": f"{_ANALYSIS}.timed_graphs:graphs_of_context",
            "validate": "hexforge.runtime.contexts.compatibility:validate",
        },
        is_compiled=True,
    ),
)
"""Formats of hexforge's own."""

_PROTOBUF = rb"[\x08\x12\x1a\x22\x28\x32\x3a\x42\x72]|[\xa2\xca\xd2]\x01"
"""How a field of an ONNX model's message begins."""
ONNX = "an ONNX model without compiled graphs"
"""The kind of what an add-on makes of files that are taken as ONNX is (`FileKind.as_onnx`)."""
_MODEL = {
    "check": "hexforge.ort.check:check_file",
    "show": f"{_CLI}.commands.info:show_model",
    "run": f"{_CLI}.runnable:open_placed_model",
    "estimate": f"{_ANALYSIS}.timed_graphs:model_to_time",
}

_EXPORT = "where it was made, `torch.onnx.export(model, inputs, 'model.onnx', dynamo=True)` makes an ONNX model of it"
_TF2ONNX = "`python -m tf2onnx.convert --{} FILE --output model.onnx` makes an ONNX model of it"
_KERAS = FileKind("a Keras model", _TF2ONNX.format("keras"))
_CORE_ML = FileKind("a Core ML model", "give the model that it was converted from, as ONNX")
_ENGINE = FileKind("an engine of TensorRT", "it runs on one NVIDIA GPU only; give the ONNX file that it was built from")
_SAVED_MODEL = FileKind("a SavedModel of TensorFlow", _TF2ONNX.format("saved-model"))

OTHERS = (
    FileKind("empty", "get the file again", start=rb"\Z"),
    FileKind("a Git LFS pointer, not the model", "fetch it with `git lfs pull`", start=rb"version https://git-lfs"),
    FileKind("in ORT format", "give the ONNX file it was made from", start=rb".{4}ORTM"),
    FileKind("an ELF library", "give the ONNX file that a model library was made from", start=rb"\x7fELF"),
    replace(_ENGINE, start=rb"[pf]trt"),
    replace(_KERAS, start=rb"\x89HDF\r\n\x1a\n"),
    replace(_KERAS, start=rb"PK\x03\x04", members=("config.json", "*.weights.h5")),
    replace(_CORE_ML, suffixes=(".mlmodel",)),
    replace(_CORE_ML, members=("Manifest.json", "Data"), is_folder=True),
    replace(_CORE_ML, members=("coremldata.bin",), is_folder=True),
    replace(_SAVED_MODEL, members=("saved_model.pb",), is_folder=True),
    replace(
        _SAVED_MODEL, name="the graph of a SavedModel of TensorFlow; give its folder", suffixes=("saved_model.pb",)
    ),
    FileKind(
        "a TorchScript archive",
        "`torch.onnx.export(torch.jit.load('FILE'), inputs, 'model.onnx')` makes an ONNX model of it",
        start=rb"PK\x03\x04",
        members=("*/data.pkl", "*/constants.pkl"),
    ),
    FileKind("a checkpoint of PyTorch", _EXPORT, start=rb"PK\x03\x04", members=("*/data.pkl",)),
    FileKind(
        "a pickle of Python (an older checkpoint of PyTorch?), which runs code when it is loaded, so that it is never "
        "opened here",
        _EXPORT,
        start=rb"\x80[\x02-\x05]",
    ),
    FileKind("arrays of numpy", "give them with --input or --data", start=rb"\x93NUMPY"),
    FileKind("arrays of numpy", "give them with --input or --data", start=rb"PK\x03\x04", members=("*.npy",)),
    FileKind("a picture", "give the folder it is in with --data", start=rb"\x89PNG|\xff\xd8\xff|RIFF.{4}WEBP"),
    FileKind("a zip archive", "`unzip FILE` gives what is in it", start=rb"PK(\x03\x04|\x05\x06)"),
    FileKind("a tar archive", "`tar -xf FILE` gives what is in it", start=rb".{257}ustar"),
    FileKind(
        "a compressed file",
        "`tar -xf FILE`, `gunzip FILE` or its like gives what is in it",
        start=rb"\x1f\x8b|\xfd7zXZ|\x28\xb5\x2f\xfd|BZh\d|7z\xbc\xaf",
    ),
    FileKind(
        "a web page, not a model",
        "the address is of a page about the file, or asks to log in; download the file itself",
        start=rb"(?i)(\xef\xbb\xbf)?\s*(<!doctype html|<html)",
    ),
    FileKind(
        "a model of OpenVINO",
        "give the ONNX file that it was converted from",
        start=rb"(\xef\xbb\xbf)?\s*(<\?xml[^>]*>\s*)?<net\b",
    ),
    FileKind(
        "encodings of a model in JSON",
        "`hexforge quantize --encodings FILE` gives them to the float model that they are of",
        start=rb'\s*\{.*"(activation|param)_encodings"',
    ),
    FileKind(
        "a JSON file",
        "`hexforge estimate MODEL --json` prints one that `hexforge diff` compares",
        start=rb"(\xef\xbb\xbf)?\s*\{",
    ),
    FileKind(
        "a text file",
        "`hexforge explain` reads logs; a model is binary (.onnx)",
        start=rb"([\t-\r\x1b -~]|[\xc2-\xf4][\x80-\xbf]{1,3})+[\xc2-\xf4]?\Z",
    ),
    FileKind("a folder", "give the .onnx file in it", is_folder=True),
    FileKind(
        "an ONNX model with compiled graphs",
        "`hexforge info` says what it is, `hexforge run` runs it; give the context it names, or the model it is of",
        start=_PROTOBUF,
        recognised_by="hexforge.model.wire:holds_contexts",
        does={"info": f"{_CLI}.commands.info:print_context", "run": f"{_CLI}.runnable:open_context_model"},
        is_compiled=True,
    ),
    FileKind(
        ONNX,
        "`hexforge compile` makes a context of it, `hexforge check` says where its nodes run",
        start=_PROTOBUF,
        does=_MODEL,
    ),
    FileKind("no ONNX model, or is cut off or damaged", "get the file again", suffixes=(".onnx",), does=_MODEL),
    replace(_ENGINE, suffixes=(".engine", ".plan", ".trt")),
)
"""Formats of others, ONNX among them, and what is no model."""
