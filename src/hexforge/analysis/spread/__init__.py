# SPDX-License-Identifier: Apache-2.0
"""Spread: one function over many tasks in this process, on local processes, or on the machines of a Ray cluster."""
