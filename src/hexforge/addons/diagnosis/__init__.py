# SPDX-License-Identifier: Apache-2.0
"""Diagnosis: what a log means, what changed between two files, and where a device departs from what is computed."""
