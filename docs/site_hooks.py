# SPDX-License-Identifier: Apache-2.0
"""What the site adds to the pages as they stand: links to the repository, and the pages of the gallery.

mkdocs calls these functions by their names (`hooks` of mkdocs.yml).
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hexforge.demo import MODEL

ROOT = Path(__file__).parents[1]
_OUTWARD = re.compile(r"\]\(\.\./([^)\s]+)\)")
LIVE_PAGES = {
    "estimate.html": ("estimate", str(MODEL), "--precision", "w8a8", "--report"),
    "profile": ("profile", str(MODEL), "--precision", "w8a8", "-o"),
    "optimize": ("optimize", str(MODEL), "--data", "random:8", "--budget", "8", "-o"),
    "compare.html": ("compare", str(MODEL), "{quantized}", "--data", "random:8", "--report"),
    "sweep.html": ("sweep", str(MODEL), "--soc", "all", "--precision", "w8a8", "--report"),
}
"""Each page of the gallery, and the command that writes it."""


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links to what is beside docs lead to the repository."""
    missing = [path for path in _OUTWARD.findall(markdown) if not (ROOT / path.partition("#")[0]).exists()]
    if missing:
        raise ValueError(f"{page.file.src_uri}: links to {', '.join(missing)}, which is not in the repository")
    return _OUTWARD.sub(lambda link: f"]({config['repo_url']}/blob/main/{link[1]})", markdown)


def on_files(files: Any, config: Any) -> Any:
    """Make the gallery's pages by the commands that make them for users, and add them to the site."""
    from mkdocs.structure.files import File

    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        quantized = folder / "night.qdq.onnx"
        _run("quantize", str(MODEL), "--data", "random:8", "-o", str(quantized))
        for name, command in LIVE_PAGES.items():
            _run(*(word.format(quantized=quantized) for word in command), str(folder / name))
        for page in sorted(folder.rglob("*.html")):
            name = f"gallery/{page.relative_to(folder).as_posix()}"
            files.append(File.generated(config, name, content=page.read_bytes()))
    return files


def _run(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "hexforge", *words], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
