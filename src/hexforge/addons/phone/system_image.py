# SPDX-License-Identifier: Apache-2.0
"""The phone's system: a shell and commands of this computer with their libraries, and scripts that are Android's own.

They are copied once into the cache folder.

The shell is mksh, which is Android's, else busybox's, else another of this computer; commands are busybox's where it is
there, else each of this computer's own. hexforge brings neither.
"""

from __future__ import annotations

import functools
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from hexforge.addons.phone.programs import RUNNERS
from hexforge.addons.phone.script_folders import cache_folder

SHELLS = ("mksh", "busybox", "dash", "bash")
"""The first of them that is there is the phone's."""
COMMANDS = """
    [ awk base64 basename cat chgrp chmod chown cksum clear cmp comm cp cut date dd df diff dirname du echo
    egrep env expr false fgrep find fold free grep gunzip gzip head hexdump hostname id kill killall ln ls
    md5sum mkdir mkfifo mktemp more mv nice nl nohup nproc od paste patch pgrep pidof pkill printenv printf ps
    pwd readlink realpath renice rev rm rmdir sed seq setsid sha1sum sha224sum sha256sum sha512sum sleep sort
    split stat strings stty sync tac tail tar taskset tee test time timeout top touch tr true truncate tty uniq
    unlink uptime usleep vi wc which whoami xargs xxd yes zcat
""".split()
WHOLE = frozenset({"ps", "top", "pgrep", "pkill"})
"""Commands of which busybox's know fewer options than Android's: this computer's own come first."""
_HEAD = "#!/system/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n"
_CALL = _HEAD + (
    '# One of the phone\'s programs: `hexforge phone --help`. Who runs it answers with its exit code.\n'
    'pipe=/dev/phone/$$\nmkfifo "$pipe" || exit 126\nexec 6<&0 7>&1 8>&2 9<>"$pipe"\necho $$ > /dev/phone/calls\n'
    'read -r code <&9\nrm -f "$pipe"\nexit "$code"\n'
)  # fmt: skip
_NOTHING = _HEAD + "# Accepted: on a virtual phone there is nothing to do for it.\nexit 0\n"
LISTENER = "phone-port"
"""The program that listens on a port of the phone, which `nc` calls."""
SCRIPTS: Mapping[str, str] = {
    **dict.fromkeys(RUNNERS, _CALL),
    LISTENER: _CALL,
    **dict.fromkeys(("setprop", "setenforce", "svc", "settings", "start", "stop", "restorecon"), _NOTHING),
    "getenforce": _HEAD + "echo Permissive\n",
    "getprop": _HEAD + """\
name=$1 default=$2 properties=/dev/__properties__/all
if [ $# -eq 0 ]; then exec sed 's/^\\([^=]*\\)=\\(.*\\)$/[\\1]: [\\2]/' $properties; fi
while IFS= read -r line; do
  case $line in "$name"=*) echo "${line#*=}"; exit 0;; esac
done < $properties
echo "$default"
""",
    "uname": _HEAD + """\
facts= chosen=${*:--s}
case " $chosen " in *a*) chosen=snrvm;; esac
for pair in s:Linux n:localhost r:6.1.0-hexforge v:#1 m:aarch64; do
  case $chosen in *"${pair%%:*}"*) facts="$facts ${pair#*:}";; esac
done
echo "${facts# }"
""",
    "su": _HEAD + """\
# The same user: `adb root` makes the next shell root's.
case ${1:-} in root|0|shell|2000|-) shift;; esac
if [ "${1:-}" = -c ]; then shift; exec sh -c "$*"; fi
if [ $# -eq 0 ]; then exec sh; fi
exec "$@"
""",
    "dumpsys": _HEAD + """\
services=/dev/__services__
if [ "${1:-}" = -l ]; then echo "Currently running services:"; ls $services | sed 's/^/  /'; exit 0; fi
for name in ${1:-$(ls $services)}; do
  case $name in */*|.*) name=none;; esac
  if [ ! -f "$services/$name" ]; then echo "Can't find service: $1" >&2; exit 0; fi
  [ $# -gt 0 ] || echo "DUMP OF SERVICE $name:"
  cat "$services/$name"
done
""",
    "log": _HEAD + """\
tag=log level=I
while :; do
  case ${1:-} in -t) tag=$2; shift 2;; -p) level=$(echo "$2" | tr a-z A-Z); shift 2;; *) break;; esac
done
mkdir -p /data/misc/logd
echo "$(date '+%m-%d %H:%M:%S.000') $$ $$ $level $tag: $*" >> /data/misc/logd/main
""",
    "logcat": _HEAD + """\
# What `log` wrote: -d ends at the last line, -c forgets all, -t N the last lines, -s TAG, TAG:LEVEL and *:S choose.
log=/data/misc/logd/main tags= follow=yes count=+1 silent=
mkdir -p /data/misc/logd && touch $log
while [ $# -gt 0 ]; do
  case $1 in
    -c|--clear) : > $log; exit 0;;
    -d) follow=;;
    -t|-T) count=$2 follow=; shift;;
    -s) silent=yes;;
    -b|-v|-e|-m|-f|--pid|-g|-G) case $1 in -f) exec > "$2";; esac; shift;;
    '*:S'|'*:s') silent=yes;;
    -*) ;;
    *) tags="$tags ${1%%:*}"; silent=yes;;
  esac
  [ $# -gt 0 ] && shift
done
pattern=.
[ -n "$silent" ] && pattern="^[^ ]* [^ ]* [^ ]* [^ ]* [VDIWEF] ($(echo $tags | tr ' ' '|')): "
echo "--------- beginning of main"
if [ -n "$follow" ]; then tail -n +1 -f $log | grep -E "$pattern"; else tail -n "$count" $log | grep -E "$pattern"; fi
exit 0
""",
    "nc": _HEAD + """\
# Serves one connection to a port of the phone: nc -l -p PORT [COMMAND], with what is read or a command's output.
port=
while [ $# -gt 0 ]; do
  case $1 in -l) shift;; -p) port=$2; shift 2;; -lp) port=$2; shift 2;; -s|-w) shift 2;; -*) shift;; *) break;; esac
done
if [ -z "$port" ]; then
  echo "nc: only \\`nc -l -p PORT [COMMAND]\\`: a virtual phone has no network to connect to" >&2; exit 1
fi
[ $# -eq 0 ] && exec phone-port "$port"
back=/dev/phone/back$$
mkfifo "$back"
phone-port "$port" < "$back" | "$@" > "$back"
rm -f "$back"
""",
}  # fmt: skip
"""Android's commands and the phone's programs, by name."""


