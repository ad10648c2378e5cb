# SPDX-License-Identifier: Apache-2.0
"""Simplifying: shapes inferred, constants folded, and nodes whose results are known replaced."""
