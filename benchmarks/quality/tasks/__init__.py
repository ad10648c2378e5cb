# SPDX-License-Identifier: Apache-2.0
"""Verdicts beside what a task loses: models of packages, samples of what they see, measures of tasks."""
