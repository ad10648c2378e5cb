# SPDX-License-Identifier: Apache-2.0
"""Translators of ops that make each element from the elements at its place."""
