# SPDX-License-Identifier: Apache-2.0
"""Calls that are wrong get QNN's codes, never a crash; nothing is leaked or read that is not there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.addons.capi.conftest import Compile, environment

SOURCE = Path(__file__).parent / "codes.c"
WANTED = {
    "providers_null": 1004, "log_create_null": 11003, "backend_with_a_stranger": 4004, "context_of_no_backend": 4011,
    "context_of_a_logger": 4011, "graph_without_a_name": 6003, "graph_twice": 6003, "graph_unknown": 6002,
    "graph_of_another": 6002, "finalize_empty": 6022, "binary_too_early": 5003, "tensor_version": 7004,
    "tensor_name": 7004, "tensor_type": 7004, "tensor_data": 7004, "tensor_twice": 7003, "node_with_null": 6005,
    "node_with_a_stranger": 6004, "op_unknown": 3110, "reason_logged": 1, "op_known": 0, "op_without_data": 0,
    "chip_at_byte_4": 57, "chip_at_byte_8": 57, "arch_at_byte_8": 73, "arch_at_byte_12": 73, "execute_too_early": 6023,
    "node_too_late": 6024, "execute_without_inputs": 6000, "execute_small": 6004, "execute_null": 6004,
    "execute_stranger": 6004, "execute_other_size": 6004, "execute_freed_profile": 12000, "execute": 0,
    "profile_level": 1000, "binary_garbage": 5005, "message": 0, "message_text": 1, "message_unknown": 10001, "free": 0,
    "free_twice": 5002, "execute_freed": 6001, "other": 0, "backend": 0, "backend_twice": 4011, "logger": 0,
}  # fmt: skip


@pytest.mark.parametrize("checker", ["", "valgrind"])
def test_every_wrong_call_gets_its_code(compile_c: Compile, libraries: Path, checker: str) -> None:
    if checker and shutil.which(checker) is None:
        pytest.skip(f"there is no {checker}")
    command = ["valgrind", "--quiet", "--error-exitcode=9", "--child-silent-after-fork=yes"] if checker else []
    ran = subprocess.run(
        [*command, compile_c(SOURCE), libraries], env=environment(), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    lines = [line.split(" ", 1) for line in ran.stdout.splitlines()]
    assert {name: int(code) for name, code in lines if name != "y"} == WANTED
    assert ["y", "0 2 0 4"] in lines
