# SPDX-License-Identifier: Apache-2.0
"""Ways out of the phone's shell, and that none of them leads out."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from hexforge.addons.phone.phones import Phone
from hexforge.addons.phone.system_image import SCRIPTS, system_image
from tests.addons.phone.conftest import Adb

pytestmark = pytest.mark.usefixtures("sandbox")
SECRET = "a word that is nowhere on the phone"


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file outside, which the phone may neither read nor change; the word is in this process's environment, too."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text(SECRET)
    monkeypatch.setenv("SECRET_OF_THE_TEST", SECRET)
    return outside / "secret"


ESCAPES = (
    "cat {path}",
    "cat ../../../../../../../../../..{path}",
    "ln -s {path} /sdcard/l; cat /sdcard/l; echo x > /sdcard/l",
    "ln -s / /sdcard/l; cat /sdcard/l{path}",
    "ln {path} /sdcard/hard; cat /sdcard/hard",
    "cat /proc/self/root{path}; cat /proc/1/root{path}; cat /proc/1/cwd{path}; cat /proc/self/cwd/../..{path}",
    "for p in /proc/[0-9]*; do cat $p/root{path}; for f in $p/fd/*; do cat $f/..{path} $f{path}; done; done",
    "cat /proc/1/environ /proc/*/environ; cat /proc/*/cmdline; env",
    "for f in /proc/1/fd/*; do ls $f/; cat < $f; done",
    "cd /proc/1/map_files && cat *; cat /proc/1/mem",
    "mount -t proc none /sdcard; mount --bind / /sdcard; umount /proc; umount -l /dev; cat /sdcard{path}",
    "mknod /sdcard/disk b 254 0; mknod /sdcard/disk b 8 0; cat /sdcard/disk; cat /dev/sd* /dev/vd* /dev/mem",
    "unshare -Urm cat {path}; chroot / cat {path}; nsenter -t 1 -m cat {path}",
    "echo x > /proc/sys/kernel/core_pattern; cat /proc/sys/kernel/core_pattern; echo b > /proc/sysrq-trigger",
    "cat /proc/kcore /proc/kmsg /proc/kallsyms /proc/cmdline /proc/keys | head -c 100",
    "cat /dev/phone/* < /dev/null & sleep 0.2; echo 1 > /dev/phone/calls; echo -1 > /dev/phone/calls; kill $!",
    "echo $$ > /dev/phone/calls; echo 99999999999999 > /dev/phone/calls; head -c 100000 /dev/zero > /dev/phone/calls",
    "ln -s {path} /dev/phone/2; ln -s {path} /dev/phone/3; echo 2 > /dev/phone/calls; echo 3 > /dev/phone/calls",
    "ls -a /home /root /tmp /work /usr; ls -la / /lib; cat /lib/../..{path}",
    "cp /system/bin/sh /sdcard/sh; chmod 6755 /sdcard/sh; /sdcard/sh -c 'cat {path}'; chown 0 /sdcard/sh",
    "tar cf /sdcard/t.tar -P {path}; tar xf /sdcard/t.tar -P -C /; tar xOf /sdcard/t.tar",
    "qnn-net-run --model {path} --input_list {path} --backend {path}",
    "qnn-context-binary-utility --context_binary {path} --json_file /sdcard/o.json; cat /sdcard/o.json",
    "cd /proc/self/root; cd ../../..; cat .{path}; qnn-profile-viewer --input_log {path}",
    "ln -s {folder} /sdcard/f; cd /sdcard/f || cd /sdcard; qnn-profile-viewer --input_log secret; cat secret",
)


@pytest.mark.parametrize("text", ESCAPES)
def test_nothing_outside_is_read_or_written(phone: Phone, adb: Adb, secret: Path, text: str) -> None:
    answer = adb("shell", text.replace("{path}", str(secret)).replace("{folder}", str(secret.parent)))
    assert SECRET not in answer.out + answer.err
    assert "root:" not in answer.out.replace("root:x:0:0::/:/system/bin/sh", "")
    assert [p.name for p in secret.parent.iterdir()] == ["secret"]
    assert secret.read_text() == SECRET
    assert adb("shell", "echo well").out == "well\n"


def test_the_system_of_the_phone_cannot_be_written(phone: Phone, adb: Adb) -> None:
    image = system_image()
    before = {path: (path.stat().st_mtime_ns, path.stat().st_mode) for path in image.rglob("*")}
    null = os.stat("/dev/null").st_mode  # noqa: PTH116
    adb("root")
    text = (
        "rm -rf /system/bin/* /lib/*; echo x > /system/bin/sh; chmod 777 /system/bin/* /dev/null /proc/cpuinfo; "
        "echo x > /dev/__properties__/all; echo x > /proc/meminfo; mv /system/bin /system/away; touch /new"
    )
    adb("shell", text)
    assert {path: (path.stat().st_mtime_ns, path.stat().st_mode) for path in image.rglob("*")} == before
    assert os.stat("/dev/null").st_mode == null  # noqa: PTH116
    assert adb("shell", "getprop ro.soc.model").out == "SM8650\n"


def test_no_network(phone: Phone, adb: Adb) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.5)
        port = server.getsockname()[1]
        answer = adb(
            "shell", f"cat /proc/net/dev; nc 127.0.0.1 {port}; wget http://127.0.0.1:{port}; ping -c 1 8.8.8.8"
        )
        assert [line.split(":")[0].strip() for line in answer.out.splitlines()[2:]] in (["lo"], [])
        with pytest.raises(TimeoutError):
            server.accept()


def test_no_privilege_and_none_to_gain(phone: Phone, adb: Adb) -> None:
    for user in ("root", "unroot"):
        adb(user)
        said = adb("shell", "grep -E 'Cap|NoNew' /proc/self/status").out.split()
        assert set(said[1:10:2]) == {"0000000000000000"}
        assert said[-2:] == ["NoNewPrivs:", "1"]


def test_a_program_of_this_computer_that_is_pushed_is_kept_in(
    phone: Phone, adb: Adb, secret: Path, tmp_path: Path
) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "escape.c").write_text(
        r"""#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>
