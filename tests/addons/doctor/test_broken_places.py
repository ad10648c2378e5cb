# SPDX-License-Identifier: Apache-2.0
"""Folders, apps, logs and devices that are broken in one way each, and the doctor names that way and no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import TensorProto

from hexforge.addons.doctor.answers import DEVICE, MACHINE
from hexforge.addons.doctor.checks import CHECKS
from hexforge.addons.doctor.examination import examine_device, examine_log, examine_path
from hexforge.chips.soc import find_chip
from tests.addons.doctor import made
from tests.addons.doctor.made import ARM, ARM64, HEXAGON, PAGE_4, PAGE_16, X86_64, library, qnn

Files = dict[str, bytes]
LIBS = "lib/arm64-v8a"


def whole(**changed: bytes | None) -> Files:
    """A folder to push to an SM8650: libraries, a context and its binary."""
    return qnn(75, **changed) | made.contexts()


def windows(**changed: bytes | None) -> Files:
    """A folder for Windows on ARM."""
    names = ("QnnHtp.dll", "QnnSystem.dll", "QnnHtpPrepare.dll", "QnnHtpV73Stub.dll")
    files = {name: made.dll() for name in names}
    files |= {"libQnnHtpV73Skel.so": library(HEXAGON, PAGE_4), "libqnnhtpv73.cat": b"catalog"}
    return {name: data for name, data in {**files, **changed}.items() if data is not None}


# what is broken -> (the files, the chip that it is for or "", the id of the finding)
FOLDERS: dict[str, tuple[Callable[[], Files], str, str]] = {
    "a library cut in the middle": (lambda: whole(libQnnSystem=library()[:600]), "", "damaged"),
    "a page of HTML for a library": (lambda: whole(libQnnSystem=b"<html>404</html>"), "", "damaged"),
    "no libQnnHtp": (lambda: whole(libQnnHtp=None), "", "no-htp"),
    "no libQnnSystem": (lambda: whole(libQnnSystem=None), "", "no-system"),
    "a graph and no Prepare": (
        lambda: qnn(75, libQnnHtpPrepare=None) | {"model.onnx": made.graph_model(TensorProto.FLOAT)}, "", "no-prepare",
    ),
    "a Stub without its Skel": (lambda: whole(libQnnHtpV75Skel=None), "", "stub-without-skel"),
    "a Skel without its Stub": (lambda: whole(libQnnHtpV75Stub=None), "", "skel-without-stub"),
    "libraries of another architecture": (lambda: qnn(73), "Galaxy S25", "wrong-arch"),
    "libraries of another architecture than the context": (lambda: qnn(73) | made.contexts(), "", "wrong-arch"),
    "two Skels of different builds": (
        lambda: whole() | {"old/libQnnHtpV75Skel.so": library(HEXAGON, PAGE_16)}, "", "copies",
    ),
    "a Skel that is no Hexagon's": (lambda: whole(libQnnHtpV75Skel=library(ARM64)), "", "wrong-machine"),
    "a Stub for 32 bits": (lambda: whole(libQnnHtpV75Stub=library(ARM)), "", "32-bit"),
    "a binary that is missing": (
        lambda: qnn(75) | {"SM8650/model_ctx.onnx": made.context_model()}, "", "context-file",
    ),
    "a binary outside of the folder": (
        lambda: qnn(75) | {"SM8650/model_ctx.onnx": made.context_model(binary="../../etc/passwd")}, "", "context-file",
    ),
    "settings for another chip": (
        lambda: whole() | {"htp.json": made.settings(devices=[{"soc_id": 69}])}, "SM8650", "chip-number",
    ),
    "a context for another chip": (lambda: qnn(75) | made.contexts("SM8750"), "SM8650", "context-chip"),
    "floats on a chip of integers": (lambda: qnn(73) | {"m.onnx": made.graph_model()}, "8s Gen 3", "float-chip"),
    "bfloat16 on an older chip": (
        lambda: qnn(75) | {"m.onnx": made.graph_model(TensorProto.BFLOAT16)}, "SM8650", "bfloat-chip",
    ),
    "shared weights on v69": (
        lambda: {"config.json": made.settings(soc_model=36, enable_htp_weight_sharing=1)}, "", "sharing-chip",
    ),
    "more VTCM than an SM8350 has": (
        lambda: {"htp.json": made.settings(graphs=[{"vtcm_mb": 8}], devices=[{"soc_id": 30}])}, "SM8350", "vtcm-chip",
    ),
    "a signed process domain": (
        lambda: {"htp.json": made.settings(devices=[{"pd_session": "signed"}])}, "", "signed-pd",
    ),
    "a number that is no chip": (lambda: {"provider.json": made.settings(soc_model="26")}, "", "chip-number"),
    "a context of a newer QAIRT": (
        lambda: {f"qairt/2.48.40/{n}": d for n, d in qnn(75).items()} | made.contexts(qairt="2.51.0"),
        "", "context-newer",
    ),
    "an old onnxruntime": (
        lambda: {"requirements.txt": b"onnxruntime==1.22.0\nonnxruntime-qnn==2.7.0\n"}, "", "onnxruntime-too-old",
    ),
    "no onnxruntime": (lambda: {"requirements.txt": b"onnxruntime-qnn==2.7.0\nnumpy\n"}, "", "no-onnxruntime"),
    "two SDKs": (
        lambda: {"qairt/2.48.40/NOTICE": b"", "qairt/2.51.0/NOTICE": b""}, "", "mixed-qairt",
    ),
    "htp_arch 79 inside onnxruntime": (
        lambda: {"build.gradle": b'implementation "com.microsoft.onnxruntime:onnxruntime-android-qnn:1.24.3"\n'
                 b'useLegacyPackaging true\n', "p.json": made.settings(htp_arch="79"),
                 "A.kt": b'Os.setenv("ADSP_LIBRARY_PATH", dir, true)'}, "", "arch-option",
    ),
    "Windows without a catalog": (lambda: windows(**{"libqnnhtpv73.cat": None}), "", "no-catalog"),
    "Windows for two machines": (lambda: windows(**{"QnnSystem.dll": made.dll(0x8664)}), "", "wrong-machine"),
    "two ADSP_LIBRARY_PATHs": (
        lambda: whole() | {"a.sh": b"export ADSP_LIBRARY_PATH=/data/local/tmp/a\n",
                           "b.sh": b"export ADSP_LIBRARY_PATH=/data/local/tmp/b\n"}, "", "adsp-paths",
    ),
    "ADSP_LIBRARY_PATH with colons": (
        lambda: whole() | {"run.sh": b"export ADSP_LIBRARY_PATH=/data/local/tmp/a:/vendor/dsp\n"}, "", "adsp-paths",
    ),
    "a project without ADSP_LIBRARY_PATH": (lambda: made.project(adsp=""), "", "adsp-not-set"),
    "a project that leaves libraries inside": (lambda: made.project(legacy="false"), "", "not-extracted"),
    "a project for 32 bits": (lambda: made.project(abi="armeabi-v7a"), "", "abi-filter"),
    "a project without libcdsprpc": (lambda: made.project(manifest=made.manifest_text("")), "", "no-libcdsprpc"),
    "a project with the provider twice": (
        lambda: made.project(*made.PINS, "com.microsoft.onnxruntime:onnxruntime-android-qnn:1.24.3"), "",
        "two-providers",
    ),
    "a project of two QAIRTs": (
        lambda: made.project(*made.PINS, "com.qualcomm.qti:qnn-runtime:2.48.0"), "", "mixed-qairt",
    ),
    "a project older than its context": (
        lambda: made.project(made.PINS[0], "com.qualcomm.qti:onnxruntime-android-qnn:2.4.0")
        | made.contexts("app/src/main/assets/SM8650", "2.51.0"), "", "context-newer",
    ),
}  # fmt: skip
ALSO = {"two-providers": {"mixed-qairt"}, "no-htp": {"no-system"}, "context-chip": set(), "context-file": set()}
"""What follows from a fault and is named beside it."""


@pytest.mark.parametrize("case", FOLDERS)
def test_a_broken_folder(case: str, tmp_path: Path) -> None:
    files, chip, fault = FOLDERS[case]
    report = examine_path(made.folder(tmp_path / "place", files()), find_chip(chip))
    assert {finding.id for finding in report.faults} - ALSO.get(fault, set()) == {fault}
    assert not report.healthy
    for finding in report.findings:
        assert finding.found.endswith("."), finding.found
        assert finding.would_work.endswith((".", "…"))
        assert finding.evidence.startswith("https://")


Build = Callable[[Path], Path]


def app(files: Callable[[], Files] | None = None, **settings: object) -> Build:
    """Makes an app of files, or of QNN's libraries."""
    return lambda path: made.apk(path, qnn(75, LIBS) if files is None else files(), **settings)  # type: ignore[arg-type]


