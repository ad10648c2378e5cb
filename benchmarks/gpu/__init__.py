# SPDX-License-Identifier: Apache-2.0
"""What running a model on the gpu backend costs, by model, precision and tile."""
