# SPDX-License-Identifier: Apache-2.0
"""Tools for who works on hexforge."""
