# SPDX-License-Identifier: Apache-2.0
"""What this add-on adds."""

from hexforge.addon import Addon, FileKind

_AS_ONNX = "hexforge.addons.tflite.convert:onnx_of_file"
_COMPARE = "hexforge.addons.tflite.compare:compare_file"
_DOES = {"info": "hexforge.addons.tflite.commands:print_models"}
_BUNDLE = "`hexforge info FILE` lists the models inside; `hexforge check FILE#NAME` takes one"

ADDON = Addon(
    "tflite",
    "TensorFlow Lite (LiteRT) models and mediapipe's bundles in every command.",
    files=(
        FileKind(
            "a TensorFlow Lite model",
            "`hexforge check` says where its nodes run, `hexforge convert` makes an ONNX model of it",
            start=rb".{4}TFL3",
            does=_DOES,
            as_onnx=_AS_ONNX,
            compare=_COMPARE,
        ),
        FileKind("a bundle of LiteRT-LM", _BUNDLE, start=rb"LITERTLM", does=_DOES, as_onnx=_AS_ONNX, compare=_COMPARE),
        FileKind(
            "a bundle of mediapipe (.task)",
            _BUNDLE,
            start=rb"PK\x03\x04",
            suffixes=(".task",),
            does=_DOES,
            as_onnx=_AS_ONNX,
            compare=_COMPARE,
        ),
        FileKind(
            "a bundle of TensorFlow Lite models",
            _BUNDLE,
            start=rb"PK\x03\x04",
            members=("*.tflite",),
            does=_DOES,
            as_onnx=_AS_ONNX,
            compare=_COMPARE,
        ),
    ),
)
