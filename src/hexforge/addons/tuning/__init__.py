# SPDX-License-Identifier: Apache-2.0
"""Tuning: a model made fast on a chip: rewrites that gain, the mix of precisions that is best, and the whole way."""
