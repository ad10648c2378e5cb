# SPDX-License-Identifier: Apache-2.0
"""`qnn-context-binary-utility`: what a context binary holds, as a JSON file."""

from __future__ import annotations

import json
from pathlib import Path

from hexforge.addons.tools.flags import Version
from hexforge.errors import CallError, FormatError
from hexforge.formats.files import require_writable, write_atomically
from hexforge.request_fields import option


def run(
    context_binary: Path | None = option(None, "The context binary.", "--context_binary"),
    json_file: Path | None = option(None, "The JSON file to write.", "--json_file"),
    version: Version = False,
) -> None:
    """Write what a context binary holds: graphs, tensors, encodings, sizes."""
    if context_binary is None or json_file is None:
        raise CallError("give --context_binary and --json_file")
    from hexforge.formats.file_kinds import open_model
    from hexforge.runtime.contexts.describe import describe

    if not context_binary.exists():
        raise CallError(f"--context_binary {context_binary}: there is no such file")
    if not open_model(context_binary).does("validate"):
        raise FormatError(f"{context_binary}: is no context of hexforge; one of the vendor's only its own tool reads")
    require_writable(json_file)
    write_atomically(json_file, json.dumps(describe(context_binary), indent=2).encode())