int main(int count, char **words) {
  char text[200] = {0};
  int up = open("/", O_RDONLY);
  printf("userns %d\n", unshare(CLONE_NEWUSER));
  printf("mount %d\n", mount("none", "/sdcard", "tmpfs", 0, ""));
  printf("ptrace %ld\n", ptrace(PTRACE_ATTACH, 1, 0, 0));
  printf("getfd %ld\n", syscall(438, syscall(434, 1, 0), 0, 0));
  printf("mknod %d\n", mknod("/sdcard/node", S_IFBLK | 0600, makedev(8, 0)));
  printf("setuid %d\n", setuid(0));
  chdir("/sdcard");
  mkdir("x", 0777);
  printf("chroot %d\n", chroot("x"));
  for (int i = 0; i < 64; i++) fchdir(up), chdir("..");
  FILE *file = fopen(words[1] + 1, "r");
  if (file) printf("read %s\n", fgets(text, sizeof text, file));
  return 0;
}
"""
    )
    built = subprocess.run([compiler, "-static", "-o", tmp_path / "escape", tmp_path / "escape.c"], check=False,
                           capture_output=True)  # fmt: skip
    if built.returncode:
        pytest.skip("the compiler has no static libraries")
    adb("push", str(tmp_path / "escape"), "/data/local/tmp/")
    said = dict(line.split() for line in adb("shell", f"/data/local/tmp/escape {secret}").out.splitlines())
    assert said == dict.fromkeys(["userns", "mount", "ptrace", "getfd", "mknod", "setuid", "chroot"], "-1")


def test_too_many_processes_end_the_shell_and_nothing_else(phone: Phone, adb: Adb) -> None:
    begun = time.monotonic()
    answer = adb("shell", "b() { b | b & }; b; sleep 100")
    assert answer.code == 137
    assert "too many processes" in answer.err
    assert time.monotonic() - begun < 60
    assert adb("shell", "echo well").out == "well\n"


def test_a_program_is_who_it_says_and_where_it_is(phone: Phone, adb: Adb, tmp_path: Path) -> None:
    """Programs get their words as they are, and are known under every name of a file pushed."""
    (tmp_path / "qnn-net-run").write_bytes(b"\x7fELF of another processor")
    adb("push", str(tmp_path / "qnn-net-run"), "/data/local/tmp/")
    assert (
        adb("shell", "cd /data/local/tmp; cp qnn-net-run other; chmod +x other; ./other --help").out.count("Usage") == 1
    )
    assert "no flag --a  b\nc;" in adb("shell", "qnn-net-run '--a  b\nc' 2>&1").out
    back = tmp_path / "back"
    adb("pull", "/data/local/tmp/qnn-net-run", str(back))
    assert back.read_bytes() == b"\x7fELF of another processor"


def test_every_script_of_androids_names_no_path_of_this_computer() -> None:
    for text in SCRIPTS.values():
        assert text.startswith("#!/system/bin/sh\n")
    assert not any("/home" in text or "/usr" in text for text in SCRIPTS.values())
