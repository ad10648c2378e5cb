# SPDX-License-Identifier: Apache-2.0
"""`hexforge executor-runner`: qnn_executor_runner's flags, files and log on this computer."""

from __future__ import annotations

import sys
from dataclasses import fields

from hexforge.addons.executorch.running.runner_flags import RunnerFlags
from hexforge.cli.arguments import OpPackages
from hexforge.errors import CallError, HexforgeError
from hexforge.terminal_text import visible

_LETTERS = {1: "E", 2: "W", 3: "I", 4: "V", 5: "D"}


def executor_runner(flags: RunnerFlags, op_package: OpPackages = None) -> None:
    """Run a .pte over files of inputs, with the flags of ExecuTorch's qnn_executor_runner."""
    from hexforge.addons.executorch.running.runner import INFO, RUNTIME, WARN, Log, execute

    def write(level: int, line: str) -> None:
        mark = "" if level == RUNTIME else f"[Qnn ExecuTorch]:  <{_LETTERS[level]}> "
        sys.stdout.write(visible(f"{mark}{line}\n"))

    log = Log(flags.log_level, write)
    if any(getattr(flags, field.name) for field in fields(flags) if field.name.startswith("lpai_")):
        log(WARN, "lpai_*: hexforge has no LPAI backend; these flags do nothing")
    if flags.htp_performance_mode and not flags.soc:
        log(WARN, "htp_performance_mode: sets a device's clocks; nothing on this computer depends on it")
    if flags.shared_buffer:
        log(INFO, "shared_buffer: inputs and outputs are used where they lie, with this flag and without")
    try:
        execute(flags, log)
    except HexforgeError as error:
        sys.stdout.write(f"[Qnn ExecuTorch]:  <E> {error}\n")
        raise
    except MemoryError:
        raise CallError(f"{flags.model_path}: there is not enough memory to run it") from None
