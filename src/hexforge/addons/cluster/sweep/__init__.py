# SPDX-License-Identifier: Apache-2.0
"""Sweep: many models on many chips at several precisions, in one table."""
