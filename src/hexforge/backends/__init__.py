# SPDX-License-Identifier: Apache-2.0
"""Backends: what runs graphs. Siblings never import each other."""