APPS: dict[str, tuple[Build, str]] = {
    "libraries for pages of 4 KB": (app(lambda: qnn(75, LIBS, libQnnSystem=library(page=PAGE_4))), "page-size"),
    "an own library for pages of 4 KB": (
        app(lambda: qnn(75, LIBS) | {f"{LIBS}/libapp.so": library(page=PAGE_4)}), "page-size",
    ),
    "libraries that stay inside": (
        app(manifest=made.manifest_binary(extract=False), stored=True, page=PAGE_16), "not-extracted",
    ),
    "32 bits only": (
        app(lambda: {"lib/armeabi-v7a/libapp.so": library(ARM), "lib/armeabi-v7a/libQnnHtp.so": library(ARM)}),
        "32-bit",
    ),
    "libcdsprpc of another phone": (app(lambda: qnn(75, LIBS) | {f"{LIBS}/libcdsprpc.so": library()}), "own-cdsprpc"),
    "no uses-native-library": (app(manifest=made.manifest_binary(native=None)), "no-libcdsprpc"),
    "a Skel among the assets": (
        app(lambda: {**qnn(75, LIBS, libQnnHtpV75Skel=None), "assets/libQnnHtpV75Skel.so": library(HEXAGON)}),
        "skel-is-asset",
    ),
    "a library of Linux": (app(lambda: qnn(75, LIBS, libQnnSystem=library(needs="libc.so.6"))), "linux-library"),
    "a library of a computer": (app(lambda: qnn(75, LIBS, libQnnSystem=library(X86_64))), "wrong-machine"),
    "no Skel in the app": (app(lambda: qnn(75, LIBS, libQnnHtpV75Skel=None)), "stub-without-skel"),
    "a damaged manifest": (app(manifest=made.manifest_binary()[:120]), "damaged"),
    "a bundle without libcdsprpc": (
        lambda path: made.apk(path.with_suffix(".aab"), {
            "base/manifest/AndroidManifest.xml": made.manifest_proto(native=False), **qnn(75, f"base/{LIBS}")},
            manifest=made.manifest_proto(native=False)), "no-libcdsprpc",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", APPS)
def test_a_broken_app(case: str, tmp_path: Path) -> None:
    build, fault = APPS[case]
    report = examine_path(build(tmp_path / "app.apk"))
    assert {finding.id for finding in report.faults} == {fault}


def test_stored_libraries_that_begin_anywhere(tmp_path: Path) -> None:
    files = {name: data for name, data in qnn(75, LIBS).items() if "Skel" not in name and "Stub" not in name}
    path = made.apk(tmp_path / "app.apk", files, manifest=made.manifest_binary(extract=False), stored=True)
    assert {finding.id for finding in examine_path(path).faults} == {"zip-alignment"}


LOGS = {
    "a Stub of another build": (
        "[ERROR] [Qnn ExecuTorch]:  <E> Stub lib id mismatch: expected (v2.28.2.241116104011_103376), detected "
        "(v2.25.17.241017130936_18858)",
        "mismatch",
    ),
    "no transport": ("E QnnDsp  <E> Failed to create transport for device, error: 4000", "4000"),
    "too large for the target": (
        "[ ERROR ] graph requires estimated allocation of 4014302 KB, limit is 2097152 KB",
        "graph-memory",
    ),
}


@pytest.mark.parametrize("case", LOGS)
def test_a_log_of_a_broken_session(case: str) -> None:
    text, _ = LOGS[case]
    report = examine_log("logcat.txt", f"I all is well\n{text}\n")
    assert report.faults
    assert report.faults[0].found.startswith("line 2: ")
    assert report.faults[0].would_work


BINDER = "lrwxrwxrwx 1 root root 20 2026-11-01 10:00 binder -> /dev/binderfs/binder\n"
HEALTHY = {
    "getprop ro.soc.model": "SM8650",
    "getprop ro.product.cpu.abi": "arm64-v8a",
    "ls -l /dev": BINDER + "crw-rw-r-- 1 system system 10, 107 2026-11-01 10:00 fastrpc-cdsp",
    "ls /vendor/lib64": "libcdsprpc.so\nlibQnnHtp.so",
    "ls /vendor/dsp/cdsp": "fastrpc_shell_3\nfastrpc_shell_unsigned_3",
    "cat /proc/meminfo": "MemAvailable:    6123456 kB",
    "getenforce": "Enforcing",
}
DEVICES = {
    "too old": ({"getprop ro.soc.model": "SM8250"}, "device-chip"),
    "32 bits": ({"getprop ro.product.cpu.abi": "armeabi-v7a"}, "device-bits"),
    "no FastRPC": ({"ls -l /dev": BINDER + "crw-rw-rw- 1 root root 1, 3 2026-11-01 10:00 null"}, "device-node"),
    "closed": ({"ls -l /dev": "crw-rw---- 1 system system 10, 107 2026-11-01 10:00 fastrpc-cdsp"}, "device-permission"),
    "no driver": ({"ls /vendor/lib64": "libOpenCL.so"}, "device-driver"),
    "signed modules only": ({"ls /vendor/dsp/cdsp": "fastrpc_shell_3"}, "device-unsigned"),
}


def test_a_skel_that_the_store_may_refuse_is_told_and_is_no_fault(tmp_path: Path) -> None:
    files = {"base/manifest/AndroidManifest.xml": made.manifest_proto(), **qnn(75, f"base/{LIBS}")}
    report = examine_path(made.apk(tmp_path / "app.aab", files, manifest=made.manifest_proto()))
    assert [finding.id for finding in report.findings] == ["skel-page"]
    assert report.healthy


@pytest.mark.parametrize("case", DEVICES)
def test_a_broken_device(case: str) -> None:
    changed, fault = DEVICES[case]
    answers = {**HEALTHY, **changed}
    report = examine_device("R5CX", lambda command: answers.get(command, ""))
    assert {finding.id for finding in report.faults} == {fault}
    assert examine_device("R5CX", lambda command: HEALTHY.get(command, "")).findings == ()


def test_a_device_with_little_memory_is_told_and_is_no_fault() -> None:
    answers = HEALTHY | {"cat /proc/meminfo": "MemAvailable:     123456 kB"}
    report = examine_device("R5CX", lambda command: answers.get(command, ""))
    assert [finding.id for finding in report.findings] == ["device-memory"]
    assert report.healthy


ARM_LINUX = {
    "system": "linux", "machine": "aarch64", "bits": "64",
    "nodes": "/dev/fastrpc-cdsp", "readable": "/dev/fastrpc-cdsp",
    "package onnxruntime": "1.29.0", "package onnxruntime-qnn": "2.7.0",
}  # fmt: skip
MACHINES = {
    "32 bits": ({"bits": "32"}, "machine-bits"),
    "no FastRPC": ({"nodes": "", "readable": ""}, "machine-node"),
    "closed": ({"readable": ""}, "machine-permission"),
    "an old onnxruntime": ({"package onnxruntime": "1.23.2"}, "machine-pair"),
    "no onnxruntime": ({"package onnxruntime": ""}, "machine-pair"),
    "one over the other": ({"package onnxruntime-qnn": "1.24.4"}, "machine-pair"),
}


@pytest.mark.parametrize("case", MACHINES)
def test_a_broken_machine(case: str) -> None:
    changed, fault = MACHINES[case]
    found = [f.id for question in MACHINE for f in question.symptoms({**ARM_LINUX, **changed}) if f.level == "fault"]
    assert found == [fault]
    assert not [f for question in MACHINE for f in question.symptoms(ARM_LINUX)]


def test_a_python_that_is_emulated_is_told_and_is_no_fault() -> None:
    answers = {**ARM_LINUX, "system": "win32", "machine": "amd64", "processor": "ARMv8 (64-bit) Family 8"}
    found = [symptom for question in MACHINE for symptom in question.symptoms(answers)]
    assert [(symptom.id, symptom.level) for symptom in found] == [("machine-emulated", "advice")]


def test_every_row_is_shown_by_a_case() -> None:
    shown = {fault for _, _, fault in FOLDERS.values()} | {fault for _, fault in APPS.values()}
    shown |= {"skel-page", "context-other-chip", "zip-alignment", "libcdsprpc-required", "dsp-memory"}
    assert {check.id for check in CHECKS} == shown
    devices = {fault for _, fault in DEVICES.values()} | {"device-memory"}
    assert {question.id for question in DEVICE} == devices
    assert len(FOLDERS) + len(APPS) + len(LOGS) + len(DEVICES) + len(MACHINES) + 1 >= 40
