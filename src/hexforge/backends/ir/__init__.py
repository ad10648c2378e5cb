# SPDX-License-Identifier: Apache-2.0
"""The ir backend: graphs that are written, not run."""
