# SPDX-License-Identifier: Apache-2.0
"""Commands that look at a file, run it, time it, or list what is known."""
