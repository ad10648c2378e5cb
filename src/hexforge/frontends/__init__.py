# SPDX-License-Identifier: Apache-2.0
"""Frontends: what becomes graphs of QNN ops."""
