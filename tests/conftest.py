# SPDX-License-Identifier: Apache-2.0
"""For all tests: Hypothesis without deadlines, in CI with the same examples every time; Ctrl-C as Python has it."""

from __future__ import annotations

import os
import signal

from hypothesis import settings

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


# A shell that starts its jobs in the background has them ignore Ctrl-C; tests that send it want Python's own answer.
signal.signal(signal.SIGINT, signal.default_int_handler)
