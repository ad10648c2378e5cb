# SPDX-License-Identifier: Apache-2.0
"""Places that tests examine, made by a script: libraries by the compiler at hand, manifests, apps, projects."""

from __future__ import annotations

import functools
import json
import shutil
import struct
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

ARM64, HEXAGON, ARM, X86_64 = 183, 164, 40, 62
PAGE_4, PAGE_16 = 4096, 16384
Files = Mapping[str, bytes]
NATIVE = '<uses-native-library android:name="libcdsprpc.so" android:required="false"/>'


@functools.cache
def library(machine: int = ARM64, page: int = PAGE_16, needs: str = "") -> bytes:
    """A shared library whose segments are aligned to a page, by gcc and its linker; then made for a machine.

    32 bits for ARM and Hexagon, 64 for the others. `needs` is a library that it asks for by name.
    """
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no gcc")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "source.c").write_text("int answer(void) { return 42; }\n")
        flags = ["-shared", "-nostdlib", "-fPIC", f"-Wl,-z,max-page-size={page}", f"-Wl,-z,common-page-size={page}"]
        if machine in (ARM, HEXAGON):
            flags.append("-m32")
        if needs:
            other = folder / "other.so"
            subprocess.run([compiler, "-shared", "-nostdlib", f"-Wl,-soname,{needs}", "-o", other, folder / "source.c"],
                           check=True, capture_output=True)  # fmt: skip
            flags += ["-Wl,--no-as-needed", str(other)]
        made = folder / "made.so"
        subprocess.run([compiler, *flags, "-o", made, folder / "source.c"], check=True, capture_output=True)
        data = bytearray(made.read_bytes())
    struct.pack_into("<H", data, 18, machine)
    return bytes(data)


def dll(machine: int = 0xAA64) -> bytes:
    """The headers of a DLL for a machine."""
    head = bytearray(256)
    head[:2] = b"MZ"
    struct.pack_into("<I", head, 60, 128)
    head[128:132] = b"PE\0\0"
    struct.pack_into("<H", head, 132, machine)
    return bytes(head)


def qnn(arch: int = 75, within: str = "", /, **changed: bytes | None) -> dict[str, bytes]:
    """QNN's libraries of one architecture in a folder; by their names others, or None for none."""
    where = f"{within}/" if within else ""
    names = ("libQnnHtp", "libQnnSystem", "libQnnHtpPrepare", f"libQnnHtpV{arch}Stub")
    made: dict[str, bytes] = {f"{where}{name}.so": library() for name in names}
    made[f"{where}libQnnHtpV{arch}Skel.so"] = library(HEXAGON, PAGE_4)
    for name, data in changed.items():
        made.pop(f"{where}{name}.so", None)
        if data is not None:
            made[f"{where}{name}.so"] = data
    return made


def manifest_text(inside: str = NATIVE, application: str = "", target: int = 35) -> bytes:
    """An AndroidManifest.xml as people write it."""
    return f"""<?xml version="1.0" encoding="utf-8"?>
<manifest xmlns:android="http://schemas.android.com/apk/res/android" package="com.example.npu">
  <uses-sdk android:minSdkVersion="29" android:targetSdkVersion="{target}"/>
  <application {application}>{inside}</application>
</manifest>
""".encode()


def manifest_binary(native: bool | None = False, extract: bool | None = True, target: int = 35) -> bytes:
    """The same as an APK has it. native: whether libcdsprpc.so is required; None, and it is not asked for."""
    strings: list[str] = []

    def number(text: str) -> int:
        if text not in strings:
            strings.append(text)
        return strings.index(text)

    for name in ("minSdkVersion", "targetSdkVersion", "extractNativeLibs", "name", "required"):
        number(name)
    numbers = (0x0101020C, 0x01010270, 0x010104EA, 0x01010003, 0x0101028E)
    none = 0xFFFFFFFF

    def start(name: str, *attributes: tuple[str, int, int, int]) -> bytes:
        body = b"".join(
            struct.pack("<IIIHBBI", none, number(key), raw, 8, 0, kind, value) for key, raw, kind, value in attributes
        )
        head = struct.pack("<IIIIHHHHHH", 1, none, none, number(name), 20, 20, len(attributes), 0, 0, 0)
        return struct.pack("<HHI", 0x0102, 16, 8 + len(head) + len(body)) + head + body

    package = number("com.example.npu")
    chunks = [
        start("manifest", ("package", package, 3, package)),
        start("uses-sdk", ("minSdkVersion", none, 0x10, 29), ("targetSdkVersion", none, 0x10, target)),
        start("application", *(() if extract is None else (("extractNativeLibs", none, 0x12, none * extract),))),
    ]
    if native is not None:
        wanted = number("libcdsprpc.so")
        chunks.append(
            start("uses-native-library", ("name", wanted, 3, wanted), ("required", none, 0x12, none * native))
        )
    texts = b"".join(struct.pack("<H", len(s)) + s.encode("utf-16-le") + b"\0\0" for s in strings)
    texts += b"\0" * (-len(texts) % 4)
    offsets, at = [], 0
    for s in strings:
        offsets.append(at)
        at += 4 + 2 * len(s)
    start_of_texts = 28 + 4 * len(strings)
    pool = (
        struct.pack("<IIIII", len(strings), 0, 0, start_of_texts, 0)
        + struct.pack(f"<{len(strings)}I", *offsets)
        + texts
    )
    pool = struct.pack("<HHI", 0x0001, 28, 8 + len(pool)) + pool
    resources = struct.pack(f"<HHI{len(numbers)}I", 0x0180, 8, 8 + 4 * len(numbers), *numbers)
    body = pool + resources + b"".join(chunks)
    return struct.pack("<HHI", 0x0003, 8, 8 + len(body)) + body


