# SPDX-License-Identifier: Apache-2.0
"""Advice: what would make a model faster, each idea tried by rewriting the model and simulating it again."""
