# SPDX-License-Identifier: Apache-2.0
"""Translators of ops that multiply and add up: products, convolutions, attention, recurrent layers, transforms."""
