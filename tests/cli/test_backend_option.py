# SPDX-License-Identifier: Apache-2.0
"""Commands that are about chips say so where somebody asks them for a backend."""

from __future__ import annotations

import pytest

from hexforge.cli import main
from hexforge.cli.command_table import commands


@pytest.mark.parametrize("command", sorted(row.name for row in commands().values() if row.is_about_chips))
def test_a_backend_is_refused_in_words(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for asked in (["--backend", "gpu"], ["--backend=gpu"]):
        with pytest.raises(SystemExit) as ended:
            main([command, "model.onnx", *asked])
        assert ended.value.code == 2
        said = capsys.readouterr().err
        assert f"{command} is about the NPU of a chip and takes no --backend" in said
        assert "hexforge profile MODEL --measure gpu" in said
