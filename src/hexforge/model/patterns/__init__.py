# SPDX-License-Identifier: Apache-2.0
"""Patterns: functions that a model writes out in several nodes, each recognized by one matcher."""
