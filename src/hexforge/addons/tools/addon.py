# SPDX-License-Identifier: Apache-2.0
"""What this add-on adds."""

from hexforge.addon import Addon, Command, FileKind

ADDON = Addon(
    "tools",
    "The vendor's tools with their own flags: qnn-net-run and its family.",
    commands=(
        Command(
            "tool",
            "hexforge.addons.tools.commands:tool",
            "Run one of the vendor's tools, with its own flags: qnn-net-run and its family.",
            (
                "hexforge tool qnn-net-run --model model.onnx --backend libQnnHtp.so --input_list list.txt",
                "hexforge tool qnn-context-binary-generator --model model.onnx --backend "
                "libQnnHtp.so --binary_file ctx",
            ),
        ),
        Command(
            "config",
            "hexforge.addons.tools.commands:config",
            "Check and explain config files of QNN's tools.",
            ('hexforge config check htp_config.json --soc "8 Gen 3"', "hexforge config schema"),
        ),
    ),
    files=(
        FileKind(  # those of hexforge's own converter are ONNX models
            "a DLC of Qualcomm's converter, which only its SDK reads",
            "give the ONNX file, or convert it with hexforge's qnn-onnx-converter",
            start=b"PK",
            suffixes=(".dlc",),
        ),
    ),
    needs=("adapters", "device", "profiler", "saver"),
)
