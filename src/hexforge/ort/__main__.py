# SPDX-License-Identifier: Apache-2.0
"""`python -m hexforge.ort [--like-the-ep] [--soc CHIP] SCRIPT [ARG…]` or `-m MODULE [ARG…]`: run it with hexforge."""

from __future__ import annotations

import runpy
import sys
import types
from pathlib import Path

from hexforge.errors import HexforgeError
from hexforge.ort.on_chip import put_sessions_on
from hexforge.ort.options.compatibility import be_like_the_ep
from hexforge.ort.stand_in import install

_LIKE_THE_EP = "--like-the-ep"
_SOC = "--soc"
_USAGE = (
    f"usage: python -m hexforge.ort [{_LIKE_THE_EP}] [{_SOC} CHIP] SCRIPT [ARG...]\n"
    f"       python -m hexforge.ort [{_LIKE_THE_EP}] [{_SOC} CHIP] -m MODULE [ARG...]\n"
    f"{_LIKE_THE_EP}: sessions take unknown options, bad values and open shapes as the QNN execution provider does "
    "(hexforge.compatibility=ep)\n"
    f"{_SOC} CHIP: sessions that ask for no QNNExecutionProvider compute what this chip would, open dimensions as the "
    "inputs of each run have them"
)


def main(arguments: list[str]) -> int:
    """Run what the arguments name; the exit status is the one Python itself would give."""
    while arguments and arguments[0] in (_LIKE_THE_EP, _SOC):
        if arguments[0] == _LIKE_THE_EP:
            be_like_the_ep()
            arguments = arguments[1:]
            continue
        try:
            put_sessions_on(arguments[1] if len(arguments) > 1 else "")
        except HexforgeError as error:
            print(f"python -m hexforge.ort: {_SOC}: {error}", file=sys.stderr)
            return 2
        arguments = arguments[2:]
    if not arguments or arguments[0] in ("-h", "--help") or arguments == ["-m"]:
        print(_USAGE, file=sys.stdout if arguments and arguments[0] != "-m" else sys.stderr)
        return 0 if arguments and arguments[0] != "-m" else 2
    install()
    try:
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            sys.path[0] = ""
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            return _run_script(arguments)
    except Exception as error:
        _show(error, "runpy.py", "<frozen runpy>")
        return 1
    return 0


def _run_script(arguments: list[str]) -> int:
    script = Path(arguments[0])
    try:
        source = script.read_bytes()
    except OSError as error:
        print(f"python: can't open file {str(script)!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        return 2
    sys.argv = list(arguments)
    sys.path[0] = str(script.resolve().parent)
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=str(script), __builtins__=__builtins__)
    sys.modules["__main__"] = module
    try:
        exec(compile(source, str(script), "exec", dont_inherit=True), module.__dict__)
    except Exception as error:
        _show(error)
        return 1
    return 0


def _show(error: Exception, *hidden: str) -> None:
    """Print the error as Python would, without the frames of this file and of `hidden`."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.endswith((__file__, *hidden)):
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
