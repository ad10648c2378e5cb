# SPDX-License-Identifier: Apache-2.0
"""Answers: what a running device or this machine answers, and the table of what is wrong with each answer."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path

from hexforge.addons.doctor.symptoms import Check
from hexforge.chips.soc import find_chip
from hexforge.errors import CallError
from hexforge.qnn_api import releases
from hexforge.qnn_api.releases import as_version

Answers = Mapping[str, str]
ARM = ("aarch64", "arm64")
LEAST_MEMORY_KB = 512 << 10
"""Memory that is free where a model of a usual size loads."""
_TRACES = "https://github.com/microsoft/onnxruntime/issues/31353"

DEVICE_QUESTIONS = {
    "chip": "getprop ro.soc.model",
    "abi": "getprop ro.product.cpu.abi",
    "nodes": "ls -l /dev",
    "vendor": "ls /vendor/lib64",
    "dsp": "ls /vendor/dsp/cdsp",
    "memory": "cat /proc/meminfo",
    "enforce": "getenforce",
}
"""What a device is asked, as commands of its shell; an answer that it has not is empty."""


def ask_device(shell: Callable[[str], str]) -> dict[str, str]:
    """What a device answers, by a function that runs a command in its shell."""
    return {name: shell(command).strip() for name, command in DEVICE_QUESTIONS.items()}


def ask_machine() -> dict[str, str]:
    """What this machine answers."""
    packages = {d.metadata["Name"].lower(): d.version for d in distributions() if d.metadata["Name"]}
    nodes = [path for path in ("/dev/fastrpc-cdsp", "/dev/adsprpc-smd") if Path(path).exists()]
    return {
        "system": sys.platform,
        "machine": platform.machine().lower(),
        "processor": os.environ.get("PROCESSOR_IDENTIFIER", ""),
        "bits": "64" if sys.maxsize > 1 << 32 else "32",
        "nodes": " ".join(nodes),
        "readable": " ".join(path for path in nodes if os.access(path, os.R_OK | os.W_OK)),
        "adsp": os.environ.get("ADSP_LIBRARY_PATH", os.environ.get("DSP_LIBRARY_PATH", "")),
        **{f"package {name}": packages.get(name, "") for name in ("onnxruntime", "onnxruntime-qnn", "executorch")},
    }


# -- a device ----------------------------------------------------------------------------------------------------------


def device_chip(answers: Answers) -> Iterator[str]:
    """A chip without HTP, or one that nobody knows."""
    try:
        if answers.get("chip"):
            find_chip(answers["chip"])
    except CallError as error:
        yield f"Its chip is {answers['chip']}: {error}."


def device_bits(answers: Answers) -> Iterator[str]:
    """A system of 32 bits."""
    if answers.get("abi", "arm64-v8a") not in ("", "arm64-v8a", "x86_64"):
        yield f"Its programs are {answers['abi']}."


def device_node(answers: Answers) -> Iterator[str]:
    """No way to the DSP: none of FastRPC's nodes; a virtual phone has no nodes at all."""
    if "binder" in answers.get("nodes", "") and not re.search(r"fastrpc-cdsp|adsprpc-smd", answers["nodes"]):
        yield "It has neither /dev/fastrpc-cdsp nor /dev/adsprpc-smd."


def device_permission(answers: Answers) -> Iterator[str]:
    """FastRPC's node for others than the system closed."""
    for line in answers.get("nodes", "").splitlines():
        match = re.match(r"c(\S{9})\S*\s.*\b(fastrpc-cdsp|adsprpc-smd)\s*$", line.strip())
        if match and match[1][6] != "r":
            yield f"/dev/{match[2]} is closed for apps: {match[1]}."


def device_driver(answers: Answers) -> Iterator[str]:
    """No FastRPC library of the vendor's."""
    if answers.get("vendor") and "libcdsprpc.so" not in answers["vendor"].split():
        yield "/vendor/lib64 has no libcdsprpc.so."


def device_unsigned(answers: Answers) -> Iterator[str]:
    """No shell for unsigned modules on the DSP."""
    if answers.get("dsp") and "fastrpc_shell_unsigned_3" not in answers["dsp"]:
        yield "/vendor/dsp/cdsp has no fastrpc_shell_unsigned_3."


def device_memory(answers: Answers) -> Iterator[str]:
    """Little free memory."""
    match = re.search(r"MemAvailable:\s*(\d+) kB", answers.get("memory", ""))
    if match and int(match[1]) < LEAST_MEMORY_KB:
        yield f"{int(match[1]) >> 10} MB of its memory are free."


# -- a machine ---------------------------------------------------------------------------------------------------------


