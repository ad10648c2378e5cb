# SPDX-License-Identifier: Apache-2.0
"""What models compute, as digests of every model and instruction set: `python -m tools.output_digests FOLDER`.

Two computers that print the same digests for the same folder compute the same bits (`tools/arm64.py` compares them).
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

import hexforge
from hexforge import _native


def digests(folder: Path) -> dict[str, dict[str, str]]:
    """Of each model in a folder, for each instruction set here, the SHA-256 of its outputs for one input."""
    result: dict[str, dict[str, str]] = {}
    best = _native.level()
    for path in sorted(folder.glob("*.onnx")):
        session = hexforge.InferenceSession(str(path), providers=[("QNNExecutionProvider", {"soc_model": "SM8650"})])
        feeds = {}
        for given in session.get_inputs():
            uniform = np.random.default_rng(7).random([n if isinstance(n, int) else 1 for n in given.shape])
            feeds[given.name] = uniform.astype(np.float32)
        result[path.name] = {}
        for level in _native.levels():
            _native.set_level(level)
            outputs = session.run(None, feeds)
            result[path.name][level] = hashlib.sha256(b"".join(np.asarray(a).tobytes() for a in outputs)).hexdigest()
        _native.set_level(best)
    return result


if __name__ == "__main__":
    print(json.dumps(digests(Path(sys.argv[1])), indent=1))
