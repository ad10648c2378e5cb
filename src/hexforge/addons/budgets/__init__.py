# SPDX-License-Identifier: Apache-2.0
"""Budgets: models measured against limits and a baseline, so that a regression is seen before a phone sees it."""
