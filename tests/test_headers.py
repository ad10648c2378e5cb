# SPDX-License-Identifier: Apache-2.0
"""Every source file says its licence in its first line (`python -m tools.headers --fix` adds it)."""

from __future__ import annotations

from pathlib import Path

from tools.headers import ROOT, add_line, has_line, sources


def test_every_source_file_says_its_licence() -> None:
    missing = [str(path.relative_to(ROOT)) for path in sources() if not has_line(path)]
    assert not missing, "run python -m tools.headers --fix"


def test_the_line_is_added_once_and_below_a_shebang(tmp_path: Path) -> None:
    script, kernel = tmp_path / "a.py", tmp_path / "b.cpp"
    script.write_text("#!/usr/bin/env python\nprint()\n")
    kernel.write_text("// What it is.\n")
    for path in (script, kernel):
        assert not has_line(path)
        add_line(path)
        assert has_line(path)
    assert script.read_text() == "#!/usr/bin/env python\n# SPDX-License-Identifier: Apache-2.0\nprint()\n"
    assert kernel.read_text() == "// SPDX-License-Identifier: Apache-2.0\n// What it is.\n"
