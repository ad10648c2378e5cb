# SPDX-License-Identifier: Apache-2.0
"""Ops that multiply and add up: matrix products, convolutions, recurrent layers, transforms."""
