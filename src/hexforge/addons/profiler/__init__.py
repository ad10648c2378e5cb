# SPDX-License-Identifier: Apache-2.0
"""Profiler: what runs of a model's graphs did, as a record: its files, tables, traces and pages."""
