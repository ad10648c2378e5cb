# SPDX-License-Identifier: Apache-2.0
"""QNN's API as data: its error codes, its enumerations and options, and its calls, each with its source.

The tables are CSV files, so that the build of the C libraries reads the same rows as Python does.
"""
