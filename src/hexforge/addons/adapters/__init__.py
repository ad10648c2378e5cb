# SPDX-License-Identifier: Apache-2.0
"""Adapters: making what changes constants of a compiled context between runs."""
