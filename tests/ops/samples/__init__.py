# SPDX-License-Identifier: Apache-2.0
"""Samples, one module per op family, each with a list SAMPLES."""