def machine_bits(answers: Answers) -> Iterator[str]:
    """A Python of 32 bits, or on Windows one for x86 on an ARM machine."""
    if answers["bits"] == "32":
        yield "This Python has 32 bits."


def machine_npu(answers: Answers) -> Iterator[str]:
    """No NPU in reach: another machine than ARM."""
    if answers["machine"] not in ARM and "ARM" not in answers.get("processor", ""):
        yield f"This machine is {answers['machine']}: QNN prepares and emulates here, and no Hexagon runs anything."


def machine_emulated(answers: Answers) -> Iterator[str]:
    """On Windows, a Python for x86 on an ARM machine."""
    if answers["machine"] not in ARM and "ARM" in answers.get("processor", ""):
        yield f"This Python is for {answers['machine']} and runs emulated on an ARM machine."


def machine_node(answers: Answers) -> Iterator[str]:
    """Linux on ARM without FastRPC's node."""
    if answers["system"] == "linux" and answers["machine"] in ARM and not answers["nodes"]:
        yield "There is no /dev/fastrpc-cdsp."


def machine_permission(answers: Answers) -> Iterator[str]:
    """FastRPC's node closed for this user."""
    for node in answers["nodes"].split():
        if node not in answers["readable"].split():
            yield f"{node} cannot be opened by this user."


def machine_pair(answers: Answers) -> Iterator[str]:
    """The provider as a plugin beside an onnxruntime that takes none, or none at all."""
    plugin, host = answers["package onnxruntime-qnn"], answers["package onnxruntime"]
    if as_version(plugin) >= (2,) and not host:
        yield f"onnxruntime-qnn {plugin} is installed, and no onnxruntime."
    elif as_version(plugin) >= (2,) and as_version(host) < as_version(releases.LEAST_ONNXRUNTIME):
        yield f"onnxruntime-qnn {plugin} is installed beside onnxruntime {host}."
    elif plugin and host and as_version(plugin) < (2,):
        yield f"onnxruntime-qnn {plugin} is an onnxruntime of its own, and onnxruntime {host} is installed over it."


DEVICE: tuple[Check[Answers], ...] = (
    Check("device-chip", "fault", device_chip, "Take a phone with a v68 or newer; `hexforge socs` lists them.",
             "https://github.com/pytorch/executorch/issues/15973"),
    Check("device-bits", "fault", device_bits, "Take a device with a 64-bit system.", _TRACES),
    Check("device-node", "fault", device_node, "Boot a kernel with the FastRPC driver (CONFIG_QCOM_FASTRPC).",
             "https://github.com/qualcomm/fastrpc/issues/401"),
    Check("device-permission", "fault", device_permission,
             "Apps reach it only where the maker opened it; run from `adb shell`, or ask the maker.", _TRACES),
    Check("device-driver", "fault", device_driver, "The system image is not Qualcomm's: take the maker's.",
             "https://github.com/qualcomm/fastrpc/issues/379"),
    Check("device-unsigned", "fault", device_unsigned,
             "This firmware runs signed modules only: take libraries that the maker has signed.",
             "https://github.com/qualcomm/fastrpc/pull/390"),
    Check("device-memory", "advice", device_memory, "Close other apps, or load a smaller model.",
             "https://github.com/microsoft/WindowsAppSDK/issues/5858"),
)  # fmt: skip
MACHINE: tuple[Check[Answers], ...] = (
    Check("machine-bits", "fault", machine_bits, "Install a Python of 64 bits.", "https://pypi.org/project/onnxruntime-qnn/"),
    Check("machine-npu", "advice", machine_npu, "Compile here, run on a device: `hexforge deploy --push`.",
             "https://github.com/onnxruntime/onnxruntime-qnn/releases/tag/v2.3.0"),
    Check("machine-emulated", "advice", machine_emulated,
          "It reaches the NPU only through ARM64X libraries; a Python for ARM64 loads all of them.",
          "https://github.com/microsoft/onnxruntime/issues/24508"),
    Check("machine-node", "fault", machine_node,
             "Boot a kernel with FastRPC and the DSP's firmware, and start cdsprpcd.",
             "https://github.com/qualcomm/fastrpc/pull/390"),
    Check("machine-permission", "fault", machine_permission,
             "Add the user to the group of the node (fastrpc, render).",
             "https://github.com/qualcomm/fastrpc/pull/390"),
    Check("machine-pair", "fault", machine_pair,
             "Take the pair of one row of `hexforge versions`: pip install onnxruntime==… onnxruntime-qnn==…",
             "https://github.com/onnxruntime/onnxruntime-qnn"),
)  # fmt: skip
"""Every row, in the order in which findings are told."""
