# SPDX-License-Identifier: Apache-2.0
"""Patterns: one language for "this shape of nodes becomes that one", and the shapes that several rooms look for."""
