# SPDX-License-Identifier: Apache-2.0
"""What a model would do on a chip, and what would be better: estimates, advice, quality, profiles, budgets."""
