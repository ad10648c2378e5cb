# SPDX-License-Identifier: Apache-2.0
"""A process of the harness that prepares nothing: what is looked at is how its tests end."""

from __future__ import annotations

import contextlib

from tests.addons.executorch.own_suite.worker import serve

if __name__ == "__main__":
    serve(contextlib.nullcontext())
