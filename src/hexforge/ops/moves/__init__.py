# SPDX-License-Identifier: Apache-2.0
"""Ops that move elements and compute nothing."""
