# SPDX-License-Identifier: Apache-2.0
"""The phone's shell: what scripts say to it, in the sandbox and without one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hexforge.addons.phone.phones import Phone, unplug
from tests.addons.phone.conftest import Adb


@pytest.mark.usefixtures("road")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cd /data/local/tmp && pwd", "/data/local/tmp\n"),
        ("cd /data/local; cd tmp; cd ..; pwd", "/data/local\n"),
        ("echo a   b 'c   $d' \"e $HOME\" \\$x", "a b c   $d e / $x\n"),
        ("false && echo no || echo yes", "yes\n"),
        ("true || echo no; echo $?", "0\n"),
        ("X=1; Y=\"$X 2\"; echo \"${Y}\" ${Z:-none}", "1 2 none\n"),
        ("export A=b && echo -n $A \"it's \\\"$A\\\"\"", "b it's \"b\""),
        ("echo one > /sdcard/x; echo two >> /sdcard/x; cat /sdcard/x", "one\ntwo\n"),
        ("cat /nope 2>/dev/null || echo missing", "missing\n"),
        ("cat /nope > /dev/null 2>&1; echo $?", "1\n"),
        ("echo 0x0C > /sdcard/run.farf; cat < /sdcard/run.farf", "0x0C\n"),
        ("mkdir -p /sdcard/a/b && ls /sdcard/a && rm -rf /sdcard/a && ls /sdcard", "b\n"),
        ("getprop ro.soc.model; getprop none other", "SM8650\nother\n"),
        ("echo 1 # a comment\necho 2", "1\n2\n"),
        ("touch /sdcard/x; chmod +x /sdcard/x && chmod 644 /sdcard/x; ls /sdcard", "x\n"),
    ],
)  # fmt: skip
def test_what_scripts_say_on_both_roads(phone: Phone, adb: Adb, text: str, said: str) -> None:
    answer = adb("shell", text)
    assert answer.out == said
    assert answer.code == 0


@pytest.mark.usefixtures("road")
@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("exit 7", 7, ""),
        ("./runner", 127, "./runner: inaccessible or not found\n"),
        ("cd /nope", 2, "cd: /nope: No such file or directory\n"),
        ("cat /nope", 1, "No such file or directory\n"),
        ("touch /sdcard/x; /sdcard/x", 126, "/sdcard/x: can't execute: Permission denied\n"),
        ("mkdir /sdcard", 1, "File exists\n"),
    ],
)
def test_what_goes_wrong_is_said_on_both_roads(phone: Phone, adb: Adb, text: str, code: int, said: str) -> None:
    answer = adb("shell", text)
    assert answer.code == code, answer
    # Other shells and commands of this computer than mksh and busybox have words of their own.
    assert answer.err.endswith(said) or not _is_androids(adb), answer


def _is_androids(adb: Adb) -> bool:
    return adb("shell", "busybox | head -n 1; echo $KSH_VERSION").out.count("\n") == 2


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("i=0; while [ $i -lt 3 ]; do i=$((i+1)); case $i in 2) continue;; esac; echo $i; done", "1\n3\n"),
        ("until false; do echo once; break; done; f() { echo \"f $1\"; }; f x", "once\nf x\n"),
        ("x=y; cat <<E\nin $x\nE", "in y\n"),
        ("echo $(echo in; echo side) `echo old` $((2 * (3 + 4)))", "in side old 14\n"),
        ("cd /data/local/tmp; touch b.raw a.raw c.txt; echo *.raw '*.raw' no*such", "a.raw b.raw *.raw no*such\n"),
        ("for f in a b; do echo -n $f,; done", "a,b,"),
        ("if [ -d /data -a ! -f /data ]; then echo folder; elif true; then echo x; else echo y; fi", "folder\n"),
        ("(cd /data; pwd); pwd", "/data\n/\n"),
        ("printf 'b\\na\\nb\\n' | sort -u | head -n 1", "a\n"),
        ("A=1 env | grep ^A=", "A=1\n"),
        ("echo a b c | awk '{print $2}'; echo 1:2 | cut -d: -f2; echo xay | sed s/a/b/", "b\n2\nxby\n"),
        ("cd /sdcard; echo q > q; ln -s /sdcard/q r; cat r; tar cf t.tar q; tar tf t.tar", "q\nq\n"),
        ("echo x y | xargs -n 1 echo; echo -n abc > /sdcard/x; md5sum /sdcard/x; stat -c %s /sdcard/x",
         "x\ny\n900150983cd24fb0d6963f7d28e17f72  /sdcard/x\n3\n"),
        ("timeout 1 sleep 20 || echo ended; sleep 20 & sleep 0.1; kill $!; wait $!; echo $?", "ended\n143\n"),
        ("su -c 'echo root'; su 0 echo zero; nohup echo on 2>/dev/null", "root\nzero\non\n"),
        ("id | cut -c 1-31; whoami; uname -m; uname", "uid=2000(shell) gid=2000(shell)\nshell\naarch64\nLinux\n"),
        ("cat /proc/meminfo | grep MemTotal; cat /sys/class/thermal/thermal_zone0/type",
         "MemTotal:        8388608 kB\ncpu-0-0\n"),
        ("dumpsys thermalservice | grep -c Temperature; dumpsys -l | tail -n 1; dumpsys battery | grep level",
         "10\n  thermalservice\n  level: 100\n"),
        ("log -t QNN hello; log -t x no; logcat -d -s QNN | sed 's/.* I QNN/I QNN/'; logcat -c",
         "--------- beginning of main\nI QNN: hello\n"),
        ("getprop | grep soc.model; getenforce; setprop a b; svc wifi off", "[ro.soc.model]: [SM8650]\nPermissive\n"),
        ("sh -c 'echo $0 $1' 0 1; echo 'echo got $1' > /sdcard/s.sh; sh /sdcard/s.sh x; . /sdcard/s.sh | xargs echo",
         "0 1\ngot x\ngot\n"),
        ("printf '#!/system/bin/sh\\necho by $1\\n' > /sdcard/s; chmod 755 /sdcard/s; /sdcard/s name", "by name\n"),
        ("yes | head -n 2 | wc -l; which getprop", "2\n/system/bin/getprop\n"),
    ],
)  # fmt: skip
def test_what_a_whole_shell_does(phone: Phone, adb: Adb, text: str, said: str) -> None:
    answer = adb("shell", text)
    assert answer.out == said, answer


@pytest.mark.usefixtures("sandbox")
def test_processes_are_the_phones_alone(phone: Phone, adb: Adb) -> None:
    lines = adb("shell", "sleep 5 & ps -A; kill $!").out.splitlines()
    assert lines[0].split()[0] == "PID"
    assert 3 <= len(lines) <= 6, lines
    assert lines[1].split()[0] == "1"
    assert "PID" in adb("shell", "top -b -n 1").out


@pytest.mark.usefixtures("sandbox")
def test_root_after_adb_root(phone: Phone, adb: Adb) -> None:
    assert adb("root").out == "restarting adbd as root\n"
    assert adb("root").out == "adbd is already running as root\n"
    assert adb("shell", "id -u; whoami; cat /proc/self/status | grep CapEff").out.split() == [
        "0", "root", "CapEff:", "0000000000000000",
    ]  # fmt: skip
    assert adb("unroot").out == "restarting adbd as non root\n"
    assert adb("shell", "id -u").out == "2000\n"


@pytest.mark.usefixtures("sandbox")
def test_the_background_goes_on_and_ends_with_the_cable(phone: Phone, adb: Adb) -> None:
    begun = time.monotonic()
    text = "(while sleep 0.05; do echo . >> /sdcard/dots; done) > /dev/null 2>&1 & echo begun"
    assert adb("shell", text).out == "begun\n"
    assert time.monotonic() - begun < 20
    dots = phone.storage.folder / "sdcard/dots"
    while not dots.exists() or dots.stat().st_size < 6:
        assert time.monotonic() - begun < 30
        time.sleep(0.02)
    unplug(phone)
    time.sleep(0.5)
    size = dots.stat().st_size
    time.sleep(0.3)
    assert dots.stat().st_size == size


@pytest.mark.usefixtures("few_words")
@pytest.mark.parametrize(
    "text",
    [
        "ls | head", "(ls)", "if true; then ls; fi", "echo $(ls)", "echo `ls`", "cat <<E\nx\nE", "echo *.raw", "awk x",
        "X='a b'; echo $X", "ls & echo", "echo \"$(ls)\"", "echo 'open", "a &&", "while true; do x; done", "ls -l",
        "(" * 500,
    ],
)  # fmt: skip
def test_what_the_few_words_lack_is_refused_before_anything_else_runs(phone: Phone, adb: Adb, text: str) -> None:
    answer = adb("shell", f"{text}\necho after")
    assert (answer.code, answer.out) == (1, "")
    assert "this test takes it away" in answer.err


@pytest.mark.usefixtures("road")
@pytest.mark.parametrize(
    "text",
    [
        "cat ../../../../../../../etc/hostname_of_the_test",
        "cat /data/../../../etc/hostname_of_the_test",
        "echo x > /data/local/tmp/out/made",
        "cd /data/local/tmp/out",
        "cat /data/local/tmp/out/secret",
        "rm -r /data/local/tmp/out/secret",
    ],
)
def test_links_of_this_computer_lead_nowhere(phone: Phone, adb: Adb, tmp_path: Path, text: str) -> None:
    """A link that somebody put into the folder is one of the phone, and `..` ends at the phone's root."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (phone.storage.folder / "data/local/tmp/out").symlink_to(outside)
    answer = adb("shell", text)
    assert answer.code != 0
    assert "secret\n" not in answer.out
    assert [p.name for p in outside.iterdir()] == ["secret"]
    assert adb("pull", "/data/local/tmp/out/secret", str(tmp_path / "pulled")).code == 1
    assert not (tmp_path / "pulled").exists()
    adb("push", __file__, "/data/local/tmp/out/pushed")
    assert [p.name for p in outside.iterdir()] == ["secret"]


def test_links_of_the_phone_lead_where_it_sees_them(phone: Phone, adb: Adb, tmp_path: Path) -> None:
    (phone.storage.folder / "sdcard/real").mkdir()
    (phone.storage.folder / "sdcard/real/x").write_text("x")
    (phone.storage.folder / "data/link").symlink_to("/sdcard/real")
    (phone.storage.folder / "data/circle").symlink_to("circle")
    assert adb("pull", "/data/link/x", str(tmp_path)).code == 0
    assert (tmp_path / "x").read_text() == "x"
    assert adb("push", __file__, "/data/link/y").code == 0
    assert (phone.storage.folder / "sdcard/real/y").is_file()
    assert "Too many symbolic links" in adb("pull", "/data/circle", str(tmp_path)).err
