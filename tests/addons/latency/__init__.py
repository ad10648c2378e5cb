# SPDX-License-Identifier: Apache-2.0
"""Tests of what fits the HTP's costs to measured latencies."""
