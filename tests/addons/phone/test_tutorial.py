# SPDX-License-Identifier: Apache-2.0
"""The shell lines of ExecuTorch's tutorial of its Qualcomm backend, as they stand there, on a virtual phone.

Its lines that build ExecuTorch from source are left out: `hexforge sdk-root` has what they would make.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hexforge.addons.phone.phones import Phone
from hexforge.addons.phone.script_folders import adb_folder
from tests.addons.executorch.pte_files import delegated, pte

ENVIRONMENT = """
export LD_LIBRARY_PATH=$QNN_SDK_ROOT/lib/x86_64-linux-clang/:$LD_LIBRARY_PATH
export PYTHONPATH=$EXECUTORCH_ROOT/..
"""
COMPILE = """
cd $EXECUTORCH_ROOT

python -m examples.qualcomm.scripts.deeplab_v3 -b build-android -m SM8550 --compile_only --download
"""
EMULATE = """
cd $EXECUTORCH_ROOT/build-x86
export LD_LIBRARY_PATH=$EXECUTORCH_ROOT/build-x86/lib/:$LD_LIBRARY_PATH
examples/qualcomm/executor_runner/qnn_executor_runner --model_path ../deeplab_v3/dlv3_qnn.pte
"""
PUSH = """
# make sure you have write-permission on below path.
DEVICE_DIR=/data/local/tmp/executorch_qualcomm_tutorial/
adb shell "mkdir -p ${DEVICE_DIR}"
adb push ${QNN_SDK_ROOT}/lib/aarch64-android/libQnnHtp.so ${DEVICE_DIR}
adb push ${QNN_SDK_ROOT}/lib/aarch64-android/libQnnSystem.so ${DEVICE_DIR}
adb push ${QNN_SDK_ROOT}/lib/aarch64-android/libQnnHtpV69Stub.so ${DEVICE_DIR}
adb push ${QNN_SDK_ROOT}/lib/aarch64-android/libQnnHtpV73Stub.so ${DEVICE_DIR}
adb push ${QNN_SDK_ROOT}/lib/aarch64-android/libQnnHtpV75Stub.so ${DEVICE_DIR}
adb push ${QNN_SDK_ROOT}/lib/aarch64-android/libQnnHtpV79Stub.so ${DEVICE_DIR}
adb push ${QNN_SDK_ROOT}/lib/hexagon-v69/unsigned/libQnnHtpV69Skel.so ${DEVICE_DIR}
adb push ${QNN_SDK_ROOT}/lib/hexagon-v73/unsigned/libQnnHtpV73Skel.so ${DEVICE_DIR}
adb push ${QNN_SDK_ROOT}/lib/hexagon-v75/unsigned/libQnnHtpV75Skel.so ${DEVICE_DIR}
adb push ${QNN_SDK_ROOT}/lib/hexagon-v75/unsigned/libQnnHtpV79Skel.so ${DEVICE_DIR}
"""
RUN = """
adb push ./deeplab_v3/dlv3_qnn.pte ${DEVICE_DIR}
adb push ${EXECUTORCH_ROOT}/build-android/examples/qualcomm/executor_runner/qnn_executor_runner ${DEVICE_DIR}
adb push ${EXECUTORCH_ROOT}/build-android/lib/libqnn_executorch_backend.so ${DEVICE_DIR}
adb shell "cd ${DEVICE_DIR} \\
           && export LD_LIBRARY_PATH=${DEVICE_DIR} \\
           && export ADSP_LIBRARY_PATH=${DEVICE_DIR} \\
           && ./qnn_executor_runner --model_path ./dlv3_qnn.pte"
"""
SHOWN = (
    "Method loaded.", "Inputs prepared.", "Model executed successfully.", r"Write etdump to etdump\.etdp, Size = \d+",
    "Destroy Qnn backend parameters", "Destroy Qnn context", "Destroy Qnn device", "Destroy Qnn backend$",
)  # fmt: skip
"""What the tutorial says that one should see, in its order."""
TREE = ("benchmarks", "bin", "docs", "examples", "include", "lib", "share", "QNN_README.txt", "sdk.yaml")
SCRIPT = """
import sys
from executorch.examples.qualcomm import helper
print("ran", helper.NAME, *sys.argv[1:])
"""


def bash(script: str, root: Path, **more: str) -> str:
    """What a script says on a computer with hexforge's folders in the places of the SDK and of ExecuTorch."""
    folders = {"QNN_SDK_ROOT": str(root), "EXECUTORCH_ROOT": str(root / "executorch")}
    path = os.pathsep.join([str(adb_folder()), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, **folders, "PATH": path, **more}
    done = subprocess.run(["bash", "-e", "-c", script], env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_log(said: str) -> None:
    places = [match.start() for line in SHOWN if (match := re.search(line, said, re.MULTILINE)) is not None]
    assert len(places) == len(SHOWN), said
    assert places == sorted(places), said


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that `hexforge sdk-root` makes, with a model where the tutorial's compile step leaves it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    said = subprocess.run([sys.executable, "-m", "hexforge", "sdk-root"], capture_output=True, text=True, check=True)
    made = Path(said.stdout.strip())
    (made / "executorch" / "deeplab_v3").mkdir()
    (made / "executorch" / "deeplab_v3" / "dlv3_qnn.pte").write_bytes(pte(delegated()))
    return made


def test_the_lines_of_the_tutorial_run_as_they_stand(root: Path, phone: Phone) -> None:
    assert all((root / name).exists() for name in TREE)
    check_log(bash(ENVIRONMENT + EMULATE, root))
    said = bash(f"{ENVIRONMENT}\ncd $EXECUTORCH_ROOT\n{PUSH}{RUN}", root)
    assert said.count("1 file pushed") == 13
    check_log(said)


def test_the_examples_have_their_name_of_the_repository(root: Path, tmp_path: Path) -> None:
    """`examples` is the installed `executorch.examples`, and the tutorial's short flags are the long ones of today."""
    scripts = tmp_path / "site" / "executorch" / "examples" / "qualcomm" / "scripts"
    scripts.mkdir(parents=True)
    (scripts.parent / "helper.py").write_text("NAME = 'helper'\n")
    (scripts / "deeplab_v3.py").write_text(SCRIPT)
    for name, version in (("executorch", "1.5.1"), ("torch", "2.13.0"), ("torchao", "0.18.0")):
        info = tmp_path / "site" / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    there = COMPILE.replace("python -m", f"PYTHONPATH={tmp_path / 'site'} python -m")
    said = bash(ENVIRONMENT + there, root)
    assert said == "ran helper --build_folder build-android --soc_model SM8550 --compile_only --download\n"
    other = there.replace("python -m examples", "python -m hexforge.executorch -m examples").replace(
        "cd $EXECUTORCH_ROOT", f"cd {tmp_path}"
    )
    assert bash(ENVIRONMENT + other, root) == said
