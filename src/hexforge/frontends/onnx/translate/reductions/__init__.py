# SPDX-License-Identifier: Apache-2.0
"""Translators of ops that make one number of many: reductions, normalizations, pools."""
