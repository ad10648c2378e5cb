# SPDX-License-Identifier: Apache-2.0
"""Scripts in the shape of AI Hub's apps and tutorials: bash on this computer, adb on PATH, a shell on the phone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from hexforge.addons.phone.phones import Phone, add_phone
from hexforge.addons.phone.script_folders import adb_folder, sdk_root
from tests.digits import MODEL

pytestmark = pytest.mark.usefixtures("sandbox")
HEAD = "set -euo pipefail\nDEVICE_DIR=/data/local/tmp/genie_bundle\n"
RUN = "./qnn-net-run --backend libQnnHtp.so --model model.onnx --input_list input_list.txt --output_dir output"

SCRIPTS = {
    "a tutorial: push the SDK's files one by one, run, pull": (
        """
        adb shell mkdir -p $DEVICE_DIR
        adb push $QNN_SDK_ROOT/bin/aarch64-android/qnn-net-run $DEVICE_DIR/
        for lib in libQnnHtp.so libQnnSystem.so libQnnHtpV75Stub.so; do
          adb push $QNN_SDK_ROOT/lib/aarch64-android/$lib $DEVICE_DIR/
        done
        adb push $QNN_SDK_ROOT/lib/hexagon-v75/unsigned/libQnnHtpV75Skel.so $DEVICE_DIR/
        adb push model.onnx x.raw input_list.txt $DEVICE_DIR
        adb shell "cd $DEVICE_DIR && export LD_LIBRARY_PATH=\\$PWD && export ADSP_LIBRARY_PATH=\\$PWD && RUN"
        adb pull $DEVICE_DIR/output .
        ls output/Result_0
        """,
        ".raw",
    ),
    "a launcher that asks the phone what it is before": (
        """
        adb wait-for-device
        [[ $(adb devices | grep -cw device) -eq 1 ]] || { echo "one device, please"; exit 3; }
        SOC=$(adb shell getprop ro.soc.model | tr -d '\\r')
        case $SOC in SM8650) ARCH=75;; SM8750) ARCH=79;; *) exit 4;; esac
        ABI=$(adb shell getprop ro.product.cpu.abi); SDK=$(adb shell getprop ro.build.version.sdk)
        echo "$SOC v$ARCH $ABI $([ $SDK -ge 31 ] && echo new)"
        adb shell '[ -f /data/local/tmp/nothing ]' || echo "not there yet"
        """,
        "SM8650 v75 arm64-v8a new\nnot there yet",
    ),
    "a script on the phone that loops over inputs": (
        """
        cat > run.sh <<'SH'
#!/system/bin/sh
set -e
cd "$(dirname "$0")"
export LD_LIBRARY_PATH=.:$LD_LIBRARY_PATH ADSP_LIBRARY_PATH="$PWD;/vendor/dsp/cdsp"
i=0
for f in inputs/*.raw; do
  echo "$f" > input_list.txt
  RUN > log_$i.txt 2>&1 && mv output/Result_0 out_$i
  i=$((i + 1))
done
echo "ran $i inputs"
SH
        mkdir -p inputs; cp x.raw inputs/a.raw; cp x.raw inputs/b.raw
        adb push run.sh model.onnx inputs $QNN_SDK_ROOT/bin/aarch64-android/qnn-net-run $DEVICE_DIR/ 2>/dev/null ||
          { adb shell mkdir -p $DEVICE_DIR; adb push run.sh model.onnx inputs \\
            $QNN_SDK_ROOT/bin/aarch64-android/qnn-net-run $DEVICE_DIR/; } > /dev/null
        adb shell "chmod +x $DEVICE_DIR/*; $DEVICE_DIR/run.sh"
        adb shell "cd $DEVICE_DIR; ls out_* | grep -c raw; md5sum out_*/*.raw | cut -d ' ' -f 1 | sort -u | wc -l"
        """,
        "ran 2 inputs\n2\n1",
    ),
    "a log that is cleared, written in the background and read": (
        """
        adb logcat -c
        adb shell "log -t QNN 'session opened'; log -t other noise"
        adb logcat -d -s QNN | grep -o 'session opened'
        adb shell "nohup sh -c 'sleep 0.2; echo done > $DEVICE_DIR.txt' > /dev/null 2>&1 &"
        for _ in $(seq 100); do adb shell "test -s $DEVICE_DIR.txt" && break; sleep 0.1; done
        adb exec-out cat $DEVICE_DIR.txt
        adb shell "cat /sys/class/thermal/thermal_zone*/temp | awk '{s += \\$1} END {print (s > 0)}'"
        """,
        "session opened\ndone\n1",
    ),
    "two phones and an archive": (
        """
        tar czf bundle.tar.gz model.onnx x.raw
        for serial in $(adb devices | awk 'NR > 1 && $2 == "device" {print $1}'); do
          adb -s $serial push bundle.tar.gz /data/local/tmp/ > /dev/null
          adb -s $serial shell "cd /data/local/tmp && tar xzf bundle.tar.gz && rm bundle.tar.gz && ls | xargs -n 1 echo"
          want=$(md5sum x.raw | cut -d ' ' -f 1)
          [ "$(adb -s $serial shell md5sum /data/local/tmp/x.raw | cut -d ' ' -f 1)" = $want ] && echo "$serial same"
        done
        """,
        "one same",
    ),
}


@pytest.mark.parametrize("case", SCRIPTS)
def test_scripts_in_the_shape_of_ai_hubs(phone: Phone, tmp_path: Path, case: str) -> None:
    script, said = SCRIPTS[case]
    if case.startswith("two phones"):
        add_phone("two", "SM8750")
    (tmp_path / "model.onnx").write_bytes(MODEL.read_bytes())
    np.random.default_rng(0).random(64, np.float32).tofile(tmp_path / "x.raw")
    (tmp_path / "input_list.txt").write_text("x.raw\n")
    environment = {**os.environ, "PATH": f"{adb_folder()}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", HEAD + script.replace("RUN", RUN)], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**environment, "QNN_SDK_ROOT": str(sdk_root())}, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done
    assert said in done.stdout, done
