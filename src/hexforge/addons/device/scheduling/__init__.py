# SPDX-License-Identifier: Apache-2.0
"""Scheduling: what several models do to each other on one accelerator, under a virtual clock."""
