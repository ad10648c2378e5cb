# SPDX-License-Identifier: Apache-2.0
"""Encodings and weights that lose less."""
