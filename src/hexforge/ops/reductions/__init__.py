# SPDX-License-Identifier: Apache-2.0
"""Ops that make one number of many: reductions, normalizations, pools."""
