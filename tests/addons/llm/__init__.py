# SPDX-License-Identifier: Apache-2.0
"""Language models. `small` is a Llama of 1.9 million parameters (examples/small_llama); torch's results are with it."""

from __future__ import annotations

import json
from typing import Any

from tests import ROOT

SMALL = ROOT / "tests" / "addons" / "llm" / "small"
REFERENCE: dict[str, Any] = json.loads((SMALL / "reference.json").read_text())
"""What torch gives in float32 for it: `generated` and `perplexity`."""
