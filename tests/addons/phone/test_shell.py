# SPDX-License-Identifier: Apache-2.0
"""The phone's shell: what deployment scripts say to it, and that nothing leaves the phone's folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from hexforge.addons.phone.phones import Phone
from hexforge.addons.phone.shell_syntax import ShellSyntaxError, parse
from tests.addons.phone.conftest import Adb


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cd /data/local/tmp && pwd", "/data/local/tmp\n"),
        ("cd /data/local; cd tmp; cd ..; pwd", "/data/local\n"),
        ("echo a   b 'c   d' \"e $HOME\" \\$x", "a b c   d e / $x\n"),
        ("false && echo no || echo yes", "yes\n"),
        ("true || echo no; echo $?", "0\n"),
        ("X=1; Y=\"$X 2\"; echo ${Y} ${Z:-none}", "1 2 none\n"),
        ("export A=b && sh -c 'echo $A'", "b\n"),
        ("A=1 env | grep ^A=", "A=1\n"),
        ("echo $(echo in; echo side) `echo old`", "in side old\n"),
        ("printf '%s-%d\\n' a 1 b 2", "a-1\nb-2\n"),
        ("cd /data/local/tmp; touch b.raw a.raw c.txt; echo *.raw '*.raw' no*such", "a.raw b.raw *.raw no*such\n"),
        ("for f in a b; do echo -n $f,; done", "a,b,"),
        ("if [ -d /data -a ! -f /data ]; then echo folder; elif true; then echo x; else echo y; fi", "folder\n"),
        ("if test 3 -lt 2; then echo less; else echo more; fi", "more\n"),
        ("(cd /data; pwd); pwd", "/data\n/\n"),
        ("! false && echo not", "not\n"),
        ("echo one > /sdcard/x; echo two >> /sdcard/x; cat < /sdcard/x | wc -l", "2\n"),
        ("ls /nope 2>/dev/null || echo missing", "missing\n"),
        ("ls /nope > /dev/null 2>&1; echo $?", "1\n"),
        ("echo x >&2 2>/dev/null; { echo a; echo b; } | tail -n 1", "b\n"),
        ("mkdir -p /sdcard/a/b && cp -r /sdcard/a /sdcard/c && ls /sdcard/c && rm -rf /sdcard/a && ls -d /sdcard/*",
         "b\n/sdcard/c\n"),
        ("echo -n abc > /sdcard/x; md5sum /sdcard/x; stat -c %s /sdcard/x",
         "900150983cd24fb0d6963f7d28e17f72  /sdcard/x\n3\n"),
        ("getprop ro.soc.model; uname -m", "SM8650\naarch64\n"),
        ("printf 'b\\na\\nb\\n' | sort -u | head -1", "a\n"),
        ("basename /a/b.so .so; dirname /a/b.so", "b\n/a\n"),
        ("echo 1 # a comment\necho 2", "1\n2\n"),
        ("su -c 'echo root'; timeout 5 echo in time; nohup echo on &", "root\nin time\non\n"),
        ("mkdir /sdcard/d; mv /sdcard/d /sdcard/e && test -d /sdcard/e && echo moved", "moved\n"),
    ],
)  # fmt: skip
def test_what_scripts_say(phone: Phone, adb: Adb, text: str, said: str) -> None:
    answer = adb("shell", text)
    assert answer.out == said
    assert answer.code == 0


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("exit 7", 7, ""),
        ("nothing-here", 127, "/system/bin/sh: nothing-here: inaccessible or not found\n"),
        ("./runner", 127, "/system/bin/sh: ./runner: inaccessible or not found\n"),
        ("cd /nope", 2, "/system/bin/sh: cd: /nope: No such file or directory\n"),
        ("touch /sdcard/x; /sdcard/x", 126, "/system/bin/sh: /sdcard/x: can't execute: Permission denied\n"),
        ("rm /nope", 1, "rm: /nope: No such file or directory\n"),
        ("mkdir /sdcard", 1, "mkdir: /sdcard: File exists\n"),
        ("cat /sdcard", 1, "cat: /sdcard: Is a directory\n"),
        ("echo 'open", 1, "/system/bin/sh: no closing quote\n"),
        ("echo x > /nope/file", 1, "/system/bin/sh: can't open /nope/file: No such file or directory\n"),
        ("[ 1 = 1", 2, "[: missing ']'\n"),
        ("rm -rf /", 1, "rm: /: Device or resource busy\n"),
    ],
)
def test_what_goes_wrong_is_said(phone: Phone, adb: Adb, text: str, code: int, said: str) -> None:
    answer = adb("shell", text)
    assert (answer.code, answer.err) == (code, said)


@pytest.mark.parametrize(
    "text", ["a &&", "(a", "a | | b", "if x; fi", "$(", "while true; do x; done", "(" * 500, "a )"]
)
def test_what_is_no_command_is_refused(text: str) -> None:
    with pytest.raises(ShellSyntaxError):
        parse(text)


def test_scripts_are_run_by_this_shell_alone(phone: Phone, adb: Adb, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    adb("shell", f"echo 'echo got $1 $#; touch {witness}' > /data/local/tmp/run.sh; chmod 755 /data/local/tmp/run.sh")
    answer = adb("shell", "cd /data/local/tmp && ./run.sh one && sh run.sh two")
    assert answer.out == "got one 1\n"
    assert answer.err.startswith("touch: "), "there is no such folder on the phone"
    assert not witness.exists(), "a path of the phone is a path in its folder"


def test_scripts_that_call_themselves_end(phone: Phone, adb: Adb) -> None:
    answer = adb("shell", "echo './again' > again; chmod +x again; ./again")
    assert answer.code == 126
    assert "too deeply" in answer.err


@pytest.mark.parametrize(
    "text",
    [
        "cat ../../../../../../../etc/hostname_of_the_test",
        "cat /data/../../../etc/hostname_of_the_test",
        "cp -r /data/local/tmp/out /data/local/tmp/copy",
        "ls /data/local/tmp/out",
        "echo x > /data/local/tmp/out/made",
        "cd /data/local/tmp/out",
        "cat /data/local/tmp/out/secret",
        "rm -rf /data/local/tmp/out/secret",
        "cat /data/local/tmp/o*/secret",
        "sh /data/local/tmp/out/secret",
    ],
)
def test_nothing_leaves_the_folder(phone: Phone, adb: Adb, tmp_path: Path, text: str) -> None:
    """A link that somebody put into the folder leads nowhere, and `..` ends at the phone's root."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (phone.storage.folder / "data/local/tmp/out").symlink_to(outside)
    answer = adb("shell", text)
    assert answer.code != 0
    assert "secret\n" not in answer.out
    assert [p.name for p in outside.iterdir()] == ["secret"]


