# SPDX-License-Identifier: Apache-2.0
"""Decisions: what people do with a model's outputs, and whether a second model makes them do the same."""