def manifest_proto(native: bool = True, extract: bool = True) -> bytes:
    """The same as a bundle has it."""

    def message(number: int, data: bytes) -> bytes:
        assert len(data) < 1 << 14
        size = bytes([len(data)]) if len(data) < 128 else bytes([len(data) & 0x7F | 0x80, len(data) >> 7])
        return bytes([number << 3 | 2]) + size + data

    def node(name: str, attributes: Mapping[str, str], *children: bytes) -> bytes:
        parts = [message(3, name.encode())]
        parts += [message(4, message(2, k.encode()) + message(3, v.encode())) for k, v in attributes.items()]
        parts += [message(5, child) for child in children]
        return message(1, b"".join(parts))

    library_of = node("uses-native-library", {"name": "libcdsprpc.so", "required": "false"})
    application = node("application", {"extractNativeLibs": str(extract).lower()}, *([library_of] if native else []))
    sdk = node("uses-sdk", {"minSdkVersion": "29", "targetSdkVersion": "35"})
    return node("manifest", {"package": "com.example.npu"}, sdk, application)


def context_model(qairt: str = "2.48.40", binary: str = "model_ctx.bin") -> bytes:
    """A context model that names its binary."""
    node = helper.make_node(
        "EPContext",
        ["x"],
        ["y"],
        domain="com.microsoft",
        embed_mode=0,
        ep_cache_context=binary,
        ep_sdk_version=qairt,
        source="QNN",
    )
    return _model([node])


def graph_model(kind: int = TensorProto.FLOAT) -> bytes:
    """A graph that computes in a type."""
    return _model([helper.make_node("Relu", ["x"], ["y"])], kind)


def _model(nodes: list[onnx.NodeProto], kind: int = TensorProto.FLOAT) -> bytes:
    inputs, outputs = ([helper.make_tensor_value_info(name, kind, [1, 4])] for name in ("x", "y"))
    return helper.make_model(helper.make_graph(nodes, "g", inputs, outputs)).SerializeToString()


def contexts(folder: str = "SM8650", qairt: str = "2.48.40") -> dict[str, bytes]:
    """A context with its binary in a folder named for a chip."""
    return {f"{folder}/model_ctx.onnx": context_model(qairt), f"{folder}/model_ctx.bin": bytes(64)}


def apk(path: Path, files: Files, *, manifest: bytes | None = None, stored: bool = False, page: int = 0) -> Path:
    """An app: its manifest, and files packed or stored; stored ones begin at multiples of a page."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("AndroidManifest.xml", manifest_binary() if manifest is None else manifest)
        archive.writestr("classes.dex", b"dex\n")
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
            assert archive.fp is not None
            if stored and page:
                info.extra = bytes(-(archive.fp.tell() + 30 + len(name)) % page)
            archive.writestr(info, data)
    return path


def folder(path: Path, files: Files) -> Path:
    """A folder with files."""
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


PINS = ("com.microsoft.onnxruntime:onnxruntime-android:1.29.0", "com.qualcomm.qti:onnxruntime-android-qnn:2.7.0")


def project(
    *pins: str, legacy: str = "true", abi: str = "arm64-v8a", adsp: str = "context.applicationInfo.nativeLibraryDir",
    manifest: bytes | None = None,
) -> dict[str, bytes]:  # fmt: skip
    """A Gradle project of an app."""
    lines = "\n".join(f'    implementation("{pin}")' for pin in (pins or PINS))
    build = f"""android {{
    defaultConfig {{ targetSdk = 35; ndk {{ abiFilters += listOf("{abi}") }} }}
    packaging {{ jniLibs {{ useLegacyPackaging = {legacy} }} }}
}}
dependencies {{
{lines}
}}
"""
    source = f'Os.setenv("ADSP_LIBRARY_PATH", {adsp}, true)\n' if adsp else "val model = 1\n"
    return {
        "app/build.gradle.kts": build.encode(),
        "app/src/main/AndroidManifest.xml": manifest_text() if manifest is None else manifest,
        "app/src/main/java/NpuModel.kt": source.encode(),
    }


def settings(**values: object) -> bytes:
    """A JSON file of settings."""
    return json.dumps(values).encode()
