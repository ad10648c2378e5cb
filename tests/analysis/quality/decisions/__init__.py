# SPDX-License-Identifier: Apache-2.0
"""Decisions of two models."""
