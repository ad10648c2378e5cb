# SPDX-License-Identifier: Apache-2.0
"""Fusions: several units that become one QNN op, by subject."""
