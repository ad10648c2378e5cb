# SPDX-License-Identifier: Apache-2.0
"""Bundles made of checkpoints: graphs written, weights rounded, adapters added, and the result judged."""