@pytest.mark.parametrize("secret", ["secret", "folder"])
def test_a_copy_of_a_folder_follows_no_link_that_leads_out(phone: Phone, adb: Adb, tmp_path: Path, secret: str) -> None:
    (tmp_path / "outside" / "folder").mkdir(parents=True)
    for name in ("secret", "folder/secret"):
        (tmp_path / "outside" / name).write_text("secret")
    (phone.storage.folder / "sdcard/here").mkdir()
    (phone.storage.folder / "sdcard/here/link").symlink_to(tmp_path / "outside" / secret)
    adb("shell", "cp -r /sdcard/here /sdcard/there")
    copied = phone.storage.folder / "sdcard/there"
    assert [path for path in copied.rglob("*") if not path.is_symlink()] == []
    answer = adb("pull", "/sdcard/here", str(tmp_path / "pulled"))
    assert answer.code == 1
    assert "Permission denied" in answer.err
    assert [path for path in (tmp_path / "pulled").rglob("*") if path.is_file()] == []


def test_a_link_itself_can_be_removed(phone: Phone, adb: Adb, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    (phone.storage.folder / "link").symlink_to(phone.storage.folder / "sdcard")
    assert adb("shell", "rm -rf /link").code == 0
    assert (phone.storage.folder / "sdcard").is_dir()


def test_a_copied_folder_goes_through_no_link_out_of_the_phone(phone: Phone, adb: Adb, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "letter.txt").write_text("dear")
    adb("shell", "mkdir -p /sdcard/new/sub /sdcard/old/new; echo x > /sdcard/new/sub/letter.txt")
    (phone.storage.folder / "sdcard/old/new/sub").symlink_to(outside)
    assert "Permission denied" in adb("shell", "cp -r /sdcard/new /sdcard/old 2>&1; true").out
    assert (outside / "letter.txt").read_text() == "dear"
    assert [path.name for path in outside.iterdir()] == ["letter.txt"]
