# SPDX-License-Identifier: Apache-2.0
"""Translators of ops that move elements and compute nothing."""
