# SPDX-License-Identifier: Apache-2.0
"""Commands that look at a model, run it, or list what is known."""
