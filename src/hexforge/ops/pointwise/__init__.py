# SPDX-License-Identifier: Apache-2.0
"""Ops that make each element from the elements at its place."""