class NoShellError(Exception):
    """This computer has no shell that a phone could have, and what to install."""


@functools.cache
def system_image() -> Path:
    """The folder with the phone's system, made where it is not there; NoShellError where this computer has no shell."""
    tools = _tools()
    facts = [f"{name} {path} {path.stat().st_mtime_ns} {path.stat().st_size}" for name, path in tools.items()]
    mark = hashlib.sha256("\n".join([*facts, *SCRIPTS.values(), *SCRIPTS]).encode()).hexdigest()[:16]
    folder = cache_folder() / f"phone-system-{mark}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        staged = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            _make(staged, tools)
            staged.chmod(0o755)
            staged.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was first
                raise
        finally:
            shutil.rmtree(staged, ignore_errors=True)
    return folder


def shell_name() -> str:
    """Which shell a phone's is; NoShellError where this computer has none."""
    for name in SHELLS:
        if shutil.which(name, path=_PATH):
            return name
    raise NoShellError("it has neither mksh nor busybox: `apt install mksh busybox`")


_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


def _tools() -> dict[str, Path]:
    """Commands by name, each with the program of this computer that it is."""
    tools = {"sh": _program(shell_name())}
    busybox = _program("busybox")
    applets: Sequence[str] = ()
    if busybox is not None:
        applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=False).stdout.split()
    for name in COMMANDS:
        own = _program(name)
        tools[name] = busybox if name in applets and (name not in WHOLE or own is None) else own
    return {name: path for name, path in tools.items() if path is not None}


def _program(name: str) -> Path | None:
    path = shutil.which(name, path=_PATH)
    return None if path is None else Path(path).resolve()


def _make(folder: Path, tools: Mapping[str, Path]) -> None:
    programs = folder / "bin"
    programs.mkdir()
    for name, path in tools.items():
        if path.name == "busybox":
            if not (programs / "busybox").exists():
                shutil.copy(path, programs / "busybox")
            (programs / name).symlink_to("busybox")
        elif name not in SCRIPTS:
            shutil.copy(path, programs / name)
    for name, text in SCRIPTS.items():
        (programs / name).unlink(missing_ok=True)
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    for library in _libraries(sorted(set(tools.values()))):
        _copy_to(folder, library)  # where the dynamic loader looks for it
    for terminal in (Path("/lib/terminfo/d/dumb"), Path("/usr/share/terminfo/d/dumb")):
        if terminal.is_file():
            _copy_to(folder, terminal)


def _copy_to(folder: Path, path: Path) -> None:
    target = folder / path.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, target)


def _libraries(programs: Sequence[Path]) -> list[Path]:
    said = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False, env={"LC_ALL": "C"}).stdout
    return [Path(path) for path in sorted(set(re.findall(r"(?:=> |^\t)(/\S+) \(0x", said, re.MULTILINE)))]
