# SPDX-License-Identifier: Apache-2.0
"""What other people's clients of adb do with two phones, run in .venv-adb: `CLIENT SERVER_PORT DEVICE_PORT FOLDER`.

Each pushes the folder, runs shells, pulls the folder into FOLDER.CLIENT, and reads FOLDER.bin through a forwarded port
that the phone serves; a line `ok` ends it.
"""

from __future__ import annotations

import importlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

TARGET = "/data/local/tmp/pushed"
SERVE = "nc -l -p 7000 < /data/local/tmp/pushed/0.bin"


def read_port(port: int, serving: threading.Thread) -> bytes:
    """All that comes out of a loopback port; asked again until the phone serves there."""
    while serving.is_alive():
        whole = bytearray()
        with socket.create_connection(("127.0.0.1", port), 60) as connection:
            while chunk := connection.recv(1 << 20):
                whole += chunk
        if whole:
            return bytes(whole)
    return b""


def through_forward(shell: Callable[[str], object], port: int) -> bytes:
    """What the phone sends out of its port 7000."""
    serving = threading.Thread(target=shell, args=(SERVE,))
    serving.start()
    try:
        return read_port(port, serving)
    finally:
        serving.join()


def free_port() -> int:
    """A port that nothing serves."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def adbutils(server: int, device: int, folder: Path) -> None:
    """adbutils, over the server."""
    client = importlib.import_module("adbutils").AdbClient(host="127.0.0.1", port=server)
    assert client.server_version() == 41
    assert [d.serial for d in client.device_list()] == ["one", "two"]
    one, two = client.device("one"), client.device("two")
    assert two.shell("ls /sdcard") == ""
    assert one.prop.get("ro.soc.model") == "SM8650"
    assert one.shell2("echo out; echo err >&2; exit 3", v2=True).returncode == 3
    assert "shell_v2" in one.get_features()
    one.shell(f"rm -rf {TARGET}; mkdir {TARGET}")
    for path in sorted(folder.iterdir()):
        one.sync.push(path, f"{TARGET}/{path.name}", check=True)
    assert len(one.sync.list(TARGET)) == len(list(folder.iterdir()))
    one.sync.pull(TARGET, Path(f"{folder}.adbutils"))
    port = one.forward_port("tcp:7000")
    assert [f.remote for f in one.forward_list()] == ["tcp:7000"]
    assert through_forward(one.shell, port) == (folder / "0.bin").read_bytes()


def ppadb(server: int, device: int, folder: Path) -> None:
    """pure-python-adb, over the server."""
    client = importlib.import_module("ppadb.client").Client(host="127.0.0.1", port=server)
    one, two = client.devices()
    assert (client.version(), one.serial, two.get_serial_no(), one.get_state()) == (41, "one", "two", "device")
    assert one.shell(f"rm -rf {TARGET}; echo gone") == "gone\n"
    assert two.get_properties()["ro.soc.model"] == "SM8750"
    one.push(str(folder), "/data/local/tmp")
    one.shell(f"mv /data/local/tmp/{folder.name} {TARGET}")
    back = Path(f"{folder}.ppadb")
    back.mkdir()
    for path in sorted(folder.iterdir()):
        one.pull(f"{TARGET}/{path.name}", str(back / path.name))
    port = free_port()
    one.forward(f"tcp:{port}", "tcp:7000")
    assert one.list_forward() == {f"tcp:{port}": "tcp:7000"}
    assert through_forward(one.shell, port) == (folder / "0.bin").read_bytes()
    one.killforward_all()


def adb_shell(server: int, device: int, folder: Path) -> None:
    """adb-shell, over the phone's own port, with a key."""
    keys = importlib.import_module("adb_shell.auth.keygen")
    signers = importlib.import_module("adb_shell.auth.sign_pythonrsa")
    devices = importlib.import_module("adb_shell.adb_device")
    key = Path(f"{folder}.key")
    keys.keygen(str(key))
    signer = signers.PythonRSASigner(Path(f"{key}.pub").read_text(), key.read_text())
    for _ in range(2):  # the phone does not know the key, then it does
        one = devices.AdbDeviceTcp("127.0.0.1", device, default_transport_timeout_s=60)
        assert one.connect(rsa_keys=[signer], auth_timeout_s=10)
        assert one.shell("getprop ro.soc.model") == "SM8650\n"
        one.close()
    one.connect(rsa_keys=[signer])
    one.shell(f"rm -rf {TARGET}; mkdir {TARGET}")
    back = Path(f"{folder}.adb_shell")
    back.mkdir()
    for path in sorted(folder.iterdir()):
        one.push(str(path), f"{TARGET}/{path.name}")
        one.pull(f"{TARGET}/{path.name}", str(back / path.name))
    assert one.stat(f"{TARGET}/0.bin")[1] == (folder / "0.bin").stat().st_size
    assert len(one.list(TARGET)) == len(list(folder.iterdir()))
    one.close()


def debian(server: int, device: int, folder: Path) -> None:
    """Debian's adb, over the server, then with a server of its own over the phone's port."""

    def adb(*words: str, port: int = server, code: int = 0) -> str:
        done = subprocess.run(
            ["adb", "-P", str(port), *words], capture_output=True, text=True, timeout=250, check=False
        )
        assert done.returncode == code, (words, done)
        return done.stdout + done.stderr

    def everything(port: int, serial: str, back: Path) -> None:
        one = ("-s", serial)
        assert adb(*one, "shell", "getprop ro.soc.model", port=port) == "SM8650\n"
        assert adb(*one, "shell", "echo out; echo err >&2; exit 3", port=port, code=3) == "out\nerr\n"
        assert adb(*one, "exec-out", "echo x", port=port) == "x\n"
        adb(*one, "shell", f"rm -rf {TARGET}", port=port)
        assert " pushed, 0 skipped" in adb(*one, "push", str(folder), TARGET, port=port)
        assert " pulled, 0 skipped" in adb(*one, "pull", TARGET, str(back), port=port)
        local = adb(*one, "forward", "tcp:0", "tcp:7000", port=port).strip()
        assert f"{serial} tcp:{local} tcp:7000" in adb("forward", "--list", port=port)
        sent = through_forward(lambda text: adb(*one, "shell", text, port=port), int(local))
        assert sent == (folder / "0.bin").read_bytes()
        adb(*one, "forward", "--remove-all", port=port)

    assert adb("devices").splitlines()[1:3] == ["one\tdevice", "two\tdevice"]
    assert "more than one device" in adb("shell", "ls", code=1)
    adb("-s", "two", "wait-for-device")
    assert "reaches no port" in adb("-s", "one", "reverse", "tcp:1", "tcp:1", code=1)
    everything(server, "one", Path(f"{folder}.debian"))
    own = free_port()
    address = f"127.0.0.1:{device}"
    os.environ["ADB_LOCAL_TRANSPORT_MAX_PORT"] = "0"  # it looks for no emulators
    try:
        assert "connected to" in adb("connect", address, port=own)
        adb("-s", address, "wait-for-device", port=own)
        everything(own, address, Path(f"{folder}.debian_own"))
    finally:
        adb("kill-server", port=own)


if __name__ == "__main__":
    CLIENTS = {"adbutils": adbutils, "ppadb": ppadb, "adb_shell": adb_shell, "debian": debian}
    CLIENTS[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    print("ok")
